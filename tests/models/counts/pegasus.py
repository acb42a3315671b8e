"""PEGASUS's count: Hugging Face's parameters without sinusoids, and the bias, a buffer there."""

COUNTS = {"pegasus_large": 568_699_904 + 96_103}
# Built in every run, with fewer layers and rows.
BUILT = {
    "pegasus_large": {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1}
}
PAPERS = ("Zhang",)
