"""Opens and saves sentence-transformers' folders: an encoder and how to pool its outputs."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import keras
import numpy as np
from safetensors.numpy import save_file

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import open_huggingface, save_huggingface
from keras_transformers.convert.formats.weights import Format, FoundWeights, TrainedModel
from keras_transformers.convert.tensors import TRANSPOSED, NamedTensor, assign
from keras_transformers.files import may_be_name, read_json_list, write_json
from keras_transformers.tasks.embedding.head import embedder_parts

__all__: list[str] = []

_MODULES = "modules.json"
_LENGTH = "sentence_bert_config.json"
# Its names in older versions, in the order in which sentence-transformers tries them.
_LENGTHS = (
    _LENGTH,
    *("sentence_roberta_config.json", "sentence_distilbert_config.json"),
    *("sentence_camembert_config.json", "sentence_albert_config.json"),
    *("sentence_xlm-roberta_config.json", "sentence_xlnet_config.json"),
)
_SETTINGS = "config_sentence_transformers.json"
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
_MOST_DIMENSIONS = 1 << 16  # so that a damaged number cannot take all memory


def open_sentence_transformers(folder: Folder) -> FoundWeights:
    """Opens a folder that sentence-transformers saved: an embedder or a CrossEncoder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the folder has a module, pooling or option that
            `heads.embedder` lacks.
    """
    modules = _modules(folder)
    _, first = modules[0]
    encoder = dataclasses.replace(open_huggingface(first), source=folder.path)
    name = next((name for name in _LENGTHS if (first / name).is_file()), _LENGTH)
    file, config = first / name, first.json(name, missing_ok=True)
    encoder = dataclasses.replace(
        encoder,
        max_sequence_length=_length(file, config, encoder),
        tokenizers=_lowercasing(file, config, encoder),
    )
    settings_file, settings = folder / _SETTINGS, folder.json(_SETTINGS, missing_ok=True)
    if len(modules) == 1:
        if not encoder.heads.lower().endswith("forsequenceclassification"):
            raise ValueError(
                f"{folder / _MODULES}: a single Transformer means a CrossEncoder, but "
                f"{first / 'config.json'} has no head for it: remove {_MODULES} to load the encoder"
            )
        return encoder
    _, of_pooling = modules[1]
    pooling_file, pooling = of_pooling / "config.json", of_pooling.json("config.json")
    after = modules[2:]
    normalize = bool(after) and after[-1][0] == "Normalize"
    projections = after[:-1] if normalize else after
    options = {
        "pooling": _pooling(pooling_file, pooling),
        "normalize": normalize,
        **_prompts(settings_file, settings, includes=pooling.get("include_prompt", True)),
    }
    if projections:
        options["projections"] = [_projection(kind, place) for kind, place in projections]
    if settings.get("truncate_dim") is not None:
        options["truncate_dim"] = _size(settings_file, "truncate_dim", settings)
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
    save_huggingface(encoder, folder)
    width = parts.encoder.output["sequence_output"].shape[-1]
    pooling: dict[str, Any] = {field: mode in parts.pooling for field, mode in _POOLINGS.items()}
    if [mode for mode in _POOLINGS.values() if mode in parts.pooling] != list(parts.pooling):
        pooling = {"pooling_mode": list(parts.pooling)}  # versions before 5.4 expected this order
    kinds = ["Transformer", "Pooling"]
    configs = [{}, {"word_embedding_dimension": width, **pooling}]
    weights: list[dict[str, np.ndarray]] = [{}, {}]
    for layer in parts.projections:
        kind, config, arrays = _module_of(layer)
        kinds, configs, weights = [*kinds, kind], [*configs, config], [*weights, arrays]
    if parts.normalize:
        kinds, configs, weights = [*kinds, "Normalize"], [*configs, {}], [*weights, {}]
    places = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds) if index)]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": place,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]
    write_json(folder / _MODULES, modules)
    for place, config, arrays in list(zip(places, configs, weights, strict=True))[1:]:
        (folder / place).mkdir()
        if config:
            write_json(folder / place / "config.json", config)
        if arrays:
            save_file(arrays, folder / place / "model.safetensors", {"format": "pt"})
    length = {"max_seq_length": trained.max_sequence_length, "do_lower_case": False}
    write_json(folder / _LENGTH, length)
    settings: dict[str, Any] = {
        "prompts": trained.options.get("prompts", {}),
        "default_prompt_name": trained.options.get("default_prompt_name"),
        "similarity_fn_name": "cosine" if parts.normalize else "dot",
    }
    if parts.truncate_dim is not None:
        settings["truncate_dim"] = parts.truncate_dim
    write_json(folder / _SETTINGS, settings)


def _modules(folder: Folder) -> list[tuple[str, Folder]]:
    """Returns the kind and folder of each module, in order.

    Raises:
        ValueError: the file is damaged, or the modules are neither a single Transformer nor a
            Transformer, a Pooling and modules that may follow it.
    """
    file = folder / _MODULES
    modules: list[tuple[str, Folder]] = []
    for module in read_json_list(file):
        fields = module if isinstance(module, dict) else {}
        kind, path = fields.get("type"), fields.get("path", "")
        if not isinstance(kind, str) or not isinstance(path, str):
            raise ValueError(f"{file}: a module needs a type and a path, not {module!r}")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{file}: path {path!r:.100} points outside the folder")
        if not all(map(may_be_name, PurePosixPath(path).parts)):
            raise ValueError(f"{file}: path {path!r:.100} is not a valid folder")
        # "sentence_transformers.models.Pooling", or "sentence_transformers.sentence_transformer
        # .modules.pooling.Pooling"; modules from other packages are foreign code.
        is_theirs = kind.startswith("sentence_transformers.")
        place = Folder(folder / path) if PurePosixPath(path).parts else folder
        modules.append((kind.rpartition(".")[2] if is_theirs else kind, place))
    kinds = [kind for kind, _ in modules]
    after = {"Dense", "LayerNorm", "Normalize"}
    if kinds != ["Transformer"] and (
        kinds[:2] != ["Transformer", "Pooling"] or not after.issuperset(kinds[2:])
    ):
        raise ValueError(
            f"{file}: modules {', '.join(kinds) or 'none'}; only Transformer, Pooling and then any "
            f"of {', '.join(sorted(after))} are supported, or only Transformer for a CrossEncoder"
        )
    return modules


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


def _prompts(file: Path, settings: Mapping[str, Any], *, includes: bool) -> dict[str, Any]:
    """Returns the options `prompts` and `default_prompt_name` of `Embedder`."""
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ValueError(f"{file}: prompts={prompts!r:.100}; expected names and texts")
    if default is not None and default not in prompts:
        raise ValueError(
            f"{file}: default_prompt_name={default!r} is not one of the prompts "
            f"{', '.join(prompts) or '(there are none)'}"
        )
    if not any(prompts.values()):  # the default of 5.x: two empty prompts
        return {}
    if not includes:
        raise ValueError(
            f"{file}: pooling without the prompts (include_prompt=false) is not supported: set "
            "prompts to {} there to embed texts without prompts"
        )
    return {"prompts": prompts, "default_prompt_name": default}


def _projection(kind: str, folder: Folder) -> keras.layers.Layer:
    """Makes the layer of a module after the pooling, with its weights."""
    if kind == "Normalize":
        return keras.layers.UnitNormalization(dtype="float32")
    file, config, arrays = folder / "config.json", folder.json("config.json"), folder.arrays
    if kind == "LayerNorm":
        width = _size(file, "dimension", config)
        layer: Any = keras.layers.LayerNormalization(epsilon=_LAYER_NORM_EPSILON, dtype="float32")
        layer.build((None, width))
        names = [
            NamedTensor("norm.weight", (layer.gamma,)),
            NamedTensor("norm.bias", (layer.beta,)),
        ]
    else:
        layer = _dense(file, config, arrays)
        names = [NamedTensor("linear.weight", (layer.kernel,), TRANSPOSED)]
        if layer.use_bias:
            names.append(NamedTensor("linear.bias", (layer.bias,)))
    assign(names, arrays)
    return layer


def _dense(file: Path, config: Mapping[str, Any], arrays: Arrays) -> keras.layers.Dense:
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
    widths = [_size(file, name, config) for name in ("in_features", "out_features")]
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


def _module_of(layer: Any) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Returns the kind, configuration and weights of a layer as a module."""
    if isinstance(layer, keras.layers.UnitNormalization):
        return "Normalize", {}, {}
    arrays = [keras.ops.convert_to_numpy(weight) for weight in layer.weights]
    if isinstance(layer, keras.layers.LayerNormalization):
        if len(arrays) == 2 and layer.epsilon == _LAYER_NORM_EPSILON:
            names = ("norm.weight", "norm.bias")
            config: dict[str, Any] = {"dimension": len(arrays[0])}
            return "LayerNorm", config, dict(zip(names, arrays, strict=True))
    elif isinstance(layer, keras.layers.Dense):
        ours = layer.activation.__name__
        named = next((theirs for theirs, name in _ACTIVATIONS.items() if name == ours), None)
        if named is not None:
            kernel = np.ascontiguousarray(arrays[0].T)
            names = ("linear.weight", "linear.bias")
            tensors = dict(zip(names, (kernel, *arrays[1:]), strict=False))
            sizes = {"in_features": kernel.shape[1], "out_features": kernel.shape[0]}
            return "Dense", {**sizes, "bias": layer.use_bias, "activation_function": named}, tensors
    raise ValueError(
        f"sentence-transformers has no module for layer {layer.name!r}: save the pipeline in the "
        "format 'keras_transformers'"
    )


