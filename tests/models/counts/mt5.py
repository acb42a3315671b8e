"""mT5's counts: those of Hugging Face's MT5ForConditionalGeneration with logits of their own."""

COUNTS = {
    "mt5_small": 300_176_768,
    "mt5_base": 582_401_280,
    "mt5_large": 1_229_581_312,
    "mt5_xl": 3_742_619_648,
    "mt5_xxl": 12_921_057_280,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "mt5_small": {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1},
}
PAPERS = ("Xue",)
