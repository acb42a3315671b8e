"""Regression: its answer, head, pipeline and training."""
