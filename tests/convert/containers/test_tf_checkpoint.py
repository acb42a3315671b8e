"""Which checkpoint of TensorFlow is taken, and how its variables are read."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.convert.containers import open_arrays
from keras_transformers.convert.containers.tf_checkpoint import (
    StoredVariables,
    checkpoint_prefix,
    checkpoints_at,
    is_object_based,
)


def write_tf1(prefix, **arrays):
    prefix.parent.mkdir(exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name.replace("__", "/"), initializer=np.float32(array))
            for name, array in arrays.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(prefix), write_meta_graph=False)


@pytest.fixture
def two(tmp_path):
    """Two checkpoints; the file `checkpoint` names the first, by a path on another machine."""
    for step in (30, 60):
        write_tf1(tmp_path / "run" / f"model.ckpt-{step}", global_step=step, a__kernel=[[step, 1]])
    (tmp_path / "run/checkpoint").write_text(
        'model_checkpoint_path: "D:\\\\runs\\\\model.ckpt-30"\n'
        'all_model_checkpoint_paths: "/x/model.ckpt-60"\n'
    )
    return tmp_path / "run"


def test_the_file_checkpoint_says_which_one(two, caplog):
    with caplog.at_level(logging.INFO):
        assert checkpoint_prefix(two).name == "model.ckpt-30"
    assert "model.ckpt-30, model.ckpt-60: using model.ckpt-30" in caplog.text
    np.testing.assert_array_equal(open_arrays(two)["a.weight"], [[30], [1]])


@pytest.mark.parametrize("end", ["", ".index", ".data-00000-of-00001"])
def test_a_prefix_or_one_of_its_files_is_a_path(end, two):
    path = two / f"model.ckpt-60{end}"
    assert checkpoints_at(path) == [two / "model.ckpt-60"]
    arrays = open_arrays(path)
    assert dict(arrays.shapes) == {"a.weight": (2, 1)}
    np.testing.assert_array_equal(arrays["a.weight"], [[60], [1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "model.ckpt-30, model.ckpt-60.* checkpoint"),
        ("", "it has no file checkpoint"),
        ('model_checkpoint_path: "model.ckpt-90"', "its file checkpoint names 'model.ckpt-90'"),
    ],
)
def test_without_it_the_user_says_which_one(text, message, two):
    (two / "checkpoint").unlink()
    if text is not None:
        (two / "checkpoint").write_text(text)
    with pytest.raises(ValueError, match=rf"{message}.* such as .*run/model.ckpt-60$"):
        checkpoint_prefix(two)


def test_a_path_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="model.ckpt-1000.index"):
        checkpoint_prefix(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"model.ckpt-5 does not exist"):
        open_arrays(tmp_path / "model.ckpt-5")


def test_names_are_the_variables_own_without_an_optimizers(tmp_path):
    layer = tf.keras.layers.Dense(2, name="dense")
    layer.build((None, 3))
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(layer.trainable_variables)
    weights = tf.Module()
    weights.kernel = tf.Variable(np.ones((3, 2), "float32"), name="head/logits/kernel")
    checkpoint = tf.train.Checkpoint(model=weights, optimizer=optimizer, steps=tf.Variable(3))
    prefix = tmp_path / "ckpt"
    checkpoint.write(str(prefix))
    assert is_object_based(prefix)
    stored = StoredVariables.open(prefix)
    assert list((stored.names or {}).values()) == ["head/logits/kernel"]
    assert {"model", "kernel", "optimizer"} <= stored.attributes
    (key,) = stored.names or {}
    np.testing.assert_array_equal(stored.read(key), np.ones((3, 2)))
