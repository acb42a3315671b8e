import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.families.elmo.model import (
    FILTERS,
    MODELS,
    SIZES,
    elmo,
    features,
    language_model,
    num_parameters,
)
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.training.sampled_softmax import OutputIsLoss, SampledSoftmax

SMALL = {
    "lstm_dim": 10,
    "projection_dim": 6,
    "num_highways": 1,
    "filters": [(1, 4), (3, 5)],
    "character_dim": 4,
    "max_characters": 12,
}
TEXTS = ["the cat sat on the mat", "two words", "one"]
IDS = CharacterTokenizer(max_characters=12)(tf.constant(TEXTS))["character_ids"].numpy()
# From bilm-tf itself with its papers' options and 261 characters (one row of 16 fewer).
COUNTS = {"elmo_original": 93_600_848, "elmo_medium": 28_027_728, "elmo_small": 13_593_296}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return elmo(**SMALL)


def layers_of(model, ids=IDS):
    return model({"character_ids": ids}, training=False)["layer_outputs"].numpy()


@pytest.mark.parametrize("name", SIZES)
def test_exact_count_registered_and_by_arithmetic(name):
    """tests/models/test_registry.py builds them."""
    found = MODELS[name]
    assert found.num_parameters == found.count() == COUNTS[name] + 16
    assert found.count(num_characters=261) == COUNTS[name]
    assert set(COUNTS) == set(SIZES) == set(MODELS)


def test_arithmetic_of_other_shapes(model):
    arguments = {k: v for k, v in SMALL.items() if k != "max_characters"}
    assert model.count_params() == num_parameters(**arguments)
    plain = SMALL | {"projection_dim": 10, "filters": [(2, 10)]}  # without either projection
    arguments = {k: v for k, v in plain.items() if k != "max_characters"}
    assert elmo(**plain).count_params() == num_parameters(**arguments)
    assert sum(number for _, number in FILTERS) == 2048


def test_the_first_layer_is_the_word_alone_and_the_others_read_one_way(model):
    changed = IDS.copy()
    changed[0, 3] = IDS[1, 1]  # "sat" becomes "two"
    before, after = layers_of(model), layers_of(model, changed)
    differs = np.abs(before - after)[0].max(-1) > 1e-7  # (tokens, layers)
    assert differs[:, 0].tolist() == [place == 3 for place in range(8)]
    assert differs[:, 1:].all()  # through one direction or the other
    forward, backward = np.split(np.abs(before - after)[0], 2, axis=-1)
    for layer in (1, 2):
        assert forward[:3, layer].max() == 0
        assert backward[4:, layer].max() == 0
        assert (forward[3:, layer].max(-1) > 1e-8).all()
        assert (backward[:4, layer].max(-1) > 1e-8).all()
    np.testing.assert_array_equal(before[..., 0, :6], before[..., 0, 6:])


def test_padding_changes_nothing_and_is_zero(model):
    longer = np.pad(IDS, ((0, 0), (0, 3), (0, 0)))
    np.testing.assert_allclose(layers_of(model), layers_of(model, longer)[:, :8], atol=1e-6)
    alone = layers_of(model, IDS[2:, :3])
    np.testing.assert_allclose(layers_of(model)[2:, :3], alone, atol=1e-6)
    assert np.abs(layers_of(model)[2, 3:, 1:]).max() == 0


def test_rows_do_not_see_each_other_and_calls_start_anew(model):
    turned = layers_of(model, IDS[::-1])[::-1]
    np.testing.assert_allclose(layers_of(model), turned, atol=1e-6)
    np.testing.assert_array_equal(layers_of(model), layers_of(model))


def test_nothing_to_read_is_no_error_in_a_graph(model):
    spec = {"character_ids": tf.TensorSpec([None, None, 12], tf.int32)}
    run = tf.function(model, input_signature=[spec], autograph=False)
    for shape in ((0, 5, 12), (0, 0, 12), (2, 0, 12)):
        outputs = run({"character_ids": tf.zeros(shape, tf.int32)})["layer_outputs"]
        assert outputs.shape == (*shape[:2], 3, 12)


