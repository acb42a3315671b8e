"""The layers that the models are made of. They speak `keras.ops` only and run on every backend."""

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.decoder import DecoderLayer
from keras_transformers.layers.dense import AddBias, RowDense
from keras_transformers.layers.embeddings import (
    PositionEmbedding,
    SinusoidalPositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.encoder import EncoderLayer
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.patches import ClassToken, PatchEmbedding
from keras_transformers.layers.select import FirstTokenPooler, GatherPositions, PaddingMask

__all__ = [
    "AddBias",
    "ClassToken",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "FirstTokenPooler",
    "GatherPositions",
    "MultiHeadAttention",
    "PaddingMask",
    "PatchEmbedding",
    "PositionEmbedding",
    "RowDense",
    "SinusoidalPositionEmbedding",
    "TokenEmbedding",
]
