"""WordPiece: the ids of Hugging Face's BERT tokenizer, packed, in and out of the graph."""

import doctest
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformers.tokenizers import WordPieceTokenizer, packing, wordpiece

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##s", "good", "film", "!"]


@pytest.fixture(scope="module")
def maker():
    """The functions and texts that made the golden file."""
    return runpy.run_path(str(GOLDEN / "make_wordpiece.py"))


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "wordpiece.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def texts(maker):
    return [text.encode() for text in maker["TEXTS"]] + maker["INVALID"]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(SMALL)


def as_lists(packed):
    return {name: value.numpy().tolist() for name, value in packed.items()}


# --- the reference ---------------------------------------------------------------------------


def assert_equal_ids(tokenizer, texts, expected):
    for text, found, ids in zip(texts, tokenizer.tokenize(texts).to_list(), expected, strict=True):
        assert found == ids, text


def test_ids_on_the_vocabulary_of_minilm(golden, texts, minilm_dir):
    tokenizer = WordPieceTokenizer(minilm_dir / "vocab.txt")
    assert_equal_ids(tokenizer, texts, golden["minilm"])
    assert tokenizer.vocabulary_size == len(tokenizer.vocabulary) == 30522
    names = ("pad", "unknown", "cls", "sep", "mask")
    ids = [getattr(tokenizer, f"{name}_token_id") for name in names]
    assert ids == [0, 100, 101, 102, 103]


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_ids_on_a_vocabulary_of_odd_tokens(golden, maker, texts, case):
    tokenizer = WordPieceTokenizer(maker["VOCABULARY"], lowercase=case == "uncased")
    assert_equal_ids(tokenizer, texts, golden[case])


def test_pairs_are_trimmed_and_packed_alike(golden, maker):
    tokenizer = WordPieceTokenizer(maker["VOCABULARY"])
    text, text_b = zip(*maker["PAIRS"], strict=True)
    for length, expected in golden["packed"].items():
        packed = as_lists(tokenizer(text, text_b, max_sequence_length=int(length)))
        assert packed == expected, length


@pytest.mark.reference
def test_the_golden_file_is_what_transformers_computes(golden, maker, minilm_dir):
    pytest.importorskip("transformers", reason="needs pip install -e .[reference]")
    vocabulary = (minilm_dir / "vocab.txt").read_text("utf-8").split("\n")[:-1]
    # As JSON, where True is not 1.
    assert json.loads(json.dumps(maker["golden"](vocabulary))) == golden


# --- packing ---------------------------------------------------------------------------------


def test_one_text(tokenizer):
    packed = tokenizer(["Good films!", "", "a zebra"], max_sequence_length=8)
    assert {name: value.dtype for name, value in packed.items()} == {
        "token_ids": tf.int32,
        "segment_ids": tf.int32,
        "padding_mask": tf.bool,
    }
    assert as_lists(packed) == {
        "token_ids": [[2, 12, 13, 11, 14, 3], [2, 3, 0, 0, 0, 0], [2, 5, 1, 3, 0, 0]],
        "segment_ids": [[0] * 6] * 3,
        "padding_mask": [[True] * 6, [True] * 2 + [False] * 4, [True] * 4 + [False] * 2],
    }


@pytest.mark.one_case
@pytest.mark.parametrize("length", [2, 3, 5, 9])
def test_padding_to_a_length(tokenizer, length):
    encode = tf.function(
        lambda text: tokenizer(text, max_sequence_length=length, pad_to_max_length=True)
    )
    packed = encode(tf.constant(["a b c", "a"]))
    full = [[2, 5, 6, 7, 3], [2, 5, 3]]
    expected = [[*row[: length - 1], 3] if len(row) > length else row for row in full]
    assert packed["token_ids"].numpy().tolist() == [
        row + [0] * (length - len(row)) for row in expected
    ]
    assert packed["padding_mask"].shape == (2, length)


def trimmed_one_by_one(num_first, num_second, max_tokens):
    """The rule of Hugging Face's fast tokenizers, step by step."""
    lengths, was_longer = [num_first, num_second], num_first > num_second
    while sum(lengths) > max_tokens:
        if lengths[0] == lengths[1]:
            lengths[was_longer] -= 1
        else:
            lengths[lengths[1] > lengths[0]] -= 1
    return lengths


def test_the_longest_is_trimmed_first():
    sizes = [(a, b) for a in range(8) for b in range(8)]
    first = tf.ragged.constant([list(range(100, 100 + a)) for a, _ in sizes], dtype=tf.int32)
    second = tf.ragged.constant([list(range(200, 200 + b)) for _, b in sizes], dtype=tf.int32)
    for max_tokens in range(16):
        kept = packing.trim_longest_first([first, second], max_tokens)
        for (a, b), row, row_b in zip(sizes, kept[0].to_list(), kept[1].to_list(), strict=True):
            expected = trimmed_one_by_one(a, b, max_tokens)
            assert [len(row), len(row_b)] == expected, (a, b, max_tokens)
            assert row == list(range(100, 100 + expected[0]))
            assert row_b == list(range(200, 200 + expected[1]))


def test_lengths_tell_what_is_trimmed(tokenizer):
    text, text_b = ["a b c", "", "films"], ["a", "", "a b c d e f"]
    assert tokenizer.lengths(text).numpy().tolist() == [5, 2, 4]
    lengths = tokenizer.lengths(text, text_b)
    assert lengths.dtype == tf.int32
    assert lengths.numpy().tolist() == [7, 3, 11]
    for length in range(3, 12):
        packed = tokenizer(text, text_b, max_sequence_length=length)
        num_tokens = tf.reduce_sum(tf.cast(packed["padding_mask"], tf.int32), axis=1)
        assert num_tokens.numpy().tolist() == [min(n, length) for n in (7, 3, 11)]


