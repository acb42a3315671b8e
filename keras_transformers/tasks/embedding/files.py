"""Opens and saves sentence-transformers' folders: an encoder and how to pool its outputs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import save_huggingface
from keras_transformers.convert.formats.sentence_transformers import (
    MODULES,
    SETTINGS,
    Written,
    module_kinds,
    open_transformer,
    read_modules,
    read_prompts,
    size_of,
    write_modules,
)
from keras_transformers.convert.formats.weights import (
    Format,
    FoundWeights,
    TrainedModel,
    all_formats,
)
from keras_transformers.convert.tensors import TRANSPOSED, NamedTensor, assign
from keras_transformers.tasks.embedding.head import embedder_parts

__all__: list[str] = []

# The modules that can be read.
_KINDS = frozenset({"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"})
# The fields of old versions -> modes of pooling, in the order in which their vectors are joined.
_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# PyTorch's class for a Dense module's activation -> ours.
_ACTIVATIONS = {
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "linear",
}
_VECTOR = "sentence_embedding"  # the vector that modules after the pooling read and write
_LAYER_NORM_EPSILON = 1e-5  # PyTorch's


def open_sentence_transformers(folder: Folder) -> FoundWeights:
    """Opens a folder that sentence-transformers saved: an embedder or a CrossEncoder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the folder has a module, pooling or option that
            `heads.embedder` lacks.
    """
    modules = read_modules(folder)
    kinds = [kind for kind, _ in modules]
    after = _KINDS - {"Transformer", "Pooling"}
    if kinds != ["Transformer"] and (
        kinds[:2] != ["Transformer", "Pooling"] or not after.issuperset(kinds[2:])
    ):
        raise ValueError(
            f"{folder / MODULES}: modules {', '.join(kinds) or 'none'}; only Transformer, Pooling "
            f"and then any of {', '.join(sorted(after))} are supported, or only Transformer for a "
            "CrossEncoder"
        )
    _, first = modules[0]
    encoder = open_transformer(folder, first)
    settings_file, settings = folder / SETTINGS, folder.json(SETTINGS, missing_ok=True)
    if len(modules) == 1:
        if not encoder.heads.lower().endswith("forsequenceclassification"):
            raise ValueError(
                f"{folder / MODULES}: a single Transformer means a CrossEncoder, but "
                f"{first / 'config.json'} has no head for it: remove {MODULES} to load the encoder"
            )
        return encoder
    _, of_pooling = modules[1]
    pooling_file, pooling = of_pooling / "config.json", of_pooling.json("config.json")
    others = modules[2:]
    normalize = bool(others) and others[-1][0] == "Normalize"
    projections = others[:-1] if normalize else others
    options = {
        "pooling": _pooling(pooling_file, pooling),
        "normalize": normalize,
        **read_prompts(settings_file, settings, includes=pooling.get("include_prompt", True)),
    }
    if projections:
        options["projections"] = [_projection(kind, place) for kind, place in projections]
    if settings.get("truncate_dim") is not None:
        options["truncate_dim"] = size_of(settings_file, "truncate_dim", settings)
    return dataclasses.replace(encoder, trained=("embedding",), options=options)


def save_sentence_transformers(trained: TrainedModel, folder: Path) -> None:
    """Saves a model from `heads.embedder` for SentenceTransformer and `keras_transformers.load`.

    Args:
        trained: the model and its tokenizer.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for the encoder, or sentence-transformers no module
            for a layer after the pooling.
    """
    parts = embedder_parts(trained.model)
    encoder = dataclasses.replace(trained, model=parts.encoder, options={})
    head = {name: value for name, value in vars(parts).items() if name != "encoder"}
    with_head = dataclasses.replace(encoder, options={**trained.options, **head})
    if any(form.save is not None and form.save(with_head, folder) for form in all_formats()):
        return
    save_huggingface(encoder, folder)
    width = parts.encoder.output["sequence_output"].shape[-1]
    pooling: dict[str, Any] = {field: mode in parts.pooling for field, mode in _POOLINGS.items()}
    if [mode for mode in _POOLINGS.values() if mode in parts.pooling] != list(parts.pooling):
        pooling = {"pooling_mode": list(parts.pooling)}  # versions before 5.4 expected this order
    after = [Written("Pooling", {"word_embedding_dimension": width, **pooling}, {})]
    after += map(module_of, parts.projections)
    if parts.normalize:
        after.append(Written("Normalize", {}, {}))
    settings: dict[str, Any] = {"similarity_fn_name": "cosine" if parts.normalize else "dot"}
    if parts.truncate_dim is not None:
        settings["truncate_dim"] = parts.truncate_dim
    write_modules(trained, folder, after, settings)


def _pooling(file: Path, config: Mapping[str, Any]) -> str | tuple[str, ...]:
    """Returns the mode or modes of pooling, from the fields of any version."""
    pooling = config.get("pooling_mode")
    if isinstance(pooling, str):
        pooling = [pooling]
    if pooling is None:
        fields = [name for name, on in config.items() if name.startswith("pooling_mode_") and on]
        unknown = sorted(set(fields) - _POOLINGS.keys())
        pooling = unknown or [mode for name, mode in _POOLINGS.items() if name in fields]
    modes = _POOLINGS.values()
    if not isinstance(pooling, list) or not pooling or not all(mode in modes for mode in pooling):
        raise ValueError(
            f"{file}: pooling by {pooling or 'nothing'}; expected one or more of {', '.join(modes)}"
        )
    return pooling[0] if len(pooling) == 1 else tuple(pooling)


def _projection(kind: str, folder: Folder) -> keras.layers.Layer:
    """Makes the layer of a module after the pooling, with its weights."""
    if kind == "Normalize":
        return keras.layers.UnitNormalization(dtype="float32")
    file, config, arrays = folder / "config.json", folder.json("config.json"), folder.arrays
    if kind == "LayerNorm":
        width = size_of(file, "dimension", config)
        layer: Any = keras.layers.LayerNormalization(epsilon=_LAYER_NORM_EPSILON, dtype="float32")
        layer.build((None, width))
        names = [
            NamedTensor("norm.weight", (layer.gamma,)),
            NamedTensor("norm.bias", (layer.beta,)),
        ]
    else:
        layer = dense_layer(file, config, arrays)
        names = [NamedTensor("linear.weight", (layer.kernel,), TRANSPOSED)]
        if layer.use_bias:
            names.append(NamedTensor("linear.bias", (layer.bias,)))
    assign(names, arrays)
    return layer


def dense_layer(file: Path, config: Mapping[str, Any], arrays: Arrays) -> keras.layers.Dense:
    """Returns a Dense module as a built layer, without its weights."""
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{file}: activation_function={activation!r}; expected one of {', '.join(_ACTIVATIONS)}"
        )
    for name in ("module_input_name", "module_output_name"):
        if config.get(name, _VECTOR) not in (_VECTOR, None):
            raise ValueError(f"{file}: {name}={config[name]!r}; only {_VECTOR!r} is supported")
    if config.get("use_residual"):
        raise ValueError(f"{file}: use_residual=true is not supported")
    if not isinstance(config.get("bias", True), bool):
        raise ValueError(f"{file}: bias={config['bias']!r}; expected true or false")
    widths = [size_of(file, name, config) for name in ("in_features", "out_features")]
    shape = arrays.shapes.get("linear.weight")
    if shape not in (None, tuple(reversed(widths))):  # before creating weights of a mistaken size
        raise ValueError(
            f"{file}: {widths[0]} to {widths[1]} dimensions, but its weights have shape {shape}"
        )
    layer = keras.layers.Dense(
        widths[1],
        activation=_ACTIVATIONS[activation],
        use_bias=config.get("bias", True),
        dtype="float32",
    )
    layer.build((None, widths[0]))
    return layer


def module_of(layer: Any) -> Written:
    """Returns a layer as a module."""
    if isinstance(layer, keras.layers.UnitNormalization):
        return Written("Normalize", {}, {})
    arrays = [keras.ops.convert_to_numpy(weight) for weight in layer.weights]
    if isinstance(layer, keras.layers.LayerNormalization):
        if len(arrays) == 2 and layer.epsilon == _LAYER_NORM_EPSILON:
            names = ("norm.weight", "norm.bias")
            config: dict[str, Any] = {"dimension": len(arrays[0])}
            return Written("LayerNorm", config, dict(zip(names, arrays, strict=True)))
    elif isinstance(layer, keras.layers.Dense):
        ours = layer.activation.__name__
        named = next((theirs for theirs, name in _ACTIVATIONS.items() if name == ours), None)
        if named is not None:
            kernel = np.ascontiguousarray(arrays[0].T)
            names = ("linear.weight", "linear.bias")
            tensors = dict(zip(names, (kernel, *arrays[1:]), strict=False))
            sizes = {"in_features": kernel.shape[1], "out_features": kernel.shape[0]}
            config = {**sizes, "bias": layer.use_bias, "activation_function": named}
            return Written("Dense", config, tensors)
    raise ValueError(
        f"sentence-transformers has no module for layer {layer.name!r}: save the pipeline in the "
        "format 'keras_transformers'"
    )


def _recognises(folder: Folder) -> bool:
    if not (folder / MODULES).is_file():
        return False
    if module_kinds(folder) <= _KINDS:
        return True
    # Folders with other modules are those of other tasks, or else refused by name here.
    others = (other for other in all_formats() if other is not FORMAT)
    return not any(other.recognises(folder) for other in others)


FORMAT = Format(
    "sentence-transformers' modules.json",
    _recognises,
    open_sentence_transformers,
)
