"""Reads and writes tokenizers in Hugging Face's files; rejects what it cannot reproduce."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.families import families, tokenizer_family
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.tokenizer_json import (
    added_pieces,
    check_post_processor,
    decoder_of,
    described_parts,
    follows_file,
    tokenizer_json,
)
from keras_transformers.convert.formats.unigrams import sentencepiece_model
from keras_transformers.files import naming, read_lines, write_json, write_lines

_CONFIG = "tokenizer_config.json"
# Field of tokenizer_config.json -> the values that the tokenizers here implement.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "padding_side": ("right", None),
    "separate_vocabs": (False, None),
    "sp_model_kwargs": ({}, None),
    "truncation_side": ("right", None),
}
_OF_BATCHES = ("padding_side", "truncation_side")  # these do not apply to generators
# The special tokens there -> the attributes of our tokenizers that may hold their ids.
_SPECIAL = {
    "unk_token": ("unknown_token_id",),
    "cls_token": ("cls_token_id", "start_token_id"),
    "sep_token": ("sep_token_id", "end_token_id"),
    "bos_token": ("bos_token_id", "start_token_id"),
    "eos_token": ("end_token_id",),
    "mask_token": ("mask_token_id",),
}
_ANY = ("PreTrainedTokenizer", "TokenizersBackend")  # transformers does not say which
_NO_LIMIT = 10**9  # transformers writes 1e30 for no limit
_FAST = "PreTrainedTokenizerFast"  # follows tokenizer.json
_VOCABULARIES = ("vocab.txt", "vocab.json", "encoder.json", "*.model")
# A cased vocabulary has thousands of words with capitals; an uncased one has none, or a handful of
# strays.
_SHARE_OF_CAPITALS = 0.01
_CAPITAL = re.compile("[A-Z]")


def read_tokenizers(
    folder: str | os.PathLike[str], family: Family, *, lowercase: bool | None = None
) -> tuple[Any, ...]:
    """Makes a family's tokenizer from a folder, and the one for its answers, if it has one.

    tokenizer_config.json decides about case; without it, tokenizer.json; without both, whether the
    words of the vocabulary have capitals.

    Args:
        folder: the folder with the files.
        family: the model's family.
        lowercase: whether to lower-case if no file decides, instead of looking at the words.

    Raises:
        FileNotFoundError: there is no vocabulary.
        ValueError: the files are damaged, need something that the tokenizer does not support, or
            contradict `lowercase`.
    """
    folder = Folder.at(folder)
    config = folder.json(_CONFIG, missing_ok=True)
    family = tokenizer_family(folder, family)
    file = folder / _CONFIG
    for field, values in _SUPPORTED.items():
        if family.continues_texts and field in _OF_BATCHES:
            continue
        if config.get(field) not in values and field in config:
            raise ValueError(
                f"{file}: {field}={config[field]!r}; only {values[0]!r} is supported here"
            )
    kind = config.get("tokenizer_class")
    readable = (*(family.tokenizer_classes or _classes()), *_ANY)
    if kind is not None and str(kind).removesuffix("Fast") not in readable:
        raise ValueError(f"{file}: tokenizer_class={kind!r}; expected one of {', '.join(readable)}")
    has_class = family.writer is not None and family.writer.has_tokenizer_class(kind)
    if has_class and family.obeys_prefix and config.get("add_prefix_space") is False:
        raise ValueError(f"{file}: add_prefix_space=False; only True is supported here")
    with _with_vocabulary(folder, family) as place:
        lowers = _lowercase(folder, place, config, lowercase)
        tokenizers: tuple[Any, ...] = (family.tokenizer(place, lowers),)
        if family.target_tokenizer is not None:
            tokenizers += (family.target_tokenizer(place),)
        tokenizers = tuple(
            _with_parts(folder, place, config, tokenizer, lowers) for tokenizer in tokenizers
        )
    for tokenizer in tokenizers:
        _check_case(file, config, tokenizer)
        check_post_processor(folder, config, tokenizer)
        _check_special_tokens(file, config, tokenizer)
    return tokenizers


def _classes() -> list[str]:
    """Returns the classes whose files are read; others split texts differently."""
    writers = [family.writer for family in families() if not family.tokenizer_classes]
    names = {writer.tokenizer_class for writer in writers if writer is not None}
    return sorted(names - {"", _FAST})


def _with_parts(
    folder: Folder, place: Folder, config: Mapping[str, Any], tokenizer: Any, lowercase: bool
) -> Any:
    """Returns the tokenizer with the parts that the folder's files describe, if any.

    Args:
        folder: the folder with the files.
        place: the folder with the vocabulary.
        config: the contents of tokenizer_config.json.
        tokenizer: the tokenizer with its class's own parts.
        lowercase: whether it lower-cases.
    """
    if not hasattr(tokenizer, "parts"):  # SentencePiece
        if not hasattr(tokenizer, "own_tokens"):
            return tokenizer
        more: dict[str, Any] = {"added_tokens": added_pieces(folder, config, tokenizer)}
    else:
        more = {
            "parts": described_parts(
                folder,
                config,
                tokenizer,
                lowercase=lowercase,
                byte_level=not hasattr(tokenizer, "lowercase"),
            )
        }
    if not any(more.values()):
        return tokenizer
    try:
        return type(tokenizer).load(place, **{**tokenizer.config(), **more})
    except Exception as error:  # any error that a damaged part causes
        followed = follows_file(config) and (folder / "tokenizer.json").is_file()
        file = folder / ("tokenizer.json" if followed else _CONFIG)
        raise ValueError(f"{file}: {error}") from error


def write_tokenizers(
    tokenizers: Mapping[str, Any], folder: Path, writer: Writer, max_sequence_length: int | None
) -> dict[str, int]:
    """Writes tokenizers' files and tokenizer_config.json.

    Args:
        tokenizers: the tokenizers, by the names of the pipeline's arguments; all save to one
            folder.
        folder: the folder to write to.
        writer: the family's writer.
        max_sequence_length: maximum tokens in a text; None for no limit.

    Returns:
        The fields for config.json: pad_token_id and so on, if they are among the special tokens,
        and the writer's `config_fields`.
    """
    for tokenizer in tokenizers.values():
        tokenizer.save(folder)
    tokenizer = tokenizers["tokenizer"]
    vocabulary = list(tokenizer.vocabulary)
    ids = {}
    for field in writer.special_tokens:
        attributes = (*_SPECIAL.get(field, ()), f"{field}_id")
        token_id = next(getattr(tokenizer, name) for name in attributes if hasattr(tokenizer, name))
        if token_id is not None:
            ids[field] = token_id
    added = getattr(tokenizer, "added_tokens", None)
    described = getattr(tokenizer, "parts", None) is not None
    # It describes what the class does not compute by itself.
    if described or writer.reads_tokenizer_json:
        write_json(folder / "tokenizer.json", tokenizer_json(tokenizer))
    write_json(
        folder / _CONFIG,
        {
            "tokenizer_class": _FAST if described else writer.tokenizer_class,
            **({} if max_sequence_length is None else {"model_max_length": max_sequence_length}),
            **({"do_lower_case": tokenizer.lowercase} if hasattr(tokenizer, "lowercase") else {}),
            **{field: vocabulary[token_id] for field, token_id in ids.items()},
            **({"added_tokens_decoder": decoder_of(tokenizer)} if added else {}),
            **writer.tokenizer_fields(tokenizers),
        },
    )
    named = ("bos_token", "eos_token", "pad_token")  # config.json has the ids of these
    named_ids = {f"{field}_id": token_id for field, token_id in ids.items() if field in named}
    return {**named_ids, **writer.config_fields(tokenizers)}


def longest_text(folder: str | os.PathLike[str]) -> int | None:
    """Returns the maximum tokens in a text from tokenizer_config.json; None for no limit."""
    folder = Folder.at(folder)
    length = folder.json(_CONFIG, missing_ok=True).get("model_max_length")
    if length is None:
        return None
    if not isinstance(length, int | float) or length < 1:
        raise ValueError(f"{folder / _CONFIG}: model_max_length={length!r}; expected a number")
    return int(length) if length < _NO_LIMIT else None


def _lowercase(
    folder: Folder, place: Folder, config: Mapping[str, Any], wanted: bool | None = None
) -> bool:
    """Returns whether to lower-case, from a file, the caller, or else the vocabulary's words."""
    file, told = folder / _CONFIG, config.get("do_lower_case")
    if "do_lower_case" in config and not isinstance(told, bool):
        raise ValueError(f"{file}: do_lower_case={told!r}; expected true or false")
    if told is None:
        normalizer = folder.json("tokenizer.json", missing_ok=True).get("normalizer")
        if isinstance(normalizer, dict) and isinstance(normalizer.get("lowercase"), bool):
            file, told = folder / "tokenizer.json", normalizer["lowercase"]
    if told is not None:
        if wanted not in (None, told):
            raise ValueError(f"{file} says lowercase={told}, not {wanted}: leave the option out")
        return bool(told)
    if wanted is not None:
        return wanted
    file = place / "vocab.txt"
    return not has_capitals(file) if file.is_file() else True


