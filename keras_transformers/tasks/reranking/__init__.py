"""Reranking: its answer, head, pipeline and training."""
