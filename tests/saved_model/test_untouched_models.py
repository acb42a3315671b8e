"""Exports leave a model alone: beside another export, beside calls, and when they fail."""

import errno
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow.core.protobuf import saved_model_pb2

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.families.transformer.model import transformer
from keras_transformers.saved_model import exporting
from keras_transformers.saved_model.forms.form import every_layer

TEXT = "a very good film"
WAIT_S = 120  # for another thread
during = threading.local()  # `tracing`: what to do where the thread traces an answer


class Embedder(kt.pipelines.Embedder):
    def answer(self, **texts):
        interrupt()
        return super().answer(**texts)


class Translator(kt.pipelines.Translator):
    def n_best(self, text):
        interrupt()
        return super().n_best(text)


def interrupt():
    if not tf.executing_eagerly():
        vars(during).pop("tracing", lambda: None)()


def embedder():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 64, "max_sequence_length": 16}
    tokenizer = tiny.wordpiece()
    return Embedder(bert(vocabulary_size=tokenizer.vocabulary_size, **sizes), tokenizer)


def translator():
    narrow = tiny.pipeline("translation")
    model = transformer(
        vocabulary_size=narrow.tokenizer.vocabulary_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=64,
        intermediate_dim=64,
        max_sequence_length=16,
    )
    return Translator(model, narrow.tokenizer, num_beams=2, extra_length=5)


@pytest.fixture(scope="module")
def embed():
    return embedder()


def attributes(pipeline):
    """All attributes of a pipeline, its tokenizers, its model and every layer."""
    layers = every_layer(pipeline.model)
    parts = [pipeline, *pipeline.tokenizers.values(), pipeline.model, *layers]
    return [(part, attributes_of(part)) for part in parts]


def attributes_of(part):
    """Without Keras's note that a layer was called: a block runs another's function if it can."""
    return {name: value for name, value in vars(part).items() if name != "_called"}


def check_untouched(pipeline, before, weights):
    for part, earlier in before:
        now = attributes_of(part)
        assert now.keys() == earlier.keys(), part
        assert [name for name, value in now.items() if value is not earlier[name]] == []
    for weight, value in zip(pipeline.model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, value)


def new_graphs_answer(pipeline):
    """What a pipeline on the same model answers, whose graphs are made now."""
    return repr(pipeline.with_options()(TEXT))


def content(folder):
    """How often an export's graph has each op, and the value of each of its variables."""
    graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    functions = graph.meta_graphs[0].graph_def.library.function
    ops = Counter(node.op for function in functions for node in function.node_def)
    # The description of the objects has names that count all variables made in this process.
    reader = tf.train.load_checkpoint(str(folder / "variables/variables"))
    names = set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    values = {name: reader.get_tensor(name).tobytes() for name in names}
    return {op: ops[op] for op in ops if not op.startswith("__")}, values


@pytest.mark.slow
@pytest.mark.parametrize("make", [embedder, translator])
def test_exports_in_two_threads_and_calls_in_a_third_do_not_see_one_another(make, tmp_path):
    pipeline = make()

    def export(folder, dtype, tracing=lambda: None):
        during.tracing = tracing
        return kt.export(pipeline, tmp_path / folder, weights_dtype=dtype, check=False)

    alone = {dtype: export(f"{dtype} alone", dtype) for dtype in ("float32", "int8")}
    answer = new_graphs_answer(pipeline)
    before, weights = attributes(pipeline), pipeline.model.get_weights()
    is_tracing, may_go_on = threading.Event(), threading.Event()
    calls = []

    def in_float32():
        is_tracing.set()
        assert may_go_on.wait(WAIT_S)

    with ThreadPoolExecutor(3) as threads:

        def in_int8():
            """Runs in the middle of the export in int8: the one in float32 starts, and waits."""
            exports.append(threads.submit(export, "float32", "float32", in_float32))
            assert is_tracing.wait(WAIT_S)
            threads.submit(check_untouched, pipeline, before, weights).result(WAIT_S)
            calls.append(threads.submit(new_graphs_answer, pipeline).result(WAIT_S))

        exports = []
        try:
            int8 = threads.submit(export, "int8", "int8", in_int8).result(2 * WAIT_S)
        finally:
            may_go_on.set()
        float32 = exports[0].result(WAIT_S)
    assert calls == [answer]
    check_untouched(pipeline, before, weights)
    assert new_graphs_answer(pipeline) == answer
    assert content(int8) == content(alone["int8"])
    assert content(float32) == content(alone["float32"])


def full_disk(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def wrong_answers(folder):
    raise RuntimeError(f"{folder} answers otherwise")


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("place", "function", "dtype"),
    [
        (None, None, "int8"),
        ((tf.saved_model, "save"), full_disk, "float32"),
        ((exporting, "self_check"), wrong_answers, "float32"),
    ],
    ids=["tracing", "writing", "checking"],
)
def test_an_export_that_fails_half_way_leaves_nothing_behind(
    embed, place, function, dtype, tmp_path, monkeypatch
):
    answer = new_graphs_answer(embed)
    before, weights = attributes(embed), embed.model.get_weights()
    if place:
        monkeypatch.setattr(*place, function)
    else:
        during.tracing = full_disk
    with pytest.raises((OSError, RuntimeError), match="No space left|answers otherwise"):
        kt.export(embed, tmp_path, weights_dtype=dtype, examples=[TEXT])
    assert list(tmp_path.iterdir()) == []
    check_untouched(embed, before, weights)
    assert new_graphs_answer(embed) == answer
