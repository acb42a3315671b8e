"""Replaced tokens: its answer, head, pipeline and training."""
