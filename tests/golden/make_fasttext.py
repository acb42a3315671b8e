"""Makes fasttext.json with the reference: the package fasttext-wheel, or fasttext.

    python tests/golden/make_fasttext.py

The ids of `TEXTS` in several settings, sorted. The package does not show them, but the mean of the
vectors does, when the table of vectors is the identity matrix: it has the share of each id. Several
numbers of buckets without a common divisor tell hashes apart as millions of buckets would.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "fasttext.json"
CORPUS = [
    "the film is good , the best of the year",
    "the plot is not good ; was it the worst ?",
    "Größe ist nicht alles . 电影 很 好看 film 😂",
    "a b c ab <b> the",
]
SETTINGS = [  # word_ngrams, min_characters, max_characters, num_buckets
    (1, 0, 0, 0),
    (2, 0, 0, 199),
    (5, 0, 0, 211),
    (1, 3, 6, 199),
    (1, 1, 1, 128),
    (1, 0, 2, 197),
    (3, 2, 4, 211),
    (2, 3, 3, 1),
]
TEXTS: list[str | bytes] = [
    # Real: what people write.
    "the film is good",
    "A moving, well acted film - the best of 2019, if you ask me!",
    "the the the best best film , is it not ?",
    "Die Größe der STRASSE ist nicht alles, meint Ærøskøbing.",
    "我喜欢看 电影 。 这部电影很好看 !",
    "한국어 문장입니다. 日本語のテキスト、カタカナ",
    "यह हिन्दी का वाक्य है। ภาษาไทยไม่มีช่องว่าง",
    "So good 😂😂 👍🏽 family: 👨‍👩‍👧‍👦 flag: 🇩🇪 heart: ❤️ :-) <3",
    "https://example.com/a?b=c&d=%20#e me@example.org C++ > C# & x^2 ~ y_1 | `code`",
    # Hostile: blanks, marks, short words, bytes that are no UTF-8.
    "",
    " ",
    " \t\r\v\f  ",
    "a\tb\rc\vab\fthe  film\x00is\x00\x00good \x00",
    "a\u00a0b c\u2003the film\u3000is good\u0085end\u2028line \u200b \ufeff",
    "a b c d é 中 😂 ab ée",
    "< > <b> <b b> << >> <> <film> < film >",
    "</s </S> s> x</s> </s>x",
    "e\u0301 a\u0308\u0323o\u0302\u0301 \u0301alone n\u20ddo",
    b"\x80 \x80\x80 a\x80 \xbf\xbfb \x80film\x80",
    b"\xff\xfe is no UTF-8 \xc3( \xe4\xb8 \xf0\x9f\x98 \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80",
    b"\xf0\x9f\x98\x82\x82\x82\x82\x82 caf\xe9 na\xefve \xa0 x\xa0y",
    b"\x01\x02 \x7f \x1c\x1d\x1e\x1f \x08the",
    "long" * 60 + " " + "ß" * 90 + " end",
    "word " * 40,
]


def golden() -> dict[str, object]:
    """The dictionary, as the package orders it, and the sorted ids of each text by setting."""
    import fasttext

    words: list[str] = []
    ids = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.txt")
        lines = [f"__label__{i % 2} {text}\n" for i, text in enumerate(CORPUS)]
        file.write_text("".join(lines), "utf-8")
        for word_ngrams, minn, maxn, bucket in SETTINGS:
            arguments = {"wordNgrams": word_ngrams, "minn": minn, "maxn": maxn, "bucket": bucket}
            model = fasttext.train_supervised(
                str(file), dim=2, epoch=1, thread=1, minCount=1, verbose=0, **arguments
            )
            words = model.get_words()
            ids.append([_ids(model, text, len(words) + bucket) for text in TEXTS])
    return {"words": words, "ids": ids}


def _ids(model: object, text: str | bytes, vocabulary_size: int) -> list[int]:
    """The ids of a text by the identity matrix as the table of vectors."""
    import fasttext_pybind

    line = (text.encode() if isinstance(text, str) else text) + b"\n"
    f = model.f  # type: ignore[attr-defined]
    f.setMatrices(np.eye(vocabulary_size, dtype="float32"), f.getOutputMatrix())
    vector = fasttext_pybind.Vector(vocabulary_size)
    f.getSentenceVector(vector, line)
    shares = np.array(vector)
    # "</s>" is there once, as each text ends with it and no n-gram has a word's id.
    counts = shares / shares[model.get_word_id("</s>")]  # type: ignore[attr-defined]
    assert np.abs(counts - counts.round()).max() < 1e-3
    return np.repeat(np.arange(vocabulary_size), counts.round().astype(int)).tolist()


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(golden(), separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
