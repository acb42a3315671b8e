"""Runs an export as servers do, in a process that can import neither Keras nor our code.

It tries the stored examples, batches of different sizes, concurrent calls, strings that are not
text, and empty batches; `checks.audit` starts it and reports the outcome.
"""

import concurrent.futures
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.saved_model.checks.check import (
    LOADERS,
    Runner,
    differences,
    example_failures,
    forget_ourselves,
    largest_values,
    why_not_loaded,
)
from keras_transformers.saved_model.description import (
    WARM_UP_FILE,
    first_words,
    graph_signatures,
    read_metadata,
)
from keras_transformers.saved_model.examples import Arrays, level, num_rows, stored_examples
from keras_transformers.saved_model.warm_up import MAX_REQUESTS, read_requests

NUM_THREADS = 8
_CALLS_PER_THREAD = 2
_UNKNOWN_TOLERANCE = 1e-4  # for exports without a tolerance
_WARM_UP = "warm-up requests"
_AWKWARD = (b"", b"\xff\xfe is no UTF-8 \x00")

Call = Callable[[Arrays], dict[str, np.ndarray]]  # one signature of a loaded export
Outcome = Literal["passed", "failed", "refused", "skipped"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one trial.

    Attributes:
        trial: what was tried.
        signature: the signature it was tried on; "" for the whole export.
        outcome: "refused" if the graph answered INVALID_ARGUMENT, as it may for meaningless input;
            "skipped" if the trial was not possible.
        detail: counts and tolerances, or what went wrong.
    """

    trial: str
    signature: str
    outcome: Outcome
    detail: str


def findings(folder: str, max_batch_size: int) -> Iterator[Finding]:
    """Runs all trials.

    Args:
        folder: the SavedModel.
        max_batch_size: batches of 1 to this many rows are tried.
    """
    metadata = read_metadata(Path(folder))
    signatures = metadata.get("signatures") or graph_signatures(Path(folder))
    run: Runner | None = None
    for loader, load in LOADERS.items():
        try:
            run = load(folder, signatures)
        except Exception as error:  # any error of the runtime is a finding
            yield Finding(loader, "", "failed", why_not_loaded(Path(folder), error))
            run = None
            continue
        yield Finding(loader, "", "passed", f"{len(signatures)} signatures")
        for name in signatures:
            yield _examples(run, metadata, name, loader)
    if run is None:
        return
    if Path(folder, WARM_UP_FILE).is_file():
        yield _warm_up(run, Path(folder), signatures)
    for name, signature in signatures.items():
        try:
            trials = _Trials(run, name, signature, metadata)
        except Exception as error:  # such as a type that NumPy does not know
            yield Finding("inputs", name, "failed", first_words(error))
            continue
        yield from trials.findings(max_batch_size)


def main(folder: str, max_batch_size: str) -> None:
    """Prints `findings`, in a process that cannot import our code."""
    forget_ourselves()
    print(json.dumps([asdict(finding) for finding in findings(folder, int(max_batch_size))]))


def _examples(run: Runner, metadata: Mapping[str, Any], name: str, loader: str) -> Finding:
    trial = f"stored examples, {loader}"
    number = len(metadata["signatures"][name].get("examples", ())) if metadata else 0
    if not number:
        return Finding(trial, name, "skipped", "the export has no stored examples")
    failures = list(example_failures(run, metadata, name))
    if failures:
        return Finding(trial, name, "failed", "; ".join(failures))
    return Finding(trial, name, "passed", f"{number}, tolerance {metadata['tolerance']:g}")


def _warm_up(run: Runner, folder: Path, signatures: Mapping[str, Any]) -> Finding:
    """Runs the warm-up requests, because TF Serving does not serve a version that fails one."""
    number = 0
    try:
        for name, inputs in read_requests(folder):
            number += 1
            run(name, _fitting(inputs, name, signatures))
    except Exception as error:
        if isinstance(error.__cause__, ImportError):
            return Finding(_WARM_UP, "", "skipped", str(error))
        return Finding(_WARM_UP, "", "failed", f"request {number}: {first_words(error)}")
    if number > MAX_REQUESTS:
        return Finding(_WARM_UP, "", "failed", f"{number}, and TF Serving takes {MAX_REQUESTS}")
    return Finding(_WARM_UP, "", "passed", f"{number} requests")


def _fitting(
    inputs: Arrays | list[bytes], name: str, signatures: Mapping[str, Any]
) -> Mapping[str, np.ndarray]:
    """Returns a request's inputs after checking their types, which a session would convert."""
    if name not in signatures:
        raise ValueError(f"the export has no signature {name!r}")
    wanted = {key: spec["dtype"] for key, spec in signatures[name]["inputs"].items()}
    if isinstance(inputs, list):  # tf.Examples go to the only input
        inputs = dict.fromkeys(wanted, np.array(inputs, object))
    types = {
        key: "string" if array.dtype == object else array.dtype.name
        for key, array in inputs.items()
    }
    if types != wanted:
        raise ValueError(f"signature {name!r} takes {wanted}, not {types}")
    return inputs


class _Trials:
    """The trials of one signature, run as TF Serving runs it: in a V1 session."""

    def __init__(
        self, run: Runner, name: str, signature: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.call: Call = lambda inputs: run(name, inputs)
        self.tolerance: float = metadata.get("tolerance", _UNKNOWN_TOLERANCE)
        stored = list(stored_examples(metadata, name)) if metadata else []
        rows = [example for example in stored if num_rows(example["inputs"]) > 0]
        # Without a stored example, inputs are generated, and the first call gives their outputs.
        self.inputs: Arrays = rows[0]["inputs"] if rows else made_up(signature["inputs"])
        self.outputs: Arrays = rows[0]["outputs"] if rows else {}
        self.largest = largest_values(example["outputs"] for example in stored)

    def findings(self, max_batch_size: int) -> Iterator[Finding]:
        if not self.inputs:
            yield self._finding(
                "calls", "skipped", "no stored examples, and none could be generated"
            )
            return
        if not self.outputs:
            answered = self._answer_made_up()
            yield answered
            if answered.outcome != "passed":
                return
        yield self._tried(f"batches of 1 to {max_batch_size}", self._batches, max_batch_size)
        yield self._tried(f"{NUM_THREADS} threads at the same time", self._together)
        if any(value.dtype == object for value in self.inputs.values()):
            for trial, value in zip(("empty strings", "invalid UTF-8"), _AWKWARD, strict=True):
                yield self._tried(trial, self._awkward, value)
        yield self._tried("an empty batch", self._empty)

    def _finding(self, trial: str, outcome: Outcome, detail: str) -> Finding:
        return Finding(trial, self.name, outcome, detail)

    def _tried(
        self, trial: str, function: Callable[..., Iterator[str]], *arguments: Any
    ) -> Finding:
        try:
            failures = list(function(*arguments))
        except tf.errors.InvalidArgumentError as error:
            outcome: Outcome = (
                "failed" if function in (self._batches, self._together) else "refused"
            )
            return self._finding(trial, outcome, first_words(error))
        except UnicodeDecodeError:
            # The graph's error message quotes its input, which Python cannot decode.
            return self._finding(trial, "refused", "with a message that is not UTF-8")
        except Exception as error:
            return self._finding(trial, "failed", first_words(error))
        return self._finding(trial, "failed" if failures else "passed", "; ".join(failures[:3]))

    def _answer_made_up(self) -> Finding:
        """Runs the generated inputs, to compare later answers with these."""
        trial = "made-up inputs"
        try:
            self.outputs = self.call(self.inputs)
            self.largest = largest_values([self.outputs])
        except tf.errors.InvalidArgumentError as error:
            return self._finding(trial, "skipped", f"no stored examples; {first_words(error)}")
        except Exception as error:
            return self._finding(trial, "failed", first_words(error))
        rows = num_rows(self.inputs)
        if any(value.ndim == 0 or len(value) != rows for value in self.outputs.values()):
            return self._finding(trial, "skipped", "its outputs have no row for each input")
        return self._finding(trial, "passed", "the export has no stored examples")

    def _batches(self, largest: int) -> Iterator[str]:
        for size in range(1, largest + 1):
            index = np.arange(size) % num_rows(self.inputs)
            inputs = {name: column[index] for name, column in self.inputs.items()}
            yield from (f"{size} rows: {text}" for text in self._differing(inputs, index))

    def _together(self) -> Iterator[str]:
        index = np.arange(num_rows(self.inputs))
        with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as pool:
            calls = [
                pool.submit(lambda: list(self._differing(self.inputs, index)))
                for _ in range(NUM_THREADS * _CALLS_PER_THREAD)
            ]
            for call in calls:
                yield from call.result()

    def _awkward(self, value: bytes) -> Iterator[str]:
        """Runs a row whose strings are all `value`, with rows that it must not affect."""
        index = np.append(np.arange(num_rows(self.inputs)), 0)
        mixed = {}
        for name, column in self.inputs.items():
            mixed[name] = column[index]
            if column.dtype == object:
                mixed[name][-1] = (
                    np.full(column.shape[1:], value, object) if column.ndim > 1 else value
                )
        yield from self._differing(mixed, index[:-1])

    def _empty(self) -> Iterator[str]:
        outputs = self.call({name: column[:0] for name, column in self.inputs.items()})
        for name, value in outputs.items():
            if value.ndim == 0 or len(value) != 0:
                yield f"output {name!r} has shape {value.shape}, not 0 rows"

    def _differing(self, inputs: Arrays, index: np.ndarray) -> Iterator[str]:
        """Runs rows of inputs that start with the example's rows at `index`.

        Yields how their answers differ from the example's, except in padding, which depends on the
        longest row of the batch.
        """
        outputs = self.call(inputs)
        rows = num_rows(inputs)
        for name, value in outputs.items():
            if value.ndim == 0 or len(value) != rows:
                yield f"output {name!r} has shape {value.shape}, not {rows} rows"
                return
        expected = {name: value[index] for name, value in self.outputs.items()}
        actual = {name: value[: len(index)] for name, value in outputs.items()}
        yield from differences(*level(actual, expected), self.tolerance, self.largest)


def made_up(specs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns two rows of texts and zeros that fit a signature; empty if a shape is unknown."""
    rows = {}
    for name, spec in specs.items():
        if not spec["shape"] or spec["shape"][0] is not None:
            return {}  # no batch dimension, or an unknown number of dimensions
        shape = [2, *(size or 1 for size in spec["shape"][1:])]
        strings = spec["dtype"] == "string"
        rows[name] = (
            np.full(shape, b"A text.", object) if strings else np.zeros(shape, spec["dtype"])
        )
    return rows
