"""Multi label classification: its answer, head, pipeline and training."""
