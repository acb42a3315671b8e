"""Reads a tokenizer as Hugging Face's files describe it, or refuses that; writes such files."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.families import Family, Writer
from keras_transformers.convert.formats.unigrams import sentencepiece_model
from keras_transformers.files import read_json, read_lines, write_json, write_lines

_CONFIG = "tokenizer_config.json"
# Field of tokenizer_config.json -> the values that mean what the tokenizers here do.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "add_prefix_space": (False, None),
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "padding_side": ("right", None),
    "separate_vocabs": (False, None),
    "sp_model_kwargs": ({}, None),
    "tokenize_chinese_chars": (True, None),
    "truncation_side": ("right", None),
}
# The special tokens there -> the attributes of tokenizers that may have their ids.
_SPECIAL = {
    "unk_token": ("unknown_token_id",),
    "cls_token": ("cls_token_id", "start_token_id"),
    "sep_token": ("sep_token_id", "end_token_id"),
    "bos_token": ("start_token_id",),
    "eos_token": ("end_token_id",),
    "mask_token": ("mask_token_id",),
}
# The classes, without "Fast", whose files the tokenizers here read; others split texts differently.
_CLASSES = (
    *("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"),
    *("GPT2Tokenizer", "OpenAIGPTTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer"),
)
_ANY = ("PreTrainedTokenizer", "TokenizersBackend")  # transformers does not say which
_NO_LIMIT = 10**9  # transformers writes 1e30 for none
_VOCABULARIES = ("vocab.txt", "vocab.json", "encoder.json", "*.model")
# A vocabulary that keeps case has thousands of words with capitals; an uncased one has none, or a
# handful that strayed into it.
_SHARE_OF_CAPITALS = 0.01


def read_tokenizers(folder: Path, family: Family) -> tuple[Any, ...]:
    """Makes a family's tokenizer from a folder, and that of its answers, if it has one.

    tokenizer_config.json decides about case; without it tokenizer.json does; without both, whether
    the words of the vocabulary have capitals.

    Raises:
        FileNotFoundError: there is no vocabulary.
        ValueError: the files are damaged, or ask for something that the tokenizer does not do.
    """
    config = _config(folder)
    file = folder / _CONFIG
    for field, values in _SUPPORTED.items():
        if config.get(field) not in values and field in config:
            raise ValueError(
                f"{file}: {field}={config[field]!r}; only {values[0]!r} is supported here"
            )
    kind, known = config.get("tokenizer_class"), (*(family.tokenizer_classes or _CLASSES), *_ANY)
    if kind is not None and str(kind).removesuffix("Fast") not in known:
        raise ValueError(f"{file}: tokenizer_class={kind!r}; known are {', '.join(known)}")
    with _with_vocabulary(folder, family) as place:
        lowercase = _lowercase(folder, place, config)
        tokenizers: tuple[Any, ...] = (family.tokenizer(place, lowercase),)
        if family.target_tokenizer is not None:
            tokenizers += (family.target_tokenizer(place),)
    for tokenizer in tokenizers:
        _check_case(file, config, tokenizer)
        _check_special_tokens(file, config, tokenizer)
    return tokenizers


def write_tokenizers(
    tokenizers: Mapping[str, Any], folder: Path, writer: Writer, max_sequence_length: int | None
) -> dict[str, int]:
    """Writes tokenizers' files and tokenizer_config.json.

    Args:
        tokenizers: by the names of the pipeline's arguments; all save to one folder.
        folder: where to write.
        writer: the family's.
        max_sequence_length: most tokens of a text; None for no limit.

    Returns:
        The fields for config.json: pad_token_id and so on, if they are among the special tokens.
    """
    for tokenizer in tokenizers.values():
        tokenizer.save(folder)
    tokenizer = tokenizers["tokenizer"]
    vocabulary = list(tokenizer.vocabulary)
    ids = {}
    for field in writer.special_tokens:
        attributes = (*_SPECIAL.get(field, ()), f"{field}_id")
        ids[field] = next(
            getattr(tokenizer, each) for each in attributes if hasattr(tokenizer, each)
        )
    write_json(
        folder / _CONFIG,
        {
            "tokenizer_class": writer.tokenizer_class,
            **({} if max_sequence_length is None else {"model_max_length": max_sequence_length}),
            **({"do_lower_case": tokenizer.lowercase} if hasattr(tokenizer, "lowercase") else {}),
            **{field: vocabulary[token_id] for field, token_id in ids.items()},
            **writer.tokenizer_fields(tokenizers),
        },
    )
    named = ("bos_token", "eos_token", "pad_token")  # config.json has the ids of these
    return {f"{field}_id": token_id for field, token_id in ids.items() if field in named}


def longest_text(folder: Path) -> int | None:
    """Returns the most tokens of a text that tokenizer_config.json allows; None for no limit."""
    length = _config(folder).get("model_max_length")
    if length is None:
        return None
    if not isinstance(length, int | float) or length < 1:
        raise ValueError(f"{folder / _CONFIG}: model_max_length={length!r}; expected a number")
    return int(length) if length < _NO_LIMIT else None


def _config(folder: Path) -> dict[str, Any]:
    file = folder / _CONFIG
    return read_json(file) if file.is_file() else {}


def _lowercase(folder: Path, place: Path, config: Mapping[str, Any]) -> bool:
    if "do_lower_case" in config:
        if not isinstance(config["do_lower_case"], bool):
            raise ValueError(
                f"{folder / _CONFIG}: do_lower_case={config['do_lower_case']!r}; expected true or "
                "false"
            )
        return config["do_lower_case"]
    if (folder / "tokenizer.json").is_file():
        normalizer = read_json(folder / "tokenizer.json").get("normalizer")
        if isinstance(normalizer, dict) and isinstance(normalizer.get("lowercase"), bool):
            return normalizer["lowercase"]
    file = place / "vocab.txt"
    return not has_capitals(file) if file.is_file() else True


def has_capitals(vocabulary: Path) -> bool:
    """Returns whether a WordPiece vocabulary keeps case, by its words."""
    words = [line for line in read_lines(vocabulary) if not line.startswith(("[", "<"))]
    capitals = sum(any("A" <= letter <= "Z" for letter in word) for word in words)
    return capitals > _SHARE_OF_CAPITALS * len(words)


def _check_case(file: Path, config: Mapping[str, Any], tokenizer: Any) -> None:
    """Raises ValueError if the tokenizer treats case or accents in another way than asked."""
    lowercase = getattr(tokenizer, "lowercase", False)
    if config.get("do_lower_case") not in (None, lowercase):
        raise ValueError(
            f"{file}: do_lower_case={config['do_lower_case']}, which "
            f"{type(tokenizer).__name__} does not do"
        )
    if config.get("strip_accents") not in (None, lowercase):
        raise ValueError(
            f"{file}: strip_accents={config['strip_accents']} with do_lower_case={lowercase}; "
            "accents go exactly if texts are lower-cased"
        )


def _check_special_tokens(file: Path, config: Mapping[str, Any], tokenizer: Any) -> None:
    """Raises ValueError if a special token is another one than the tokenizer's."""
    vocabulary = list(getattr(tokenizer, "vocabulary", []))
    for field, attributes in _SPECIAL.items():
        wanted = config.get(field)
        if isinstance(wanted, dict):  # with options of how to strip spaces around it
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
def _with_vocabulary(folder: Path, family: Family) -> Iterator[Path]:
    """Yields a folder with vocabulary files: this one, or one made from its tokenizer.json."""
    if any(found for name in _VOCABULARIES for found in folder.glob(name)):
        yield folder
        return
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"{folder} has no vocabulary: expected vocab.txt, vocab.json with merges.txt, a "
            "SentencePiece model, or tokenizer.json"
        )
    with tempfile.TemporaryDirectory() as scratch:
        _unpack(file, Path(scratch), family.pieces_file)
        for name in ("config.json", _CONFIG):  # some tokenizers need a field of them
            if (folder / name).is_file():
                shutil.copyfile(folder / name, Path(scratch, name))
        yield Path(scratch)


