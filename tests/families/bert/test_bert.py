import keras
import numpy as np
import pytest
from checks import bert_inputs, compile_toy, round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.inspection import parameter_table

SMALL = {"vocabulary_size": 50, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}


@pytest.fixture(scope="module")
def encoder():
    return bert(**SMALL, max_sequence_length=20)


def test_bert_base_with_both_heads_layer_by_layer(zero_weights):
    """Checks the published table of BERT-Base with 30,000 tokens."""
    model = kt.heads.pretrainer(kt.bert_base(vocabulary_size=30_000))
    symbols = {"V": 30_000, "P": 512, "H": 768, "I": 3072}
    rows = {row.name: row for row in parameter_table(model, symbols)}
    layer = {
        "self_attention": (2_362_368, "4H^2+4H"),
        "self_attention_norm": (1_536, "2H"),
        "feed_forward": (4_722_432, "8H^2+5H"),
        "feed_forward_norm": (1_536, "2H"),
    }
    expected = {
        "token_embedding": (23_040_000, "V*H"),
        "segment_embedding": (1_536, "2H"),
        "position_embedding": (393_216, "P*H"),
        "embeddings_norm": (1_536, "2H"),
        **{f"encoder_layer_{i}/{part}": count for i in range(12) for part, count in layer.items()},
        "masked_lm_dense": (590_592, "H^2+H"),
        "masked_lm_norm": (1_536, "2H"),
        "mask_logits": (30_000, "V"),
        "pooler": (590_592, "H^2+H"),
        "next_sentence_logits": (1_538, "2H+2"),
    }
    for name, (count, formula) in expected.items():
        assert (rows[name].num_parameters, rows[name].formula) == (count, formula), name
    assert sum(count for count, _ in expected.values()) == 109_705_010
    assert sum(row.num_parameters for row in rows.values() if "/" not in row.name) == 109_705_010
    assert model.count_params() == 109_705_010


def test_shapes_and_names(encoder):
    outputs = encoder(bert_inputs())
    assert outputs["sequence_output"].shape == (3, 9, 16)
    assert outputs["pooled_output"].shape == (3, 16)
    names = [layer.name for layer in encoder.layers]
    assert {"token_embedding", "position_embedding", "encoder_layer_1", "pooler"} <= set(names)


def test_padding_changes_nothing_at_real_positions(encoder):
    inputs = bert_inputs()
    short = {key: value[:1, :3] for key, value in inputs.items()}
    padded = {key: value[:1] for key, value in inputs.items()}
    assert padded["padding_mask"].sum() == 3
    one, other = encoder(short), encoder(padded)
    np.testing.assert_allclose(one["sequence_output"], other["sequence_output"][:, :3], atol=1e-6)
    np.testing.assert_allclose(one["pooled_output"], other["pooled_output"], atol=1e-6)


def test_the_order_of_a_batch_changes_nothing(encoder):
    inputs = bert_inputs()
    turned = {key: value[::-1] for key, value in inputs.items()}
    np.testing.assert_allclose(
        encoder(inputs)["pooled_output"], encoder(turned)["pooled_output"][::-1], atol=1e-6
    )


def test_segments_positions_and_tokens_all_count(encoder):
    inputs = bert_inputs(rows=1)
    base = encoder(inputs)["pooled_output"].numpy()
    for key in ("token_ids", "segment_ids"):
        changed = {**inputs, key: 1 - inputs[key] if key == "segment_ids" else inputs[key][:, ::-1]}
        assert np.abs(encoder(changed)["pooled_output"] - base).max() > 1e-4, key


def test_saving_without_custom_objects(encoder, tmp_path):
    model = kt.heads.pretrainer(encoder)
    inputs = {**bert_inputs(), "mask_positions": np.array([[1, 2], [0, 3], [8, 8]])}
    loaded = round_trip(model, tmp_path)
    same_outputs(model(inputs, training=False), loaded(inputs, training=False))
    assert loaded.count_params() == model.count_params()
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in model.layers]


def test_the_masked_lm_head_reads_the_masked_positions_alone(encoder):
    model = kt.heads.pretrainer(encoder)
    inputs = bert_inputs()
    everywhere = np.tile(np.arange(9), (3, 1))
    all_logits = model({**inputs, "mask_positions": everywhere})["mask_logits"].numpy()
    some = model({**inputs, "mask_positions": np.array([[2], [0], [7]])})["mask_logits"].numpy()
    np.testing.assert_allclose(some[:, 0], all_logits[[0, 1, 2], [2, 0, 7]], atol=1e-5)
    assert all_logits.shape == (3, 9, 50)


def test_heads_share_the_encoders_weights(encoder):
    model = kt.heads.classifier(encoder, 3)
    assert model.get_layer("pooler") is encoder.get_layer("pooler")
    assert model.count_params() == encoder.count_params() + 3 * 16 + 3
    assert model(bert_inputs())["logits"].shape == (3, 3)


def test_a_longer_input_than_the_positions_is_refused(encoder):
    with pytest.raises(ValueError, match="21.*20 positions"):
        encoder(bert_inputs(length=21))


def test_heads_refuse_what_is_no_encoder(encoder):
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="has no output 'pooled_output'"):
        kt.heads.classifier(plain, 2)
    with pytest.raises(ValueError, match="num_classes=1"):
        kt.heads.classifier(encoder, 1)


@pytest.mark.parametrize("head", ["classifier", pytest.param("pretrainer", marks=pytest.mark.slow)])
def test_a_batch_is_learned(encoder, head):
    """Gradients reach every weight, and the loss of one repeated batch falls to nearly nothing."""
    keras.utils.set_random_seed(0)
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    fresh = bert(**(SMALL | {"num_layers": 1}), max_sequence_length=20, **rates)
    inputs = bert_inputs()
    if head == "classifier":
        model = kt.heads.classifier(fresh, 2, dropout=0.0)
        targets = {"logits": np.array([0, 1, 1])}
    else:
        model = kt.heads.pretrainer(fresh)
        inputs["mask_positions"] = np.array([[1, 2], [0, 3], [8, 7]])
        targets = {
            "mask_logits": np.array([[4, 5], [6, 7], [8, 9]]),
            "next_sentence_logits": np.array([0, 1, 0]),
        }
    before = [w.numpy() for w in model.trainable_variables]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compile_toy(model, keras.optimizers.Adam(1e-2), dict.fromkeys(targets, loss))
    data = keras.tree.map_structure(lambda rows: np.concatenate([rows] * 10), (inputs, targets))
    history = model.fit(*data, batch_size=3, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert history[-1] < 0.1 < history[0]
    # A bias on the keys shifts all scores of a query equally, which softmax ignores.
    still = [
        w.path
        for w, b in zip(model.trainable_variables, before, strict=True)
        if np.array_equal(w.numpy(), b) and "key/bias" not in w.path
    ]
    unused = {"pooler"} if head == "pretrainer" else set()
    assert [path for path in still if path.split("/")[0] not in unused] == []
