"""Multiple choice: its answer, head, pipeline and training."""
