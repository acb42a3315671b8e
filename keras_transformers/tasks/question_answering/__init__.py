"""Question answering: its answer, head, pipeline and training."""
