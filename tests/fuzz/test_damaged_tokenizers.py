"""Tokenizers of language models: a damaged file is read, or refused by name in one error."""

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from reader import Reader, as_json, check_reader
from sentencepiece import sentencepiece_model_pb2

from keras_transformers.families.llama.tokenizers import (
    gguf_tokenizer,
    language_tokenizer,
)
from keras_transformers.tokenizers.byte_pairs.files import byte_symbols

SPACES = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
DIGITS = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    ],
}
FALLBACKS = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["<unk>", "<s>", "</s>", *FALLBACKS, "▁a", "▁", "a", "b", "▁ab"]
KINDS = [2, 3, 3, *[6] * 256, *[1] * 5]
SYMBOLS = ["<|end|>", *byte_symbols(), "ab", "abb"]
CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "legacy": False,
    "bos_token": {"content": "<s>", "lstrip": False},
    "eos_token": "</s>",
    "add_bos_token": True,
    "added_tokens_decoder": {"1": {"content": "<s>", "special": True}},
}


def file(model: dict[str, Any], tokens: list[str], special: str, **parts: Any) -> dict[str, Any]:
    item = {"SpecialToken": {"id": special, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    other = {"Sequence": {"id": "B", "type_id": 0}}
    number = tokens.index(special)
    return {
        "added_tokens": [{"id": number, "content": special, "special": True}],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [item, text],
            "pair": [item, text, other],
            "special_tokens": {special: {"id": special, "ids": [number], "tokens": [special]}},
        },
        "model": {
            "type": "BPE",
            **model,
            "vocab": {token: number for number, token in enumerate(tokens)},
        },
        **parts,
    }


OF_PIECES = file(
    {"byte_fallback": True, "merges": [["▁", "a"], ["▁a", "b"]]}, PIECES, "<s>", normalizer=SPACES
)
OF_BYTES = file(
    {"ignore_merges": True, "merges": ["a b", "ab b"]}, SYMBOLS, "<|end|>", pre_tokenizer=DIGITS,
    decoder={"type": "ByteLevel"},
)  # fmt: skip


def gguf(model: str, tokens: list[str], kinds: list[int], **fields: Any) -> dict[str, Any]:
    arrays = {"model": model, "tokens": tokens, "token_type": kinds, "bos_token_id": 1, **fields}
    return {f"tokenizer.ggml.{name}": value for name, value in arrays.items()}


def sentencepiece_model() -> bytes:
    proto: Any = sentencepiece_model_pb2
    found = proto.ModelProto()
    for number, (piece, kind) in enumerate(zip(PIECES, KINDS, strict=True)):
        found.pieces.add(piece=piece, score=-number, type=kind)
    found.trainer_spec.model_type = 2
    found.trainer_spec.byte_fallback = True
    found.normalizer_spec.remove_extra_whitespaces = False
    contents: bytes = found.SerializeToString()
    return contents


def use(tokenizer: Any) -> None:
    ids = tokenizer.tokenize(tf.constant(["ab 12 <s>é", ""]))
    tokenizer.detokenize(ids)


def read(path: Path) -> None:
    use(language_tokenizer(path.parent))


def read_config(path: Path) -> None:
    (path.parent / "tokenizer.json").write_text(json.dumps({**OF_PIECES, "post_processor": None}))
    use(language_tokenizer(path.parent))


def read_arrays(path: Path) -> None:
    try:
        fields = json.loads(path.read_bytes())
    except ValueError:
        return  # GGUF itself is damaged elsewhere
    if isinstance(fields, dict):
        use(gguf_tokenizer(fields, path))


READERS = {
    "pieces of a language model": Reader(
        "tokenizer.json", as_json(OF_PIECES), read, is_json=True, examples=20
    ),
    "bytes of a language model": Reader(
        "tokenizer.json", as_json(OF_BYTES), read, is_json=True, examples=20
    ),
    "config of a language model": Reader(
        "tokenizer_config.json", as_json(CONFIG), read_config, is_json=True,
        others=("tokenizer.json",), examples=20,
    ),
    "sentencepiece": Reader("tokenizer.model", sentencepiece_model, read, examples=20),
    "gguf's bytes": Reader(
        "a.gguf",
        as_json(gguf("gpt2", SYMBOLS, [3, *[1] * 258], merges=["a b", "ab b"], pre="qwen2")),
        read_arrays,
        is_json=True,
        examples=20,
    ),
    "gguf's pieces": Reader(
        "a.gguf",
        as_json(gguf("llama", PIECES, KINDS, scores=[-float(i) for i in range(len(PIECES))])),
        read_arrays,
        is_json=True,
        examples=20,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_tokenizer_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
