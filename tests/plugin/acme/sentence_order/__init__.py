"""The task of sentence order: its answer, head, pipeline, training and recipe."""
