"""Defines the base of all pipelines: a model with its pre- and postprocessing, written once.

`encode` and `answer` are graph code. Training and validation use the first; Python answers and the
export use both, so they cannot disagree.
"""

import abc
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors, tables
from keras_transformers.layers.scopes import KERNELS, Scope
from keras_transformers.layers.shared import shared_calls
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.lora import Adapter
from keras_transformers.tasks.texts import (
    call_columns,
    named_columns,
    string_column,
)
from keras_transformers.tasks.tracing import traced
from keras_transformers.tasks.weights import saving
from keras_transformers.tokenizers.protocols import Tokenizer

__all__ = ["Pipeline", "Signature"]

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME

NOT_EXPLAINED = (
    "its answers have no explanations: explain a pipeline for classification, several labels, "
    "regression, questions, search or reranking"
)
_MOST_VARIANTS = 32  # graphs kept for the options of calls

# Maps a pipeline's `shared` methods to the one function that an export makes of each.
SHARED: Scope[Callable[[Callable[..., Any]], Callable[..., Any]]] = Scope("shared functions")


@dataclass(frozen=True)
class Signature:
    """One named entry point of a SavedModel.

    Attributes:
        function: takes the inputs as keyword arguments and returns a dict of tensors. The export
            traces it, and runs it eagerly on the examples to get the outputs to reproduce.
        inputs: name -> tf.TensorSpec, with None for the batch dimension.
        outputs: the same for the outputs.
        examples: dicts of input arrays, each a whole batch; strings are in arrays of dtype object.
            The export stores them with their outputs.
        method_name: the TF Serving API that calls it: PREDICT, CLASSIFY or REGRESS.
    """

    function: Callable[..., Mapping[str, tf.Tensor]]
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    examples: Sequence[Mapping[str, np.ndarray]]
    method_name: str = PREDICT


def shared(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an export store the graph of a pipeline's method once, for all signatures that use it.

    Args:
        method: graph code that takes and returns tensors; signatures call it with keywords.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **inputs: Any) -> Any:
        functions = SHARED.of(self)
        if functions is None:
            return method(self, *args, **inputs)
        return functions(method)(*args, **inputs)

    return call


