"""Tiny SavedModels like TF Serving's half_plus_two, and a server that serves them."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from keras_transformers.saved_model.graphs import rewriting
from keras_transformers.serving import BatchingOptions, Limits, ModelSettings, Server
from keras_transformers.tasks.answers import TASK_SIGNATURE


class HalfPlus(tf.Module):
    """Computes y = x / 2 + offset; more signatures cover the other kinds of requests."""

    def __init__(self, offset: float) -> None:
        self.offset = tf.Variable(offset)

    def y(self, x):
        return x * 0.5 + self.offset

    def signatures(self):
        floats, strings = tf.TensorSpec([None]), tf.TensorSpec([None], tf.string)
        table = {
            "serving_default": (lambda x: {"y": self.y(x)}, {"x": tf.TensorSpec(None)}),
            "rows": (lambda x: {"y": self.y(x)}, {"x": floats}),
            "regress_x_to_y": (
                lambda inputs: {"outputs": self.y(_x(inputs))[:, None]},
                {"inputs": strings},
            ),
            "classify_x_to_y": (
                lambda inputs: {"scores": self.y(_x(inputs))[:, None]},
                {"inputs": strings},
            ),
            "classify_labels": (
                lambda inputs: {
                    "classes": tf.repeat([["no", "yes"]], tf.size(inputs), axis=0),
                    "scores": tf.stack([self.y(_x(inputs)), _x(inputs)], axis=1),
                },
                {"inputs": strings},
            ),
            "named": (
                lambda tag, signal, sensor: {
                    "tag": tag,
                    "tag_bytes": tag,
                    "total": tf.reduce_sum(signal, 1) + tf.reduce_sum(sensor, [1, 2]),
                },
                {
                    "tag": strings,
                    "signal": tf.TensorSpec([None, None], tf.int64),
                    "sensor": tf.TensorSpec([None, 2, 2], tf.int64),
                },
            ),
            "text": (
                lambda text: {
                    "translation": tf.strings.upper(text),
                    "score": tf.cast(tf.strings.length(text), tf.float32),
                },
                {"text": strings},
            ),
            "pair": (
                lambda text, text_b: {"score": tf.cast(text == text_b, tf.float32)},
                {"text": strings, "text_b": strings},
            ),
            "words": (_words, {"text": strings}),
            # Refuses negative numbers, as a graph may refuse some inputs.
            "checked": (_checked, {"x": floats}),
            # Its error quotes the input.
            "number": (
                lambda text: {"number": tf.strings.to_number(text)},
                {"text": strings},
            ),
            "spin": (_spin, {"loops": tf.TensorSpec([None], tf.int32)}),
        }
        return {
            name: tf.function(function, autograph=False).get_concrete_function(
                **{key: _named(key, spec) for key, spec in specs.items()}
            )
            for name, (function, specs) in table.items()
        }


def _named(name, spec):
    return tf.TensorSpec(spec.shape, spec.dtype, name=name)


def _x(inputs):
    return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]


def _words(text):
    """Splits texts into words with their lengths as vectors, padded to the most words of a text."""
    words = tf.strings.split(text)
    lengths = tf.cast(tf.strings.length(words.to_tensor()), tf.float32)
    return {
        "tokens": words.to_tensor(),
        "vectors": lengths[:, :, None, None],
        "num_tokens": tf.cast(words.row_lengths(), tf.int32),
    }


def _checked(x):
    with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
        return {"y": tf.sqrt(x)}


def _spin(loops):
    """Loops as often as the first row says."""
    start = (tf.constant(0), tf.eye(64))
    _, matrix = tf.while_loop(
        lambda i, m: i < loops[0], lambda i, m: (i + 1, tf.matmul(m, m)), start
    )
    return {"done": tf.fill(tf.shape(loops), matrix[0, 0])}


def save(folder: Path, offset: float) -> None:
    module = HalfPlus(offset)
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(folder))
    updater.replace_method_name("regress_x_to_y", tf.saved_model.REGRESS_METHOD_NAME, "serve")
    for name in ("classify_x_to_y", "classify_labels"):
        updater.replace_method_name(name, tf.saved_model.CLASSIFY_METHOD_NAME, "serve")
    updater.save()
    with rewriting(folder) as graph:  # as exports say their task
        graph.signature_def[TASK_SIGNATURE].method_name = "word_embedding"


@pytest.fixture(scope="session")
def half_plus(tmp_path_factory):
    """Returns a function from an offset to the folder with its model, which it makes once."""
    made: dict[float, Path] = {}

    def make(offset: float) -> Path:
        if offset not in made:
            made[offset] = tmp_path_factory.mktemp("models") / f"plus_{offset}"
            save(made[offset], offset)
        return made[offset]

    return make


@pytest.fixture(scope="session")
def publish(half_plus):
    """Returns a function that puts a complete version into a base path."""

    def put(base: Path, version: int, offset: float) -> Path:
        staging = base / f".staging-{version}"
        shutil.copytree(half_plus(offset), staging)
        return staging.rename(base / str(version))

    return put


@pytest.fixture(scope="session")
def server(publish, tmp_path_factory):
    """Serves one model, half_plus_two, in version 123 with the label from TF Serving's tests."""
    base = tmp_path_factory.mktemp("half_plus_two")
    publish(base, 123, 2.0)
    settings = ModelSettings(
        "half_plus_two", base, version_labels={"Version_Label": 123, "gone": 9}
    )
    limits = Limits(max_body_bytes=200_000, max_rows=64, max_requests=8, timeout_s=20.0)
    with Server(
        [settings],
        rest_port=0,
        grpc_port=0,
        limits=limits,
        batching=BatchingOptions(max_batch_size=8),
        poll_interval_s=0.1,
    ) as running:
        assert running.wait_until_loaded(60)
        yield running


@pytest.fixture(scope="session")
def rest(server):
    """An HTTP client for the server."""
    import httpx

    with httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def channel(server):
    """A gRPC channel to the server."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel
