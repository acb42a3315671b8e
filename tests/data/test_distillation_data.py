"""Texts with probabilities as targets."""

import numpy as np
import pytest
import tiny

from keras_transformers.data.text import (
    Examples,
    ProbabilityBatches,
    kept_array,
    random_spans,
    read_texts,
)


@pytest.fixture(scope="module")
def classify():
    return tiny.pipeline("classification")


def test_targets_are_the_probabilities_of_each_text(classify):
    texts = ["good film", "a bad film", "very long film", "good", "bad"]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(len(classify.labels)), 5)
    batches = ProbabilityBatches(
        Examples(texts), classify, probabilities=probabilities, batch_size=2
    )
    found = {}
    for inputs, targets in batches.dataset().take(3):
        for ids, row in zip(inputs["token_ids"].numpy(), targets["logits"].numpy(), strict=True):
            found[tuple(ids[ids > 0])] = row
    for text, row in zip(texts, probabilities, strict=True):
        ids = classify.encode(np.array([text]))["token_ids"].numpy()[0]
        np.testing.assert_allclose(found[tuple(ids[ids > 0])], row, rtol=1e-6)


def test_labels_are_certain(classify):
    examples = Examples(["good", "bad"], labels=list(classify.labels)[:2])
    batches = ProbabilityBatches(examples, classify, batch_size=2, shuffle=False)
    [(_, targets)] = batches.dataset()
    np.testing.assert_array_equal(targets["logits"], np.eye(len(classify.labels))[:2])


def test_a_wrong_number_of_probabilities_is_refused(classify):
    examples = Examples(["good", "bad"])
    with pytest.raises(ValueError, match="1 rows.*2 texts"):
        ProbabilityBatches(examples, classify, probabilities=np.ones((1, 2)), batch_size=1)


def test_texts_are_read_once_and_without_those_to_measure_on(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("A good film\na  good film\n\nlong\nvery very bad\n", "utf-8")
    found = read_texts([file], without=[Examples(["Very very bad"])], least_words=2)
    assert list(found.texts) == ["A good film"]
    with pytest.raises(ValueError, match="5 lines, 0 texts.*9 words.*more"):
        read_texts([file], least_words=9)


def test_texts_near_those_to_measure_on_are_left_out(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("It doesn't work , really\na film\u2019s work\na work of art\n", "utf-8")
    measured = [Examples(["does n't Work; really", "A film 's work !"])]
    assert len(read_texts([file], without=measured).texts) == 3
    found = read_texts([file], without=measured, shared_words=3)
    assert list(found.texts) == ["a work of art"]
    with pytest.raises(ValueError, match="2 that share words"):
        read_texts([file], without=[*measured, found], shared_words=3)
    with pytest.raises(ValueError, match="shared_words is 0"):
        read_texts([file], shared_words=0)


def test_spans_are_parts_of_their_texts():
    texts = Examples(["a b c d e f", "two words", "x y z"])
    spans = random_spans(texts, per_text=4, seed=1)
    assert spans == random_spans(texts, per_text=4, seed=1)
    assert spans != random_spans(texts, per_text=4, seed=2)
    assert len(set(spans)) == len(spans) <= 8
    assert all(span in "a b c d e f" or span in "x y z" for span in spans)
    assert {len(span.split()) for span in random_spans(texts, per_text=99)} == {2, 3, 4, 5}
    assert random_spans(texts, per_text=0) == []
    with pytest.raises(ValueError, match="per_text is -1"):
        random_spans(texts, per_text=-1)


def test_in_chinese_each_character_is_a_word(tmp_path):
    file = tmp_path / "texts"
    file.write_text("这部电影很好看\n不好\n我喜欢这部电影\n", "utf-8")
    assert read_texts([file], least_words=4).texts == ["这部电影很好看", "我喜欢这部电影"]
    measured = [Examples(["看这部电影。"])]
    with pytest.raises(ValueError, match="2 that share words"):
        read_texts([file], least_words=4, without=measured, shared_words=4)
    spans = random_spans(Examples(["我爱 北京"]), per_text=99)
    assert set(spans) == {"我爱", "爱 北", "北京", "我爱 北", "爱 北京"}  # with the text's spaces


def test_no_span_is_a_text_to_measure_on():
    texts, measured = Examples(["a b c", "b c d", "b c"]), Examples(["C  D"])
    assert set(random_spans(texts, per_text=99)) == {"a b", "c d"}
    assert random_spans(texts, per_text=99, without=[measured]) == ["a b"]


def test_an_array_is_made_once(tmp_path):
    arrays = iter([np.arange(3)])
    for _ in range(2):
        found = kept_array(tmp_path / "array.npy", lambda: next(arrays))
        np.testing.assert_array_equal(found, [0, 1, 2])