class Pipeline(abc.ABC):
    """A model together with its text processing and its answers.

    Call a pipeline with strings; it returns the types in `pipelines.results`. `save` writes it to a
    folder that `keras_transformers.load` reads; `keras_transformers.export` makes a SavedModel that
    gives the same answers.

    The constructor's arguments are attributes. Assigning one takes effect everywhere: in calls, in
    `save` and in exports. The constructor checks the value and derives the rest from it, as if it
    had been called with it; a value that it refuses changes nothing. All other attributes are read
    only, and so are their contents.

    Attributes:
        task: the task's name in the metadata of exports.
        model: the functional Keras model, reduced to the part that the task uses.
        text_names: the inputs, in the order in which a call takes them.
        adapter: the low-rank updates from the last training, if it trained any; they are merged
            into the model. See `fitting.Adapter`.
        tolerance: how far an export's float outputs may be from the pipeline's, as a share of an
            output's largest value; where the weights enlarge rounding, `export` allows more.
    """

    task: ClassVar[str]
    adapter: Adapter | None = None
    model: keras.Model
    text_names: tuple[str, ...]
    # From the inputs of `answer` to the tokens that the model reads of each row, cut and with
    # special tokens, int32 (batch, None), in the graph; None if it reads no tokens.
    read_tokens: Callable[..., tf.RaggedTensor] | None = None
    _is_complete = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        construct: Callable[..., None] = cls.__init__

        @functools.wraps(construct)
        def complete(self: Any, *args: Any, **kwargs: Any) -> None:
            construct(self, *args, **kwargs)
            if type(self) is cls:  # and not a subclass whose constructor goes on
                self._is_complete = True

        cls.__init__ = complete  # type: ignore[method-assign]

    @abc.abstractmethod
    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the outputs of the signature `serving_default` from strings, in the graph.

        Args:
            **texts: name in `text_names` -> strings, shaped as `input_specs` says; `batch` may
                be 0.

        Returns:
            Output name -> tensor (batch, ...).
        """

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of `answer`: name in `text_names` -> tf.TensorSpec of strings.

        Their shape is (None,), or (None, None) for inputs with a list of strings in each row, where
        "" pads shorter rows.
        """
        return dict.fromkeys(self.text_names, tf.TensorSpec([None], tf.string))

    @abc.abstractmethod
    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""

    @abc.abstractmethod
    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns batches for checking an export: the examples, awkward texts and an empty batch.

        Args:
            examples: arguments for calls, one string or tuple per row; None for the defaults.

        Returns:
            Batches, each name in `text_names` -> strings in an array of dtype object, with the rank
            in `input_specs`.

        Raises:
            ValueError: an example has the wrong type.
        """

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns the signatures other than `serving_default`, with `batches` as their examples."""
        return {}

    def step_signatures(self) -> dict[str, Signature]:
        """Returns signatures for servers that write answers step by step, not for clients.

        Their names start with "__". They have no examples, and descriptions leave them out.
        """
        return {}

    def explain_rows(
        self, texts: Mapping[str, Sequence[str | bytes]], *, label: str | None = None
    ) -> list[dict[str, Any]]:
        """Explains rows of texts; see `tasks.explaining`, for the pipelines that can.

        Raises:
            ValueError: this pipeline cannot.
        """
        raise ValueError(f"{type(self).__name__}: {NOT_EXPLAINED}")

    def explain_signatures(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> dict[str, Signature]:
        """Returns the signatures for explanations, with `batches` as their examples.

        Raises:
            ValueError: the pipeline has none.
        """
        raise ValueError(f"{type(self).__name__}: {NOT_EXPLAINED}")

    @property
    def explained(self) -> tuple[str, ...]:
        """The names of the scores that can be explained, such as the labels; () for none."""
        return ()

    @property
    def explained_inputs(self) -> tuple[str, ...]:
        """The inputs of explanations, in their order."""
        return self.text_names

    @abc.abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values.

        The model and the tokenizers are not among them: `save` writes those to separate files.
        """

    def metadata(self) -> dict[str, Any]:
        """Returns metadata that an export records with the model and vocabulary, as JSON values."""
        return {}

    def run_model(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the model's outputs from its inputs by name, in inference."""
        run = KERNELS.of(self.model)
        if run is None:
            return self.model(inputs, training=False)
        return run(**{name: inputs[name] for name in self.model.input})

    def training_model(self, *, at_once: int | None = None) -> keras.Model:
        """Returns the model to train, which reads the inputs of training batches.

        It is `model`, unless the pipeline reads long texts in windows. Then it has the weights of
        `model`, inputs (batch, windows, length), and one output per row.

        Args:
            at_once: windows in memory at a time, such as the batch size; 32 by default. A row may
                have any number of windows; a step takes one more forward pass over them.
        """
        return self.model

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on one row of texts, for `inspection.attention`.

        Returns:
            The tokens at the positions of the attention: `source` for an encoder, `target` for a
            decoder's inputs, `predicted` for the tokens that it predicts there.

        Raises:
            ValueError: the pipeline's model has no attention.
        """
        raise ValueError(f"{type(self).__name__}: the model has no attention to show")

    @property
    def models(self) -> tuple[keras.Model, ...]:
        """All models that compute answers: `model`, unless the pipeline is made of others."""
        return (self.model,)

    @property
    def stored(self) -> Sequence[Any]:
        """Variables and tables that an export stores besides the models and tokenizers."""
        return ()

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers, keyed by the names of their arguments; read only."""
        return MappingProxyType({})

    @property
    def tolerance(self) -> float:
        """1e-5 in float32, else 2e-2, because graphs round differently in half precision."""
        return 1e-5 if self.in_float32 else 2e-2

    @property
    def in_float32(self) -> bool:
        """Whether every layer of the models computes in float32."""
        dtypes = {layer.compute_dtype for model in self.models for layer in model.layers}
        return dtypes <= {"float32"}

    def signatures(self, examples: Sequence[Any] | None = None) -> dict[str, Signature]:
        """Returns the signatures of an export, `serving_default` first.

        Args:
            examples: stored in the export and used to check it; None for the defaults.
        """
        batches = self.example_batches(examples)
        default = Signature(self.answer, self.input_specs(), self.answer_specs(), batches)
        others = {**self.other_signatures(batches), **self._tokenize_signature(batches)}
        return {"serving_default": default, **others}

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that a signature takes row by row, with their defaults; read only.

        An export tells them to clients, who may leave some out.
        """
        return MappingProxyType({})

    @property
    def notes(self) -> Mapping[str, str]:
        """What an export tells clients besides: name of a signature without inputs -> a text."""
        return MappingProxyType({})

    def __setattr__(self, name: str, value: object) -> None:
        # An adapter changes no answer: it says which updates the model's weights already have.
        if not self._is_complete or name.startswith("_") or name == "adapter":
            super().__setattr__(name, value)
        elif name in self._parameters():
            self.__dict__ = self.with_options(**{name: value}).__dict__
        else:
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be set: set one of "
                f"{', '.join(self._parameters())}"
            )

    def with_options(self, **options: Any) -> Self:
        """Returns another pipeline on the same model, with other values for some arguments.

        Args:
            **options: arguments of the constructor; the others keep their values.

        Raises:
            ValueError: there is no such argument, or the constructor refuses a value.

        Example:
            strict = classify.with_options(thresholds=0.9)
        """
        parameters = self._parameters()
        if unknown := options.keys() - parameters.keys():
            raise ValueError(
                f"{', '.join(sorted(unknown))}: {type(self).__name__} takes {', '.join(parameters)}"
            )
        other = type(self)(**self._arguments() | options)
        if other.models == self.models:
            other.adapter = self.adapter
        return other

    def __call__(self, *texts: Any, batch_size: int = 32, **options: Any) -> Any:
        """Answers one input or many.

        Args:
            *texts: the inputs in the order of `text_names`, such as `text` or `question, context`:
                each is a string (str or bytes), or each is a sequence or tensor of strings. Inputs
                of rank 2 are a sequence of strings, or a sequence of those.
            batch_size: rows per batch; rows of similar length share a batch.
            **options: keyword arguments of the constructor, with values for this call alone, such
                as `top_k` or `num_beams`. The graphs of the last few are kept.

        Returns:
            One result of the task's type for one input; a list of results, in order, for many.

        Raises:
            ValueError: there are too few or too many texts, one is not a string (None, for
                example) or not Unicode text, or an argument is a table, whose columns are to be
                passed; there is no such option, or its value is out of range; or the graph refuses
                a text, such as one that the model has no positions for. The message says which.
        """
        columns, one = call_columns(self.text_names, texts)
        if len(columns) != len(self.text_names):
            raise ValueError(
                f"{type(self).__name__} takes {', '.join(self.text_names)}, not {len(columns)} "
                "arguments: pass one string or a list of strings for each"
            )
        named = dict(zip(self.text_names, columns, strict=True))
        answer = reading.answer_type(self.task)
        rows = self.rows(named, batch_size=batch_size, **options)
        results = [reading.typed(row, answer) for row in rows]
        return results[0] if one else results

    def rows(
        self,
        texts: Mapping[str, Iterable[str | bytes]] | Any,
        *,
        batch_size: int = 32,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Answers like a call, but returns dicts: output name -> str, number or nested list.

        Args:
            texts: name in `text_names` -> strings; lists of strings for inputs of rank 2. Or a
                table (pandas, polars, Arrow) with these columns.
            batch_size: rows per batch.
            **options: see a call.
        """
        answers = self._answers_with(options)
        named = named_columns(texts)
        if set(named) != set(self.text_names):
            raise ValueError(
                f"{type(self).__name__} takes {', '.join(self.text_names)}, not "
                f"{', '.join(map(str, named))}"
            )
        ranks = {name: len(spec.shape) for name, spec in self.input_specs().items()}
        columns = {
            name: string_column(name, column, rank=ranks.get(name, 1))
            for name, column in named.items()
        }
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(
                f"{type(self).__name__} needs as many {' as '.join(self.text_names)}, not {counts}"
            )
        num_rows = next(iter(counts.values()))
        order = np.argsort(sum(map(_num_bytes, columns.values())), kind="stable")
        padded = [
            name
            for name, spec in self.answer_specs().items()
            if len(spec.shape) > 1 and spec.shape[1] is None
        ]
        answer = reading.answer_type(self.task)
        answered: list[dict[str, Any]] = [{}] * num_rows
        for start in range(0, num_rows, batch_size):
            chosen = order[start : start + batch_size]
            batch = {name: tf.constant(column[chosen]) for name, column in columns.items()}
            with graph_errors.as_value_errors():
                outputs = {name: value.numpy() for name, value in answers(**batch).items()}
            for i, row in zip(chosen, reading.rows(outputs, padded, answer), strict=True):
                answered[i] = row
        return answered

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the pipeline to a new folder, completely or not at all.

        `keras_transformers.load` restores it bit for bit: configuration, weights (safetensors),
        vocabulary and labels.

        Args:
            folder: created, with its parents.

        Raises:
            FileExistsError: the folder exists.
        """
        return saving.save(self, folder)

    @classmethod
    def restore(cls, model: keras.Model, tokenizers: Mapping[str, Any], **config: Any) -> Self:
        """Rebuilds a pipeline from its `model`, `tokenizers` and `config`."""
        make: Any = cls
        return make(model, **tokenizers, **config)

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor that make this pipeline."""
        return {"model": self.model, **self.tokenizers, **self.config()}

    @classmethod
    def _parameters(cls) -> Mapping[str, inspect.Parameter]:
        """Returns the arguments of the constructor by name."""
        return inspect.signature(cls).parameters

    def _answers_with(self, options: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        """Returns the graph that answers a call with these options."""
        if not options:
            return self._graph
        names = [n for n, p in self._parameters().items() if p.kind is p.KEYWORD_ONLY]
        if unknown := options.keys() - set(names):
            raise ValueError(
                f"{', '.join(sorted(unknown))}: the options of a call are "
                f"{', '.join(['batch_size', *names])}"
            )
        key = repr(sorted((name, _listed(value)) for name, value in options.items()))
        variant = self._variants.get(key)
        if variant is None:
            variant = self.with_options(**options)
            if len(self._variants) >= _MOST_VARIANTS:
                self._variants.pop(next(iter(list(self._variants))), None)
            self._variants[key] = variant
        return variant._graph

    def _tokenize_signature(
        self, batches: Sequence[Mapping[str, np.ndarray]]
    ) -> dict[str, Signature]:
        """Returns `tokenize`, from texts to the tokens that the model reads of each row."""
        read = self.read_tokens
        tokenizer: Any = next(iter(self.tokenizers.values()), None)
        if read is None or not hasattr(tokenizer, "tokens"):  # such as hashed n-grams
            return {}

        def tokenize(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
            with tf.device("CPU:0"):  # string ops run only on the CPU
                rows = read(**texts)
                names = rows.with_values(tokenizer.tokens(rows.values))
                return {
                    "token_ids": rows.to_tensor(),
                    "tokens": names.to_tensor(""),
                    "num_tokens": tf.cast(rows.row_lengths(), tf.int32),
                }

        specs = {
            "token_ids": tf.TensorSpec([None, None], tf.int32),
            "tokens": tf.TensorSpec([None, None], tf.string),
            "num_tokens": tf.TensorSpec([None], tf.int32),
        }
        return {reading.TOKENIZE_SIGNATURE: Signature(tokenize, self.input_specs(), specs, batches)}

    @functools.cached_property
    def _variants(self) -> dict[str, Self]:
        """Pipelines with other options, by the options of calls."""
        return {}

    @functools.cached_property
    def _graph(self) -> Callable[..., dict[str, Any]]:
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self.input_specs().items()
        }
        with shared_calls():
            return traced(self.answer, **specs)


def _listed(value: Any) -> Any:
    """Returns an array as a list, whose repr is complete, and other values unchanged."""
    value = tables.without_tensors(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _num_bytes(column: np.ndarray) -> np.ndarray:
    """Returns the total length of each row's strings: int (rows,)."""
    lengths = np.vectorize(len, otypes=[int])(column)
    return lengths.sum(axis=tuple(range(1, column.ndim)))
