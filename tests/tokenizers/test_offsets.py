"""Token spans in the original text, and windows over long texts."""

import runpy
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from keras_transformers.tokenizers import WordPieceTokenizer, windows
from keras_transformers.tokenizers.offsets import to_characters

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh?"]


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(GOLDEN / "make_wordpiece.py"))


@pytest.fixture(scope="module")
def small():
    return WordPieceTokenizer(SMALL)


def hugging_face(vocabulary, lowercase):
    """BERT's tokenizer from the `tokenizers` package, which returns offsets in characters."""
    model = models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


# --- offsets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_are_those_without_offsets(maker, lowercase):
    tokenizer = WordPieceTokenizer(maker["VOCABULARY"], lowercase=lowercase)
    texts = [text.encode() for text in maker["TEXTS"]] + maker["INVALID"]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert {tensor.dtype for tensor in (ids, starts, ends)} == {tf.int32}
    for text, found, expected in zip(
        texts, ids.to_list(), tokenizer.tokenize(texts).to_list(), strict=True
    ):
        assert found == expected, text
    for text, *spans in zip(texts, starts.to_list(), ends.to_list(), strict=True):
        begins, stops = (np.array(side) for side in spans)
        assert np.all(begins < stops), text
        assert np.all(np.diff(begins) >= 0), text
        assert np.all(stops <= len(text)), text


@pytest.mark.parametrize("lowercase", [True, False])
def test_offsets_are_those_of_hugging_face(maker, lowercase):
    reference = hugging_face(maker["VOCABULARY"], lowercase)
    tokenizer = WordPieceTokenizer(maker["VOCABULARY"], lowercase=lowercase)
    texts = [*maker["TEXTS"], "The cafe\u0301 🎬👩‍👩‍👧 中国 «Faust»\n각 \u200bfin\u200b."]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    starts, ends = (to_characters(tf.constant(texts), side).to_list() for side in (starts, ends))
    num_tokens = 0
    for text, *found in zip(texts, ids.to_list(), starts, ends, strict=True):
        encoding = reference.encode(text, add_special_tokens=False)
        assert found[0] == encoding.ids, text
        for start, end, (first, last) in zip(*found[1:], encoding.offsets, strict=True):
            num_tokens += 1
            assert start == first, (text, start)
            # Our spans include characters deleted after a token, Hugging Face's do not.
            assert last <= end, (text, start)
            rest = reference.normalizer.normalize_str(text[last:end])
            assert rest == "", (text, start, text[last:end])
    assert num_tokens > 300


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("a b", ["a", "b"]),
        ("\u00e0\u00e9 b", ["\u00e0\u00e9", "b"]),
        ("ab\u0301\u0302 c", ["ab\u0301\u0302", "c"]),
        ("\u0301a", ["a"]),
        ("🎬?", ["🎬", "?"]),
        ("👩\u200d👧 a", ["👩\u200d👧", "a"]),
        ("中国a", ["中", "国", "a"]),
        ("“a”", ["“", "a", "”"]),
        (" \t\n a\u00a0b ", ["a", "b"]),
        ("각a", ["각a"]),
        ("b\u200b c", ["b\u200b", "c"]),
        ("x" * 101 + " a", ["x" * 101, "a"]),
        ("a " + "y" * 500 + "?" + "é" * 120 + "b c", ["a", "y" * 500, "?", "é" * 120 + "b", "c"]),
        ("", []),
        ("  ", []),
    ],
)
def test_spans_of_words(text, spans):
    # With "##x" for each letter, words would split; here each is a letter, unknown or a mark.
    tokenizer = WordPieceTokenizer(SMALL)
    _, starts, ends = tokenizer.tokenize_with_offsets(["a?", text, "b"])
    raw = text.encode()
    bounds = zip(starts[1].numpy(), ends[1].numpy(), strict=True)
    assert [raw[start:end].decode() for start, end in bounds] == spans
    characters = to_characters(tf.constant(["a?", text, "b"]), starts)[1].numpy().tolist()
    assert characters == [len(raw[:start].decode()) for start in starts[1].numpy()]


def test_one_character_that_becomes_several_tokens():
    hangul = unicodedata.normalize("NFD", "각")
    tokenizer = WordPieceTokenizer([*SMALL, hangul[0], *(f"##{c}" for c in hangul[1:])])
    ids, starts, ends = tokenizer.tokenize_with_offsets(["a 각 b"])
    assert ids.to_list() == [[5, 14, 15, 16, 6]]
    assert starts.to_list() == [[0, 2, 2, 2, 6]]
    assert ends.to_list() == [[1, 5, 5, 5, 7]]


