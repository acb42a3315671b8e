"""Sparse embedding: its answer, head, pipeline and training."""
