"""Makes language models' tokenizers from files of Hugging Face, SentencePiece and llama.cpp.

All become a tokenizer.json, which `tokenizers.DescribedTokenizer` runs in the graph.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from keras_transformers.convert.folder import Folder
from keras_transformers.files import read_lines
from keras_transformers.tokenizers.byte_pairs.files import NAMES, read_tokens
from keras_transformers.tokenizers.described import decoders, templates
from keras_transformers.tokenizers.described.splitters import LLAMA3, QWEN2
from keras_transformers.tokenizers.described.tokenizer import FILE, DescribedTokenizer
from keras_transformers.tokenizers.described.vocabularies import SPACE_MARK

__all__: list[str] = []

_CONFIG = "tokenizer_config.json"
_PIECES = "tokenizer.model"
_SPECIAL = {"start_token": "bos", "end_token": "eos", "pad_token": "pad"}
# Types of pieces, SentencePiece's and llama.cpp's.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_BPE = 2  # SentencePiece's type of model
_LONGEST_PIECE = 1000  # characters in a piece: all ways to split it are looked up

_BYTES: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _split(pattern: str) -> dict[str, Any]:
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, {**_BYTES, "use_regex": False}]}


_GPT2: dict[str, Any] = {"pre_tokenizer": _BYTES}
_LLAMA3: dict[str, Any] = {"pre_tokenizer": _split(LLAMA3), "ignore_merges": True, "bos": True}
_LLAMA3_MERGED: dict[str, Any] = {"pre_tokenizer": _split(LLAMA3)}  # SmolLM3's and OLMo 2's
_QWEN2: dict[str, Any] = {"pre_tokenizer": _split(QWEN2), "normalizer": {"type": "NFC"}}
_DIGITS: dict[str, Any] = {
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTES],
    }
}
# llama.cpp's name of a pre-tokenizer -> the parts of the equivalent tokenizer.json.
_SPLITS = {
    **dict.fromkeys(("default", "gpt-2"), _GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx"), _LLAMA3_MERGED),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    **dict.fromkeys(("smollm", "starcoder"), _DIGITS),
}
# Class of a tokenizer -> the parts that it uses without a tokenizer.json.
_CLASSES = {"GPT2Tokenizer": _GPT2, "Qwen2Tokenizer": _QWEN2}


def language_tokenizer(
    folder: str | os.PathLike[str],
    *,
    vocabulary_size: int | None = None,
    special: Mapping[str, str] = MappingProxyType(_SPECIAL),
) -> DescribedTokenizer:
    """Makes the tokenizer from a folder in Hugging Face's layout.

    Args:
        folder: has tokenizer.json, or the older tokenizer.model (SentencePiece's byte pairs), or
            vocab.json and merges.txt of GPT-2 or Qwen 2; and tokenizer_config.json, which names the
            special tokens.
        vocabulary_size: the model's number of tokens, if it has more.
        special: argument of the tokenizer -> the prefix of the field that names the token, such as
            "bos" for bos_token.

    Raises:
        FileNotFoundError: there is no vocabulary.
        ValueError: a file is damaged, or describes something that cannot be reproduced exactly; the
            message names it.
    """
    folder = Folder.at(folder)
    told, config = folder / _CONFIG, folder.json(_CONFIG, missing_ok=True)
    if (folder / FILE).is_file():
        file = folder / FILE
        description = dict(folder.json(FILE))
    elif (folder / _PIECES).is_file():
        file = folder / _PIECES
        description = _of_pieces(file, legacy=config.get("legacy") is not False)
    else:
        file = folder / NAMES[0]
        description = _of_two_files(folder, config)
    names: dict[str, Any] = {
        ours: _name(told, config, f"{field}_token") for ours, field in special.items()
    }
    try:
        _add_listed(description, config)
        _add_template(description, config, names)
        return DescribedTokenizer(description, vocabulary_size=vocabulary_size, **names)
    except Exception as error:  # any error that a damaged part causes
        raise ValueError(f"{file}: {error}") from error


def gguf_tokenizer(
    fields: Mapping[str, Any], file: Path, *, vocabulary_size: int | None = None
) -> DescribedTokenizer:
    """Makes the tokenizer of a language model in llama.cpp's files.

    Control tokens are special tokens, user-defined tokens are added tokens; both are matched in
    texts. With SentencePiece, a space goes before texts and after each such token, as in llama.cpp
    and in the first files of Llama 2 and Mistral. "default" splits like GPT-2.

    Args:
        fields: the metadata in `Gguf.fields`: `tokenizer.ggml.model` is "gpt2" (byte-level;
            `tokens` list of strings, `merges` list of "left right", `pre` the name of a way to
            split texts) or "llama" (SentencePiece; `tokens`, `scores` list of numbers).
            `token_type` lists a type for each token; `bos_token_id`, `eos_token_id`,
            `padding_token_id`, `add_bos_token`, `add_eos_token` and `add_space_prefix` are
            optional.
        file: the file with the fields, for error messages.
        vocabulary_size: the model's number of tokens, if it has more.

    Raises:
        ValueError: a field is missing or damaged, or cannot be reproduced exactly; the message
            names it.

    Example:
        opened = Gguf.open(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
        tokenizer = gguf_tokenizer(opened.fields, opened.file)
    """
    ggml = {
        name.removeprefix("tokenizer.ggml."): value
        for name, value in fields.items()
        if name.startswith("tokenizer.ggml.")
    }
    try:
        tokens = _listed(ggml, "tokens", str)
        kinds = _listed(ggml, "token_type", int, size=len(tokens), default=_NORMAL)
        size = len(tokens)
        while kinds and kinds[-1] == _UNUSED:  # they only pad the model's matrices
            kinds.pop()
        tokens = tokens[: len(kinds)]
        if ggml.get("model") == "gpt2":
            name = ggml.get("pre", "default")
            if name not in _SPLITS:
                raise ValueError(
                    f"tokenizer.ggml.pre={name!r:.100}; expected one of "
                    f"{', '.join(sorted(_SPLITS))}: get the tokenizer.json of the original model"
                )
            parts = _SPLITS[name]
            merges: Any = _listed(ggml, "merges", str)
        elif ggml.get("model") == "llama":
            scores = _listed(ggml, "scores", (int, float), size=size)
            merges = _merges_of_scores(tokens, scores, kinds)
            parts = {**_spaces(ggml.get("add_space_prefix") is not False, legacy=True), "bos": True}
        else:
            raise ValueError(
                f"tokenizer.ggml.model={ggml.get('model')!r:.100}; expected 'gpt2' "
                "(byte-level) or 'llama' (SentencePiece)"
            )
        description = _description(tokens, merges, kinds, parts)
        flags = {
            "add_bos_token": ggml.get("add_bos_token", parts.get("bos", False)),
            "add_eos_token": ggml.get("add_eos_token", False),
        }
        names: dict[str, Any] = {
            "start_token": _token(ggml, "bos_token_id", tokens),
            "end_token": _token(ggml, "eos_token_id", tokens),
            "pad_token": _token(ggml, "padding_token_id", tokens),
        }
        _add_template(description, flags, names)
        return DescribedTokenizer(description, vocabulary_size=vocabulary_size or size, **names)
    except Exception as error:  # a damaged field may cause any error
        raise ValueError(f"{file}: {error}") from error


def _description(
    tokens: Sequence[str],
    merges: Sequence[Any],
    kinds: Sequence[int],
    parts: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the tokenizer.json of a vocabulary.

    Args:
        tokens: the tokens, by id.
        merges: pairs, as lists or separated by a space.
        kinds: the type of each token.
        parts: the fields that depend on the model, and `ignore_merges`.
    """
    if len(set(tokens)) < len(tokens):
        raise ValueError("two of its tokens are the same: each id needs its own token")
    fallback = bool(parts.get("byte_fallback"))
    size = len(tokens)
    # SentencePiece's user-defined pieces are in merges.
    while size and not fallback and kinds[size - 1] in (_CONTROL, _USER_DEFINED):
        size -= 1
    added = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts.get("pre_tokenizer"),
        "post_processor": None,
        "decoder": decoders.default(byte_level=not fallback, prefix=bool(parts.get("prefix"))),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": fallback,
            "byte_fallback": fallback,
            "ignore_merges": bool(parts.get("ignore_merges")),
            "vocab": {token: number for number, token in enumerate(tokens[:size])},
            "merges": [
                merge.split(" ") if isinstance(merge, str) else list(merge) for merge in merges
            ],
        },
    }


