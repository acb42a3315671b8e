"""fastText's counts: 2,100,000 rows of 100, and 10,100,000 of 10, without the classifier."""

COUNTS = {"fasttext_base": 210_000_000, "fasttext_10": 101_000_000}
# Built in every run, with fewer rows.
BUILT = {"fasttext_10": {"vocabulary_size": 1000}}
PAPERS = ("Joulin",)
