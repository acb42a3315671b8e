"""Exports an encoder's `tokens` for LiteRT (TensorFlow Lite), which runs on phones.

The tokenizer is left out, because LiteRT lacks its ops; its vocabulary is written beside the model.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import files
from keras_transformers.dependencies.extras import optional
from keras_transformers.dependencies.private_api import with_constants
from keras_transformers.tasks.token_inputs import TOKEN_INPUTS

__all__: list[str] = []

_SIGNATURE = "tokens"
_TOLERANCE = 1e-4  # of the largest output; XNNPACK adds in another order
_MOST_OFF_INT8 = 0.25  # the same with 8 bits; a larger error means that something is wrong
_DTYPES = {"token_ids": tf.int32, "segment_ids": tf.int32, "padding_mask": tf.bool}


def export_litert(
    pipeline: Any, path: Path, *, max_sequence_length: int | None, int8: bool
) -> Path:
    """Writes a pipeline's model for LiteRT, and its tokenizer's files in a folder beside it.

    Args:
        pipeline: a pipeline whose model reads the tokens of a text, such as a
            `pipelines.TextClassifier`.
        path: the new file, such as "sentiment.tflite"; the folder is "sentiment.tokenizer".
        max_sequence_length: the fixed length of the rows; the pipeline's by default.
        int8: whether to store the matrices in 8 bits, with one scale each ("dynamic range").

    Raises:
        FileExistsError: the file or the folder exists.
        MissingExtraError: ai-edge-litert is not installed.
        RuntimeError: LiteRT's outputs differ from the model's.
        ValueError: the model takes something other than tokens, the length does not fit it, or the
            pipeline reads long texts in windows.
    """
    interpreter = optional("ai_edge_litert.interpreter", extra="litert").Interpreter
    folder = path.with_suffix(".tokenizer")
    for place in (path, folder):
        files.check_new(place)
    model = pipeline.model
    names = [name for name in TOKEN_INPUTS if name in model.input]
    if set(model.input) != set(names) or any(len(x.shape) != 2 for x in model.input.values()):
        raise ValueError(
            f"format='litert': model {model.name!r} takes {', '.join(model.input)}; only encoders "
            "that take rows of tokens are converted"
        )
    if getattr(pipeline, "reads_windows", False):
        raise ValueError(
            "format='litert': its graph reads one window, and the pipeline has "
            "long_texts='windows': set long_texts='cut', and pool the outputs of windows in the app"
        )
    longest = pipeline.max_sequence_length
    length = longest if max_sequence_length is None else max_sequence_length
    if not 2 <= length <= longest:
        raise ValueError(f"max_sequence_length={length}: expected 2 to {longest}")
    specs = {name: tf.TensorSpec([1, length], _DTYPES[name], name=name) for name in names}
    content = _converted(model, specs, int8=int8)
    _check(model, content, interpreter, specs, most=_MOST_OFF_INT8 if int8 else _TOLERANCE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_folder(folder) as new:
        pipeline.tokenizer.save(new)
    try:
        with files.replaced(path) as scratch:
            Path(scratch).write_bytes(content)
    except BaseException:
        shutil.rmtree(folder)
        raise
    return path


def _converted(model: keras.Model, specs: dict[str, tf.TensorSpec], *, int8: bool) -> bytes:
    run = tf.function(lambda **tokens: model(tokens, training=False), autograph=False)
    # The converter reads garbage from Keras 3 variables, so it gets constants instead.
    frozen = with_constants(run.get_concrete_function(**specs))
    order = sorted(model.output)  # as TensorFlow flattens dicts

    @tf.function(input_signature=list(specs.values()), autograph=False)
    def tokens(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = frozen(**dict(zip(specs, inputs, strict=True)))
        return dict(zip(order, tf.nest.flatten(outputs), strict=True))

    module = tf.Module()
    module.tokens = tokens
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(
            module, folder, {_SIGNATURE: tokens.get_concrete_function(*specs.values())}
        )
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[_SIGNATURE])
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        content: bytes = converter.convert()
    return content


def _check(
    model: keras.Model,
    content: bytes,
    interpreter: Any,
    specs: dict[str, tf.TensorSpec],
    *,
    most: float,
) -> None:
    """Raises RuntimeError unless LiteRT computes the same as the model, on rows with padding."""
    runner = interpreter(model_content=content)
    runner.allocate_tensors()
    run = runner.get_signature_runner(_SIGNATURE)
    length = specs["token_ids"].shape[1]
    for count in (length, max(1, length // 2)):
        real = (np.arange(length) < count)[None]
        token_ids = np.where(real, np.arange(length)[None] % 5, 0).astype("int32")
        rows = {"token_ids": token_ids, "segment_ids": np.zeros_like(token_ids)}
        inputs = {
            name: value for name, value in (rows | {"padding_mask": real}).items() if name in specs
        }
        expected = model(inputs, training=False)
        for name, value in run(**inputs).items():
            wanted = np.asarray(expected[name], np.float32)
            if wanted.ndim > 1 and wanted.shape[1] == length:
                value, wanted = (
                    value[:, :count],
                    wanted[:, :count],
                )  # outputs at padding are meaningless
            error = np.abs(value - wanted).max() / max(1e-6, np.abs(wanted).max())
            if not error <= most:
                raise RuntimeError(
                    f"LiteRT's {name} differs from the model's by {error:.1e} of the largest: "
                    "nothing was written"
                )
