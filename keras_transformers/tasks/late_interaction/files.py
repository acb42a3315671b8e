"""Opens and saves late-interaction models in the folders of MultiVectorEncoder, PyLate, ColBERT."""

import dataclasses
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import open_huggingface, save_huggingface
from keras_transformers.convert.formats.sentence_transformers import (
    MODULES,
    SETTINGS,
    Written,
    module_kinds,
    open_transformer,
    read_modules,
    write_modules,
)
from keras_transformers.convert.formats.weights import Format, FoundWeights, TrainedModel
from keras_transformers.convert.tensors import TRANSPOSED, NamedTensor, assign
from keras_transformers.files import read_json, write_json
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import skeleton
from keras_transformers.tasks.embedding.files import dense_layer, module_of
from keras_transformers.tasks.late_interaction.head import token_embedder_parts

__all__: list[str] = []

_MASK, _PYLATE = "MultiVectorMask", "pylate.models.Dense.Dense"
_DENSE = ("Dense", _PYLATE)
_LENGTHS = "sentence_bert_config.json"
_METADATA, _COLBERT = "artifact.metadata", "HF_ColBERT"
_VECTORS = "token_embeddings"  # what the modules after the encoder read and write
_SIMILARITY = "maxsim"
_SIDES = ("query", "document")
# The fields that PyLate writes, which sentence-transformers takes as signs of such a folder.
_OF_PYLATE = (
    *("query_length", "document_length", "query_expansion", "do_query_expansion"),
    *("attend_to_expansion_tokens", "attend_to_mask_tokens", "skiplist_words"),
    *("query_prefix", "document_prefix"),
)
_LENGTH = 32  # of queries, in both libraries
_NO_LIMIT = 8192  # for encoders without positions in folders without a length


def open_late_interaction(folder: Folder) -> FoundWeights:
    """Opens a folder of sentence-transformers' MultiVectorEncoder, of PyLate or of ColBERT.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the folder has a module or an option that
            `pipelines.LateInteraction` lacks.
    """
    if not (folder / MODULES).is_file():
        return _open_colbert(folder)
    modules = read_modules(folder)
    kinds = [kind for kind, _ in modules]
    after = [kind for kind in kinds[1:] if kind not in _DENSE]
    dense = [kind for kind in kinds[1:] if kind in _DENSE]
    ends: tuple[list[str], ...] = ([], [_MASK], [_MASK, "Normalize"], ["Normalize", _MASK])
    if kinds[:1] != ["Transformer"] or kinds[1:] != [*dense, *after] or after not in ends:
        raise ValueError(
            f"{folder / MODULES}: modules {', '.join(kinds)}; only Transformer, any Dense, "
            f"{_MASK} and Normalize are supported for late interaction"
        )
    encoder = open_transformer(folder, modules[0][1])
    file, settings = folder / SETTINGS, folder.json(SETTINGS, missing_ok=True)
    similarity = settings.get("similarity_fn_name")
    if str(similarity).lower() == "meanmaxsim":
        raise ValueError(
            f"{file}: similarity_fn_name={similarity!r}; only {_SIMILARITY!r} is supported here"
        )
    options = _lengths(modules[0][1], encoder, settings)
    options |= _prefixes(file, settings, modules[0][1])
    if _MASK in kinds:
        options["skipped_tokens"] = _skipped(modules[kinds.index(_MASK)][1])
        options["normalize"] = "Normalize" in kinds
        if options["normalize"]:
            place = modules[kinds.index("Normalize")][1]
            _check_names(place / "config.json", place.json("config.json", missing_ok=True))
    else:  # PyLate's
        words = settings.get("skiplist_words")
        options["skipped_tokens"] = _words(file, "skiplist_words", words, list(string.punctuation))
        options["normalize"] = True
    options["projections"] = [_projection(place) for kind, place in modules if kind in _DENSE]
    return _found(encoder, options)


