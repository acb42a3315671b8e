"""Classification: its answer, head, pipeline and training."""
