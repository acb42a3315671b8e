"""Exports a pipeline's signatures as a SavedModel: writes, checks and publishes it."""

import functools
import gc
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import files
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers.scopes import DIFFERENTIABLE, KERNELS
from keras_transformers.options import named
from keras_transformers.saved_model import rounding
from keras_transformers.saved_model.checks.check import relative_errors, self_check
from keras_transformers.saved_model.checks.op_origins import TEXT_OPS
from keras_transformers.saved_model.description import FORMAT_NUMBER, METADATA_FILE
from keras_transformers.saved_model.examples import encode_array
from keras_transformers.saved_model.forms.form import ExportForm
from keras_transformers.saved_model.forms.int8 import Int8Form
from keras_transformers.saved_model.forms.panels import DecodingForm, ShortTextsForm
from keras_transformers.saved_model.graphs import place_strings, rewriting, simplify
from keras_transformers.saved_model.litert import export_litert
from keras_transformers.saved_model.metadata import (
    checked_scores,
    of_environment,
    of_pipeline,
    of_signature,
)
from keras_transformers.saved_model.storage import StoredWeights, WeightsDtype, stored_value
from keras_transformers.saved_model.versions import publish, split_target, staging_folder
from keras_transformers.tasks.answers import OPTIONS_SIGNATURE, TASK_SIGNATURE
from keras_transformers.tasks.pipeline import SHARED, Pipeline, Signature
from keras_transformers.tasks.search.corpus import Corpus
from keras_transformers.tasks.search.pipeline import Searcher
from keras_transformers.tasks.search.vectors import VectorsDtype
from keras_transformers.tokenizers.text_ops.forms import Ops, ops_in_use, using_ops

__all__ = ["export"]

_logger = logging.getLogger(__name__)

INT8_ERROR = 0.25  # maximum error of int8 answers, as a share of their size in float32
INT8_TOLERANCE = 5e-2  # tolerance of repeated answers: other processors round differently


_NONE: Mapping[str, Signature] = MappingProxyType({})
_ADVICE = {
    "use path=": ("export_dir", "filepath", "saved_model_dir", "output_dir", "folder"),
    "use weights_dtype=": ("dtype", "quantization", "quantize", "precision"),
    "use explain=": ("explanations", "attributions", "shares"),
    "use max_sequence_length=": ("max_length", "max_seq_length", "sequence_length"),
    "leave it out: the pipeline decides which signatures there are": ("signatures", "signature"),
}


