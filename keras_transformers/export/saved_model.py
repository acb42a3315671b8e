"""The one way in which anything is exported: named signatures, written, checked, published.

An exporter for a task describes its signatures and calls `write`.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.export.check import encode_array, self_check
from keras_transformers.export.description import METADATA_FILE
from keras_transformers.export.metadata import checked_scores, of_environment
from keras_transformers.export.storage import StoredWeights, WeightsDtype
from keras_transformers.export.versions import publish, split_target, staging_folder

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME


@dataclass(frozen=True)
class Signature:
    """One named entry point of a SavedModel.

    Attributes:
        function: takes the inputs as keyword arguments and returns a dict of tensors; traced for
            the export, and run eagerly on the examples for the outputs the export must repeat.
        inputs: name -> dtype and shape, None for the batch dimension.
        outputs: the same for the outputs.
        examples: one dict of input arrays an example, each a whole batch; strings in arrays of
            dtype object. They are stored in the export with their outputs.
        method_name: which of TF Serving's APIs takes it: PREDICT, CLASSIFY or REGRESS.
    """

    function: Callable[..., Mapping[str, Any]]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    examples: Sequence[Mapping[str, np.ndarray]]
    method_name: str = PREDICT


def write(
    path: str | os.PathLike[str],
    signatures: Mapping[str, Signature],
    *,
    variables: Iterable[Any],
    trackables: Sequence[Any] = (),
    metadata: Mapping[str, Any],
    scores: Mapping[str, float] | None = None,
    tolerance: float = 1e-5,
    weights_dtype: WeightsDtype = "float32",
    check: bool = True,
) -> Path:
    """Writes a SavedModel as a version folder that appears whole or not at all.

    Args:
        path: BASE/<number> for that version, or BASE for the next one.
        signatures: name -> signature; `serving_default` is what TF Serving takes by default.
        variables: every variable that the signatures read, as Keras or TensorFlow variables.
        trackables: what else the signatures hold: tokenizers, lookup tables (tf.Module).
        metadata: what to tell of the export, as JSON values; stored in
            `assets.extra/keras_transformers.json` with library versions, the commit of this package
            where it is known, signatures and examples.
        scores: what the model reached, figure -> value, the data in the figure's name; stored too.
        tolerance: how far a float output may be from the model's, relative to max(1, |value|);
            1e-5 suits float32 models.
        weights_dtype: how weights are stored, see `StoredWeights`; the outputs that the export must
            repeat are then those of the rounded weights.
        check: reload the export in a fresh process before it is published, see
            `keras_transformers.export.check`.

    Returns:
        The version folder.

    Raises:
        FileExistsError: the version exists.
        ValueError: Keras runs on another backend than TensorFlow, a signature returns other names
            or types than it declares, or the model's outputs or a score are not finite.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"export needs Keras on TensorFlow, and it runs on {keras.backend.backend()!r}: save "
            "the model with model.save() and export it in a process with KERAS_BACKEND=tensorflow"
        )
    base, version = split_target(path)
    stored = StoredWeights(variables, weights_dtype)
    signatures = {
        name: replace(signature, function=stored.reading(signature.function))
        for name, signature in signatures.items()
    }
    description = {
        **metadata,
        "scores": checked_scores(scores),
        "weights_dtype": weights_dtype,
        **of_environment(),
        "tolerance": tolerance,
        "signatures": {name: _describe(name, s) for name, s in signatures.items()},
    }
    module = _module(stored.variables, trackables)
    traced = {name: _trace(name, signature) for name, signature in signatures.items()}
    with staging_folder(base) as folder:
        tf.saved_model.save(module, str(folder), signatures=traced)
        _set_method_names(folder, signatures)
        _write_metadata(folder, description)
        if check:
            self_check(folder)
        return publish(folder, base, version)


def _module(variables: Sequence[Any], trackables: Sequence[Any]) -> Any:
    """What the SavedModel's object graph hangs from.

    It holds TensorFlow variables, those inside the Keras ones. Were it to hold the Keras model, the
    V1 loader, hence TF Serving, would restore copies that the graph never reads.
    """
    module = tf.Module()
    module.raw_variables = list(variables)
    module.trackables = list(trackables)
    return module


def _trace(name: str, signature: Signature) -> Any:
    """The signature as a concrete function, with its declared outputs enforced."""

    def call(**inputs: Any) -> dict[str, Any]:
        outputs = signature.function(**inputs)
        found = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in outputs.items()}
        declared = dict(signature.outputs)
        if found.keys() != declared.keys() or not all(
            spec.dtype == found[key].dtype and spec.shape.is_compatible_with(found[key].shape)
            for key, spec in declared.items()
        ):
            raise ValueError(f"signature {name!r} returns {found} and declares {declared}")
        with tf.device("CPU:0"):  # strings are nowhere else
            return {
                key: tf.ensure_shape(value, declared[key].shape) for key, value in outputs.items()
            }

    specs = {
        key: tf.TensorSpec(spec.shape, spec.dtype, name=key)
        for key, spec in signature.inputs.items()
    }
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _describe(name: str, signature: Signature) -> dict[str, Any]:
    """A signature as JSON, with its examples and what the model in memory answers to them."""
    return {
        "method_name": signature.method_name,
        "inputs": {key: _describe_spec(spec) for key, spec in signature.inputs.items()},
        "outputs": {key: _describe_spec(spec) for key, spec in signature.outputs.items()},
        "examples": [
            {"inputs": _encode(example), "outputs": _encode(_answer(name, signature, example))}
            for example in (_as_declared(signature, example) for example in signature.examples)
        ],
    }


def _describe_spec(spec: Any) -> dict[str, Any]:
    return {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}


def _as_declared(signature: Signature, example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The example in the signature's types, which servers do not convert to."""
    return {
        key: np.asarray(array, signature.inputs[key].dtype.as_numpy_dtype)
        for key, array in example.items()
    }


def _encode(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {key: encode_array(array) for key, array in arrays.items()}


def _answer(
    name: str, signature: Signature, example: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs the signature's function eagerly, on the CPU as the check will."""
    with tf.device("CPU:0"):
        inputs = {
            key: tf.constant(array, signature.inputs[key].dtype) for key, array in example.items()
        }
        outputs = {key: value.numpy() for key, value in signature.function(**inputs).items()}
    for key, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(
                f"signature {name!r}: the model's output {key!r} is not finite for an example; "
                "its weights are broken: load a good checkpoint"
            )
    return outputs


def _set_method_names(folder: Path, signatures: Mapping[str, Signature]) -> None:
    """tf.saved_model.save names every method "predict"; TF Serving's Classify wants its own."""
    changed = {name: s.method_name for name, s in signatures.items() if s.method_name != PREDICT}
    if not changed:
        return
    updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(folder))
    for name, method_name in changed.items():
        updater.replace_method_name(name, method_name, tags="serve")
    updater.save()
    # It was computed before the change, and TensorFlow has no public function to renew it; loaders
    # do without.
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def _write_metadata(folder: Path, description: Mapping[str, Any]) -> None:
    file = folder / METADATA_FILE
    file.parent.mkdir()
    text = json.dumps(description, ensure_ascii=False, allow_nan=False)
    file.write_text(text + "\n", encoding="utf-8")
