"""Data for the heads on ELMo features, and that the heads learn from it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy

import keras_transformers as kt
from keras_transformers.data.language_models import CharacterInputs, WordBatches
from keras_transformers.data.text import Examples, Sentences, TextBatches
from keras_transformers.families.elmo.model import elmo, features
from keras_transformers.runs import outputs_of
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.training.losses import TokenCrossentropy

SENTENCES = Sentences(
    [["Bob", "saw", "Rome"], ["it", "rained"], ["Eve", "", "in", "Oslo", "slept"]],
    [["B-P", "O", "B-L"], ["O", "O"], ["B-P", "O", "O", "B-L", "O"]],
)
LABELS = ["O", "B-P", "B-L"]
TEXTS = ["a good film", "bad", "", "good " * 9, "a bad bad film"]


def encoder():
    keras.utils.set_random_seed(1)
    model = elmo(
        num_layers=1,
        lstm_dim=8,
        projection_dim=6,
        num_highways=1,
        filters=[(1, 6), (3, 6)],
        character_dim=4,
        max_characters=12,
    )
    return features(model, dropout=0.0, freeze=False)


def word_batches(sentences=SENTENCES, **options):
    return WordBatches(sentences, LABELS, max_characters=12, **options)


def spelled(words):
    ids = CharacterTokenizer(max_characters=12).encode(tf.ragged.constant([words], dtype=tf.string))
    return ids[0].numpy()


def test_sentences_keep_their_words_labels_and_length():
    batches = word_batches(batch_size=2, shuffle=False)
    elements = list(batches.dataset())
    rows = [
        (inputs["character_ids"][i].numpy(), targets["logits"][i].numpy(), w["logits"][i].numpy())
        for inputs, targets, w in elements
        for i in range(len(inputs["character_ids"]))
    ]
    for (characters, targets, weights), words, labels in zip(
        rows, SENTENCES.words, SENTENCES.labels, strict=True
    ):
        length = len(words)
        np.testing.assert_array_equal(characters[: length + 2], spelled(words))
        assert not characters[length + 2 :].any()
        assert [LABELS[i] for i in targets[:length]] == labels
        assert weights.tolist() == [1.0] * length + [0.0] * (len(weights) - length)
        assert len(weights) == len(characters) - 2
    right = [{"logits": np.eye(len(LABELS))[y["logits"].numpy()]} for _, y, _ in elements]
    assert batches.word_labels(right) == SENTENCES.labels
    only_inputs = next(iter(batches.of(Sentences(SENTENCES.words)).dataset()))
    assert set(only_inputs) == {"character_ids"}


def test_shuffled_sentences_keep_their_labels():
    seen = []
    for inputs, targets, _ in word_batches(batch_size=1, seed=3).dataset().take(3):
        row = [np.array_equal(inputs["character_ids"][0], spelled(w)) for w in SENTENCES.words]
        seen.append(row.index(True))
        assert [LABELS[i] for i in targets["logits"][0]] == SENTENCES.labels[row.index(True)]
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.slow
def test_a_tagger_on_elmo_learns_a_toy_task():
    model = kt.heads.tagger(encoder(), len(LABELS), dropout=0.0)
    compile_toy(model, keras.optimizers.Adam(0.1), {"logits": TokenCrossentropy()})
    batches = word_batches(batch_size=3, shuffle=False)
    first, *_, last = model.fit(batches.dataset(), epochs=20, verbose=0).history["loss"]
    assert last < 0.3 * first
    assert batches.word_labels(outputs_of(model, batches)) == SENTENCES.labels


@pytest.mark.slow
def test_a_classifier_on_elmo_learns_a_toy_task():
    model = kt.heads.classifier(encoder(), 2, dropout=0.0)
    examples = Examples(
        texts=["a good film", "good", "a bad film", "bad", "so good", "so bad"],
        labels=["yes", "yes", "no", "no", "yes", "no"],
    )
    inputs = CharacterInputs(["no", "yes"], max_sequence_length=16, max_characters=12)
    batches = TextBatches(examples, inputs, batch_size=6, shuffle=False)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compile_toy(model, keras.optimizers.Adam(0.05), {"logits": loss}, metrics=["accuracy"])
    history = model.fit(batches.dataset(), epochs=20, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["accuracy"][-1] == 1


def test_long_texts_lose_their_end_and_are_counted():
    inputs = CharacterInputs(["x"], max_sequence_length=6, max_characters=12)
    words = inputs.tokenize(tf.constant(TEXTS))
    assert inputs.lengths(words).numpy().tolist() == [5, 3, 2, 11, 6]
    found = inputs.pack(words)["character_ids"].numpy()
    assert found.shape == (5, 6, 12)
    np.testing.assert_array_equal(found[3], spelled(["good"] * 4))
    np.testing.assert_array_equal(found[2][:2], spelled([])[:2])
    examples = Examples(texts=TEXTS, labels=["x"] * 5)
    batches = TextBatches(examples, inputs, batch_size=5, shuffle=False)
    assert batches.statistics.num_trimmed == 1
    ((packed, _),) = batches.dataset()
    np.testing.assert_array_equal(packed["character_ids"], found)


def test_what_cannot_be_is_refused():
    inputs = CharacterInputs(["x"], max_sequence_length=9)
    pairs = Examples(["a"], ["b"], ["x"])
    with pytest.raises(ValueError, match="one text"):
        TextBatches(pairs, inputs, batch_size=1)
    with pytest.raises(ValueError, match="max_sequence_length=2:.*3.*more"):
        CharacterInputs(["x"], max_sequence_length=2)
    with pytest.raises(ValueError, match="no sentences"):
        word_batches(Sentences([], []), batch_size=1)
    with pytest.raises(ValueError, match=r"\['B-L'\],.*\['O', 'B-P'\]"):
        WordBatches(SENTENCES, LABELS[:2], batch_size=1)
    for logits in (np.zeros((2, 5, 3)), np.zeros((3, 4, 3))):
        with pytest.raises(ValueError, match="logits of all sentences"):
            word_batches(batch_size=3).word_labels([{"logits": logits}])
