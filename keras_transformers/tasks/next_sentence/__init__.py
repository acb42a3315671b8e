"""Next sentence: its answer, head, pipeline and training."""
