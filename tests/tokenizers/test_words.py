"""Text split into words, and the first token of each word."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.tokenizers import WordPieceTokenizer, words
from keras_transformers.tokenizers.offsets import to_characters

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def cut(texts):
    """Returns the words of texts, unchanged."""
    found = words.split(tf.constant(texts, tf.string)).to_list()
    return [[word.decode("utf-8", "replace") for word in row] for row in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", ["plain", "words"]),
        ("(U.N. officials)", ["(", "U.N", ".", "officials", ")"]),
        ("Jean-Pierre's 3.5%...", ["Jean-Pierre's", "3.5", "%", ".", ".", "."]),
        ('"ok", he', ['"', "ok", '"', ",", "he"]),
        ("--- a", ["-", "-", "-", "a"]),
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
def test_words_of_a_text(text, expected):
    assert cut([text]) == [expected]


def test_texts_do_not_touch_each_other():
    texts = ["", "a.", "", ".b", "中", "c", "", " ", "\u0301", "a"]
    expected = [[], ["a", "."], [], [".", "b"], ["中"], ["c"], [], [], ["\u0301"], ["a"]]
    assert cut(texts) == expected
    assert cut([]) == []


def test_a_graph_has_core_ops_alone():
    serve = tf.function(words.spans, input_signature=[tf.TensorSpec([None], tf.string)])
    starts, ends = serve(tf.constant(["a b.", ""]))
    assert (starts.to_list(), ends.to_list()) == ([[0, 2, 3], []], [[1, 3, 4], []])
    assert {side.dtype for side in (starts, ends)} == {tf.int32}
    graph = serve.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    own = {f.signature.name for f in graph.library.function}
    assert not {node.op for node in nodes if not hasattr(tf.raw_ops, node.op)} - own


def test_most_words_of_a_corpus_come_back(data_dir):
    """CoNLL-2003's words, joined with spaces and split again."""
    from keras_transformers.data.text import load_conll

    sentences = load_conll(next(data_dir.glob("conll2003/*testa*"))).words[:500]
    same = total = 0
    for row, found in zip(sentences, cut([" ".join(row) for row in sentences]), strict=True):
        same += len(set(_places(row)) & set(_places(found)))
        total += len(row)
    assert same / total > 0.95


def _places(row):
    position = 0
    for word in row:
        yield position, word
        position += len(word)


# --- words and tokens --------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_begin_where_bert_begins_a_token(lowercase):
    """With any characters: no BERT token contains parts of two words."""
    tokenizer = WordPieceTokenizer([*SPECIAL, "a"], lowercase=lowercase)  # contains no word
    random = np.random.default_rng(0)
    alphabet = [*"ab .,!()'\"-“”中国éo\u200b\u00ad🎬§½한\u00a0\u3000\t\n\x00", "e\u0301"]
    texts = ["".join(random.choice(alphabet, random.integers(0, 20))) for _ in range(2000)]
    starts, ends = words.spans(tf.constant(texts))
    _, *tokens = tokenizer.tokenize_with_offsets(texts)
    first, has_tokens = words.first_tokens(starts, ends, *tokens)
    assert has_tokens.numpy().all()
    # A word's first token starts where it starts; the one before the next word ends where it ends.
    np.testing.assert_array_equal(tf.gather(tokens[0].values, first), starts.values)
    last = tf.concat([first[1:], [tokens[0].values.shape[0]]], axis=0) - 1
    np.testing.assert_array_equal(tf.gather(tokens[1].values, last), ends.values)


def test_first_tokens_of_any_tokenizer():
    """Tokens with a leading space, with two words, with part of a character, and none at all."""
    text = ["(a “b” c", "", "d"]
    starts, ends = words.spans(tf.constant(text))
    assert cut(text) == [["(", "a", "“", "b", "”", "c"], [], ["d"]]
    #        (a     ' “'    '“'     b       ”       ' '       d
    spans = [[(0, 2), (2, 6), (3, 6), (6, 7), (7, 10), (10, 11)], [], [(0, 1)]]
    tokens = [
        tf.RaggedTensor.from_row_lengths(
            tf.constant([span[side] for row in spans for span in row], tf.int32), [6, 0, 1]
        )
        for side in (0, 1)
    ]
    first, has_tokens = words.first_tokens(starts, ends, *tokens)
    assert first.numpy()[has_tokens].tolist() == [0, 0, 1, 3, 4, 6]
    assert has_tokens.numpy().tolist() == [True] * 5 + [False, True]  # c has no token


def test_words_are_joined_to_texts():
    rows = tf.RaggedTensor.from_row_lengths(["é", "b", "", "ccc", "d"], [2, 0, 2, 1])
    text, starts, ends = words.join(rows)
    assert [row.decode() for row in text.numpy()] == ["é b", "", " ccc", "d"]
    assert starts.to_list() == [[0, 3], [], [0, 1], [0]]
    assert ends.to_list() == [[2, 4], [], [0, 4], [1]]
    assert to_characters(text, ends).to_list() == [[1, 3], [], [0, 4], [1]]
    _, starts, _ = words.join(tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.string), []))
    assert starts.to_list() == []