@named(_ADVICE)
def export(
    pipeline: Pipeline,
    path: str | os.PathLike[str],
    *,
    examples: Sequence[Any] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
    weights_dtype: WeightsDtype = "float32",
    arrange_matrices: bool = True,
    format: Literal["saved_model", "litert"] = "saved_model",
    max_sequence_length: int | None = None,
    explain: bool = False,
    ops: Ops | None = None,
    corpus: Corpus | Iterable[str] | None = None,
    ids: Iterable[str | int] | None = None,
    vectors_dtype: VectorsDtype | None = None,
) -> Path:
    """Exports a pipeline as a SavedModel for TF Serving that gives the same answers.

    The pipeline's class documents the signatures. The version folder appears complete, after its
    answers have passed a check in a fresh process, or not at all.

    Args:
        pipeline: the pipeline to export, such as a `pipelines.TextClassifier`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next version.
        examples: arguments for calls of the pipeline, one string or tuple per row, to check the
            export with; None for the defaults. The export stores them with their answers, so do not
            pass secrets.
        scores: measured scores to store in the export: name -> value, where the name says which
            data was used, such as {"accuracy on SST-2 dev": 0.91}.
        check: whether to reload the export in a fresh process and compare its answers before it is
            published; see `saved_model.check`. Also finds out how far rounding moves the answers,
            so that later checks hold on other processors.
        weights_dtype: "bfloat16" stores matrices in half the space; see `saved_model.storage`. The
            check then expects the answers of the rounded weights. "int8" stores the matrices of
            dense layers and token embeddings in a quarter of the space and multiplies in int8, in
            half the time or less, on x86 processors; see docs/exports.md. The answers are close to
            the model's: the check allows an error of a quarter of their size. Measure the effect on
            your data.
        arrange_matrices: whether to lay out matrices as TensorFlow's product on CPUs reads them,
            which speeds up decoding and short texts; loading chooses the layout for its processor.
            Models that decode store them like this. Encoders in float32 get a second copy in memory
            on loading; False avoids it. It has no effect in int8, or for encoders in bfloat16. The
            answers are the same; see docs/performance.md.
        format: "litert" writes one file for phones instead, such as "sentiment.tflite", from tokens
            to the model's outputs, with the tokenizer's files in a folder beside it (the extra
            `litert`); only for encoders, in float32 or int8. LiteRT's answers are compared with the
            model's first.
        max_sequence_length: for "litert", the fixed length of the rows; by default, the pipeline's.
        explain: whether to add the signatures `explain` and `explain_label`, which answer as
            `explain` does in Python; see docs/see_inside.md. Their graph is a second one, of the
            model and its gradient; its weights are the same.
        ops: "core" tokenizes with TensorFlow's own ops, so that any TensorFlow and any server runs
            the export, without tensorflow-text's ops; it takes longer. None for the ops in use,
            tensorflow-text's where it is installed. The tokens are the same.
        corpus: for a pipeline for embedding, dense or sparse, texts to search: the export then
            holds them and finds those that answer a query. See `pipelines.Searcher`, which offers
            more. A new corpus is a new version.
        ids: of the corpus's texts; by default their numbers.
        vectors_dtype: of the corpus's vectors, "float32" by default; see `pipelines.VectorIndex`.

    Returns:
        The version folder, BASE/<number>; for "litert", the file.

    Raises:
        FileExistsError: the version exists.
        ValueError: Keras runs on a backend other than TensorFlow, an example does not fit the
            pipeline, the model's outputs or a score are not finite, the model has nothing to
            compute in int8, `explain` is set for a pipeline without explanations or for int8, whose
            products have no gradients, or a tokenizer needs an op that `ops` lacks.
        RuntimeError: the written export does not repeat the pipeline's answers (a bfloat16 model's
            graph rounds differently, so answers with nearly equal scores may swap), rounding alone
            may change its answers on another processor, answers in int8 are far from the model's,
            or TensorFlow cannot multiply in int8 here.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"export needs Keras on TensorFlow, but it runs on {keras.backend.backend()!r}: save "
            "the pipeline and export it in a process with KERAS_BACKEND=tensorflow"
        )
    if format == "litert":
        others = (scores, examples, explain, ops, corpus is not None, ids is not None)
        if weights_dtype == "bfloat16" or not arrange_matrices or any(others):
            raise ValueError(
                "format='litert' takes weights_dtype='float32' or 'int8' and max_sequence_length: "
                "leave out the rest"
            )
        return export_litert(
            pipeline,
            Path(path),
            max_sequence_length=max_sequence_length,
            int8=weights_dtype == "int8",
        )
    if format != "saved_model" or max_sequence_length is not None:
        raise ValueError(
            f"format={format!r}, max_sequence_length={max_sequence_length}: use 'saved_model', "
            "which has no fixed length, or 'litert'"
        )
    if corpus is not None:
        pipeline = Searcher.of(pipeline, corpus, ids=ids, vectors_dtype=vectors_dtype)
    elif ids is not None or vectors_dtype is not None:
        raise ValueError("ids without a corpus, or vectors_dtype: pass corpus=texts too")
    with using_ops(ops):
        return _export(
            pipeline,
            path,
            examples=examples,
            scores=scores,
            check=check,
            weights_dtype=weights_dtype,
            arrange_matrices=arrange_matrices,
            explain=explain,
        )


def _export(
    pipeline: Pipeline,
    path: str | os.PathLike[str],
    *,
    examples: Sequence[Any] | None,
    scores: Mapping[str, float] | None,
    check: bool,
    weights_dtype: WeightsDtype,
    arrange_matrices: bool,
    explain: bool,
) -> Path:
    base, version = split_target(path)
    is_int8 = weights_dtype == "int8"
    if is_int8 and explain:
        raise ValueError(
            "explain=True with weights_dtype='int8': products in int8 have no gradients, which "
            "explanations need: use 'bfloat16' or 'float32', or make a second export for them"
        )
    signatures = pipeline.signatures(examples)
    if explain:
        signatures |= pipeline.explain_signatures(pipeline.example_batches(examples))
    tolerance = pipeline.tolerance
    if check and pipeline.in_float32 and not is_int8:
        signatures, described, needed = _decided_answers(pipeline, signatures, weights_dtype)
        tolerance = max(tolerance, needed)
    else:
        of_model = StoredWeights(_variables(pipeline), weights_dtype)
        described = _Answers(pipeline, of_model.reading).to(signatures)
    gc.collect()  # the graphs that answered: cycles that take as much memory as the weights
    forms = {
        model: _form(model, pipeline, weights_dtype, arrange_matrices=arrange_matrices)
        for model in pipeline.models
    }
    stored = StoredWeights([x for form in forms.values() for x in form.weights], weights_dtype)

    def as_function(call: Callable[..., Any]) -> Any:
        """Returns one function for all signatures, so that the graph has it once."""
        return tf.function(stored.reading(call), autograph=False)

    def of_each(
        make: Callable[[str, Signature], Any], steps: Mapping[str, Signature] = _NONE
    ) -> dict[str, Any]:
        """Applies a function to each signature while the models compute as their export does."""
        functions = functools.cache(lambda method: as_function(partial(method, pipeline)))
        with (
            KERNELS.use({**kernels, **runs}),
            DIFFERENTIABLE.use({model: form.differentiable for model, form in forms.items()}),
            SHARED.use({pipeline: functions}),
        ):
            return _of_signatures(make, {**signatures, **steps}, stored.reading)

    kernels = {layer: kernel for form in forms.values() for layer, kernel in form.kernels.items()}
    runs = {model: as_function(form) for model, form in forms.items()}
    if is_int8:  # close to the model's answers, which exports must repeat
        answers_of_model, tolerance = described, max(tolerance, INT8_TOLERANCE)
        described = of_each(lambda name, s: _describe(name, _in_graph(s)))
        if check:
            chooses = any(hasattr(model, "start_decoding") for model in pipeline.models)
            _check_int8(described, answers_of_model, of_same_texts=chooses)
    description = {
        "format": FORMAT_NUMBER,
        **of_pipeline(pipeline),
        "scores": checked_scores(scores),
        "weights_dtype": weights_dtype,
        "matrices": "; ".join(dict.fromkeys(form.matrices for form in forms.values())),
        **of_environment(),
        "tolerance": tolerance,
        "signatures": described,
    }
    steps = pipeline.step_signatures()
    traced = of_each(_trace, steps)
    if stored.forget_unread():  # such as a projection that is part of a joined one
        runs = {model: as_function(form) for model, form in forms.items()}
        traced = of_each(_trace, steps)
    variables = iter(stored.variables)
    read = [
        form.read(list(itertools.islice(variables, len(form.weights))), traced.values())
        for form in forms.values()
    ]
    # In core ops, tokenizers are constants, without anything to initialize.
    tokenizers = [] if ops_in_use() == "core" else list(pipeline.tokenizers.values())
    module = _module(itertools.chain(*read), [*tokenizers, *pipeline.stored])
    with staging_folder(base) as folder:
        # Exports need no gradients of their own; those of explanations are in the graph.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, str(folder), signatures=traced, options=options)
        with rewriting(folder) as graph:
            if ops_in_use() == "core":
                _check_core(graph)
            place_strings(graph)
            simplify(graph)
            _describe_signatures(graph, signatures, pipeline)
        _write_metadata(folder, description)
        if check:
            self_check(folder)
        return publish(folder, base, version)


def _check_core(graph: Any) -> None:
    """Raises ValueError if a graph in core ops has one of tensorflow-text's."""
    functions = graph.graph_def.library.function
    nodes = (graph.graph_def.node, *(function.node_def for function in functions))
    if others := sorted({node.op for graph_nodes in nodes for node in graph_nodes} & set(TEXT_OPS)):
        raise ValueError(
            f"ops='core', but a tokenizer runs tensorflow-text's {', '.join(others)}, so nothing "
            "was exported: leave out ops='core', or use a tokenizer of keras_transformers"
        )


