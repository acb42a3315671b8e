"""What a model is made of, parameters and FLOPs by layer; and what it looks at."""

from keras_transformers.inspection.attention import attention_picture, attention_pictures
from keras_transformers.inspection.flops import (
    FlopsRow,
    UpdateCost,
    flops_table,
    forward_flops,
    training_flops,
    update_cost,
)
from keras_transformers.inspection.parameters import (
    ParameterRow,
    agrees_with_figure,
    parameter_table,
)

__all__ = [
    "FlopsRow",
    "ParameterRow",
    "UpdateCost",
    "agrees_with_figure",
    "attention_picture",
    "attention_pictures",
    "flops_table",
    "forward_flops",
    "parameter_table",
    "training_flops",
    "update_cost",
]
