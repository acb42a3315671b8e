"""ModernBERT's counts: those of Hugging Face's ModernBertModel in the same shapes."""

COUNTS = {
    "modern_bert_base": 149_014_272,
    "modern_bert_large": 394_781_696,
    "modern_bert_tiny": 7_284_352,
}
# Built in every run, with fewer layers and rows.
BUILT = {"modern_bert_base": {"vocabulary_size": 1000, "num_layers": 4}}
PAPERS = ("Warner",)
