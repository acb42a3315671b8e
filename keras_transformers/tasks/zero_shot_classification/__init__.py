"""Zero-shot classification: its answer and pipeline."""
