"""Windows, taggers and span extractors with a tokenizer as unlike WordPiece as can be.

Rows are RoBERTa's, <s> a </s></s> b </s>, without segment ids. Tokens ignore words: they include
white space, end within characters and reach from one word into the next.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from answer_checks import same_answers, typed_answers
from graph_checks import nodes, strings_are_pinned_to_the_cpu
from pretrained_models import enlivened

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.data.text import (
    Answer,
    QuestionBatches,
    Questions,
    Sentences,
    TaggedBatches,
    answers_from_logits,
)
from keras_transformers.pipelines import QuestionAnswerer, Tagger
from keras_transformers.runs import outputs_of
from keras_transformers.tokenizers import packing, windows

START, PAD, END = range(3)
LABELS = ["O", "B-X", "I-X", "B-Y"]
WORDS = ["the", "(U.N.", "naïve", "中国", "xx", "🎬!", "officials", "of"]  # no token has two


class ThreeBytes(tf.Module):
    """Makes a token of every three bytes of a text."""

    vocabulary_size = 40

    def tokenize(self, text):
        return self.tokenize_with_offsets(text)[0]

    def tokenize_with_offsets(self, text):
        length = tf.strings.length(text)  # (batch,)
        starts = tf.ragged.range(0, length, 3)
        row = starts.value_rowids()
        ends = starts.with_values(tf.minimum(starts.values + 3, tf.gather(length, row)))
        pieces = tf.strings.substr(tf.gather(text, row), starts.values, ends.values - starts.values)
        ids = tf.strings.to_hash_bucket_fast(pieces, self.vocabulary_size - 3) + 3
        return starts.with_values(tf.cast(ids, tf.int32)), starts, ends

    def special_tokens(self, num_segments):
        return [[[START], [END]], [[START], [END, END], [END]]][num_segments - 1]

    def num_special_tokens(self, num_segments):
        return sum(map(len, self.special_tokens(num_segments)))

    def pack(self, segments, *, max_sequence_length, pad_to_max_length=False):
        room = max_sequence_length - self.num_special_tokens(len(segments))
        packed = packing.pack(
            packing.trim_longest_first(segments, room),
            special_tokens=self.special_tokens(len(segments)),
            pad_token_id=PAD,
            length=max_sequence_length if pad_to_max_length else None,
        )
        return {name: packed[name] for name in ("token_ids", "padding_mask")}


def encoder():
    """A model in which each token sees two on either side."""
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    embedded = keras.layers.Embedding(40, 8, name="token_embedding")(inputs["token_ids"])
    embedded = embedded * keras.ops.cast(inputs["padding_mask"], "float32")[..., None]
    hidden = keras.layers.Conv1D(8, 5, padding="same", activation="tanh")(embedded)
    return keras.Model(inputs, {"sequence_output": hidden}, name="encoder")


@pytest.fixture(scope="module")
def three_bytes():
    return ThreeBytes()


@pytest.fixture(scope="module")
def tagger_model():
    return enlivened(heads.tagger(encoder(), len(LABELS)), seed=1)


@pytest.fixture(scope="module")
def tag(tagger_model, three_bytes):
    return Tagger(tagger_model, three_bytes, LABELS, max_sequence_length=14, offset_unit="byte")


@pytest.fixture(scope="module")
def ask(three_bytes):
    model = enlivened(heads.span_extractor(encoder()), seed=2)
    lengths = {"max_sequence_length": 20, "doc_stride": 4, "max_question_length": 5}
    return QuestionAnswerer(model, three_bytes, **lengths, max_answer_length=4, offset_unit="byte")


def sentences(*lengths):
    random = np.random.default_rng(0)
    return [[WORDS[i] for i in random.integers(0, len(WORDS), count)] for count in lengths]


# --- windows -------------------------------------------------------------------------------------


def test_a_question_beside_windows_of_its_context(three_bytes):
    asked, contexts = ["what is it?", "q"], ["a" * 18, "bcd"]
    packed = windows.question_windows(
        three_bytes,
        asked,
        contexts,
        max_sequence_length=10,
        doc_stride=2,
        max_question_length=2,
    )
    assert set(packed) == {"token_ids", "padding_mask", "rows", "starts", "ends", "numbers"}
    (q1, q2, *_), (q,) = three_bytes.tokenize(asked).to_list()
    (a, *_), (b,) = three_bytes.tokenize(contexts).to_list()
    of_first = [START, q1, q2, END, END, a, a, a, a, END]
    assert packed["token_ids"].numpy().tolist() == [
        of_first,
        of_first,
        [START, q, END, END, b, END, *[PAD] * 4],
    ]
    assert packed["rows"].numpy().tolist() == [0, 0, 1]
    assert packed["starts"].numpy().tolist() == [
        [-1] * 5 + [0, 3, 6, 9, -1],
        [-1] * 5 + [6, 9, 12, 15, -1],
        [-1] * 4 + [0] + [-1] * 5,
    ]
    assert packed["ends"].numpy().tolist() == [
        [-1] * 5 + [3, 6, 9, 12, -1],
        [-1] * 5 + [9, 12, 15, 18, -1],
        [-1] * 4 + [3] + [-1] * 5,
    ]


# --- tagging -------------------------------------------------------------------------------------


def test_words_are_those_of_the_text(tag):
    text = "The (U.N. officials), naïve 中国 🎬!"
    found = tag(text)
    assert found.tokens == [
        "The",
        "(",
        "U.N",
        ".",
        "officials",
        ")",
        ",",
        *("naïve", "中", "国", "🎬", "!"),
    ]
    raw = text.encode()
    spans = zip(found.starts, found.ends, strict=True)
    assert [raw[start:end].decode() for start, end in spans] == found.tokens


def test_a_word_has_the_label_of_the_first_token_that_it_is_in(tag, three_bytes):
    text = "the (U.N.)"
    ids = three_bytes.tokenize([text])[0].numpy()
    inputs = {"token_ids": np.array([[START, *ids, END]]), "padding_mask": np.ones((1, 6), bool)}
    probabilities = keras.ops.softmax(tag.model(inputs)["logits"])[0].numpy()
    found = tag(text)
    assert found.tokens == ["the", "(", "U.N", ".", ")"]
    first = [1, 2, 2, 3, 4]  # "the", " (U", " (U", ".N.", ")"
    assert found.labels == [LABELS[i] for i in probabilities[first].argmax(-1)]
    np.testing.assert_allclose(found.scores, probabilities[first].max(-1), atol=1e-5)


@pytest.mark.slow
def test_many_windows_answer_as_one_does(tag, tagger_model, three_bytes):
    wide = Tagger(tagger_model, three_bytes, LABELS, max_sequence_length=900, offset_unit="byte")
    texts = ["", *(" ".join(words) for words in sentences(3, 40, 200))]
    assert len({label for tags in wide(texts) for label in tags.labels}) == len(LABELS)
    same_answers(tag(texts), wide(texts))


def test_training_labels_the_tokens_that_serving_reads(tag):
    rows = sentences(3, 40, 7)
    batches = TaggedBatches(Sentences(rows), tag, batch_size=8, shuffle=False)
    expected = batches.word_labels(outputs_of(tag.model, batches))
    width = max(map(len, rows))
    padded = tf.constant([words + [""] * (width - len(words)) for words in rows])
    labels = tag.answer_words(padded)["labels"].numpy()
    for words, row, found in zip(rows, expected, labels, strict=True):
        assert [label.decode() for label in found] == row + [""] * (width - len(words))


@pytest.mark.slow
def test_an_export_needs_core_ops_alone(tag, tmp_path):
    texts = ["", *(" ".join(words) for words in sentences(3, 40)), b"\xff\xfe\x00"]
    exported = kt.export(tag, tmp_path, check=False)
    assert not [node.op for node in nodes(exported) if node.op.startswith(("Fast", "TFText"))]
    strings_are_pinned_to_the_cpu(exported)
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures["tokens"].structured_input_signature[1]) == {"token_ids", "padding_mask"}
    outputs = signatures["serving_default"](text=tf.constant(texts)).items()
    answers = typed_answers({name: value.numpy() for name, value in outputs}, tag)
    same_answers(answers, tag(texts))


# --- question answering --------------------------------------------------------------------------


def test_answers_are_the_best_spans_of_all_pairs(ask):
    contexts = ["", "x", *(" ".join(words) for words in sentences(3, 40, 80))]
    asked = ["who?", "", "what do the officials of the U.N. say?", "中国?", "x"]
    questions = Questions(list("01234"), asked, contexts, [0, 1, 2, 3, 4])
    batches = QuestionBatches(questions, ask, batch_size=8, shuffle=False, targets=False)
    best = _best_tokens(batches, outputs_of(ask.model, batches), asked)
    starts, ends = batches.starts.to_list(), batches.ends.to_list()
    raw = [context.encode() for context in contexts]
    answers = ask(asked, contexts)
    assert [answer.text == "" for answer in answers] == [True] + [False] * 4
    for i, (found, spans) in enumerate(zip(answers, best, strict=True)):
        if not spans:
            assert (found.start, found.end, found.score) == (-1, -1, found.null_score)
            continue
        first, last, score = spans
        assert (found.start, found.end) == (starts[i][first], ends[i][last])
        assert found.text == raw[i][found.start : found.end].decode("utf-8", "replace")
        assert found.score == pytest.approx(score, abs=1e-4)
    assert set(ask.signatures()["tokens"].inputs) == {"token_ids", "padding_mask"}


def _best_tokens(batches, outputs, asked):
    """Finds first token, last token and score of each question's best span among all pairs."""
    best = [() for _ in asked]
    rows, firsts, lengths = (part.numpy() for part in batches.windows)
    logits = [
        pair
        for output in outputs
        for pair in zip(
            *(np.asarray(output[name]) for name in ("start_logits", "end_logits")), strict=True
        )
    ]
    for row, shift, length, (start, end) in zip(rows, firsts, lengths, logits, strict=True):
        at = min(5, -(-len(asked[row].encode()) // 3)) + 3  # <s> question </s></s>
        for i in range(length):
            for j in range(i, min(i + 4, length)):
                score = start[at + i] + end[at + j]
                if not best[row] or score > best[row][2]:
                    best[row] = (shift + i, shift + j, score)
    return best


@pytest.mark.slow
def test_training_targets_are_the_tokens_of_the_answer(ask, three_bytes):
    lengths = {"max_sequence_length": 10, "doc_stride": 2, "max_question_length": 2}
    narrow = QuestionAnswerer(ask.model, three_bytes, **lengths)
    context = "abc" * 6 + "xyz" + "abc"
    questions = Questions(["0"], ["what is it?"], [context], [0], [[Answer("xyz", 18)]])
    batches = QuestionBatches(questions, narrow, batch_size=8, shuffle=False)
    ((inputs, targets),) = batches.dataset()
    (wanted,) = three_bytes.tokenize(["xyz"]).to_list()
    assert targets["start_logits"].numpy().tolist() == [0, 0, 7]  # of <s> q q </s></s> c c c c </s>
    assert targets["end_logits"].numpy().tolist() == [0, 0, 7]
    assert inputs["token_ids"][2, 7] == wanted[0]
    # The best span of a model that knows the answer.
    logits = {name: np.eye(10)[at.numpy()] for name, at in targets.items()}
    (prediction,) = answers_from_logits(batches.of(questions), [logits])
    assert prediction.spans[0].text == "xyz"
