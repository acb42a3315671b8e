"""Serving SavedModels: a client for TF Serving, and a local server that speaks its protocol.

`Client` asks TF Serving, or the local server, by REST or gRPC. `keras-transformers serve` is the
local server, for development and small use; TF Serving is the production server. All of it needs
the extra `serving` and works on SavedModels alone: no model of ours is ever imported here.

    client    asks
    server    answers
    protocol  what both must agree on
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, extra="serving")