def save_multi_vector_encoder(trained: TrainedModel, folder: Path) -> None:
    """Saves a model from `heads.token_embedder` for MultiVectorEncoder and `load`.

    Args:
        trained: the model, its tokenizer and the options of `pipelines.LateInteraction`.
        folder: an empty folder.

    Raises:
        ValueError: transformers has no class for the encoder, or sentence-transformers no module
            for a projection.
    """
    parts, options = token_embedder_parts(trained.model), trained.options
    encoder = dataclasses.replace(
        trained, task="embedding", class_end="Model", model=parts.encoder, options={}
    )
    save_huggingface(encoder, folder)
    names = {"module_input_name": _VECTORS, "module_output_name": _VECTORS}
    after = [
        module._replace(config={**module.config, **names})
        for module in map(module_of, parts.projections)
    ]
    skipped = {"skiplist_words": options["skipped_tokens"], "skiplist_tasks": ["document"]}
    room = "sentence_transformers.multi_vector_encoder.modules"
    after.append(Written(_MASK, {**skipped, "keep_only_token_ids": None}, {}, room))
    if parts.normalize:
        after.append(Written("Normalize", names, {}))
    prefixes = {side: options[f"{side}_prefix"] for side in _SIDES}
    settings = {"model_type": "MultiVectorEncoder", "similarity_fn_name": _SIMILARITY}
    if any(prefixes.values()) and not options.get("prefix_as_text"):
        # sentence-transformers then never splits the prefix's token.
        settings |= {f"{side}_prefix": prefix for side, prefix in prefixes.items()}
    prompted = dataclasses.replace(trained, options={"prompts": prefixes})
    write_modules(prompted, folder, after, settings)
    length, expansion = options["query_length"], options.get("query_expansion")
    floor = options.get("expansion_length", length)
    fields: dict[str, Any] = {
        "query_length": length,
        "document_length": options["document_length"],
        "query_expansion": None,
    }
    if expansion is not None:
        fields["query_expansion"] = {
            "strategy": "fixed" if floor == length else "min",
            "attend": expansion == "attended",
            "token": options.get("expansion_token"),
            "length": floor,
        }
    write_json(folder / _LENGTHS, {**read_json(folder / _LENGTHS), **fields})


