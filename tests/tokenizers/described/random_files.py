"""Random tokenizer.json files of the kinds that `tokenizers` can express, and awkward lines."""

# ruff: noqa: RUF001

import itertools

from tokenizers import pre_tokenizers

OWN = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = "the film good café schön Good is 123 n't don 日本 語 a b e é ö G o d 1 2 3 , . ! ' - # s t"
PIECES = [
    *("the", "film", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "good", "Good", "GOOD"),
    *(
        "café",
        "cafe\u0301",
        "a\u0323\u0302",
        "o\u0302\u0323",
        "schön",
        "Straße",
        "İ",
        "ﬁ",
        "Ｇｏｏｄ",
    ),
    *(
        "日本",
        "語",
        "한국",
        "\u1112\u1161\u11ab",
        "\uac00\u11a8",
        "😀",
        "👩\u200d🔬",
        "\u200b",
        "\u200d",
    ),
    *("\x00", "\x01", "\x7f", "\ufeff", "\u00ad", "don't", "'S", "'ll", "'Ve", "'ſ", "''s", "!'s"),
    *("1", "123", "12345", "½", "١٢", "!", "!!", "...", ",", "(", "-", "—", "、", "<user>", "[E1]"),
    *(
        "xabc",
        "abc",
        "abcd",
        "<user",
        "foo",
        "Ｆoo",
        "É",
        "E\u0301",
        "[SEP]",
        "[UNK]",
        "ॐ",
        "ᾳ",
        "Ǆ",
    ),
]


def awkward(generator, count=150):
    lines = ["", " ", "\n", "<user>", *PIECES]
    for _ in range(count):
        lines.append("".join(generator.choices(PIECES, k=generator.randint(2, 9))))
    return lines


def _flag(generator):
    return generator.random() < 0.3


def bert_normalizer(generator):
    return {
        "type": "BertNormalizer",
        "clean_text": not _flag(generator),
        "handle_chinese_chars": not _flag(generator),
        "strip_accents": generator.choice([None, True, False]),
        "lowercase": not _flag(generator),
    }


def normalizer(generator):
    if generator.random() < 0.05:
        return {"type": "Replace", "pattern": {"Regex": "a(?=b)"}, "content": ""}
    kinds = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]
    return generator.choice(
        [
            *({"type": kind} for kind in kinds),
            *[bert_normalizer(generator)] * 3,
            {"type": "Strip", "strip_left": _flag(generator), "strip_right": True},
            {"type": "Prepend", "prepend": generator.choice(["_", "a b", " "])},
            {"type": "Replace", "pattern": {"String": "o"}, "content": "00"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Replace", "pattern": {"Regex": r"[0-9]"}, "content": ""},
            None,
        ]
    )


def maybe_sequence(generator, make, key):
    parts = [make(generator) for _ in range(generator.choice([1, 1, 2, 3]))]
    parts = [part for part in parts if part is not None]
    if len(parts) == 1:
        return parts[0]
    return {"type": "Sequence", key: parts} if parts else None


def splitter(generator):
    if generator.random() < 0.05:
        return {"type": "UnicodeScripts"}
    behaviors = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    pattern = generator.choice([GPT2, LLAMA3, QWEN2])
    split = {"type": "Split", "invert": False, "behavior": generator.choice(behaviors)}
    return generator.choice(
        [
            {"type": "BertPreTokenizer"},
            {"type": "Whitespace"},
            {"type": "WhitespaceSplit"},
            {"type": "Punctuation", "behavior": generator.choice(behaviors)},
            {"type": "Digits", "individual_digits": _flag(generator)},
            {**split, "pattern": {"Regex": pattern}, "behavior": "Isolated"},
            {**split, "pattern": {"Regex": generator.choice([r"\s+", r"\d", "[a-f]", r"\p{P}+"])}},
            {**split, "pattern": {"String": generator.choice(["!", " ", "o"])}},
        ]
    )


def byte_level(generator):
    return {
        "type": "ByteLevel",
        "add_prefix_space": _flag(generator),
        "trim_offsets": True,
        "use_regex": not _flag(generator),
    }


def added_tokens(generator, vocabulary):
    contents = ["<user>", "[E1]", "abc", "ab", "foo", "é", "日", "Good"]
    chosen = generator.sample(contents, generator.choice([0, 1, 2, 4]))
    new = itertools.count(len(vocabulary))
    return [
        {
            "id": vocabulary[content] if content in vocabulary else next(new),
            "content": content,
            "single_word": _flag(generator),
            "lstrip": _flag(generator),
            "rstrip": _flag(generator),
            "normalized": generator.random() < 0.5,
            "special": _flag(generator),
        }
        for content in chosen
    ]


def word_piece(generator):
    words = dict.fromkeys([*OWN[:5], *WORDS.split()])
    pieces = [
        "s",
        "e",
        "é",
        "ö",
        "t",
        "1",
        "2",
        "3",
        "日",
        "本",
        "o",
        "d",
        "!",
        "m",
        "ilm",
        "#",
        "'",
        "0",
    ]
    vocabulary = [*words, *(f"##{piece}" for piece in pieces)]
    return {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {token: i for i, token in enumerate(vocabulary)},
    }


def byte_pairs(generator):
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ["t h", "th e", "Ġ the", "Ġ t", "f i", "fi l", "fil m", "Ġ film", "1 2", "12 3", "Ġ 1"]
    merges += ["o o", "g oo", "goo d", "Ġ good", "Ã ©", "i s", "' s", "Ġ Ġ", "! !", "Ċ Ċ", "Ġ !"]
    tokens = [*symbols, *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": _flag(generator) and _flag(generator),
        "vocab": {token: i for i, token in enumerate(dict.fromkeys(tokens))},
        "merges": [merge.split(" ") for merge in merges],
    }


def random_file(generator):
    bytes_ = generator.random() < 0.5
    model = byte_pairs(generator) if bytes_ else word_piece(generator)
    split = maybe_sequence(generator, splitter, "pretokenizers")
    if bytes_:
        parts = [] if _flag(generator) else [split] if split else []
        parts.append(byte_level(generator))
        split = {"type": "Sequence", "pretokenizers": parts} if len(parts) > 1 else parts[0]
    own = [token for token in OWN if token in model["vocab"]]
    specials = [
        {"id": model["vocab"][token], "content": token, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for token in own
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*specials, *added_tokens(generator, model["vocab"])],
        "normalizer": maybe_sequence(generator, normalizer, "normalizers"),
        "pre_tokenizer": split,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def without_own(contents):
    """The file whose own special tokens are ordinary text, as they are here."""
    kept = [token for token in contents["added_tokens"] if token["content"] not in OWN]
    return {**contents, "added_tokens": kept}
