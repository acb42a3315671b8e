"""A smaller BERT out of a larger one."""

import numpy as np
import pytest
from checks import bert_inputs

from keras_transformers.families.bert.model import bert, num_parameters
from keras_transformers.models import shrink_bert

SIZE = {"num_layers": 3, "hidden_dim": 8, "max_sequence_length": 24}


@pytest.fixture(scope="module")
def large():
    return bert(vocabulary_size=50, num_heads=2, dropout=0.2, **SIZE)


def test_everything_kept_is_the_same_encoder(large):
    same = shrink_bert(large, layers=range(3), token_ids=range(50), max_sequence_length=24)
    inputs = bert_inputs(vocabulary_size=50)
    for name, output in large(inputs).items():
        np.testing.assert_array_equal(same(inputs)[name], output)


def test_layers_and_tokens_are_those_that_were_chosen(large):
    token_ids = [7, 3, *range(20, 30)]
    small = shrink_bert(large, layers=[2, 0], token_ids=token_ids, max_sequence_length=10)
    expected = num_parameters(
        vocabulary_size=12, num_layers=2, hidden_dim=8, max_sequence_length=10
    )
    assert small.count_params() == expected

    def weights(model, name):
        return model.get_layer(name).get_weights()

    for new, old in enumerate((2, 0)):
        found = weights(small, f"encoder_layer_{new}")
        for a, b in zip(found, weights(large, f"encoder_layer_{old}"), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(
        weights(small, "token_embedding")[0], weights(large, "token_embedding")[0][token_ids]
    )
    assert small.get_layer("encoder_layer_0").dropout == 0.2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [3]}, "layers=.*from 0 to 2"),
        ({"layers": []}, "layers="),
        ({"token_ids": [1, 1]}, "token_ids=.*different numbers from 0 to 49"),
        ({"max_sequence_length": 25}, "max_sequence_length=25: expected 1 to 24"),
    ],
)
def test_impossible_parts_are_refused(large, changes, message):
    options = {"layers": [0], "token_ids": [1, 2], "max_sequence_length": 8} | changes
    with pytest.raises(ValueError, match=message):
        shrink_bert(large, **options)
