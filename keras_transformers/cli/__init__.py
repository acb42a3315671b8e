"""The `keras-transformers` command: parses, calls, prints."""
