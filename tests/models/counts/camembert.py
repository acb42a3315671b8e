"""CamemBERT's counts: those of Hugging Face's CamembertModel, with pooler and 514 positions."""

COUNTS = {"camembert_base": 110_621_952, "camembert_large": 336_661_504}
# Built in every run, with fewer layers and rows.
BUILT = {"camembert_base": {"vocabulary_size": 1000, "num_layers": 1}}
PAPERS = ("Martin",)
