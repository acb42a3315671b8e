"""Tagging: its answer, head, pipeline and training."""
