"""Reads and writes pipelines: their weights, tokenizers and options."""
