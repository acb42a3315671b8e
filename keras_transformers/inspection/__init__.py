"""What a model is made of, parameters by layer and formula; and what it looks at."""

from keras_transformers.inspection.attention import attention_picture, attention_pictures
from keras_transformers.inspection.parameters import (
    ParameterRow,
    agrees_with_figure,
    parameter_table,
)

__all__ = [
    "ParameterRow",
    "agrees_with_figure",
    "attention_picture",
    "attention_pictures",
    "parameter_table",
]
