"""DistilBERT's counts: those of Hugging Face's DistilBertModel."""

COUNTS = {"distilbert_base": 66_362_880, "distilbert_base_multilingual": 134_734_080}
# Built in every run, with fewer layers and rows.
BUILT = {"distilbert_base": {"vocabulary_size": 1000, "num_layers": 1}}
PAPERS = ("Sanh",)
