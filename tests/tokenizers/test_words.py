"""Running text cut into words."""

import pytest
import tensorflow as tf

from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.tokenizers.words import begins_word

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *"().,:-%'\"!"]
VOCABULARY += [f"##{letter}" for letter in LETTERS]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


def cut(tokenizer, texts):
    """Words of texts, as they stand there."""
    raw = [text.encode() if isinstance(text, str) else text for text in texts]
    token_ids, starts, ends = tokenizer.tokenize_with_offsets(raw)
    begins = begins_word(tf.constant(raw, tf.string), starts, ends).numpy()
    assert len(begins) == len(token_ids.values)
    words = [[] for _ in texts]
    spans = zip(starts.value_rowids().numpy(), starts.values.numpy(), ends.values.numpy(),
                begins, strict=True)  # fmt: skip
    for row, start, end, is_first in spans:
        if is_first:
            words[row].append([start, end])
        words[row][-1][1] = end
    return [
        [text[start:end].decode("utf-8", "replace") for start, end in row]
        for text, row in zip(raw, words, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plain words", ["plain", "words"]),
        ("(U.N. officials)", ["(", "U.N", ".", "officials", ")"]),
        ("Jean-Pierre's 3.5%...", ["Jean-Pierre's", "3.5", "%", ".", ".", "."]),
        ('"ok", he', ['"', "ok", '"', ",", "he"]),
        ("--- a", ["-", "-", "-", "a"]),
        # Marks and characters that the vocabulary has not.
        ("“naïve” ¿x… §9", ["“", "naïve", "”", "¿", "x", "…", "§", "9"]),
        ("中国人民。x y中z", ["中", "国", "人", "民", "。", "x", "y", "中", "z"]),
        ("한국어 e\u0301te\u0301! 🎬", ["한국어", "e\u0301te\u0301", "!", "🎬"]),
        ("a\u200bb\u200b c\u00a0d\u3000e", ["a\u200bb\u200b", "c", "d", "e"]),
        ("!\u200b?", ["!\u200b", "?"]),
        ("x" * 150 + ".", ["x" * 150, "."]),
        (b"a\xffb \xff c,\xff", ["a\ufffdb", "c", ",\ufffd"]),
        ("", []),
        (" \u200b ", []),
    ],
)
def test_words_of_a_text(tokenizer, text, words):
    assert cut(tokenizer, [text]) == [words]


def test_texts_do_not_touch_each_other(tokenizer):
    texts = ["", "a.", "", ".b", "中", "c", "", " "]
    assert cut(tokenizer, texts) == [[], ["a", "."], [], [".", "b"], ["中"], ["c"], [], []]
    assert cut(tokenizer, []) == []


def test_most_words_of_a_corpus_come_back(data_dir, minilm_dir):
    """CoNLL-2003's words, put behind each other with spaces and cut again."""
    from keras_transformers.data.text.conll import load

    tokenizer = WordPieceTokenizer(minilm_dir / "vocab.txt", lowercase=False)
    sentences = load(next(data_dir.glob("conll2003/*testa*"))).words[:500]
    texts = [" ".join(words) for words in sentences]
    same = total = 0
    for words, found in zip(sentences, cut(tokenizer, texts), strict=True):
        same += len(set(_spans(words)) & set(_spans(found)))
        total += len(words)
    assert same / total > 0.95


def _spans(words):
    position = 0
    for word in words:
        yield position, word
        position += len(word)
