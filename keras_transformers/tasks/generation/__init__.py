"""Generation: its answer, head, pipeline and training."""