def has_capitals(vocabulary: Path) -> bool:
    """Returns whether a WordPiece vocabulary keeps case, by its words."""
    words = [line for line in read_lines(vocabulary) if not line.startswith(("[", "<"))]
    capitals = sum(_CAPITAL.search(word) is not None for word in words)
    return capitals > _SHARE_OF_CAPITALS * len(words)


def _check_case(file: Path, config: Mapping[str, Any], tokenizer: Any) -> None:
    """Raises ValueError if the tokenizer does not treat case as asked."""
    lowercase = getattr(tokenizer, "lowercase", False)
    if config.get("do_lower_case") not in (None, lowercase):
        raise ValueError(
            f"{file}: do_lower_case={config['do_lower_case']}, which "
            f"{type(tokenizer).__name__} does not support"
        )


def _check_special_tokens(file: Path, config: Mapping[str, Any], tokenizer: Any) -> None:
    """Raises ValueError if a special token differs from the tokenizer's."""
    vocabulary = list(getattr(tokenizer, "vocabulary", []))
    for field, attributes in _SPECIAL.items():
        wanted = config.get(field)
        if isinstance(wanted, dict):  # with options to strip spaces around it
            wanted = wanted.get("content")
        ids = [getattr(tokenizer, name) for name in attributes if hasattr(tokenizer, name)]
        if wanted is None or not ids or not vocabulary:
            continue
        if vocabulary[ids[0]] != wanted:
            raise ValueError(
                f"{file}: {field}={wanted!r}, but {type(tokenizer).__name__} uses "
                f"{vocabulary[ids[0]]!r}"
            )


