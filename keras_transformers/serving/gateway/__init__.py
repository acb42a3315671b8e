"""Answers the requests of OpenAI's, Text Embeddings Inference's and KServe's clients.

It holds no model: texts go to the signatures of exports, which TF Serving or the local server runs.
`keras-transformers gateway` runs it in front of such servers; `keras-transformers serve` has the
same routes in front of its own engine.

    backend      what the routes ask: the interface, and the models that it serves
    servers      a backend of servers, over REST or gRPC, each with replicas
    application  all routes, as an ASGI application
    apis         what is the same for all APIs: bodies, refusals, limits
    openai tei rerank kserve  the routes and types of each API
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
