"""Task heads: shapes, exact counts, padding, and encoders other than BERT."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import bert_inputs, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.families.bert.model import bert

SMALL = {"vocabulary_size": 50, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
HEADS = {
    "classifier": {"num_classes": 3},
    "regressor": {},
    "multiple_choice": {},
    "tagger": {"num_labels": 5},
    "span_extractor": {},
}
OF_TOKENS = ("tagger", "span_extractor")
POOLER = 16 * 16 + 16


@pytest.fixture(scope="module")
def encoder():
    return bert(**SMALL, max_sequence_length=20, initializer_range=0.3)


def convolutional_encoder():
    """Builds an encoder that returns only `sequence_output` and reads no segments."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    vectors = keras.layers.Embedding(50, 8, name="token_embedding")(token_ids)
    hidden = keras.layers.Conv1D(16, 3, padding="same", name="convolution")(vectors)
    return keras.Model(
        {"token_ids": token_ids, "padding_mask": padding_mask},
        {"sequence_output": hidden},
        name="convolutional",
    )


def inputs_of(head, names=("token_ids", "segment_ids", "padding_mask")):
    inputs = {name: bert_inputs()[name] for name in names}  # (3, 9), real lengths 3, 6, 9
    if head == "multiple_choice":
        return {name: np.stack([value, value[::-1]]) for name, value in inputs.items()}
    return inputs


def built(head, encoder):
    return getattr(kt.heads, head)(encoder, **HEADS[head])


def dtypes(outputs):
    return {keras.backend.standardize_dtype(value.dtype) for value in outputs.values()}


SHAPES = {
    "classifier": {"logits": (3, 3)},
    "regressor": {"score": (3,)},
    "multiple_choice": {"logits": (2, 3)},
    "tagger": {"logits": (3, 9, 5)},
    "span_extractor": {"start_logits": (3, 9), "end_logits": (3, 9)},
}


@pytest.mark.parametrize("head", HEADS)
def test_outputs_and_names(encoder, head):
    model = built(head, encoder)
    outputs = model(inputs_of(head))
    assert {key: tuple(value.shape) for key, value in outputs.items()} == SHAPES[head]
    assert dtypes(outputs) == {"float32"}
    assert model.name == f"bert_{head}"
    names = {layer.name for layer in model.layers}
    assert {"token_embedding", "encoder_layer_1"} <= names
    assert ("pooler" in names) == (head not in OF_TOKENS)
    assert model.get_layer("encoder_layer_0") is encoder.get_layer("encoder_layer_0")


@pytest.mark.parametrize(
    ("head", "added"),
    [
        ("classifier", 3 * 16 + 3),
        ("regressor", 17),
        ("multiple_choice", 17),
        ("tagger", 5 * 17 - POOLER),
        ("span_extractor", 2 * 17 - POOLER),
    ],
)
def test_what_a_head_adds(encoder, head, added):
    assert built(head, encoder).count_params() == encoder.count_params() + added


def test_counts_on_bert_base_are_hugging_faces(zero_weights):
    encoder = kt.bert_base()
    assert kt.heads.classifier(encoder, 2).count_params() == 109_483_778
    assert kt.heads.regressor(encoder).count_params() == 109_483_009
    assert kt.heads.multiple_choice(encoder).count_params() == 109_483_009
    assert kt.heads.tagger(encoder, 9).count_params() == 108_898_569
    assert kt.heads.span_extractor(encoder).count_params() == 108_893_186


@pytest.mark.parametrize("head", HEADS)
def test_padding_moves_nothing(encoder, head):
    model = built(head, encoder)
    padded = {name: value[:1] for name, value in bert_inputs().items()}
    short = {name: value[:, :3] for name, value in padded.items()}
    if head == "multiple_choice":
        padded, short = ({k: v[None] for k, v in given.items()} for given in (padded, short))
    wide, narrow = model(padded), model(short)
    for key in SHAPES[head]:
        real = wide[key][:, :3] if head in OF_TOKENS else wide[key]
        np.testing.assert_allclose(real, narrow[key], atol=1e-5)


def test_no_span_begins_or_ends_in_padding(encoder):
    inputs = bert_inputs()
    outputs = built("span_extractor", encoder)(inputs)
    for logits in outputs.values():
        values = logits.numpy()
        assert (values[~inputs["padding_mask"]] == -1e9).all()
        assert (values[inputs["padding_mask"]] > -1e3).all()
        probabilities = keras.ops.softmax(logits).numpy()
        assert (probabilities[~inputs["padding_mask"]] == 0).all()
    nothing = {name: 0 * value[:1].astype("int32") for name, value in inputs.items()}
    nothing["padding_mask"] = nothing["padding_mask"].astype(bool)
    logits = built("span_extractor", encoder)(nothing)["start_logits"]
    assert np.isfinite(keras.ops.softmax(logits)).all()


