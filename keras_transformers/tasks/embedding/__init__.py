"""Embedding: its answer, head, pipeline and training."""
