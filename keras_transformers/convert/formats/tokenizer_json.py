"""Reads what tokenizer.json and its companions describe besides the vocabulary."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.unigrams import check_pieces

__all__: list[str] = []

NAME = "tokenizer.json"
_ADDED = "added_tokens.json"
# Classes that follow tokenizer.json; others build their own normalizer and pre-tokenizer.
_FOLLOWING = ("PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer", None)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Field of a model -> the values that the tokenizers here implement.
_MODELS: dict[str, dict[str, tuple[Any, ...]]] = {
    "WordPiece": {"continuing_subword_prefix": ("##",), "max_input_chars_per_word": (100,)},
    "BPE": {
        "dropout": (None, 0.0),
        "continuing_subword_prefix": (None, ""),
        "end_of_word_suffix": (None, ""),
        "fuse_unk": (False, None),
        "byte_fallback": (False, None),
        "ignore_merges": (False, None),
    },
}
_NORMALIZER: dict[str, Any] = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_SPLITTERS: dict[str, dict[str, Any]] = {
    "WordPiece": {"type": "BertPreTokenizer"},
    "BPE": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
}


def follows_file(config: Mapping[str, Any]) -> bool:
    """Returns whether the tokenizer's class follows tokenizer.json.

    Args:
        config: the contents of tokenizer_config.json.
    """
    return config.get("tokenizer_class") in _FOLLOWING


def described_parts(
    folder: Folder,
    config: Mapping[str, Any],
    tokenizer: Any,
    *,
    lowercase: bool,
    byte_level: bool,
) -> dict[str, Any] | None:
    """Returns the parts that a folder describes, or None if they are the tokenizer's own.

    Args:
        folder: has tokenizer.json, tokenizer_config.json or added_tokens.json.
        config: the contents of tokenizer_config.json.
        tokenizer: the tokenizer with its class's own parts. Its special tokens are ordinary text.
        lowercase: whether the tokenizer lower-cases.
        byte_level: whether its vocabulary is byte-level.

    Raises:
        ValueError: the file's model has options that are not supported; the message names them.
    """
    kind = "BPE" if byte_level else "WordPiece"
    file, contents = folder / NAME, folder.json(NAME, missing_ok=True)
    default = (None if byte_level else {**_NORMALIZER, "lowercase": lowercase}, _SPLITTERS[kind])
    normalizer, splitter = default
    if follows_file(config) and contents:
        if not isinstance(contents.get("model"), dict):
            raise ValueError(f"{file}: it has no model: download it again")
        _check_model(file, contents["model"], kind, tokenizer.special_names.get("unknown"))
        normalizer = _plain(contents.get("normalizer"))
        splitter = _plain(contents.get("pre_tokenizer"))
    elif normalizer is not None:
        chinese, accents = (
            _flag(folder, config, field) for field in ("tokenize_chinese_chars", "strip_accents")
        )
        flags = {"handle_chinese_chars": chinese is not False, "strip_accents": accents}
        normalizer = _plain({**normalizer, **flags})
    elif config.get("add_prefix_space"):
        splitter = {**_SPLITTERS[kind], "add_prefix_space": True}
    special = {*tokenizer.special_names.values(), *getattr(tokenizer, "unused_tokens", ())}
    tokens = _added_tokens(folder, config, contents, special, _base(tokenizer))
    if (normalizer, splitter) == default and not tokens:
        return None
    return {"normalizer": normalizer, "pre_tokenizer": splitter, "added_tokens": tokens}


def added_pieces(folder: Folder, config: Mapping[str, Any], tokenizer: Any) -> list[dict[str, Any]]:
    """Returns the tokens that a folder's files add to a SentencePiece vocabulary.

    Args:
        folder: has tokenizer.json, tokenizer_config.json or added_tokens.json.
        config: the contents of tokenizer_config.json.
        tokenizer: the tokenizer without the added tokens.

    Raises:
        ValueError: an id belongs to another token, or the file does not split texts as
            SentencePiece does; the message names it.
    """
    file, contents = folder / NAME, folder.json(NAME, missing_ok=True)
    tokens = _added_tokens(folder, config, contents, set(tokenizer.own_tokens), _base(tokenizer))
    model = contents.get("model")
    if follows_file(config) and isinstance(model, dict) and model.get("type") == "Unigram":
        check_pieces(
            file,
            contents,
            normalized=any(token["normalized"] for token in tokens),
            before=getattr(tokenizer, "normalizers", ()),
        )
    return tokens


def _base(tokenizer: Any) -> list[str]:
    """Returns the vocabulary, without tokens that only pad a model's matrices."""
    return list(tokenizer.vocabulary)[: getattr(tokenizer, "num_tokens", None)]


def tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    """Returns the tokenizer.json of a WordPiece tokenizer, or of another one with parts."""
    model: dict[str, Any]
    if tokenizer.parts is None:
        normalizer = {**_NORMALIZER, "lowercase": tokenizer.lowercase}
        splitter = _SPLITTERS["WordPiece"]
        parts = {"normalizer": normalizer, "pre_tokenizer": splitter, "added_tokens": []}
        num_added = 0
    else:
        parts, num_added = tokenizer.parts.description, len(tokenizer.parts.added)
    special = dict.fromkeys(tokenizer.special_names.values())
    vocabulary = list(tokenizer.vocabulary)
    base = vocabulary[: len(vocabulary) - num_added]
    ids = {token: token_id for token_id, token in enumerate(base)}
    if hasattr(tokenizer, "merges"):
        model = {"type": "BPE", "vocab": ids, "merges": [list(pair) for pair in tokenizer.merges]}
        options = {field: values[0] for field, values in _MODELS["BPE"].items()}
        model = {**model, **options, "unk_token": None}
        decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                   "use_regex": True}  # fmt: skip
    else:
        model = {"type": "WordPiece", "vocab": ids, "unk_token": tokenizer.special_names["unknown"]}
        model |= {field: values[0] for field, values in _MODELS["WordPiece"].items()}
        decoder = {"type": "WordPiece", "prefix": "##", "cleanup": False}
    flags = dict.fromkeys(_FLAGS, False)
    entries = [{"id": ids[token], "content": token, **flags, "special": True} for token in special]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted([*entries, *parts["added_tokens"]], key=lambda token: token["id"]),
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": _template(tokenizer, vocabulary),
        "decoder": decoder,
        "model": model,
    }


def decoder_of(tokenizer: Any) -> dict[str, dict[str, Any]]:
    """Returns the `added_tokens_decoder` of a SentencePiece tokenizer with added tokens."""
    flags = {**dict.fromkeys(_FLAGS, False), "special": True}
    ids = {token: token_id for token_id, token in enumerate(tokenizer.vocabulary)}
    entries = [{"id": ids[token], "content": token, **flags} for token in tokenizer.own_tokens]
    tokens = sorted([*entries, *tokenizer.added_tokens], key=lambda token: token["id"])
    return {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"}
        for token in tokens
    }


def _template(tokenizer: Any, vocabulary: list[str]) -> dict[str, Any]:
    """Returns the post-processor that adds the same special tokens around texts."""
    names: dict[str, int] = {}

    def items(around: list[list[int]]) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        for number, tokens in enumerate(around):
            for token_id in tokens:
                names[vocabulary[token_id]] = token_id
                kind = max(number - 1, 0)
                steps.append({"SpecialToken": {"id": vocabulary[token_id], "type_id": kind}})
            if number < len(around) - 1:
                steps.append({"Sequence": {"id": "AB"[number], "type_id": number}})
        return steps

    single, pair = items(tokenizer.special_tokens(1)), items(tokenizer.special_tokens(2))
    special = {
        name: {"id": name, "ids": [token_id], "tokens": [name]} for name, token_id in names.items()
    }
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def check_post_processor(folder: Folder, config: Mapping[str, Any], tokenizer: Any) -> None:
    """Raises ValueError if tokenizer.json adds different special tokens around texts."""
    if not follows_file(config) or hasattr(tokenizer, "languages"):  # it names one language
        return
    file, contents = folder / NAME, folder.json(NAME, missing_ok=True)
    processor = contents.get("post_processor")
    kind = processor.get("type") if isinstance(processor, dict) else processor
    if kind is None or kind == "ByteLevel":
        return
    theirs = _check_readable(file, contents)
    for texts in (("",), ("", "")):
        ids = theirs.encode(*texts).ids
        ours = [token_id for ids_ in tokenizer.special_tokens(len(texts)) for token_id in ids_]
        if ids != ours:
            raise ValueError(
                f"{file}: post_processor {kind} adds the ids {ids} around {len(texts)} text(s), "
                f"{type(tokenizer).__name__} {ours}: load the model that it belongs to"
            )