def _size(file: Path, name: str, config: Mapping[str, Any]) -> int:
    """Returns a number of dimensions; ValueError if it is out of range."""
    value = config.get(name)
    if type(value) is not int or not 0 < value <= _MOST_DIMENSIONS:
        raise ValueError(
            f"{file}: {name}={value!r}; expected a number from 1 to {_MOST_DIMENSIONS}"
        )
    return value


def _length(file: Path, config: Mapping[str, Any], encoder: FoundWeights) -> int | None:
    """Returns the maximum length in sentence_bert_config.json, or else the tokenizer's."""
    length = config.get("max_seq_length")
    if length is None:
        return encoder.max_sequence_length
    if type(length) is not int or length < 1:
        raise ValueError(f"{file}: max_seq_length={length!r}; expected a number above 0")
    return length


def _lowercasing(
    file: Path, config: Mapping[str, Any], encoder: FoundWeights
) -> Callable[..., tuple[Any, ...]]:
    """Returns the function that makes the tokenizers, which must lower-case if the file says so."""
    if not config.get("do_lower_case"):
        return encoder.tokenizers

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        tokenizers = encoder.tokenizers(lowercase)
        for tokenizer in tokenizers:
            if not getattr(tokenizer, "lowercase", False):
                raise ValueError(
                    f"{file}: do_lower_case=True, but its {type(tokenizer).__name__} keeps case, "
                    "and lower-casing before a tokenizer is not supported: set do_lower_case to "
                    "false there if the model was trained on unchanged texts"
                )
        return tokenizers

    return tokenizers


FORMAT = Format(
    "sentence-transformers' modules.json",
    lambda folder: (folder / _MODULES).is_file(),
    open_sentence_transformers,
)
