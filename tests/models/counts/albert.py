"""ALBERT's counts: those of Hugging Face's AlbertModel, for any number of layers."""

COUNTS = {
    "albert_base": 11_683_584,
    "albert_large": 17_683_968,
    "albert_xlarge": 58_724_864,
    "albert_xxlarge": 222_595_584,
}
# Built in every run, with fewer rows.
BUILT = {"albert_base": {"vocabulary_size": 1000}}
PAPERS = ("Lan",)
