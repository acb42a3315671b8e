"""What a model is made of: parameters, layer by layer, with the formulas they come from."""

from keras_transformers.inspection.parameters import (
    ParameterRow,
    agrees_with_figure,
    parameter_table,
)

__all__ = ["ParameterRow", "agrees_with_figure", "parameter_table"]