def test_choices_are_read_one_by_one(encoder):
    choices, rows = built("multiple_choice", encoder), built("regressor", encoder)
    rows.get_layer("score_dense").set_weights(choices.get_layer("score_dense").get_weights())
    inputs = inputs_of("multiple_choice")
    logits = choices(inputs)["logits"].numpy()
    for row in range(2):
        one = rows({name: value[row] for name, value in inputs.items()})["score"].numpy()
        np.testing.assert_allclose(logits[row], one, atol=1e-5)
    assert np.ptp(logits) > 0.01
    more = {name: np.tile(value, (1, 2, 1)) for name, value in inputs.items()}
    np.testing.assert_allclose(choices(more)["logits"][:, 3:], logits, atol=1e-5)


def test_choices_that_are_all_padding_are_none(encoder):
    """They take no probability, and training goes on as without them."""
    model, inputs = built("multiple_choice", encoder), inputs_of("multiple_choice")
    fewer = {name: value[:, :2] for name, value in inputs.items()}
    inputs["padding_mask"] = inputs["padding_mask"].copy()
    inputs["padding_mask"][:, 2] = False
    labels = np.array([0, 1])

    def step(given):
        with tf.GradientTape() as tape:
            logits = model(given, training=False)["logits"]
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return logits, losses, tape.gradient(losses, model.trainable_variables)

    logits, losses, gradients = step(inputs)
    expected = step(fewer)
    assert (logits[:, 2].numpy() == -1e9).all()
    np.testing.assert_allclose(logits[:, :2], expected[0], atol=1e-5)
    np.testing.assert_allclose(losses, expected[1], atol=1e-5)
    for found, wanted in zip(gradients, expected[2], strict=True):
        found, wanted = map(tf.convert_to_tensor, (found, wanted))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize("head", HEADS)
def test_saving_without_custom_objects(encoder, head, tmp_path):
    model = built(head, encoder)
    loaded = round_trip(model, tmp_path)
    same_outputs(model(inputs_of(head)), loaded(inputs_of(head)))
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]


def test_in_bfloat16_the_answers_are_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = bert(**SMALL, max_sequence_length=20)
        models = {head: built(head, encoder) for head in HEADS}
    finally:
        keras.config.set_dtype_policy("float32")
    for head, model in models.items():
        assert dtypes(model(inputs_of(head))) == {"float32"}, head


@pytest.mark.parametrize("head", HEADS)
def test_any_encoder_with_a_sequence_output(head):
    model = built(head, convolutional_encoder())
    outputs = model(inputs_of(head, names=("token_ids", "padding_mask")))
    assert {key: tuple(value.shape) for key, value in outputs.items()} == SHAPES[head]
    pooler = [layer for layer in model.layers if layer.name == "pooler"]
    assert len(pooler) == (head not in OF_TOKENS)
    if pooler:  # a new one, on the first token
        assert pooler[0].count_params() == POOLER


@pytest.mark.parametrize("head", HEADS)
def test_gradients_reach_every_weight(encoder, head):
    model = built(head, encoder)
    targets = np.random.default_rng(0)
    with tf.GradientTape() as tape:
        outputs = model(inputs_of(head), training=True)
        loss = sum(
            tf.reduce_sum((value - targets.normal(size=value.shape)) ** 2)
            if head == "regressor"
            else tf.reduce_sum(tf.nn.log_softmax(value)[..., 1] * targets.normal())
            for value in outputs.values()
        )
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    still = [
        variable.path
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is None or not np.abs(tf.convert_to_tensor(gradient)).max() > 0
    ]
    # A bias on the keys shifts all scores of a query equally, and a bias on the scores those of all
    # choices: softmax ignores both.
    unseen = {"multiple_choice": ("key/bias", "score_dense/bias")}.get(head, ("key/bias",))
    assert [path for path in still if not path.endswith(unseen)] == []


def test_what_does_not_fit_is_refused(encoder):
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="plain")
    for head in ("classifier", "regressor"):
        with pytest.raises(ValueError, match="'plain'.*'pooled_output'"):
            built(head, plain)
    for head in OF_TOKENS:
        with pytest.raises(ValueError, match="'plain'.*'sequence_output'"):
            built(head, plain)
    with pytest.raises(ValueError, match="'plain'.*inputs"):
        built("multiple_choice", plain)
    with pytest.raises(ValueError, match="num_labels=1:.*tagger.*2"):
        kt.heads.tagger(encoder, 1)
    with pytest.raises(ValueError, match="num_classes=1"):
        kt.heads.classifier(encoder, 1)
    vectors = keras.Input((None, 16), name="vectors")
    odd = keras.Model({"vectors": vectors}, {"sequence_output": vectors * 2}, name="odd")
    with pytest.raises(ValueError, match="'odd'.*'padding_mask'"):
        kt.heads.span_extractor(odd)
