"""Weights of labels: the option, the batches, and an update by them."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.data.text import Examples, LabelWeights, TextBatches
from keras_transformers.families.bert.model import bert
from keras_transformers.training import TokenCrossentropy
from keras_transformers.training.distributed import prepare

LABELS = ["no", "yes"]
TRAIN = Examples(["a", "a film", "bad", "good film", "!"], None, ["no", "no", "no", "no", "yes"])
WEIGHTS = {"no": 0.5, "yes": 3.0}


def classifier():
    keras.utils.set_random_seed(0)
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 16}
    encoder = bert(vocabulary_size=len(tiny.VOCABULARY), **shape, **rates)
    model = tiny.lively(kt.heads.classifier(encoder, 2, dropout=0.0))
    return kt.pipelines.TextClassifier(model, tiny.wordpiece(), LABELS)


def test_balanced_labels_count_alike_together():
    weights = LabelWeights(label_weights=("balanced",)).weights_of(TRAIN, LABELS)
    assert weights == {"no": 5 / 8, "yes": 5 / 2}
    assert sum(weights[label] for label in TRAIN.labels) == len(TRAIN)
    assert LabelWeights().weights_of(TRAIN, LABELS) is None


@pytest.mark.parametrize(
    "given",
    ["maybe=1", "yes=0", "yes=nan", "yes=x", "yes", "yes=1 yes=2", "balanced no=1"],
)
def test_weights_that_are_none_are_refused(given):
    with pytest.raises(ValueError, match=r"label_weights=.*: pass balanced alone.* no, yes$"):
        LabelWeights(label_weights=tuple(given.split())).weights_of(TRAIN, LABELS)


@pytest.mark.one_case
@pytest.mark.parametrize("static_shapes", [None, 1])
def test_batches_have_the_weights_and_evaluation_has_none(static_shapes):
    options = {"batch_size": 8, "shuffle": False, "static_shapes": static_shapes}
    batches = TextBatches(TRAIN, classifier(), class_weight=WEIGHTS, **options)
    ((_, targets, weights),) = batches.dataset()
    padding = [0.0] * (3 if static_shapes else 0)
    np.testing.assert_array_equal(weights["logits"], [0.5, 0.5, 0.5, 0.5, 3.0, *padding])
    assert len(targets["logits"]) == len(weights["logits"])
    (batch,) = batches.of(TRAIN).dataset()
    assert len(batch) == (3 if static_shapes else 2)
    assert len(batch) == 2 or set(np.asarray(batch[2]["logits"])) == {0.0, 1.0}


def test_the_older_argument_still_works():
    options = {"batch_size": 8, "shuffle": False}
    with pytest.warns(FutureWarning, match="use class_weight"):
        batches = TextBatches(TRAIN, classifier(), label_weights=WEIGHTS, **options)
    ((_, _, weights),) = batches.dataset()
    np.testing.assert_array_equal(weights["logits"], [0.5, 0.5, 0.5, 0.5, 3.0])
    with (
        pytest.raises(ValueError, match=r"\['yes'\]: pass"),
        pytest.warns(FutureWarning, match="use class_weight"),
    ):
        TextBatches(TRAIN, classifier(), label_weights={"no": 1.0}, **options)


@functools.cache
def update(reduction, **options):
    """Returns what one step changes, and its loss."""
    classify = classifier()
    batches = TextBatches(TRAIN, classify, batch_size=5, shuffle=False, class_weight=WEIGHTS)
    classify.model.compile(
        keras.optimizers.SGD(1.0),
        {"logits": TokenCrossentropy(reduction=reduction)},
        jit_compile=False,
    )
    before = classify.model.get_weights()
    if options:
        prepare(classify.model, **options)
    found = classify.model.fit(batches.dataset(), epochs=1, verbose=0)
    after = classify.model.get_weights()
    steps = [one - other for one, other in zip(after, before, strict=True)]
    return steps, found.history["loss"][0]


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean_with_sample_weight", "sum_over_batch_size"])
@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(x, marks=pytest.mark.slow) for x in ({"accumulate": 2}, {"r_drop": 1.0})),
        {"accumulate": 2, "r_drop": 1.0},
    ],
    ids=str,
)
def test_an_update_by_parts_is_the_update_by_the_whole_batch(options, reduction):
    """Without dropout R-Drop's two passes agree, and its loss is the plain one."""
    wanted, loss = update(reduction)
    found, other = update(reduction, **options)
    assert other == pytest.approx(loss, rel=1e-5)
    for one, another in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, another, atol=1e-5)


def test_the_loss_is_the_weighted_mean():
    classify = classifier()
    batches = TextBatches(TRAIN, classify, batch_size=5, shuffle=False, class_weight=WEIGHTS)
    ((inputs, targets, weights),) = batches.dataset()
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        targets["logits"], classify.model(inputs)["logits"]
    )
    wanted = np.average(losses, weights=weights["logits"])
    classify.model.compile("sgd", {"logits": TokenCrossentropy()}, jit_compile=False)
    found = classify.model.evaluate(batches.dataset(), verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(wanted, rel=1e-5)
