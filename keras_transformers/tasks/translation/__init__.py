"""Translation: its answer, head, pipeline and training."""