def _of_signatures(
    make: Callable[[str, Signature], Any], signatures: Mapping[str, Signature], reading: Any
) -> dict[str, Any]:
    """Applies a function to each signature, whose function reads weights as `reading` says."""
    return {
        name: make(name, replace(signature, function=reading(signature.function)))
        for name, signature in signatures.items()
    }


class _Answers:
    """Answers the examples of signatures as a pipeline does.

    Its shared methods are traced once, for all signatures and weights.

    Args:
        pipeline: the pipeline.
        reading: makes a function read certain weights.
    """

    def __init__(self, pipeline: Pipeline, reading: Callable[[Any], Any]) -> None:
        self._pipeline, self._reading = pipeline, reading
        self._functions = functools.cache(self._function)

    def _function(self, method: Callable[..., Any]) -> Any:
        call = self._reading(partial(method, self._pipeline))
        return tf.function(call, autograph=False, reduce_retracing=True)

    def to(self, signatures: Mapping[str, Signature]) -> dict[str, Any]:
        """Returns the signatures as JSON, with their examples and answers."""
        with SHARED.use({self._pipeline: self._functions}):
            return _of_signatures(_describe, signatures, self._reading)


def _decided_answers(
    pipeline: Pipeline, signatures: Mapping[str, Signature], weights_dtype: WeightsDtype
) -> tuple[dict[str, Signature], dict[str, Any], float]:
    """Answers the examples as the pipeline does, on any processor.

    Returns:
        The signatures, without the rows of examples whose answers rounding decides; the answers to
        the others; and the tolerance that these need.

    Raises:
        RuntimeError: no row of a signature is left, or no tolerance suffices; see `rounding`.
    """
    weights = rounding.MovableWeights(
        _variables(pipeline), partial(stored_value, weights_dtype=weights_dtype)
    )
    answers = _Answers(pipeline, weights.reading)

    def of_moved(signatures: Mapping[str, Signature]) -> list[dict[str, Any]]:
        moved = []
        for direction in (1, -1):
            weights.move(direction)
            moved.append(answers.to(signatures))
        weights.move(0)
        return moved

    described, others = answers.to(signatures), of_moved(signatures)
    rows = rounding.decided(described, others)
    if not all(kept.all() for examples in rows.values() for kept in examples):
        signatures = {name: _decided(name, s, rows[name]) for name, s in signatures.items()}
        described, others = answers.to(signatures), of_moved(signatures)
    weights.free()
    return dict(signatures), described, _needed(described, others)


