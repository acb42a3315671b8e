"""The recipes' models under XLA with static shapes, as TPUs need them, in two parts."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.models import elmo, fasttext, gpt, heads, vit
from keras_transformers.models.encoder_decoders.seq2seq import seq2seq
from keras_transformers.models.encoder_decoders.transformer import transformer
from keras_transformers.models.encoders.bert import bert
from keras_transformers.models.heads import features
from keras_transformers.training.distributed import prepare
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.sampled_softmax import OutputIsLoss, SampledSoftmax

ROWS, LENGTH, VOCABULARY, CLASSES = 4, 8, 30, 3


def encoder():
    return bert(
        vocabulary_size=VOCABULARY,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=LENGTH,
        dropout=0.0,
        attention_dropout=0.0,
    )


def language_model():
    return gpt.gpt(
        vocabulary_size=VOCABULARY,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=LENGTH,
        dropout=0.0,
        attention_dropout=0.0,
    )


def tagger_of_features(num_layers):
    reader = features.feature_reader(num_layers, 8, units=4, num_recurrent_layers=1, dropout=0.0)
    return heads.tagger(reader, CLASSES, dropout=0.0)


def elmo_language_model():
    shape = {"lstm_dim": 8, "projection_dim": 4, "num_highways": 1, "filters": [(1, 4), (2, 4)]}
    softmax = SampledSoftmax(VOCABULARY, num_sampled=20_000, seed=0)
    return elmo.language_model(elmo.elmo(**shape, max_characters=6, dropout=0.0), softmax)


def pairs(model):
    options = {"vocabulary_size": VOCABULARY, "num_encoder_layers": 1, "num_decoder_layers": 1}
    if model == "transformer":
        return transformer(
            **options,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=8,
            dropout=0.0,
            attention_dropout=0.0,
            feed_forward_dropout=0.0,
        )
    return seq2seq(**options, cell="lstm", embedding_dim=8, hidden_dim=8, dropout=0.0)


def image_encoder():
    return vit.vit(patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=8)


CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
BOTH = ("start_logits", "end_logits")
# A recipe's model, and the loss of each output.
RECIPES = {
    "pretrain_bert": (
        lambda: heads.pretrainer(encoder()),
        dict.fromkeys(("mask_logits", "next_sentence_logits"), TokenCrossentropy()),
    ),
    "classification, glue": (
        lambda: heads.classifier(encoder(), CLASSES, dropout=0.0),
        {"logits": CROSSENTROPY},
    ),
    "fasttext_classification": (
        lambda: heads.classifier(
            fasttext.fasttext(vocabulary_size=VOCABULARY, embedding_dim=4), CLASSES, dropout=0.0
        ),
        {"logits": CROSSENTROPY},
    ),
    "glue, regression": (
        lambda: heads.regressor(encoder(), dropout=0.0),
        {"score": keras.losses.MeanSquaredError()},
    ),
    "tagging": (
        lambda: heads.tagger(encoder(), CLASSES, dropout=0.0),
        {"logits": TokenCrossentropy()},
    ),
    "multiple_choice": (
        lambda: heads.multiple_choice(encoder(), dropout=0.0),
        {"logits": CROSSENTROPY},
    ),
    "question_answering": (
        lambda: heads.span_extractor(encoder()),
        dict.fromkeys(BOTH, CROSSENTROPY),
    ),
    "feature_based, elmo_tagging": (
        lambda: tagger_of_features(3),
        {"logits": TokenCrossentropy()},
    ),
    "language_model": (language_model, {"logits": TokenCrossentropy()}),
    "gpt_classification": (
        lambda: gpt.classifier(language_model(), CLASSES, dropout=0.0),
        {"logits": CROSSENTROPY, "token_logits": TokenCrossentropy()},
    ),
    "pretrain_elmo": (
        elmo_language_model,
        dict.fromkeys(("forward_loss", "backward_loss"), OutputIsLoss()),
    ),
    "translation": (lambda: pairs("transformer"), {"logits": TokenCrossentropy()}),
    "translation, recurrent": (lambda: pairs("seq2seq"), {"logits": TokenCrossentropy()}),
    "image_classification": (
        lambda: heads.classifier(image_encoder(), CLASSES, dropout=0.0),
        {"logits": keras.losses.CategoricalCrossentropy(from_logits=True)},
    ),
}
# The sampled softmax draws again for each part, and draws other floats under XLA.
TOLERANCES = {"pretrain_elmo": 1e-2}


def batch(model, losses):
    """Returns a batch of static shape for a model."""
    rng = np.random.default_rng(0)
    sizes = {"mask_positions": 2}

    def values(name, tensor):
        inner = [size or sizes.get(name, LENGTH) for size in tensor.shape[1:]]
        if tensor.dtype == "bool":
            return np.ones((ROWS, *inner), bool)
        if tensor.dtype.startswith("float"):
            return rng.random((ROWS, *inner), "float32")
        return rng.integers(1, 2 if name == "segment_ids" else 6, (ROWS, *inner)).astype("int32")

    inputs = {name: values(name, tensor) for name, tensor in model.input.items()}
    targets = {}
    for name, loss in losses.items():
        shape = tuple(model(inputs)[name].shape)
        is_index = isinstance(loss, TokenCrossentropy | keras.losses.SparseCategoricalCrossentropy)
        targets[name] = np.zeros(shape[:-1], "int32") if is_index else np.zeros(shape, "float32")
    return tf.data.Dataset.from_tensors((inputs, targets)).repeat(2)


def losses_of(build, losses, *, jit_compile, parts):
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    model = build()
    model.compile(keras.optimizers.SGD(0.1), losses, jit_compile=jit_compile)
    prepare(model, accumulate=parts)
    history = model.fit(batch(model, losses), epochs=2, shuffle=False, verbose=0).history
    assert model.jit_compile == jit_compile
    return history["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_xla_with_static_shapes_trains_alike(recipe):
    build, losses = RECIPES[recipe]
    found = losses_of(build, losses, jit_compile=True, parts=2)
    expected = losses_of(build, losses, jit_compile=False, parts=1)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCES.get(recipe, 1e-5))


def test_upstream_scan_still_does_not_train_under_xla():
    """When this fails, `scan` accepts inputs of unknown length, and layers.recurrent can use it."""
    one = tf.ones(())

    @tf.function(jit_compile=True)
    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(one)
            after, _ = keras.ops.scan(lambda state, _: (state * one,) * 2, one, tf.ones((3,)))
        return tape.gradient(after, one)

    with pytest.raises(tf.errors.InvalidArgumentError, match="fixed tensor list size"):
        gradient()


def test_xla_refuses_rows_that_are_not_static():
    build, losses = RECIPES["fasttext_classification"]
    model = build()
    model.compile(keras.optimizers.SGD(0.1), losses, jit_compile=True)
    prepare(model, accumulate=3)
    with pytest.raises(ValueError, match=f"a multiple of 3 on each replica; found {ROWS}"):
        model.fit(batch(model, losses), verbose=0)
