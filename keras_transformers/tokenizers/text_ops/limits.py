"""Says what both forms of WordPiece refuse."""

LONGEST_WORD = 100  # in characters, as in BERT; longer words are unknown
