"""RoBERTa's counts: those of Hugging Face's RobertaModel, pooler and 514 positions included."""

COUNTS = {"roberta_base": 124_645_632, "roberta_large": 355_359_744}
# Built in every run, with fewer layers and rows.
BUILT = {"roberta_base": {"vocabulary_size": 1000, "num_layers": 1}}
PAPERS = ("Liu",)
