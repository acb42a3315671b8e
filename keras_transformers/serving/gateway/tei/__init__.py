"""Answers the requests of Text Embeddings Inference's clients.

https://huggingface.github.io/text-embeddings-inference documents the API. Its servers have one
model; here the path of each request may start with /models/NAME, and without that, the only model
that can answer does.
"""
