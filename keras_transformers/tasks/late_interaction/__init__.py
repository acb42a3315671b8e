"""Late interaction: its answer, head, pipeline and training."""
