"""Serves SavedModels: a client for TF Serving, and a local server that speaks its protocol.

`Client` talks to TF Serving or to the local server, over REST or gRPC. `keras-transformers serve`
runs the local server, for development and small use; TF Serving is the production server. Both need
the extra `serving` and only work with SavedModels: nothing here imports this package's models.

    client    sends requests
    server    answers them
    protocol  shared by both
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
