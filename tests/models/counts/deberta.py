"""DeBERTa's counts: those of Hugging Face's DebertaV2Model, without a pooler."""

COUNTS = {
    "deberta_v3_xsmall": 70_682_112,
    "deberta_v3_small": 141_304_320,
    "deberta_v3_base": 183_831_552,
    "deberta_v3_large": 434_012_160,
    "deberta_v2_xlarge": 884_593_152,
    "deberta_v2_xxlarge": 1_564_549_632,
}
# Built in every run, with fewer layers and rows.
BUILT = {
    "deberta_v3_xsmall": {"vocabulary_size": 1000, "num_layers": 1},
    "deberta_v2_xlarge": {
        "vocabulary_size": 100,
        "num_layers": 1,
        "hidden_dim": 24,
    },
}
PAPERS = ("He",)
