"""T5: relative positions in both stacks, a cache that changes nothing, what counts and what not."""

import encoder_decoder_toys as toys
import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import in_float64, round_trip, same_but_for_rounding, same_outputs
from tiny import lively

from keras_transformers.families.t5.model import num_parameters, t5
from keras_transformers.inspection import forward_flops

pytestmark = pytest.mark.kernels

FORMS = {
    "1.0": {},
    "1.1": {"activation": "gelu_approximate", "gated_feed_forward": True, "tied_logits": False},
}
SIZES = toys.T5_SIZES | {"num_encoder_layers": 2, "num_decoder_layers": 2}
SIZES |= {"num_buckets": 8, "max_distance": 10}
RANDOM = np.random.default_rng(0)
SOURCES = np.array([[5, 6, 7, 8, 1], [9, 4, 1, 0, 0], [3, 1, 0, 0, 0]], "int32")
TARGETS = RANDOM.integers(3, 40, (3, 14)).astype("int32")  # beyond the largest distance


def logits_of(model, sources=SOURCES, targets=TARGETS):
    inputs = {"source_token_ids": sources, "target_token_ids": targets}
    return model(inputs, training=False)["logits"].numpy()


@pytest.fixture(scope="module", params=FORMS)
def model(request):
    return lively(t5(**SIZES, **FORMS[request.param]))


@pytest.fixture(scope="module")
def exact(model):
    return in_float64(model)


@pytest.mark.one_case
@pytest.mark.parametrize(("num_beams", "max_length"), [(1, None), (3, 16)])
def test_steps_with_a_cache_equal_the_whole_sequence(model, exact, num_beams, max_length):
    targets = RANDOM.integers(3, 40, (3 * num_beams, 14)).astype("int32")
    whole = [logits_of(each, np.repeat(SOURCES, num_beams, 0), targets) for each in (model, exact)]
    found = []
    step, cache = model.start_decoding(SOURCES, max_length=max_length)
    assert step.max_steps == max_length  # relative positions have no end
    cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, num_beams, axis=0), cache)
    for index in range(14):
        logits, cache = step(tf.constant(targets[:, index]), tf.constant(index), cache)
        found.append(logits)
    same_but_for_rounding(np.stack(found, axis=1), *whole)


def test_only_what_comes_before_counts_and_padding_does_not(model, exact):
    changed = TARGETS.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 40
    before = logits_of(model)
    after = logits_of(model, targets=changed)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before[:, 5:] - after[:, 5:]).max(-1) > 1e-6).all()
    longer = np.pad(SOURCES, ((0, 0), (0, 4)))
    same_but_for_rounding(logits_of(model, longer), before, logits_of(exact))


def test_the_order_of_the_source_counts_but_not_its_place(model, exact):
    """Only distances count: padding on the left moves all tokens and changes nothing."""
    sources = SOURCES[:1]
    before, right = (logits_of(each, sources, TARGETS[:1]) for each in (model, exact))
    moved = logits_of(model, np.pad(sources, ((0, 0), (3, 0))), TARGETS[:1])
    same_but_for_rounding(moved, before, right)
    turned = sources[:, [1, 0, 2, 3, 4]]
    assert np.abs(before - logits_of(model, turned, TARGETS[:1])).max() > 1e-3


def test_cross_attention_scores(model):
    scores = model.cross_attention_scores(SOURCES, TARGETS)
    assert scores.shape == (3, 2, 2, 14, 5)
    np.testing.assert_allclose(np.sum(scores, -1), 1, atol=1e-5)
    assert np.max(scores[1, ..., 3:]) == 0  # no attention to padding


@pytest.mark.one_case
@pytest.mark.parametrize("form", FORMS)
def test_saving_keeps_the_class_the_count_and_the_numbers(form, tmp_path):
    model = lively(t5(**SIZES, **FORMS[form]))
    loaded = round_trip(model, tmp_path)
    same_outputs(logits_of(model), logits_of(loaded))
    assert type(loaded) is type(model)
    names = ("max_distance", "activation")
    form = {key: value for key, value in (SIZES | FORMS[form]).items() if key not in names}
    assert loaded.count_params() == num_parameters(**form)
    loaded.start_decoding(SOURCES)


def test_operations_count_the_gate_and_the_width_of_the_heads():
    shapes = {"source_token_ids": (1, 3), "target_token_ids": (1, 3)}
    size = SIZES | {"num_encoder_layers": 1, "num_decoder_layers": 1}
    flops = [forward_flops(t5(**size, gated_feed_forward=gated), shapes) for gated in (False, True)]
    matrix = 2 * 3 * 16 * 12
    assert flops[1] - flops[0] == 2 * matrix  # a gate per layer
    attention = 2 * 3 * (4 * 16 * 8) + 4 * 3 * 3 * 8  # three of them
    logits = 2 * 3 * 16 * 43
    assert flops[0] == 3 * attention + 4 * matrix + logits


def test_logits_start_small_enough_to_learn():
    """The initial queries make up for unscaled scores; tied logits are scaled."""
    keras.utils.set_random_seed(0)
    sizes = {"hidden_dim": 256, "num_heads": 4, "head_dim": 64, "intermediate_dim": 64}
    model = t5(**(SIZES | sizes))
    layer = model.get_layer("encoder_layer_0").self_attention
    assert np.std(layer.query.kernel) == pytest.approx((256 * 64) ** -0.5, rel=0.05)
    assert np.std(layer.key.kernel) == pytest.approx(256**-0.5, rel=0.05)
    assert np.std(logits_of(model)) < 3


def test_buckets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="num_buckets=5: expected.*number"):
        t5(**(SIZES | {"num_buckets": 5}))
    with pytest.raises(ValueError, match="max_distance=2.*num_buckets=8"):
        t5(**(SIZES | {"max_distance": 2}))
