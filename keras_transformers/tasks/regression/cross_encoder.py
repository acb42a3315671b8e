"""Reads and writes how sentence-transformers' CrossEncoder turns logits into scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.folder import Folder

__all__: list[str] = []

_ACTIVATIONS = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "linear",
}


def activation_options(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of `TextRegressor` from a CrossEncoder's configuration.

    Args:
        file: the configuration file, for error messages.
        config: `config.json`, or `config_sentence_transformers.json` of version 5.4 and newer.

    Returns:
        `activation` and `pair`; empty if the configuration does not come from a CrossEncoder.

    Raises:
        ValueError: the activation is not supported.
    """
    newer = config.get("sentence_transformers")
    newer = newer if isinstance(newer, dict) else {}
    values = (  # since 5.4, since 4.0 and before
        *(config.get("activation_fn"), newer.get("activation_fn")),
        config.get("sbert_ce_default_activation_function"),
    )
    name = next((value for value in values if value is not None), None)
    if name is None:
        return {"activation": "sigmoid", "pair": True} if "activation_fn" in config else {}
    if name not in _ACTIVATIONS:
        raise ValueError(
            f"{file}: the CrossEncoder's activation is {name!r}; expected one of "
            f"{', '.join(_ACTIVATIONS)}: use one of these, and apply yours to the answers"
        )
    return {"activation": _ACTIVATIONS[name], "pair": True}


def read_activation(folder: Folder) -> dict[str, Any]:
    """Returns the options of `TextRegressor` from a folder's files; see `activation_options`.

    Args:
        folder: has config.json and, in newer versions, config_sentence_transformers.json.
    """
    options: dict[str, Any] = {}
    for name in ("config.json", "config_sentence_transformers.json"):
        options |= activation_options(folder / name, folder.json(name, missing_ok=True))
    return options


def activation_fields(activation: str) -> dict[str, Any]:
    """Returns the fields of `config.json` that set a CrossEncoder's activation."""
    name = next(theirs for theirs, ours in _ACTIVATIONS.items() if ours == activation)
    return {"sentence_transformers": {"activation_fn": name}}
