"""The family Echo: its model, and its files in Hugging Face's layout."""
