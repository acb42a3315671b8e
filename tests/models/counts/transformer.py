"""The Transformer's counts: V = 37,000, one shared matrix, attention biases, post-norm."""

COUNTS = {
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
    "transformer_tiny": 6_061_056,
}
BUILT = {"transformer_tiny": {"num_encoder_layers": 1, "num_decoder_layers": 2}}
PAPERS = ("Vaswani",)
