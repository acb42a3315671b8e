import keras
import numpy as np
import pytest
from checks import round_trip, same_outputs

import keras_transformers as kt
from keras_transformers.families.static.model import num_parameters, static_vectors, table_of

INPUTS = {
    "token_ids": np.array([[5, 2, 0], [1, 0, 0], [0, 0, 0]]),
    "padding_mask": np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], bool),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("size", "width"), [(30, 4), (7, 1)])
def test_counts(size, width, weighted):
    model = static_vectors(vocabulary_size=size, embedding_dim=width, weighted=weighted)
    wanted = size * width + size * weighted
    assert model.count_params() == wanted
    count = num_parameters(vocabulary_size=size, embedding_dim=width, weighted=weighted)
    assert count == wanted


def test_counts_of_known_tables():
    """As the models' pages give them: 7.56M, 1.89M, 32.3M and 31.3M."""
    assert num_parameters(vocabulary_size=29528) == 7_559_168  # potion-base-8M
    assert num_parameters(vocabulary_size=29528, embedding_dim=64) == 1_889_792
    assert num_parameters(vocabulary_size=63091, embedding_dim=512) == 32_302_592
    assert num_parameters(vocabulary_size=30522, embedding_dim=1024) == 31_254_528


def weighted_model():
    model = static_vectors(vocabulary_size=6, embedding_dim=3, weighted=True)
    generator = np.random.default_rng(2)
    model.set_weights([generator.normal(size=weight.shape) for weight in model.weights])
    return model


def test_a_text_is_the_mean_of_its_weighted_rows(tmp_path):
    model = weighted_model()
    table, weights = model.get_weights()
    np.testing.assert_allclose(table_of(model), table * weights, rtol=1e-6)
    embedder = kt.heads.embedder(model, normalize=False)
    expected = [
        (table[5] * weights[5] + table[2] * weights[2] + table[0] * weights[0]) / 3,
        table[1] * weights[1],
        [0, 0, 0],
    ]
    np.testing.assert_allclose(embedder(INPUTS)["embedding"], expected, atol=1e-6)
    again = round_trip(embedder, tmp_path)
    same_outputs(again(INPUTS), embedder(INPUTS))
    unit = kt.heads.embedder(model)(INPUTS)["embedding"]
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 1, 0], atol=1e-5)


@pytest.mark.parametrize("pooling", kt.layers.TokenPooling.MODES)
def test_a_text_without_tokens_has_no_gradient_that_is_not_a_number(pooling):
    vectors = keras.ops.ones((2, 3, 2))
    mask = np.array([[True, False, False], [False, False, False]])
    pooled = kt.layers.TokenPooling(pooling)(vectors, mask)
    empty = {"max": -np.inf, "cls": 1, "lasttoken": 1}.get(pooling, 0)
    np.testing.assert_array_equal(pooled, [[1, 1], [empty, empty]])


def test_other_models_have_no_table():
    assert table_of(kt.bert_tiny(vocabulary_size=9)) is None
    assert table_of(kt.families.fasttext.fasttext(vocabulary_size=9, embedding_dim=2)) is None
    assert table_of(kt.heads.embedder(weighted_model())) is None


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_sizes_out_of_range(sizes):
    with pytest.raises(ValueError, match="expected at least 1"):
        static_vectors(vocabulary_size=sizes[0], embedding_dim=sizes[1])
