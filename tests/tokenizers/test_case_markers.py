"""Markers of case: what they mark, and that nothing else changes."""

import keras
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.tokenizers import CaseMarkedTokenizer, WordPieceTokenizer

VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]"),
    *("ada", "love", "##lace", "nato", "g", "##7", "e", "##te", "(", ")", ".", "met", "a"),
)
TEXTS = [
    *("Ada Lovelace (ada) met NATO.", "", " \t", "Été été ÉTÉ", "G7 a A xyzzy XYZZY", "aDA"),
    *(b"\xff\xfeAda\x00", "Ada" * 60, "東A京"),
]


@pytest.fixture(scope="module")
def marked():
    return CaseMarkedTokenizer(list(VOCABULARY))


def test_markers_stand_before_words_with_capitals(marked):
    found = [[VOCABULARY[i] for i in row] for row in marked.tokenize(TEXTS).to_list()]
    capitalized, capitals = "[unused1]", "[unused2]"
    assert found[:6] == [
        [
            *(capitalized, "ada", capitalized, "love", "##lace", "(", "ada", ")", "met"),
            *(capitals, "nato", "."),
        ],
        [],
        [],
        [capitalized, "e", "##te", "e", "##te", capitals, "e", "##te"],
        [capitals, "g", "##7", "a", capitalized, "a", "[UNK]", capitals, "[UNK]"],
        ["ada"],
    ]


def test_without_the_markers_tokens_and_spans_are_those_of_wordpiece(marked):
    plain = WordPieceTokenizer(list(VOCABULARY)).tokenize_with_offsets(TEXTS)
    ids, starts, ends = marked.tokenize_with_offsets(TEXTS)
    is_marker = (ids == marked.capitalized_token_id) | (ids == marked.all_capitals_token_id)
    for found, expected in zip((ids, starts, ends), plain, strict=True):
        kept = tf.ragged.boolean_mask(found, ~is_marker)
        assert kept.to_list() == expected.to_list()
    lengths = tf.ragged.boolean_mask(ends - starts, is_marker)
    assert lengths.row_lengths().numpy().sum() > 5
    assert not lengths.values.numpy().any()


def test_it_runs_in_a_pipeline_of_data(marked):
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2).map(marked.tokenize)
    rows = [row for batch in dataset for row in batch.to_list()]
    assert rows == marked.tokenize(TEXTS).to_list()


def test_a_vocabulary_without_markers_is_refused():
    with pytest.raises(ValueError, match=r"\[unused1\], \[unused2\]"):
        CaseMarkedTokenizer(list(tiny.VOCABULARY))


@pytest.fixture(scope="module")
def tagger(marked):
    keras.utils.set_random_seed(0)
    model = kt.heads.tagger(tiny.encoder(len(VOCABULARY)), 3)
    return kt.pipelines.Tagger(tiny.lively(model), marked, ["O", "B-X", "I-X"])


def test_a_tagger_sees_case_and_labels_words_not_markers(tagger):
    answers = tagger(["Ada met a", "ada met a"])
    assert answers[0].tokens == ["Ada", "met", "a"]
    assert [len(answer.labels) for answer in answers] == [3, 3]
    assert answers[0].scores != pytest.approx(answers[1].scores, abs=1e-3)


def test_a_saved_tagger_answers_the_same(tagger, tmp_path):
    kt.save(tagger, tmp_path / "tagger")
    loaded = kt.load(tmp_path / "tagger")
    assert isinstance(loaded.tokenizer, CaseMarkedTokenizer)
    assert loaded("Ada met NATO.") == tagger("Ada met NATO.")


@pytest.mark.slow
def test_an_export_answers_the_same(tagger, tmp_path):
    """The export compares itself in a process without this package before it appears."""
    folder = kt.export(tagger, tmp_path / "tagger", examples=["Ada met NATO.", "ada met nato."])
    assert (folder / "saved_model.pb").is_file()
