"""UMT5's counts: those of Hugging Face's UMT5ForConditionalGeneration, logits of their own."""

COUNTS = {
    "umt5_small": 306_601_984,
    "umt5_base": 592_043_520,
    "umt5_xl": 3_768_356_864,
    "umt5_xxl": 12_972_531_712,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "umt5_small": {"vocabulary_size": 1000, "num_encoder_layers": 2, "num_decoder_layers": 1},
}
PAPERS = ("Chung",)
