"""Opens and saves the folders of sentence-transformers' SparseEncoder."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from safetensors.numpy import save_file

from keras_transformers.convert.families import families, family_of
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import family_for, save_huggingface
from keras_transformers.convert.formats.sentence_transformers import (
    MODULES,
    SETTINGS,
    Written,
    module_at,
    module_kinds,
    open_transformer,
    read_modules,
    read_prompts,
    write_length,
    write_modules,
    write_settings,
)
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers, write_tokenizers
from keras_transformers.convert.formats.weights import Format, FoundWeights, TrainedModel
from keras_transformers.files import may_be_name, read_json, write_json
from keras_transformers.layers import LexicalPooling
from keras_transformers.layers.pooling import LexicalActivation, LexicalMode
from keras_transformers.models.anatomy import only
from keras_transformers.tasks.sparse_embedding.head import sparse_embedder

__all__: list[str] = []

_ROUTES = "router_config.json"
_PACKAGE = "sentence_transformers.sparse_encoder.models"
_ENCODER = "MLMTransformer"  # a Transformer for masked words, which all versions know
_ENCODERS = (_ENCODER, "Transformer")
_POOLING, _TABLE = "SpladePooling", "SparseStaticEmbedding"
# The options of `heads.sparse_embedder` -> a field of SpladePooling, its values and its default.
_FIELDS: dict[str, tuple[str, Any, str]] = {
    "pooling": ("pooling_strategy", LexicalMode, "max"),
    "weight_activation": ("activation_function", LexicalActivation, "relu"),
}
_SETTINGS = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}

Modules = Sequence[tuple[str, Folder]]


def open_sparse_encoder(folder: Folder) -> FoundWeights:
    """Opens a folder that sentence-transformers' SparseEncoder saved.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the folder has a module, route or option that
            `pipelines.SparseEmbedder` lacks.
    """
    modules: Modules = read_modules(folder)
    file, options = folder / MODULES, dict[str, Any]()
    queries: Modules = ()
    if [kind for kind, _ in modules] == ["Router"]:
        file, queries, modules, options = _routes(modules[0][1])
    kinds = [kind for kind, _ in modules]
    if len(kinds) != 2 or kinds[0] not in _ENCODERS or kinds[1] != _POOLING:
        raise ValueError(
            f"{file}: modules {', '.join(kinds) or 'none'}; only {' or '.join(_ENCODERS)} and then "
            f"{_POOLING} are supported, alone or as a Router's route for documents"
        )
    (_, place), (_, of_pooling) = modules
    encoder = open_transformer(folder, place)
    if not encoder.heads.lower().endswith(("formaskedlm", "forpretraining")):
        raise ValueError(
            f"{place / 'config.json'}: its class is {encoder.heads or 'not named'}, which predicts "
            "no words, as a sparse embedding needs: expected one for masked words, such as "
            "BertForMaskedLM"
        )
    head = {**encoder.masked_lm, **_head_options(of_pooling)}
    if queries:
        ((_, of_table),) = queries
        options["query_weights"] = _weights(of_table)
        encoder = _with_one_vocabulary(encoder, place, of_table)
    settings_file, settings = folder / SETTINGS, folder.json(SETTINGS, missing_ok=True)
    if settings.get("max_active_dims") is not None:
        options["max_active_dims"] = _count(settings_file, settings["max_active_dims"])
    return dataclasses.replace(
        encoder,
        trained=("sparse_embedding",),
        with_head=lambda bare: sparse_embedder(bare, **head),
        options={**options, **read_prompts(settings_file, settings, includes=True)},
    )


def save_sparse_encoder(trained: TrainedModel, folder: Path) -> None:
    """Saves a model from `heads.sparse_embedder` for SparseEncoder and `keras_transformers.load`.

    Args:
        trained: the model, its tokenizer and options.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for the model.
    """
    pool = only(trained.model, LexicalPooling)
    encoder = dataclasses.replace(trained, options={})
    config = {
        _FIELDS["pooling"][0]: pool.mode,
        _FIELDS["weight_activation"][0]: pool.activation,
        "word_embedding_dimension": trained.model.output["sparse_embedding"].shape[-1],
    }
    settings: dict[str, Any] = dict(_SETTINGS)
    if trained.options.get("max_active_dims") is not None:
        settings["max_active_dims"] = trained.options["max_active_dims"]
    if trained.options.get("query_weights") is None:
        save_huggingface(encoder, folder)
        after = [Written(_POOLING, config, {}, _PACKAGE)]
        write_modules(trained, folder, after, settings, first=f"{_PACKAGE}.{_ENCODER}")
        return
    names = [f"query_0_{_TABLE}", f"document_0_{_ENCODER}", f"document_1_{_POOLING}"]
    of_table, of_encoder, of_pooling = (folder / name for name in names)
    for place in (of_table, of_encoder, of_pooling):
        place.mkdir()
    save_huggingface(encoder, of_encoder)
    write_length(trained, of_encoder)
    write_json(of_pooling / "config.json", config)
    _, _, of_tokenizer = family_for(encoder)
    length = trained.max_sequence_length
    write_tokenizers(trained.tokenizers, of_table, of_tokenizer, length)
    (tokenizer,) = trained.tokenizers.values()
    weights = trained.options["query_weights"]
    table = np.array([weights.get(token, 0.0) for token in tokenizer.vocabulary], np.float32)
    save_file({"weight": table}, of_table / "model.safetensors", {"format": "pt"})
    write_json(of_table / "config.json", {"frozen": True})
    types = [name.rpartition("_")[2] for name in names]
    router = {
        "types": {name: f"{_PACKAGE}.{kind}" for name, kind in zip(names, types, strict=True)},
        "structure": {"query": names[:1], "document": names[1:]},
        "parameters": {"default_route": trained.options.get("side") or "document"},
    }
    write_json(folder / _ROUTES, router)
    kind = "sentence_transformers.models.Router"
    write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": kind}])
    write_settings(trained, folder, settings)


def _routes(folder: Folder) -> tuple[Path, Modules, Modules, dict[str, Any]]:
    """Reads a Router's routes.

    Returns:
        The file; the modules for queries, none if they are those for documents; the modules for
        documents; and the pipeline's option `side`, if the route by default is the queries'.
    """
    file = _router_file(folder)
    config = folder.json(file.name)
    routes = _modules_of_routes(file, folder, config)
    parameters = config.get("parameters") or {}
    if not isinstance(parameters, dict) or parameters.get("route_mappings"):
        raise ValueError(
            f"{file}: parameters={parameters!r:.200}; routes by modality (route_mappings) are not "
            "supported, only those named query and document"
        )
    default = parameters.get("default_route") or next(iter(routes), None)
    if set(routes) != {"query", "document"} or default not in routes:
        raise ValueError(
            f"{file}: routes {', '.join(routes) or 'none'} with the default {default!r:.100}; "
            "expected query and document"
        )
    queries, documents = routes["query"], routes["document"]
    if [place.path for _, place in queries] == [place.path for _, place in documents]:
        return file, (), documents, {}
    if [kind for kind, _ in queries] != [_TABLE]:
        raise ValueError(
            f"{file}: modules {', '.join(kind for kind, _ in queries) or 'none'} for queries; only "
            f"{_TABLE} is supported, or the modules for documents"
        )
    return file, queries, documents, {"side": "query"} if default == "query" else {}


def _modules_of_routes(
    file: Path, folder: Folder, config: Mapping[str, Any]
) -> dict[str, list[tuple[str, Folder]]]:
    """Returns the kind and folder of each route's modules."""
    types, structure = config.get("types"), config.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict):
        raise ValueError(f"{file}: no types and structure of routes")
    routes = {}
    for route, names in structure.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{file}: route {route!r:.100} has no list of modules")
        routes[route] = [module_at(file, folder, types.get(name), name) for name in names]
    return routes


