"""tf.Examples with texts, which TF Serving's Classify and Regress APIs send."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tasks.texts import strings


def serialized(texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Serializes texts as tf.Examples, the inputs of TF Serving's Classify and Regress APIs."""
    records = []
    for row in zip(*texts.values(), strict=True):
        record = tf.train.Example()
        for name, text in zip(texts, row, strict=True):
            record.features.feature[name].bytes_list.value.append(text)
        records.append(record.SerializeToString())
    return {"inputs": strings(records)}


def parsed(records: tf.Tensor, names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Parses serialized tf.Examples: name -> strings (batch,), in the graph."""
    with tf.device("CPU:0"):
        return tf.io.parse_example(
            records, dict.fromkeys(names, tf.io.FixedLenFeature([], tf.string))
        )