def _unpack(file: Path, place: Path, pieces_file: str | None) -> None:
    """Writes the vocabulary of a tokenizer.json as the files that came before it."""
    contents = read_json(file)
    found, added = contents.get("model"), contents.get("added_tokens", [])
    model: dict[str, Any] = found if isinstance(found, dict) else {}
    kind = model.get("type")
    if kind == "Unigram" and pieces_file is not None:
        (place / pieces_file).write_bytes(sentencepiece_model(file, contents))
        return
    if kind not in ("WordPiece", "BPE"):
        raise ValueError(
            f"{file}: a vocabulary of type {kind!r}; only WordPiece and BPE are read from this "
            "file: add the vocabulary's own file"
        )
    try:
        ids = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
        tokens = sorted(ids, key=ids.__getitem__)
        pairs = [
            pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges", [])
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not a tokenizer of Hugging Face's ({error})") from error
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"{file}: the ids of its tokens are not 0, 1, 2 and so on")
    if any("\n" in token for token in tokens):
        raise ValueError(f"{file}: a token with a line end")
    try:
        if kind == "WordPiece":
            write_lines(place / "vocab.txt", tokens)
        else:
            (place / "vocab.json").write_text(json.dumps(ids), "utf-8")
            write_lines(place / "merges.txt", pairs)
    except UnicodeEncodeError as error:
        raise ValueError(f"{file}: a token that is not valid Unicode ({error})") from error
