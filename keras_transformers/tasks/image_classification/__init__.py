"""Image classification: its answer, head, pipeline and training."""