def _spaces(prefix: bool, *, legacy: bool) -> dict[str, Any]:
    """Returns the parts that treat spaces as SentencePiece does.

    Args:
        prefix: whether a space goes before texts.
        legacy: whether a space also goes after each added token.
    """
    mark = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    if prefix and not legacy:
        splitter = {
            "type": "Metaspace",
            "replacement": SPACE_MARK,
            "prepend_scheme": "first",
            "split": False,
        }
        return {"pre_tokenizer": splitter, "byte_fallback": True, "prefix": True}
    steps = [{"type": "Prepend", "prepend": SPACE_MARK}, mark] if prefix else [mark]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "byte_fallback": True,
        "prefix": prefix,
    }


def _merges_of_scores(
    tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Returns the merges of a SentencePiece vocabulary: all splits of its pieces, best first.

    Args:
        tokens: the pieces, by id.
        scores: the score of each piece.
        kinds: the type of each piece; only normal and user-defined ones are merged.
    """
    pieces = {
        token: number
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_NORMAL, _USER_DEFINED)
    }
    merges = []
    for token, number in pieces.items():
        if len(token) > _LONGEST_PIECE:
            raise ValueError(f"the piece {token!r:.50} has {len(token)} characters: it is damaged")
        for place in range(1, len(token)):
            left, right = token[:place], token[place:]
            if left in pieces and right in pieces:
                rank = (-scores[number], -len(left), pieces[left], pieces[right])
                merges.append((*rank, left, right))
    return [merge[-2:] for merge in sorted(merges)]


def _of_pieces(file: Path, *, legacy: bool) -> dict[str, Any]:
    """Returns the tokenizer.json of a SentencePiece model of byte pairs."""
    proto: Any = sentencepiece_model_pb2  # created at run time, without types
    try:
        model_proto = proto.ModelProto.FromString(file.read_bytes())
    except Exception as error:  # protobuf's error
        raise ValueError(f"{file}: not a SentencePiece model ({error})") from error
    trainer, normalizer = model_proto.trainer_spec, model_proto.normalizer_spec
    if trainer.model_type != _BPE or not trainer.byte_fallback:
        raise ValueError(
            f"{file}: a SentencePiece model of type {trainer.model_type} with byte_fallback="
            f"{trainer.byte_fallback}; expected type {_BPE} (byte pairs) with byte_fallback"
        )
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces:
        raise ValueError(
            f"{file}: a SentencePiece model that normalizes texts ({normalizer.name!r}) or removes "
            "spaces is not supported here: get the tokenizer.json of the model"
        )
    pieces = [(piece.piece, piece.score, piece.type) for piece in model_proto.pieces]
    tokens, scores, kinds = (list(column) for column in zip(*pieces, strict=True)) if pieces else (
        [], [], [])  # fmt: skip
    try:
        merges = _merges_of_scores(tokens, scores, kinds)
        parts = _spaces(normalizer.add_dummy_prefix, legacy=legacy)
        return _description(tokens, merges, kinds, parts)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _of_two_files(folder: Folder, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tokenizer.json of vocab.json and merges.txt, with its class's parts."""
    if not (folder / NAMES[0]).is_file():
        raise FileNotFoundError(
            f"{folder} has no vocabulary: expected {FILE}, {_PIECES}, or {' and '.join(NAMES)}"
        )
    kind = str(config.get("tokenizer_class")).removesuffix("Fast")
    if kind not in _CLASSES:
        raise ValueError(
            f"{folder / _CONFIG}: tokenizer_class={config.get('tokenizer_class')!r:.100}; without "
            f"{FILE}, expected one of {', '.join(_CLASSES)}: add that file"
        )
    tokens = read_tokens(folder / NAMES[0])
    lines = [line for line in read_lines(folder / NAMES[1]) if line]
    merges = [line for line in lines if not line.startswith("#version")]
    return _description(tokens, merges, [_NORMAL] * len(tokens), _CLASSES[kind])


def _add_listed(description: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Adds the tokens of tokenizer_config.json that the description lacks."""
    listed = config.get("added_tokens_decoder") or {}
    tokens = description.setdefault("added_tokens", []) or []
    contents = {token.get("content") for token in tokens}
    more = [
        {**token, "id": int(number)}
        for number, token in listed.items()
        if token.get("content") not in contents
    ]
    description["added_tokens"] = sorted([*tokens, *more], key=lambda token: token["id"])


def _add_template(
    description: dict[str, Any], config: Mapping[str, Any], names: Mapping[str, str | None]
) -> None:
    """Adds special tokens around texts if the configuration says so and the file does not."""
    if description.get("post_processor") is not None:
        return
    ids = {**description["model"]["vocab"]}
    ids.update((token["content"], token["id"]) for token in description["added_tokens"])
    around: list[list[tuple[str, int]]] = []
    for flag, field in (("add_bos_token", "start_token"), ("add_eos_token", "end_token")):
        name = names.get(field)
        if config.get(flag) is not True:
            around.append([])
        elif name is None or name not in ids:
            raise ValueError(f"{flag}=True, but {field}={name!r:.100} is not a token")
        else:
            around.append([(name, ids[name])])
    if any(around):
        description["post_processor"] = templates.template(*around)


def _name(file: Path, config: Mapping[str, Any], field: str) -> str | None:
    """Returns the special token in a field of tokenizer_config.json."""
    value = config.get(field)
    name = value.get("content") if isinstance(value, dict) else value
    if name is not None and not isinstance(name, str):
        raise ValueError(f"{file}: {field}={value!r:.100}; expected a token")
    return name


def _listed(
    ggml: Mapping[str, Any], name: str, kind: Any, *, size: int | None = None, default: Any = None
) -> list[Any]:
    """Returns a list from the metadata, checked."""
    values = ggml.get(name)
    if values is None and default is not None:
        return [default] * (size or 0)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ValueError(f"tokenizer.ggml.{name}={values!r:.100}; expected a list of values")
    if size is not None and len(values) != size:
        raise ValueError(
            f"tokenizer.ggml.{name} has {len(values)} values, tokenizer.ggml.tokens {size}"
        )
    return list(values)


def _token(ggml: Mapping[str, Any], field: str, tokens: Sequence[str]) -> str | None:
    number = ggml.get(field)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < len(tokens):
        raise ValueError(f"tokenizer.ggml.{field}={number!r:.100}; expected an id of a token")
    return tokens[number]