def _head_options(folder: Folder) -> dict[str, str]:
    """Returns the options of `heads.sparse_embedder` from a SpladePooling module."""
    file, config = folder / "config.json", folder.json("config.json")
    options = {}
    for ours, (theirs, kind, default) in _FIELDS.items():
        options[ours] = config.get(theirs, default)
        if options[ours] not in get_args(kind):
            raise ValueError(
                f"{file}: {theirs}={options[ours]!r:.100}; expected {' or '.join(get_args(kind))}"
            )
    return options


def _weights(folder: Folder) -> Any:
    """Returns the table of a SparseStaticEmbedding module: an array, or token -> weight."""
    file, config = folder / "config.json", folder.json("config.json", missing_ok=True)
    name = config.get("path")
    if name is None:
        arrays = folder.arrays
        if list(arrays.shapes) != ["weight"] or len(arrays.shapes["weight"]) != 1:
            raise ValueError(
                f"{folder}: tensors {dict(arrays.shapes)!r:.200}; expected one named weight, with "
                "one number for each token"
            )
        return np.asarray(arrays["weight"], np.float32)
    if not isinstance(name, str) or not may_be_name(name):
        raise ValueError(f"{file}: path={name!r:.100}; expected the name of a file in this folder")
    weights = read_json(folder / name)
    wrong = next((w for w in weights.values() if type(w) not in (int, float)), None)
    if wrong is not None:
        raise ValueError(f"{folder / name}: {json.dumps(wrong):.100}; expected token and number")
    return weights


def _with_one_vocabulary(encoder: FoundWeights, place: Folder, of_table: Folder) -> FoundWeights:
    """Returns the encoder with tokenizers that are checked against those of the table."""

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        of_documents = encoder.tokenizers(lowercase)
        of_queries = read_tokenizers(of_table, family_of(place, families()), lowercase=lowercase)
        sides = (of_documents, of_queries)
        one, other = ([(list(x.vocabulary), x.config()) for x in side] for side in sides)
        if one != other:
            raise ValueError(
                f"{of_table}: its tokenizer differs from that of {place}: queries and documents "
                "need one vocabulary and one tokenizer"
            )
        return of_documents

    return dataclasses.replace(encoder, tokenizers=tokenizers)


def _count(file: Path, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{file}: max_active_dims={value!r:.100}; expected a number above 0")
    return value


def _recognises(folder: Folder) -> bool:
    kinds = module_kinds(folder)
    if "Router" in kinds:
        _, place = read_modules(folder)[0]
        try:
            types = place.json(_router_file(place).name).get("types")
        except (OSError, ValueError):
            return False
        names = types.values() if isinstance(types, dict) else ()
        kinds = frozenset(str(name).rpartition(".")[2] for name in names)
    return not kinds.isdisjoint({_POOLING, _TABLE})


def _router_file(folder: Folder) -> Path:
    """Returns the file of a Router's routes, which had another name at first."""
    return folder / (_ROUTES if (folder / _ROUTES).is_file() else "config.json")


FORMAT = Format(
    "SparseEncoder's modules.json, of sentence-transformers",
    _recognises,
    open_sparse_encoder,
)
