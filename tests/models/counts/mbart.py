"""mBART's counts: Hugging Face's parameters and the bias, which is a buffer there."""

COUNTS = {
    "mbart_large_cc25": 610_851_840 + 250_027,
    "mbart_large_50": 610_879_488 + 250_054,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "mbart_large_50": {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1}
}
PAPERS = ("Liu", "Tang")