def _decided(name: str, signature: Signature, rows: Sequence[np.ndarray]) -> Signature:
    """Leaves out the rows of a signature's examples that are not among `rows`.

    Raises:
        RuntimeError: no row is left.
    """
    number = sum(int((~kept).sum()) for kept in rows)
    if not number:
        return signature
    if not any(kept.any() for kept in rows):
        raise RuntimeError(
            f"signature {name!r}: rounding decides the answers to all {number} rows of the "
            "examples, so another processor may answer otherwise, and the export was not "
            "published: pass other `examples`; check=False skips the check, at your own risk"
        )
    _logger.warning(
        "signature %r: rounding decides the answers to %d rows of the examples, and another "
        "processor may answer otherwise: the export does not store them",
        *(name, number),
    )
    examples = [
        {key: np.asarray(array)[kept] for key, array in example.items()}
        if not kept.all()
        else example
        for example, kept in zip(signature.examples, rows, strict=True)
        if kept.any() or not len(kept)
    ]
    return replace(signature, examples=examples)


def _needed(described: Mapping[str, Any], of_moved: Sequence[Mapping[str, Any]]) -> float:
    """Returns the tolerance that rounding needs on any processor; see `rounding`.

    Raises:
        RuntimeError: no check could tell rounding from a wrong export.
    """
    needed = rounding.tolerance(described, of_moved)
    if needed > rounding.MOST:
        raise RuntimeError(
            f"processors may round the answers {needed:.2g} of their size apart, and a check that "
            f"allows more than {rounding.MOST:g} means nothing, so the export was not published: "
            "some weights are too large, such as those of a training that diverged; check=False "
            "skips the check, at your own risk"
        )
    return needed


def _variables(pipeline: Pipeline) -> list[keras.Variable]:
    return [variable for model in pipeline.models for variable in model.variables]


def _form(
    model: keras.Model, pipeline: Pipeline, weights_dtype: WeightsDtype, *, arrange_matrices: bool
) -> ExportForm:
    """Returns the form in which an export computes a model of the pipeline."""
    if weights_dtype == "int8":
        return Int8Form(model)
    if arrange_matrices and hasattr(model, "start_decoding"):
        # Weights in 16 bits are cast in each call, after loading.
        several_rows = hasattr(pipeline, "num_beams") and weights_dtype == "float32"
        return DecodingForm(model, several_rows=several_rows)
    has_mask = isinstance(model.input, dict) and "padding_mask" in model.input
    if arrange_matrices and weights_dtype == "float32" and has_mask:
        form = ShortTextsForm(model)
        return form if form.num_dense else ExportForm(model)
    return ExportForm(model)