def _check_readable(file: Path, contents: Mapping[str, Any]) -> Any:
    """Loads a file with the library `tokenizers`; ValueError if it cannot read it."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(contents))
    except Exception as error:  # the only type that it raises
        raise ValueError(
            f"{file}: the tokenizers library cannot read it ({error}): download it again"
        ) from error


def _flag(folder: Folder, config: Mapping[str, Any], field: str) -> bool | None:
    value = config.get(field)
    if value is not None and not isinstance(value, bool):
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: {field}={value!r:.100}; expected true or false"
        )
    return value


def _plain(part: Any) -> Any:
    """Returns a part with defaults written out and without options that do not affect ids."""
    if not isinstance(part, dict):
        return part
    part = {name: value for name, value in part.items() if name != "trim_offsets"}
    if part.get("type") == "ByteLevel":
        part = {"add_prefix_space": True, "use_regex": True, **part}
    if part.get("type") == "BertNormalizer":
        part = {**_NORMALIZER, **part}
        if part["strip_accents"] == part["lowercase"]:
            part["strip_accents"] = None
    return part


def _check_model(file: Path, model: Mapping[str, Any], kind: str, unknown: str | None) -> None:
    if model.get("type", kind) != kind:
        raise ValueError(f"{file}: model {model['type']}; this family uses {kind}")
    if unknown is not None and kind == "WordPiece" and model.get("unk_token", unknown) != unknown:
        raise ValueError(
            f"{file}: model {kind} with unk_token={model['unk_token']!r}; unknown words of this "
            f"family are {unknown!r}"
        )
    for field, values in _MODELS[kind].items():
        if field in model and model[field] not in values:
            raise ValueError(
                f"{file}: model {kind} with {field}={model[field]!r}; only {values[0]!r} is "
                "supported here"
            )


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _added_tokens(
    folder: Folder,
    config: Mapping[str, Any],
    contents: Mapping[str, Any],
    special: set[Any],
    vocabulary: Sequence[str],
) -> list[dict[str, Any]]:
    """Returns the tokens to match in texts, later files first: flags, contents and ids.

    Special tokens without an id in any file get their id in the vocabulary, or one after all
    others.
    """
    file, told = folder / _ADDED, folder / "tokenizer_config.json"
    for field, value in config.items():
        if field.endswith("_token") and (content := _content(value)) is not None:
            if not isinstance(content, str | bool):  # add_bos_token is a flag
                raise ValueError(f"{told}: {field}={value!r:.100}; expected a token")
            special = special | {content}
    by_content: dict[str, dict[str, Any]] = {}
    extra = _extra_tokens(folder, config)

    def add(source: Path, token: Any, **others: Any) -> None:
        token = {**others, **token} if isinstance(token, dict) else {}
        content, token_id = token.get("content"), token.get("id")
        if not isinstance(content, str) or not content or type(token_id) is not int:
            raise ValueError(
                f"{source}: an added token needs content and an id, not {token!r:.100}"
            )
        by_content[content] = token

    for content, token_id in folder.json(_ADDED, missing_ok=True).items():
        is_special = content in extra
        token = {"id": token_id, "content": content, "special": is_special}
        add(file, token, normalized=not is_special)
    listed = contents.get("added_tokens") or []
    if not isinstance(listed, list):
        raise ValueError(f"{folder / NAME}: added_tokens={listed!r:.100}; expected a list")
    for token in listed:
        add(folder / NAME, token)
    by_id = config.get("added_tokens_decoder") or {}
    if not isinstance(by_id, dict) or not all(str(token_id).isdecimal() for token_id in by_id):
        raise ValueError(f"{told}: added_tokens_decoder={by_id!r:.100}; expected ids -> tokens")
    for token_id, token in by_id.items():
        add(told, token, id=int(token_id))
    ids = {token: token_id for token_id, token in enumerate(vocabulary)}
    for content, token in extra.items():
        if content not in by_content and content not in special:
            after = max([len(vocabulary) - 1, *(token["id"] for token in by_content.values())]) + 1
            by_content[content] = {**token, "id": ids.get(content, after), "special": True}
    for content, token in by_content.items():
        token_id = token["id"]
        if ids.get(content, token_id) != token_id:
            raise ValueError(
                f"{folder}: the added token {content!r} has the id {token_id}, but the id "
                f"{ids[content]} in the vocabulary: a token can have only one id"
            )
        if token_id < len(vocabulary) and vocabulary[token_id] != content:
            raise ValueError(
                f"{folder}: the added token {content!r} has the id {token_id}, which the "
                f"vocabulary gives to {vocabulary[token_id]!r}: an id can have only one token"
            )
    return [
        {
            "id": token["id"],
            "content": token["content"],
            **{flag: bool(token.get(flag, False)) for flag in _FLAGS},
        }
        for token in sorted(by_content.values(), key=lambda token: token["id"])
        if token["content"] not in special
    ]


def _extra_tokens(folder: Folder, config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the special tokens without a name, by content, which old files may list."""
    is_old = "added_tokens_decoder" not in config
    old = folder.json("special_tokens_map.json", missing_ok=True) if is_old else {}
    by_content: dict[str, dict[str, Any]] = {}
    for listed in (config, old):
        for field in ("additional_special_tokens", "extra_special_tokens"):
            tokens = listed.get(field) or []
            tokens = list(tokens.values()) if isinstance(tokens, dict) else tokens
            if not isinstance(tokens, list):
                raise ValueError(f"{folder}: {field}={tokens!r:.100}; expected a list of tokens")
            for token in tokens:
                content = _content(token)
                if not isinstance(content, str) or not content:
                    raise ValueError(f"{folder}: {field} has {token!r:.100}; expected a token")
                by_content.setdefault(
                    content, {"content": content, **(token if isinstance(token, dict) else {})}
                )
    return by_content
