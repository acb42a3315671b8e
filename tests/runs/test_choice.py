"""Last weights or their average."""

import keras
import numpy as np
import pytest

from keras_transformers.runs.weights_of_choice import choose_weights
from keras_transformers.training.averaging import CheckpointAveraging


@pytest.fixture
def trained():
    """A model whose only weight was 1, then 3."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    averaging = CheckpointAveraging(num_checkpoints=2)
    averaging.set_model(model)
    for epoch, value in enumerate((1.0, 3.0)):
        model.set_weights([np.full((1, 1), value, "float32")])
        averaging.on_epoch_end(epoch)
    return model, averaging


@pytest.mark.parametrize(
    ("scores", "chosen", "weight"),
    [
        ({"last": 1.0, "average of 2": 2.0}, "average of 2", 2.0),
        ({"last": 2.0, "average of 2": 1.0}, "last", 3.0),
        ({"last": 1.0, "average of 2": 1.0}, "last", 3.0),
    ],
)
def test_the_better_weights_stay_in_the_model(trained, scores, chosen, weight):
    model, averaging = trained
    measured = {}

    def score(name):
        measured[name] = model.get_weights()[0].item()
        return scores[name]

    assert choose_weights(model, averaging, score) == chosen
    assert measured == {"last": 3.0, "average of 2": 2.0}, "each with the weights of its name"
    assert model.get_weights()[0].item() == weight
