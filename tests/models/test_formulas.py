"""Every option of every family's builder: the family's formula counts what is built."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from keras_transformers.dependencies.private_api import without_values
from keras_transformers.layers import RotaryScaling
from keras_transformers.models.registry import all_entries

# One entry of each family: its other sizes have the same builder and formula.
FAMILIES = {found.family: found for found in reversed(all_entries().values())}
# Small values for the arguments of all builders.
TINY = {
    "vocabulary_size": 11,
    "num_layers": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "num_key_value_heads": 1,
    "num_highways": 1,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "embedding_dim": 6,
    "encoder_hidden_dim": None,
    "head_dim": 4,
    "max_sequence_length": 10,
    "num_segments": 2,
    "num_buckets": 8,
    "image_size": 8,
    "patch_size": 4,
    "stem_filters": (),
    "lstm_dim": 12,
    "projection_dim": 6,
    "filters": ((1, 2), (2, 3)),
    "num_characters": 9,
    "max_characters": 5,
    "character_dim": 3,
    "windows": (),
    "rotary_layers": (),
    "rotary_scaling": None,
    "bidirectional": False,
    "attention": "general",
    "context": "initial_state",
    "bridge": "dense",
    "readout_dim": 6,
    "readout_activation": "tanh",
}
# Other values for arguments whose type does not say which.
OTHERS = {
    "windows": [(2, None)],
    "rotary_layers": [(True, False)],
    "distance_terms": [("c2p",), ("p2c",)],
    "convolution_width": [3],
    "rotary_scaling": [RotaryScaling(kind="linear", factor=2.0)],
    "stem_filters": [(3,)],
    "filters": [((1, 4),)],
    "image_size": [16, (8, 16)],
    "pixel_mean": [(0.1, 0.2, 0.3)],
    "pixel_std": [(0.1, 0.2, 0.3)],
    "activation": ["tanh"],
    "pad_token_id": [1],
    "num_key_value_heads": [2, None],
    "intermediate_dim": [24, None],
}
# What else must change with an argument.
WITH = {
    "target_vocabulary_size": {"weight_tying": "decoder"},
    "attention_dim": {"attention": "additive"},
    "context_from": {"attention": None},
    "query_key_norm_over": {"query_key_norm": True},
}


def variations(name: str, parameter: inspect.Parameter) -> Iterator[object]:
    """Yields other values for an argument."""
    default = TINY.get(name, parameter.default)
    if name in OTHERS:
        optional = type(None) in typing.get_args(parameter.annotation)
        yield from (value for value in OTHERS[name] if value is not None or optional)
        return
    for kind in (parameter.annotation, *typing.get_args(parameter.annotation)):
        if kind is bool:
            yield not default
        elif kind is int:
            yield 2 * default if default else 6
        elif kind is float:
            yield 0.5 * default if default else 0.25
        elif kind is type(None) and default is not None:
            yield None
        elif typing.get_origin(kind) is typing.Literal:
            yield from (choice for choice in typing.get_args(kind) if choice != default)


def builds() -> Iterator[Any]:
    """Yields a family, and arguments that differ from the small ones in one option."""
    for family, found in FAMILIES.items():
        parameters = dict(inspect.signature(found.factory).parameters)
        del parameters["name"]
        tiny = {name: value for name, value in TINY.items() if name in parameters}
        yield pytest.param(family, tiny, id=family)
        for name, parameter in parameters.items():
            others = list(variations(name, parameter))
            assert others, f"{family}: add other values for {name} to OTHERS"
            for value in others:
                arguments = {**tiny, **WITH.get(name, {}), name: value}
                # Rates and other fractions: none but one adds a weight.
                marks = [pytest.mark.slow] if isinstance(value, float) else []
                yield pytest.param(family, arguments, id=f"{family}-{name}={value}", marks=marks)


@pytest.mark.parametrize(("family", "arguments"), builds())
def test_the_formula_counts_what_is_built(family, arguments):
    found = FAMILIES[family]
    with without_values():
        built = found.factory(**arguments).count_params()
    counted = inspect.signature(found.count).parameters
    sizes = {name: value for name, value in arguments.items() if name in counted}
    assert found.count(**sizes) == built
