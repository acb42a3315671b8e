"""Answers the requests of OpenAI's clients: chat, completions, embeddings, models.

https://platform.openai.com/docs/api-reference documents the API.
"""