def _module(variables: Iterable[Any], trackables: Sequence[Any]) -> Any:
    """Returns the root of the SavedModel's object graph.

    It holds the TensorFlow variables inside the Keras ones. If it held the Keras model, the V1
    loader, and so TF Serving, would restore copies that the graph never reads.
    """
    module = tf.Module()
    module.raw_variables = list(variables)
    module.trackables = list(trackables)
    return module


def _trace(name: str, signature: Signature) -> Any:
    """Traces the signature to a concrete function that enforces its declared outputs."""

    def call(**inputs: Tensor) -> dict[str, Tensor]:
        outputs = signature.function(**inputs)
        specs = {key: tf.TensorSpec(value.shape, value.dtype) for key, value in outputs.items()}
        declared = dict(signature.outputs)
        if specs.keys() != declared.keys() or not all(
            spec.dtype == specs[key].dtype and spec.shape.is_compatible_with(specs[key].shape)
            for key, spec in declared.items()
        ):
            raise ValueError(f"signature {name!r} returns {specs} but declares {declared}")
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return {
                key: tf.ensure_shape(value, declared[key].shape) for key, value in outputs.items()
            }

    inputs = {
        key: tf.TensorSpec(spec.shape, spec.dtype, name=key)
        for key, spec in signature.inputs.items()
    }
    return tf.function(call, autograph=False).get_concrete_function(**inputs)


def _describe(name: str, signature: Signature) -> dict[str, Any]:
    """Returns a signature as JSON, with its examples and the pipeline's answers to them."""
    return {
        **of_signature(signature),
        "examples": [
            {"inputs": _encode(example), "outputs": _encode(_answer(name, signature, example))}
            for example in (_as_declared(signature, example) for example in signature.examples)
        ],
    }


def _in_graph(signature: Signature) -> Signature:
    """Returns the signature with a function that runs in a graph, as int8 kernels require."""
    return replace(signature, function=tf.function(signature.function, autograph=False))


def _check_int8(
    described: Mapping[str, Any], expected: Mapping[str, Any], *, of_same_texts: bool
) -> None:
    """Raises RuntimeError if the answers in int8 are far from the model's own."""
    for place, error in relative_errors(described, expected, of_same_texts=of_same_texts):
        if not error <= INT8_ERROR:  # also true for NaN, unlike >
            raise RuntimeError(
                f"{place}: the error of int8 is {error:.2g} of the answer's size, and at most "
                f"{INT8_ERROR:g} is allowed, so the export was not published: use "
                "weights_dtype='bfloat16', or check=False and measure it on your data"
            )


def _as_declared(signature: Signature, example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Casts the example to the signature's types, because servers do not."""
    return {
        key: np.asarray(array, signature.inputs[key].dtype.as_numpy_dtype)
        for key, array in example.items()
    }


def _encode(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {key: encode_array(array) for key, array in arrays.items()}


def _answer(
    name: str, signature: Signature, example: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Runs the signature's function eagerly, on the CPU like the check."""
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


def _describe_signatures(
    graph: Any, signatures: Mapping[str, Signature], pipeline: Pipeline
) -> None:
    """Records in a graph which API calls each signature, and what clients need to know.

    `TASK_SIGNATURE`, `OPTIONS_SIGNATURE` and the pipeline's `notes` say where.
    """
    for name, signature in signatures.items():  # tf.saved_model.save calls all methods "predict"
        graph.signature_def[name].method_name = signature.method_name
    graph.signature_def[TASK_SIGNATURE].method_name = pipeline.task
    if pipeline.options:
        options = json.dumps(dict(pipeline.options), ensure_ascii=False)
        graph.signature_def[OPTIONS_SIGNATURE].method_name = options
    for name, text in pipeline.notes.items():
        graph.signature_def[name].method_name = text


def _write_metadata(folder: Path, description: Mapping[str, Any]) -> None:
    file = folder / METADATA_FILE
    file.parent.mkdir()
    text = json.dumps(description, ensure_ascii=False, allow_nan=False)
    with files.replaced(file) as scratch:
        scratch.write_text(text + "\n", encoding="utf-8")
