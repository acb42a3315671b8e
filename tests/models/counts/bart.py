"""BART's counts: Hugging Face's parameters and the bias, which is a buffer there."""

COUNTS = {"bart_base": 139_420_416 + 50_265, "bart_large": 406_291_456 + 50_265}
# Built in every run, with fewer layers and rows.
BUILT = {"bart_base": {"vocabulary_size": 1000, "num_encoder_layers": 1, "num_decoder_layers": 1}}
PAPERS = ("Lewis",)
