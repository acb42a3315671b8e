"""Short examples that share a row: nothing lost, and the answers of each example alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import heads
from keras_transformers.data.pretraining import packing
from keras_transformers.data.pretraining.batches import (
    Masker,
    PretrainingBatches,
    open_records,
    pretraining_dataset,
)
from keras_transformers.data.pretraining.records import write_records
from keras_transformers.families.bert.model import bert
from keras_transformers.families.gpt.model import gpt
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

LENGTH, SLOTS, COUNT = 24, 4, 60
VOCABULARY = [*SPECIAL_TOKENS, *"abcdefghij"]


def examples(lengths, seed=0):
    """Returns examples of these lengths: [CLS] letters [SEP], of which up to 15 % are masked."""
    random = np.random.default_rng(seed)
    found = {}
    for name in ("input_ids", "input_mask", "segment_ids"):
        found[name] = np.zeros((len(lengths), LENGTH), np.int32)
    for name in ("masked_lm_positions", "masked_lm_ids"):
        found[name] = np.zeros((len(lengths), SLOTS), np.int32)
    found["masked_lm_weights"] = np.zeros((len(lengths), SLOTS), np.float32)
    found["next_sentence_labels"] = random.integers(0, 2, (len(lengths), 1)).astype(np.int32)
    for row, length in enumerate(lengths):
        found["input_ids"][row, :length] = [2, *random.integers(5, 15, length - 2), 3]
        found["input_mask"][row, :length] = 1
        found["segment_ids"][row, length // 2 : length] = 1
        chosen = 1 + np.sort(random.permutation(length - 2)[: max(1, round(0.15 * length))])
        count = len(chosen)
        found["masked_lm_positions"][row, :count] = chosen
        found["masked_lm_ids"][row, :count] = found["input_ids"][row, chosen]
        found["masked_lm_weights"][row, :count] = 1
        found["input_ids"][row, chosen] = 4
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("packing") / "short.tfrecord"
    lengths = np.random.default_rng(1).integers(4, LENGTH + 1, COUNT)
    write_records(path, [examples(lengths)])
    return open_records(path)


@pytest.fixture(scope="module")
def models():
    keras.utils.set_random_seed(0)
    encoder = bert(
        vocabulary_size=15, num_layers=2, num_heads=2, hidden_dim=8, max_sequence_length=LENGTH
    )
    for weight in encoder.weights:  # large, so that a wrong position or mask is seen
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.5, seed=1))
    plain = heads.pretrainer(encoder)
    return plain, heads.packed(plain)


def test_a_row_has_room_for_tokens_masks_and_labels():
    found = packing.pack_examples(examples([20, 4, 12, 12, 8]))
    assert (found["document_ids"] > 0).sum(axis=1).tolist() == [24, 24, 8]
    assert found["document_ids"][0].tolist() == [1] * 20 + [2] * 4
    assert found["start_positions"][:, :2].tolist() == [[0, 20], [0, 12], [0, 0]]
    assert found["next_sentence_weights"].sum(axis=1).tolist() == [2, 2, 1]
    short = packing.pack_examples(examples([3] * 9))  # four masks fill a row
    assert (short["masked_lm_weights"].sum(axis=1) <= SLOTS).all()
    assert short["next_sentence_weights"].sum() == 9


def test_nothing_is_lost_and_less_is_padding(files):
    alone = next(iter(pretraining_dataset(files.paths, batch_size=COUNT)))
    rows = next(iter(pretraining_dataset(files.paths, batch_size=COUNT, pack=True)))
    for name in ("token_ids", "segment_ids"):
        assert sum_of(rows[0][name]) == sum_of(alone[0][name])
    for part in (1, 2):
        for name in ("mask_logits", "next_sentence_logits"):
            assert sum_of(rows[part][name]) == sum_of(alone[part][name])
    filled = tf.reduce_mean(tf.cast(rows[0]["document_ids"] > 0, tf.float32))
    before = tf.reduce_mean(tf.cast(alone[0]["padding_mask"], tf.float32))
    assert filled > 0.9 > 0.7 > before


def test_answers_are_those_of_each_example_alone(files, models):
    plain, packed = models
    alone = next(iter(pretraining_dataset(files.paths, batch_size=COUNT)))
    rows = next(iter(pretraining_dataset(files.paths, batch_size=COUNT, pack=True)))
    expected, found = plain(alone[0]), packed(rows[0])
    for name in ("mask_logits", "next_sentence_logits"):
        ours = found[name][rows[2][name] > 0].numpy()
        theirs = expected[name][alone[2][name] > 0].numpy()
        # The rows have another order: each vector has one like it on the other side.
        distances = np.abs(ours[:, None] - theirs[None]).max(axis=-1)
        assert ours.shape == theirs.shape
        assert distances.min(axis=0).max() < 1e-5
        assert distances.min(axis=1).max() < 1e-5
    assert [w.path for w in packed.weights] == [w.path for w in plain.weights]
    assert all(a is b for a, b in zip(packed.weights, plain.weights, strict=True))


def test_loss_and_gradients_are_those_of_unpacked_batches(files, models):
    plain, packed = models
    grads = []
    for model, pack in ((plain, False), (packed, True)):
        inputs, targets, weights = next(
            iter(pretraining_dataset(files.paths, batch_size=COUNT, pack=pack))
        )
        with tf.GradientTape() as tape:
            logits = model(inputs)
            total = 0.0
            for name, found in logits.items():
                each = keras.losses.sparse_categorical_crossentropy(
                    targets[name], found, from_logits=True
                )
                total += tf.reduce_sum(each * weights[name]) / tf.reduce_sum(weights[name])
        grads.append(tape.gradient(total, [w.value for w in plain.trainable_weights]))
    for left, right in zip(*grads, strict=True):
        np.testing.assert_allclose(dense(left), dense(right), atol=2e-5)


def test_batches_resume_and_count_their_rows(files):
    masker = Masker(VOCABULARY, mask_probability=0.15, max_predictions=SLOTS)
    options = {"batch_size": 4, "steps_per_epoch": 5, "masker": masker, "pack": True}
    batches = PretrainingBatches(files, **options)
    whole = [batch[0]["token_ids"].numpy() for batch in batches.dataset().take(6)]
    rest = [batch[0]["token_ids"].numpy() for batch in batches.dataset(skip=4).take(2)]
    np.testing.assert_array_equal(whole[4:], rest)
    one_pass = batches.of(files)
    assert len(one_pass) == len(list(one_pass.dataset()))
    assert one_pass.num_rows == sum(len(b[0]["token_ids"]) for b in one_pass.dataset())
    assert batches.dataset().element_spec[0]["token_ids"].shape == (4, LENGTH)


def test_only_a_bert_with_both_heads_reads_packed_rows():
    model = gpt(
        vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, max_sequence_length=8, name="g"
    )
    with pytest.raises(ValueError, match=r"'g'.*heads\.pretrainer"):
        heads.packed(model)


def sum_of(tensor):
    return float(tf.reduce_sum(tf.cast(tensor, tf.float64)))


def dense(gradient):
    return tf.convert_to_tensor(gradient).numpy()
