"""Fill mask: its answer, head, pipeline and training."""
