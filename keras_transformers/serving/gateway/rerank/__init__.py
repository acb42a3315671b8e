"""Answers the requests of Jina's and Cohere's clients for reranking.

https://api.jina.ai/redoc and https://docs.cohere.com/reference/rerank document the APIs. Both have
a /v1/rerank, which here takes the fields of both and answers with the fields of both; /v2/rerank is
Cohere's.
"""
