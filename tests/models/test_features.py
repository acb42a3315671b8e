"""A frozen encoder's layers as features, and the BiLSTM that reads them."""

import keras
import numpy as np
import pytest

from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.models.features import feature_reader, join, layer_features

INPUTS = {
    "token_ids": np.array([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]], np.int32),
    "segment_ids": np.zeros((2, 5), np.int32),
    "padding_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool),
}


@pytest.fixture(scope="module")
def encoder():
    return bert(vocabulary_size=20, num_layers=5, num_heads=2, hidden_dim=8)


def features(encoder, layers):
    return np.array(layer_features(encoder, layers)(INPUTS)["features"])


def test_which_layers_they_are(encoder):
    last = np.array(encoder(INPUTS)["sequence_output"])
    each = [features(encoder, number)[:, :, 0] for number in range(6)]
    np.testing.assert_allclose(each[5], last, atol=1e-6)
    np.testing.assert_array_equal(features(encoder, "embeddings")[:, :, 0], each[0])
    np.testing.assert_array_equal(features(encoder, "second_to_last")[:, :, 0], each[4])
    np.testing.assert_array_equal(features(encoder, "last")[:, :, 0], each[5])
    np.testing.assert_array_equal(features(encoder, "concat_last_4"), np.stack(each[2:], axis=2))
    np.testing.assert_array_equal(features(encoder, "weighted_sum_all"), np.stack(each[1:], axis=2))
    assert not np.allclose(each[0], each[1])


@pytest.mark.parametrize(
    ("layers", "combine", "width"),
    [("concat_last_4", "concat", 32), ("weighted_sum_last_4", "weighted_sum", 8)],
)
def test_counts_and_shapes(encoder, layers, combine, width):
    chosen = layer_features(encoder, layers).output["features"].shape[2]
    reader = feature_reader(chosen, 8, combine=combine, units=6)
    lstms = 2 * 4 * (width + 6 + 1) * 6 + 2 * 4 * (12 + 6 + 1) * 6
    assert reader.count_params() == lstms + (5 if combine == "weighted_sum" else 0)
    tagger = heads.tagger(reader, 3)
    assert tagger.count_params() == reader.count_params() + 12 * 3 + 3


@pytest.mark.slow
def test_joined_it_is_one_model_with_the_same_outputs(encoder, tmp_path):
    extractor = layer_features(encoder, "concat_last_4")
    reader = heads.tagger(feature_reader(4, 8, units=6), 3)
    joined = join(extractor, reader)
    apart = reader(
        {
            "features": extractor(INPUTS)["features"],
            "padding_mask": keras.ops.convert_to_tensor(INPUTS["padding_mask"]),
        }
    )
    logits = np.array(joined(INPUTS)["logits"])
    np.testing.assert_allclose(logits, apart["logits"], atol=1e-6)
    joined.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(np.array(loaded(INPUTS)["logits"]), logits, atol=1e-6)


def test_padding_changes_nothing(encoder):
    joined = join(layer_features(encoder), heads.tagger(feature_reader(4, 8, units=6), 3))
    short = {name: value[1:, :3] for name, value in INPUTS.items()}
    np.testing.assert_allclose(
        np.array(joined(INPUTS)["logits"])[1:, :3], np.array(joined(short)["logits"]), atol=1e-5
    )


def test_what_cannot_be(encoder):
    with pytest.raises(ValueError, match="'middle'.*use.*second_to_last"):
        layer_features(encoder, "middle")
    with pytest.raises(ValueError, match="layer 0.* layers 1 to 5"):
        layer_features(encoder, 6)
    shallow = bert(vocabulary_size=20, num_layers=2, num_heads=2, hidden_dim=8)
    with pytest.raises(ValueError, match="layers 1 to 2"):
        layer_features(shallow, "concat_last_4")
    with pytest.raises(ValueError, match="combine='mean'"):
        feature_reader(1, 8, combine="mean")
