"""Defines the lists that every library trains on, and the folder of a tiny BERT."""

import os

FOLDER = os.environ["TINY_BERT"]

TEXTS = ["a warm film", "a dull film", "a long warm story", "a sad long story"] * 8
LABELS = ["good", "bad", "good", "bad"] * 8
NEW_TEXTS, NEW_LABELS = TEXTS[:8], LABELS[:8]

LABEL_SETS = [["warm"], [], ["long", "warm"], ["sad", "long"]] * 8
NEW_LABEL_SETS = LABEL_SETS[:8]

WORDS = [["she", "lives", "in", "new", "york"], ["a", "film", "of", "paris"]] * 16
TAGS = [["O", "O", "O", "B-LOC", "I-LOC"], ["O", "O", "O", "B-LOC"]] * 16
NEW_WORDS, NEW_TAGS = WORDS[:4], TAGS[:4]

QUESTIONS = [f"where is {name}" for name in ("paris", "york", "rome", "oslo")]
ANSWERS = [f"{name} is in the north" for name in ("paris", "york", "rome", "oslo")]
NEW_QUESTIONS, NEW_ANSWERS = QUESTIONS, ANSWERS

QUERIES = [question for question in QUESTIONS for _ in range(4)]
DOCUMENTS = ANSWERS * 4
RELEVANT = [float(row == column) for row in range(4) for column in range(4)]
NEW_QUERIES, NEW_DOCUMENTS, NEW_RELEVANT = QUERIES, DOCUMENTS, RELEVANT