@contextlib.contextmanager
def _with_vocabulary(folder: Folder, family: Family) -> Iterator[Folder]:
    """Yields a folder with vocabulary files: this folder, or one made from its tokenizer.json."""
    vocabulary = family.vocabulary_file
    if (vocabulary and (folder / vocabulary).is_file()) or any(
        file for name in _VOCABULARIES for file in folder.path.glob(name)
    ):
        yield folder
        return
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"{folder} has no vocabulary: expected vocab.txt, vocab.json with merges.txt, a "
            "SentencePiece model, or tokenizer.json, as the tokenizer's save_pretrained writes them"
        )
    with tempfile.TemporaryDirectory() as scratch:
        _unpack(file, folder.json(file.name), Path(scratch), family)
        unpacked = dict.fromkeys(Path(scratch).iterdir(), file)
        with naming({**unpacked, Path(scratch): folder.path}):
            yield Folder(scratch, described_by=folder)


def _unpack(file: Path, contents: Mapping[str, Any], place: Path, family: Family) -> None:
    """Writes the vocabulary of a tokenizer.json as the older files."""
    model, added = contents.get("model"), contents.get("added_tokens", [])
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    if kind == "Unigram" and family.pieces_file is not None:
        pieces = sentencepiece_model(file, contents, family)
        (place / family.pieces_file).write_bytes(pieces)
        return
    if kind not in ("WordPiece", "BPE"):
        raise ValueError(
            f"{file}: a vocabulary of type {kind!r}; only WordPiece and BPE are read from this "
            "file: add the vocabulary's own file"
        )
    try:
        ids = dict(model["vocab"])
        # Tokens missing from the vocabulary's files: those after its end are only matched in texts.
        ids.update((t["content"], t["id"]) for t in added if t["id"] < max(ids.values()))
        tokens = sorted(ids, key=ids.__getitem__)
        pairs = [
            pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges", [])
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # or no tokens at all
        raise ValueError(f"{file}: not a Hugging Face tokenizer ({error})") from error
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"{file}: the ids of its tokens are not 0, 1, 2 and so on")
    if any("\n" in token for token in tokens):
        raise ValueError(f"{file}: a token contains a line break")
    try:
        if kind == "WordPiece":
            write_lines(place / "vocab.txt", tokens)
        else:
            (place / "vocab.json").write_text(json.dumps(ids), "utf-8")
            write_lines(place / "merges.txt", pairs)
    except UnicodeEncodeError as error:
        raise ValueError(f"{file}: a token is not valid Unicode ({error})") from error