def test_an_empty_batch(tokenizer):
    for packed in (
        tokenizer([], max_sequence_length=8),
        tokenizer([], [], max_sequence_length=8),
    ):
        assert packed["token_ids"].shape[0] == packed["padding_mask"].shape[0] == 0
    assert tokenizer.lengths([]).shape == (0,)


# --- back to text ----------------------------------------------------------------------------


def test_detokenize_is_for_reading(tokenizer):
    packed = tokenizer(["GOOD  films!", "a zebra", ""], ["b", "", ""], max_sequence_length=16)
    expected = [b"good films ! b", b"a [UNK]", b""]
    assert tokenizer.detokenize(packed["token_ids"]).numpy().tolist() == expected
    assert tokenizer.detokenize(tokenizer.tokenize(["a ##s bs"])).numpy().tolist() == [
        b"a [UNK] [UNK] [UNK] bs"
    ]
    assert tokenizer.detokenize([[11, 5, 11, 11]]).numpy().tolist() == [b"##s ass"]
    assert tokenizer.detokenize(tf.zeros([2, 0], tf.int32)).numpy().tolist() == [b"", b""]


def test_detokenize_refuses_ids_that_are_none(tokenizer):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"99.*\[0, 15\)"):
        tokenizer.detokenize([[5, 99]])


# --- in the graph ----------------------------------------------------------------------------


def test_tf_data(tokenizer):
    texts = ["good films!", "a b", "", "a b c d"]
    dataset = tf.data.Dataset.from_tensor_slices((texts, texts[::-1])).batch(2)
    batches = [
        as_lists(packed)
        for packed in dataset.map(lambda a, b: tokenizer(a, b, max_sequence_length=6))
    ]
    assert batches == [
        as_lists(tokenizer(texts[:2], texts[:1:-1], max_sequence_length=6)),
        as_lists(tokenizer(texts[2:], texts[1::-1], max_sequence_length=6)),
    ]


SERVE = """
import json, sys, tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

folder, texts = sys.argv[1], [bytes.fromhex(text) for text in json.loads(sys.argv[2])]
model = saved_model_pb2.SavedModel.FromString(open(folder + "/saved_model.pb", "rb").read())
graph = model.meta_graphs[0].graph_def
nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
functions = {f.signature.name for f in graph.library.function}
beyond_core = {node.op for node in nodes} - functions
beyond_core = sorted(op for op in beyond_core if op_def_registry.get(op) is None)

import tensorflow_text
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    signature = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def["serve"]
    out = {name: tensor.name for name, tensor in signature.outputs.items()}
    first = session.run(out, {signature.inputs["text"].name: texts})
second = tf.saved_model.load(folder).signatures["serve"](text=tf.constant(texts))
first = {name: value.tolist() for name, value in first.items()}
second = {name: value.numpy().tolist() for name, value in second.items()}
text = [line.decode() for line in first.pop("text")]
assert text == [line.decode() for line in second.pop("text")]
print(json.dumps([beyond_core, first, second, text, "keras_transformers" in sys.modules]))
"""


@pytest.mark.slow
def test_a_saved_model_needs_nothing_of_ours(maker, texts, tmp_path, ops):
    tokenizer = WordPieceTokenizer(maker["VOCABULARY"])
    module = tf.Module()
    module.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text):
        packed = tokenizer(text, text[::-1], max_sequence_length=20)
        lengths = tokenizer.lengths(text)
        return {**packed, "lengths": lengths, "text": tokenizer.detokenize(packed["token_ids"])}

    tf.saved_model.save(module, str(tmp_path), signatures={"serve": serve})
    texts = [text for text in texts if len(text) < 1000]
    arguments = [str(tmp_path), json.dumps([text.hex() for text in texts])]
    result = subprocess.run(
        [sys.executable, "-c", SERVE, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    beyond_core, first, second, lines, ours = json.loads(result.stdout)
    of_library = ["FastBertNormalize", "FastWordpieceTokenizeWithOffsets"]
    assert beyond_core == ([] if ops == "core" else of_library)
    here = serve(tf.constant(texts))
    assert lines == [line.decode() for line in here.pop("text").numpy()]
    assert first == second == as_lists(here)
    assert not ours


# --- bad input -------------------------------------------------------------------------------


def test_lengths_that_hold_no_special_tokens(tokenizer):
    with pytest.raises(ValueError, match=r"max_sequence_length=1: \[CLS\].*\[SEP\].*2"):
        tokenizer(["a"], max_sequence_length=1)
    with pytest.raises(ValueError, match=r"max_sequence_length=2: \[CLS\].*\[SEP\].*3"):
        tokenizer(["a"], ["b"], max_sequence_length=2)
    packed = tokenizer(["a"], ["b"], max_sequence_length=3)
    assert packed["token_ids"].numpy().tolist() == [[2, 3, 3]]


def test_shapes(tokenizer):
    with pytest.raises(ValueError, match=r"\(\): expected \(batch,\)"):
        tokenizer("a", max_sequence_length=8)
    with pytest.raises(ValueError, match=r"text of shape \(1, 2\)"):
        tokenizer.lengths([["a", "b"]])
    encode = tf.function(
        lambda a, b: tokenizer(a, b, max_sequence_length=8),
        input_signature=[tf.TensorSpec([None], tf.string)] * 2,
    )
    for call in (encode, encode.python_function):
        with pytest.raises(tf.errors.InvalidArgumentError, match="text and text_b differ"):
            call(tf.constant(["a"]), tf.constant(["b", "c"]))


def test_the_example_of_the_docstring():
    assert doctest.testmod(wordpiece).failed == 0