def test_saving_keeps_the_numbers(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(layers_of(model), layers_of(loaded))
    assert loaded.count_params() == model.count_params()


@pytest.fixture
def trained_inputs():
    random = np.random.default_rng(0)
    mask = (IDS > 0).any(-1)
    token_ids = (random.integers(1, 40, mask.shape) * mask).astype("int32")
    return {"character_ids": IDS, "token_ids": token_ids}, mask[:, 1:].astype("float32")


def test_each_direction_is_asked_for_the_word_it_has_not_read(model, trained_inputs):
    inputs, weights = trained_inputs
    softmax = SampledSoftmax(40, num_sampled=8, seed=1)
    lm = language_model(model, softmax)
    losses = lm(inputs)
    kernel, bias = (weight.numpy() for weight in softmax.weights)
    top = layers_of(model)[:, :, -1]

    def crossentropy(vectors, token_id):
        logits = vectors @ kernel.T + bias
        return np.log(np.exp(logits).sum()) - logits[token_id]

    ids = inputs["token_ids"]
    for row, place in zip(*np.nonzero(weights), strict=True):
        forward = crossentropy(top[row, place, :6], ids[row, place + 1])
        backward = crossentropy(top[row, place + 1, 6:], ids[row, place])
        np.testing.assert_allclose(losses["forward_loss"][row, place], forward, atol=1e-5)
        np.testing.assert_allclose(losses["backward_loss"][row, place], backward, atol=1e-5)
    assert lm.count_params() == model.count_params() + 40 * 6 + 40
    # No answer leaks: the word to predict does not change the vectors that predict it.
    changed = IDS.copy()
    changed[0, 5] = IDS[1, 1]
    other = lm(inputs | {"character_ids": changed})
    for direction, place in (("forward", 4), ("backward", 5)):
        same = losses[f"{direction}_loss"][0, place], other[f"{direction}_loss"][0, place]
        assert float(same[0]) == float(same[1])


@pytest.mark.slow
def test_a_language_model_trains_and_saves(trained_inputs, tmp_path):
    keras.utils.set_random_seed(2)
    inputs, weights = trained_inputs
    lm = language_model(elmo(**SMALL, num_layers=1), SampledSoftmax(40, num_sampled=30, seed=1))
    names = ("forward_loss", "backward_loss")
    losses = {name: OutputIsLoss() for name in names}
    compile_toy(lm, keras.optimizers.Adam(0.05), losses)
    targets = {name: np.zeros_like(weights) for name in names}
    data = tf.data.Dataset.from_tensors((inputs, targets, dict.fromkeys(names, weights)))
    data = data.repeat(10)
    first, *_, last = lm.fit(data, epochs=4, verbose=0).history["loss"]
    assert last < 0.7 * first
    same_outputs(lm(inputs), round_trip(lm, tmp_path)(inputs))


def test_features_are_words_without_markers():
    keras.utils.set_random_seed(0)
    task = features(elmo(**SMALL))
    outputs = task({"character_ids": IDS})
    encoder = keras.Model(task.input, {"layer_outputs": task.get_layer("scalar_mix").input})
    mean = layers_of(encoder).mean(axis=2)
    expected = mean[:, 1:-1].copy()
    for row, text in enumerate(TEXTS):
        num_words = len(text.split())
        expected[row, num_words:] = 0
        np.testing.assert_allclose(
            outputs["pooled_output"][row], expected[row, :num_words].mean(0), atol=1e-5
        )
    np.testing.assert_allclose(outputs["sequence_output"], expected, atol=1e-5)
    assert [weight.path for weight in task.trainable_weights] == [
        "scalar_mix/weights_before_softmax",
        "scalar_mix/gamma",
    ]
    nothing = CharacterTokenizer(max_characters=12)(tf.constant([""]))["character_ids"]
    assert np.max(np.abs(task({"character_ids": nothing})["pooled_output"])) == 0


def test_the_mix_weighs_layers():
    task = features(elmo(**SMALL), freeze=False)
    mix = task.get_layer("scalar_mix")
    mix.weights_before_softmax.assign([-50.0, 50.0, -50.0])
    mix.gamma.assign(2.0)
    encoder = keras.Model(task.input, {"layer_outputs": mix.input})
    expected = 2 * layers_of(encoder)[0, 1:-1, 1]
    outputs = task({"character_ids": IDS})["sequence_output"]
    np.testing.assert_allclose(outputs[0], expected, atol=1e-5)
    assert len(task.trainable_weights) == len(task.weights)


def test_heads_go_on_top():
    task = features(elmo(**SMALL))
    classifier = kt.heads.classifier(task, 3)
    assert classifier({"character_ids": IDS})["logits"].shape == (3, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "gelu"}, "activation='gelu' .*'relu' or 'tanh'"),
        ({"filters": []}, "filters is empty"),
        ({"filters": [(13, 2)]}, "13 characters .* 12"),
        ({"projection_dim": 11}, "projection_dim=11 is above lstm_dim=10"),
    ],
)
def test_shapes_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        elmo(**(SMALL | change))
