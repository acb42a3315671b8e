"""MPNet's count: that of Hugging Face's MPNetModel, pooler and 514 positions included."""

COUNTS = {"mpnet_base": 109_486_464}
# Built in every run, with fewer layers and rows.
BUILT = {"mpnet_base": {"vocabulary_size": 1000, "num_layers": 1}}
PAPERS = ("Song",)