def test_offsets_of_nothing(small):
    for texts in ([], ["", " "]):
        for side in small.tokenize_with_offsets(texts):
            assert side.to_list() == [[] for _ in texts]
    with pytest.raises(ValueError, match=r"text of shape \(\)"):
        small.tokenize_with_offsets("a")


# --- windows ---------------------------------------------------------------------------------


def windows_one_by_one(num_tokens, room, step):
    starts = [0]
    while starts[-1] + room < num_tokens:
        starts.append(starts[-1] + step)
    return [(start, min(room, num_tokens - start)) for start in starts]


def test_windows_as_one_would_cut_them():
    sizes = [
        (n, room, step) for n in range(12) for room in range(1, 6) for step in range(1, room + 1)
    ]
    plan = windows.plan(*zip(*sizes, strict=True))
    found = [[] for _ in sizes]
    for row, start, length in zip(*(part.numpy().tolist() for part in plan), strict=True):
        found[row].append((start, length))
    assert found == [windows_one_by_one(*size) for size in sizes]
    for (num_tokens, *_), spans in zip(sizes, found, strict=True):
        covered = {at for start, length in spans for at in range(start, start + length)}
        assert covered == set(range(num_tokens))


def test_a_question_beside_windows_of_its_context(small):
    packed = windows.question_windows(
        small,
        ["a?", "b b b", ""],
        ["c d e f g", "h", ""],
        max_sequence_length=8,
        doc_stride=2,
        max_question_length=2,
    )
    assert packed.pop("padding_mask").numpy().sum(axis=1).tolist() == [8, 8, 6, 3]
    assert {name: value.numpy().tolist() for name, value in packed.items()} == {
        "token_ids": [
            [2, 5, 13, 3, 7, 8, 9, 3],
            [2, 5, 13, 3, 9, 10, 11, 3],
            [2, 6, 6, 3, 12, 3, 0, 0],
            [2, 3, 3, 0, 0, 0, 0, 0],
        ],
        "segment_ids": [[0] * 4 + [1] * 4] * 2 + [[0] * 4 + [1] * 2 + [0] * 2, [0, 0, 1] + [0] * 5],
        "rows": [0, 0, 1, 2],
        "starts": [
            [-1] * 4 + [0, 2, 4, -1],
            [-1] * 4 + [4, 6, 8, -1],
            [-1] * 4 + [0, -1, -1, -1],
            [-1] * 8,
        ],
        "ends": [
            [-1] * 4 + [1, 3, 5, -1],
            [-1] * 4 + [5, 7, 9, -1],
            [-1] * 4 + [1, -1, -1, -1],
            [-1] * 8,
        ],
        # The questions have tokens 0 to 4, of which number 4 is cut off; the contexts 5 to 10.
        "numbers": [
            [-1, 0, 1, -1, 5, 6, 7, -1],
            [-1, 0, 1, -1, 7, 8, 9, -1],
            [-1, 2, 3, -1, 10, -1, -1, -1],
            [-1] * 8,
        ],
    }


def test_a_stride_above_the_room_leaves_no_gaps(small):
    packed = windows.question_windows(
        small, ["a"], ["b c d e f g"], max_sequence_length=6, doc_stride=128, max_question_length=2
    )
    starts = packed["starts"].numpy()
    assert sorted(starts[starts >= 0]) == [0, 2, 4, 6, 8, 10]


@pytest.mark.slow
def test_windows_in_a_graph_of_core_ops(small):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def serve(question, context):
        packed = windows.question_windows(
            small, question, context, max_sequence_length=9, doc_stride=2, max_question_length=3
        )
        _, starts, _ = small.tokenize_with_offsets(context)
        return packed, to_characters(context, starts)

    packed, _ = serve(tf.constant(["a", "b?"]), tf.constant(["c d e f g h", "é"]))
    assert packed["token_ids"].shape[1] == packed["starts"].shape[1] == 9
    graph = serve.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    own = {f.signature.name for f in graph.library.function}
    beyond = {node.op for node in nodes if not hasattr(tf.raw_ops, node.op)} - own
    assert beyond == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
    with pytest.raises(tf.errors.InvalidArgumentError, match="question and context differ"):
        serve(tf.constant(["a"]), tf.constant(["b", "c"]))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((8, 0, 2), "doc_stride=0"),
        ((8, 2, 0), "max_question_length=0"),
        ((8, 2, 5), "max_sequence_length=8 .*context"),
    ],
)
def test_windows_without_room(small, lengths, message):
    names = ("max_sequence_length", "doc_stride", "max_question_length")
    with pytest.raises(ValueError, match=message):
        windows.question_windows(small, ["a"], ["b"], **dict(zip(names, lengths, strict=True)))
