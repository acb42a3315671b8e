"""XLM-RoBERTa's counts: those of Hugging Face's XLMRobertaModel, with pooler and 514 positions."""

COUNTS = {"xlm_roberta_base": 278_043_648, "xlm_roberta_large": 559_890_432}
# Built in every run, with fewer layers and rows.
BUILT = {"xlm_roberta_base": {"vocabulary_size": 1000, "num_layers": 1}}
PAPERS = ("Conneau",)
