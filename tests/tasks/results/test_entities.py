"""Entities of tagged texts, against evaluation's and transformers' rules."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_transformers.evaluation.entities import entities
from keras_transformers.tasks.tagging.answer import TaggedEntity, Tags

RANDOM = np.random.default_rng(0)


def tags(labels, text=None):
    words = [f"w{i}" for i in range(len(labels))]
    text = " ".join(words) if text is None else text
    starts = [text.index(word) for word in words]
    ends = [start + len(word) for start, word in zip(starts, words, strict=True)]
    return Tags(words, labels, starts, ends, [1 / (i + 1) for i in range(len(labels))])


def test_random_labels_are_joined_as_in_evaluation():
    kinds = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    for _ in range(200):
        labels = RANDOM.choice(kinds, 9).tolist()
        found = tags(labels)
        joined = entities(labels)
        assert [(e.label, e.start, e.end) for e in found.entities] == [
            (e.type, found.starts[e.start], found.ends[e.end - 1]) for e in joined
        ]
        scores = [np.mean(found.scores[e.start : e.end]) for e in joined]
        np.testing.assert_allclose([e.score for e in found.entities], scores)


def test_text_has_a_space_where_the_text_has_some():
    found = tags(["B-X", "I-X", "O", "NOUN", "NOUN"], "w0w1 w2\tw3\n w4").entities
    assert [(e.label, e.text) for e in found] == [("X", "w0w1"), ("NOUN", "w3 w4")]
    assert found[0] == TaggedEntity("X", "w0w1", 0, 4, 0.75)


def test_no_words():
    assert Tags([], [], [], [], []).entities == []


@pytest.mark.parametrize("offset_unit", ["character", "byte"])
def test_the_graphs_entities_are_pythons(offset_unit, monkeypatch):
    tag = tiny.pipeline("tagging")
    monkeypatch.setattr(tag, "offset_unit", offset_unit)
    vocabulary = ["a", "film", "good", "bad", "long", "very", ".", "!", "é", "東京", "\t"]
    texts = [" ".join(RANDOM.choice(vocabulary, size)) for size in (0, 1, 5, 9, 30, 40)]
    outputs = tag.answer_entities(tf.constant(texts))
    tag.__dict__.pop("_graph", None)
    answers = tag(texts)
    tag.__dict__.pop("_graph", None)
    for row, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        count = int(outputs["num_entities"][row])
        found = {
            name: value[row].numpy() for name, value in outputs.items() if name != "num_entities"
        }
        assert count == len(answer.entities)
        whole = text.encode() if offset_unit == "byte" else text
        for i, entity in enumerate(answer.entities):
            assert found["label"][i].decode() == entity.label
            assert (found["start"][i], found["end"][i]) == (entity.start, entity.end)
            cut = whole[entity.start : entity.end]
            assert found["text"][i] == (cut if isinstance(cut, bytes) else cut.encode())
            assert found["score"][i] == pytest.approx(entity.score, rel=1e-5)
        assert not any(found["label"][count:])


@pytest.mark.reference
def test_entities_are_those_of_transformers():
    pytest.importorskip("transformers")
    from transformers.pipelines.token_classification import TokenClassificationPipeline

    pipe = object.__new__(TokenClassificationPipeline)
    for _ in range(50):
        labels = RANDOM.choice(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], 9).tolist()
        found = tags(labels)
        words = [
            {"entity": label, "score": np.float32(score), "index": i, "word": word,
             "start": start, "end": end}
            for i, (label, score, word, start, end) in enumerate(
                zip(labels, found.scores, found.tokens, found.starts, found.ends, strict=True)
            )
        ]  # fmt: skip
        pipe.tokenizer = type("T", (), {"convert_tokens_to_string": staticmethod(" ".join)})()
        expected = [e for e in pipe.group_entities(words) if e["entity_group"] != "O"]
        assert [(e.label, e.start, e.end) for e in found.entities] == [
            (e["entity_group"], e["start"], e["end"]) for e in expected
        ]
