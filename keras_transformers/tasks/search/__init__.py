"""Search: its answer, a corpus, indexes of it, and the pipeline."""
