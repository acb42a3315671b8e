"""A Transformer whose encoder is pretrained: BERT's own outputs, counts, steps, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy, round_trip, same_outputs
from tiny import lively

from keras_transformers.families.bert import model as bert
from keras_transformers.families.roberta.model import roberta
from keras_transformers.families.transformer import model as transformer
from keras_transformers.models import transformer_from_encoder
from keras_transformers.training import TokenCrossentropy

SOURCES = np.array([[2, 5, 6, 7, 8, 3], [2, 9, 4, 3, 0, 0], [2, 3, 0, 0, 0, 0]], "int32")
TARGETS = np.random.default_rng(0).integers(4, 20, (3, 5)).astype("int32")
INPUTS = {"source_token_ids": SOURCES, "target_token_ids": TARGETS}
BERT = {"vocabulary_size": 30, "num_layers": 2, "hidden_dim": 16, "max_sequence_length": 40}
DECODER = {"vocabulary_size": 20, "num_decoder_layers": 1, "norm_position": "pre"}


@pytest.fixture(scope="module")
def encoder():
    return lively(bert.bert(**BERT, num_heads=2))


@pytest.fixture(scope="module")
def model(encoder):
    return transformer_from_encoder(encoder, **DECODER, max_sequence_length=12)


def test_the_encoder_computes_what_bert_does_bit_for_bit(encoder, model):
    mask = SOURCES != 0
    tokens = {"token_ids": SOURCES, "segment_ids": 0 * SOURCES, "padding_mask": mask}
    expected = encoder(tokens)["sequence_output"]
    output = model.get_layer("encoder_output").output
    np.testing.assert_array_equal(
        keras.Model(model.input["source_token_ids"], output)(SOURCES), expected
    )


def test_exact_count(encoder, model):
    """BERT without its pooler, a decoder with one matrix for embeddings and logits."""
    d = BERT["hidden_dim"]
    decoder = transformer.num_parameters(
        vocabulary_size=20,
        num_encoder_layers=0,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=d,
        intermediate_dim=4 * d,
    )
    expected = bert.num_parameters(**BERT) - (d * d + d) + decoder + 2 * d  # the decoder's norm
    assert model.count_params() == expected
    untied = transformer_from_encoder(encoder, **DECODER, weight_tying="none")
    assert untied.count_params() == expected + 20 * d


def test_the_decoder_is_like_the_encoder_unless_told(encoder):
    made = transformer_from_encoder(encoder, vocabulary_size=20)
    names = [layer.name for layer in made.layers]
    assert [name for name in names if name.startswith("decoder_layer_")] == [
        "decoder_layer_0",
        "decoder_layer_1",
    ]
    block = made.get_layer("decoder_layer_1")
    assert (block.self_attention.num_heads, block.feed_forward.intermediate_dim) == (2, 64)
    assert "pooler" not in names


def test_steps_with_a_cache_equal_the_whole_sequence(model):
    whole = model(INPUTS, training=False)["logits"]
    step, cache = model.start_decoding(SOURCES)
    for index in range(TARGETS.shape[1]):
        logits, cache = step(tf.constant(TARGETS[:, index]), tf.constant(index), cache)
        np.testing.assert_allclose(logits, whole[:, index], atol=2e-5)


def test_source_padding_changes_nothing(model):
    longer = INPUTS | {"source_token_ids": np.pad(SOURCES, ((0, 0), (0, 4)))}
    whole, padded = (model(inputs)["logits"] for inputs in (INPUTS, longer))
    np.testing.assert_allclose(whole, padded, atol=1e-5)


def test_saved_and_loaded(model, tmp_path):
    loaded = round_trip(model, tmp_path)
    same_outputs(loaded(INPUTS), model(INPUTS))


def test_an_encoder_without_segments_and_with_another_padding():
    made = transformer_from_encoder(
        roberta(vocabulary_size=30, num_layers=1, num_heads=2, hidden_dim=16),
        vocabulary_size=20,
        pad_token_id=1,
    )
    padded = np.pad(SOURCES + 1, ((0, 0), (0, 2)), constant_values=1)
    logits = [
        made(INPUTS | {"source_token_ids": sources})["logits"] for sources in (SOURCES + 1, padded)
    ]
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.slow
def test_a_toy_is_learned():
    """Targets are their sources backwards; the encoder's own weights are trained too."""
    keras.utils.set_random_seed(0)
    encoder = bert.bert(**BERT, num_heads=2, dropout=0.0, attention_dropout=0.0)
    made = transformer_from_encoder(encoder, **DECODER, dropout=0.0, attention_dropout=0.0)
    before = encoder.get_layer("token_embedding").embeddings.numpy()
    random = np.random.default_rng(1)
    words = random.integers(5, 15, (256, 3)).astype("int32")
    sources = np.pad(words, ((0, 0), (1, 1)), constant_values=2)
    targets = words[:, ::-1]
    shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
    inputs = {"source_token_ids": sources, "target_token_ids": shifted}
    compile_toy(made, keras.optimizers.Adam(1e-2), {"logits": TokenCrossentropy()})
    fitted = made.fit(inputs, {"logits": targets}, batch_size=64, epochs=25, verbose=0)
    losses = fitted.history["loss"]
    assert losses[-1] < 0.1 * losses[0]
    assert not np.array_equal(encoder.get_layer("token_embedding").embeddings, before)


def test_what_does_not_fit_is_refused(encoder):
    with pytest.raises(ValueError, match="weight_tying='all':.*encoder.*vocabulary"):
        transformer_from_encoder(encoder, vocabulary_size=20, weight_tying="all")
    with pytest.raises(ValueError, match="positions='none' is unknown"):
        transformer_from_encoder(encoder, vocabulary_size=20, positions="none")
    inputs = keras.Input((None, 4), name="token_ids")
    wrong = keras.Model({"token_ids": inputs}, {"x": inputs})
    with pytest.raises(ValueError, match="no output 'sequence_output'"):
        transformer_from_encoder(wrong, vocabulary_size=20)
    bag = keras.Model({"token_ids": inputs}, {"sequence_output": inputs}, name="bag")
    with pytest.raises(ValueError, match="'bag' has no blocks"):
        transformer_from_encoder(bag, vocabulary_size=20)
