"""The last block computes what the head reads, with the results and gradients of all positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.families.albert.model import albert
from keras_transformers.families.bert.model import bert
from keras_transformers.families.deberta.model import deberta
from keras_transformers.families.modern_bert.model import modern_bert
from keras_transformers.families.mpnet.model import mpnet
from keras_transformers.families.vit.model import vit
from keras_transformers.inspection.attention_maps import attention_layers
from keras_transformers.layers.scopes import WATCHERS
from keras_transformers.models.classes.headed_encoder import HeadedEncoder
from keras_transformers.models.selection import HeadSelection
from keras_transformers.saved_model.forms.form import ExportForm

SHAPE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "vocabulary_size": 20}
RATES = {"dropout": 0.0, "attention_dropout": 0.0}


def rotary(**options):
    return modern_bert(**options, intermediate_dim=16, global_every=1)


HEADS = {
    "classifier": lambda: kt.heads.classifier(bert(**SHAPE, **RATES), 3, dropout=0.0),
    "relative positions": lambda: kt.heads.classifier(mpnet(**SHAPE, **RATES), 3, dropout=0.0),
    "rotary positions": lambda: kt.heads.classifier(rotary(**SHAPE), 3, dropout=0.0),
    "distances": lambda: kt.heads.classifier(deberta(**SHAPE, **RATES), 3, dropout=0.0),
    "masked words": lambda: kt.heads.masked_lm(bert(**SHAPE, **RATES)),
    "both heads": lambda: kt.heads.pretrainer(bert(**SHAPE, **RATES)),
}


def inputs_of(model):
    generator = np.random.default_rng(0)
    inputs = {
        "token_ids": generator.integers(1, 20, (3, 5)).astype("int32"),
        "segment_ids": generator.integers(0, 2, (3, 5)).astype("int32"),
        "padding_mask": np.arange(5) < np.array([[5], [2], [0]]),
        "mask_positions": np.array([[4, 1], [1, 0], [0, 0]], "int32"),
    }
    return {name: inputs[name] for name in model.input}


@pytest.fixture(params=HEADS)
def model(request):
    keras.utils.set_random_seed(0)
    return HEADS[request.param]()


def all_positions(model):
    """Returns the same model as Keras computes it."""
    return keras.Model(model.input, model.output)


def gradients(model, inputs):
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = sum(tf.reduce_sum(tf.sin(x)) for x in outputs.values())
    return tape.gradient(loss, [variable.value for variable in model.trainable_weights])


@pytest.mark.one_case
def test_results_and_gradients_are_those_of_all_positions(model):
    assert isinstance(model, HeadedEncoder)
    assert HeadSelection(model).block is not None
    plain, inputs = all_positions(model), inputs_of(model)
    expected, outputs = plain(inputs), model(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=0, atol=1e-5)
    for actual, right in zip(gradients(model, inputs), gradients(plain, inputs), strict=True):
        if right is None:
            assert actual is None
        else:
            right = tf.convert_to_tensor(right)
            np.testing.assert_allclose(tf.convert_to_tensor(actual), right, rtol=0, atol=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize("rates", [{"dropout": 0.5}, {"attention_dropout": 0.5}], ids=str)
@pytest.mark.parametrize("head", [kt.heads.classifier, kt.heads.tagger])
def test_training_drops_and_inference_does_not(head, rates):
    model = head(bert(**SHAPE, **RATES | rates), 3, dropout=0.0)
    inputs = inputs_of(model)
    for training, num_outputs in ((True, 3), (False, 1), (None, 1)):
        outputs = {model(inputs, training=training)["logits"].numpy().tobytes() for _ in range(3)}
        assert len(outputs) == num_outputs


@pytest.mark.one_case
def test_exports_compute_the_same(model):
    inputs = {name: tf.constant(x) for name, x in inputs_of(model).items()}
    outputs = tf.function(ExportForm(model))(**inputs)
    for name, value in all_positions(model)(inputs).items():
        np.testing.assert_allclose(outputs[name], value, rtol=0, atol=1e-5)


def test_no_position_may_be_selected():
    model = HEADS["masked words"]()
    inputs = {name: tf.constant(x) for name, x in inputs_of(model).items()}
    inputs["mask_positions"] = inputs["mask_positions"][:, :0]
    for compute in (lambda: model(inputs), lambda: tf.function(ExportForm(model))(**inputs)):
        assert compute()["mask_logits"].shape == (3, 0, 20)


def test_other_positions_are_not_computed(model, monkeypatch):
    shapes = []
    network = type(HeadSelection(model).block.feed_forward)
    call = network.call

    def noting(self, inputs, **options):
        shapes.append(tuple(inputs.shape[:-1]))
        return call(self, inputs, **options)

    monkeypatch.setattr(network, "call", noting)
    model(inputs_of(model))
    selected = 1 + 2 * ("mask_positions" in model.input)
    if "next_sentence_logits" not in model.output and "mask_positions" in model.input:
        selected = 2
    assert shapes == [(3, 5), (3, selected)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: bert(**SHAPE),  # returns all vectors
        lambda: kt.heads.tagger(bert(**SHAPE), 3),
        lambda: kt.heads.classifier(albert(**SHAPE, embedding_dim=4), 3),  # one block, called twice
        lambda: kt.heads.classifier(modern_bert(**SHAPE, intermediate_dim=16), 3),  # a window
    ],
)
def test_models_whose_last_block_computes_everything(make):
    assert HeadSelection(make()).block is None


def test_watched_attention_shows_all_positions():
    model = HEADS["classifier"]()
    shown = []
    watchers = {layer: shown.append for layer, _ in attention_layers(model)}
    with WATCHERS.use(watchers):
        model(inputs_of(model))
    assert [attended.probabilities.shape[2] for attended in shown] == [5, 5]


def test_the_model_is_saved_with_its_class(tmp_path):
    model = HEADS["classifier"]()
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert isinstance(loaded, HeadedEncoder)
    inputs = inputs_of(model)
    np.testing.assert_array_equal(loaded(inputs)["logits"], model(inputs)["logits"])


def test_a_saved_model_of_images_still_selects(tmp_path):
    encoder = vit(image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8)
    model = kt.heads.classifier(encoder, 3)
    model.save(tmp_path / "m.keras")
    for each in (model, keras.models.load_model(tmp_path / "m.keras")):
        assert HeadSelection(each).block.name == model.selection.block.name == "encoder_layer_1"
