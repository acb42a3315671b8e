"""Which weights of a run are the model in the end."""

from collections.abc import Callable

import keras

from keras_transformers.training.averaging import CheckpointAveraging


def choose_weights(
    model: keras.Model, averaging: CheckpointAveraging, score: Callable[[str], float]
) -> str:
    """Leaves in the model its last weights or the average of the last epochs, whichever is better.

    Args:
        model: after training.
        averaging: was a callback of that training.
        score: called with the name of the weights that the model has at that moment, "last" or
            "average of 5"; the higher the better. Of equals the last weights are taken. Go by the
            validation set: a figure of the test set would no longer be one.

    Returns:
        The name of the better ones.

    Raises:
        ValueError: nothing was averaged, as no epoch was trained.
    """
    last = model.get_weights()
    score_of_last = score("last")
    averaging.apply()
    average = f"average of {len(averaging)}"
    if score(average) > score_of_last:
        return average
    model.set_weights(last)
    return "last"