def _open_colbert(folder: Folder) -> FoundWeights:
    """Opens a folder of Stanford's ColBERT: the encoder and its projection in one file."""
    encoder = open_huggingface(folder)
    file, metadata = folder / _METADATA, folder.json(_METADATA, missing_ok=True)
    name, arrays = "linear.weight", folder.arrays
    shape = arrays.shapes.get(name, ())
    if len(shape) != 2:
        raise ValueError(f"{folder}: no matrix {name}, which projects ColBERT's vectors")
    layer = keras.layers.Dense(shape[0], use_bias=False, dtype="float32", name="token_projection")
    layer.build((None, shape[1]))
    assign([NamedTensor(name, (layer.kernel,), TRANSPOSED)], arrays, ignore=["*"])
    attends = bool(metadata.get("attend_to_mask_tokens"))
    skips = metadata.get("mask_punctuation", True)
    options = {
        "query_prefix": f"{metadata.get('query_token_id') or '[unused0]'} ",
        "document_prefix": f"{metadata.get('doc_token_id') or '[unused1]'} ",
        "query_length": _number(file, "query_maxlen", metadata) or _LENGTH,
        "document_length": _number(file, "doc_maxlen", metadata) or _longest(encoder),
        "query_expansion": "attended" if attends else "unattended",
        "skipped_tokens": list(string.punctuation) if skips else [],
        "projections": [layer],
    }
    fill = encoder.fill

    def fill_encoder(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        return [unused for unused in fill(model, [*ignore, name]) if unused != name]

    return _found(dataclasses.replace(encoder, fill=fill_encoder), options)


def _found(encoder: FoundWeights, options: Mapping[str, Any]) -> FoundWeights:
    return dataclasses.replace(
        encoder, head=None, trained=("late_interaction",), undecided="", options=options
    )


def _lengths(module: Folder, encoder: FoundWeights, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the lengths and the expansion of queries, as sentence-transformers reads them."""
    file, fields = module / _LENGTHS, dict(module.json(_LENGTHS, missing_ok=True))
    if fields.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise ValueError(
            f"{file}: transformer_task={fields['transformer_task']!r}; only 'feature-extraction' "
            "is supported for late interaction"
        )
    if any((fields.get("processing_kwargs") or {}).values()):
        raise ValueError(
            f"{file}: processing_kwargs={fields['processing_kwargs']!r:.100} is not supported: set "
            "query_length and document_length there instead"
        )
    for name, value in _of_pylate(settings).items():
        fields.setdefault(name, value)
    document = _number(file, "document_length", fields) or _longest(encoder)
    query, expansion = _number(file, "query_length", fields), fields.get("query_expansion")
    if expansion is None:
        return {"query_length": query or _longest(encoder), "document_length": document}
    strategy = expansion.get("strategy") if isinstance(expansion, dict) else None
    if strategy not in ("fixed", "min"):
        raise ValueError(
            f"{file}: query_expansion={expansion!r:.100}; expected an object with the strategy "
            "'fixed' or 'min'"
        )
    length = _number(file, "length", expansion)
    if length is None:
        raise ValueError(f"{file}: query_expansion has no length")
    options: dict[str, Any] = {
        "query_length": length,
        "document_length": document,
        "query_expansion": "attended" if expansion.get("attend") else "unattended",
    }
    if strategy == "min":
        options["query_length"] = max(length, query or _longest(encoder))
        options["expansion_length"] = length
    if expansion.get("token") is not None:
        options["expansion_token"] = expansion["token"]
    return options


def _of_pylate(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what PyLate's fields say in sentence-transformers' fields."""
    names = ("query_length", "document_length")
    fields = {name: settings[name] for name in names if settings.get(name) is not None}
    if "query_expansion" in settings:
        return {**fields, "query_expansion": settings["query_expansion"]}
    if not any(name in settings for name in _OF_PYLATE):
        return fields
    if settings.get("do_query_expansion") is False:
        return {**fields, "query_expansion": None}
    attends = settings.get("attend_to_expansion_tokens", settings.get("attend_to_mask_tokens"))
    length = fields.pop("query_length", None) or _LENGTH
    expansion = {"strategy": "fixed", "attend": bool(attends), "length": length}
    return {**fields, "query_expansion": expansion}


def _prefixes(file: Path, settings: Mapping[str, Any], module: Folder) -> dict[str, Any]:
    """Returns the prefixes, and whether they are text although they start with a known token."""
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ValueError(f"{file}: prompts={prompts!r:.100}; expected names and texts")
    prefixes, inserted = {}, False
    for side in _SIDES:
        prompt, prefix = prompts.get(side) or "", settings.get(f"{side}_prefix") or ""
        if not isinstance(prompt, str) or not isinstance(prefix, str):
            wrong = prefix if isinstance(prompt, str) else prompt
            raise ValueError(f"{file}: {wrong!r:.100} before a {side}; expected a text")
        prefixes[f"{side}_prefix"] = prefix + prompt.removeprefix(prefix)
        inserted |= bool(prefix)
    tokens = set() if inserted else _added_tokens(module)
    starts = {part for prefix in prefixes.values() for part in (prefix, *prefix.split()[:1])}
    as_text = any(starts) and not inserted and not starts & tokens
    return {**prefixes, **({"prefix_as_text": True} if as_text else {})}


def _added_tokens(folder: Folder) -> set[str]:
    """Returns the tokens that a tokenizer's files never split."""
    listed = folder.json("tokenizer.json", missing_ok=True).get("added_tokens") or []
    config = folder.json("tokenizer_config.json", missing_ok=True)
    more = (config.get("added_tokens_decoder") or {}).values()
    named = folder.json("added_tokens.json", missing_ok=True)
    return {*named, *(str(token["content"]) for token in (*listed, *more) if "content" in token)}


def _skipped(module: Folder) -> list[str]:
    """Returns the tokens that a mask's module skips in documents."""
    file, config = module / "config.json", module.json("config.json", missing_ok=True)
    tasks = config.get("skiplist_tasks") or ["document"]
    if ([tasks] if isinstance(tasks, str) else tasks) != ["document"]:
        raise ValueError(f"{file}: skiplist_tasks={tasks!r}; only ['document'] is supported here")
    if config.get("keep_only_token_ids"):
        raise ValueError(f"{file}: keep_only_token_ids is for images, which are not supported here")
    return _words(file, "skiplist_words", config.get("skiplist_words"), [])


def _words(file: Path, name: str, words: Any, default: Sequence[str]) -> list[str]:
    if words is None:
        return list(default)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{file}: {name}={words!r:.100}; expected a list of tokens")
    return words


def _projection(module: Folder) -> keras.layers.Dense:
    """Makes the layer of a dense module, with its weights."""
    file, config = module / "config.json", dict(module.json("config.json"))
    _check_names(file, config)
    for name in ("module_input_name", "module_output_name"):
        config.pop(name, None)
    layer = dense_layer(file, config, module.arrays)
    names = [NamedTensor("linear.weight", (layer.kernel,), TRANSPOSED)]
    if layer.use_bias:
        names.append(NamedTensor("linear.bias", (layer.bias,)))
    assign(names, module.arrays)
    return layer


def _check_names(file: Path, config: Mapping[str, Any]) -> None:
    """Raises ValueError if a module reads or writes something other than the tokens' vectors."""
    for name in ("module_input_name", "module_output_name"):
        if config.get(name, _VECTORS) not in (_VECTORS, None):
            raise ValueError(
                f"{file}: {name}={config[name]!r}; only {_VECTORS!r} is supported here"
            )


def _number(file: Path, name: str, fields: Mapping[str, Any]) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{file}: {name}={value!r}; expected a number above 0")
    return value


def _longest(encoder: FoundWeights) -> int:
    """Returns the maximum tokens in a text for which a folder has no length."""
    positions = anatomy(skeleton(lambda: encoder.build())).max_sequence_length
    limits = [limit for limit in (encoder.max_sequence_length, positions) if limit is not None]
    return min(limits, default=_NO_LIMIT)


def _recognises(folder: Folder) -> bool:
    if module_kinds(folder) & {_MASK, _PYLATE}:
        return True
    if (folder / MODULES).is_file() or not (folder / "config.json").is_file():
        return False
    names = folder.json("config.json").get("architectures")
    return isinstance(names, list) and _COLBERT in names


FORMAT = Format(
    "MultiVectorEncoder's or PyLate's modules.json, or ColBERT's config.json",
    _recognises,
    open_late_interaction,
)
