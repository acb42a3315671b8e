"""Checks an export: loads it without any of our code and repeats its examples.

`self_check` works in a fresh process that can import neither Keras nor this package and only loads
tensorflow-text's op libraries, like TF Serving. Every signature runs on the examples stored in the
export, first with `tf.saved_model.load`, then with the V1 session loader. Only the second restores
variables as saved_model_cli and TF Serving do, so an export may pass the first and fail there.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.text_library import register_ops
from keras_transformers.dependencies.untyped import Json
from keras_transformers.saved_model.checks.op_origins import TEXT_OPS
from keras_transformers.saved_model.description import (
    METADATA_FILE,
    damage_to_variables,
    first_words,
    graph_signatures,
    meta_graph,
)
from keras_transformers.saved_model.examples import Arrays, stored_examples

_TIMEOUT_S = 600
_UNKNOWN_OP = re.compile("Op type not registered '([^']+)'")
_MASKED = 1e8  # scores of masked places are -1e9

Runner = Callable[[str, Arrays], dict[str, np.ndarray]]  # (signature, inputs) -> outputs


def self_check(folder: Path) -> None:
    """Repeats an export's examples in a fresh process.

    Args:
        folder: the SavedModel, with its examples in `METADATA_FILE`.

    Raises:
        RuntimeError: a loader failed or an output differs; the message names the signature, the
            loader and the largest difference.
    """
    try:
        mismatches = in_fresh_process("keras_transformers.saved_model.checks.check", str(folder))
    except TimeoutError as error:
        raise RuntimeError(
            f"the check of the export {error}, so it was not published; check=False skips the "
            "check, at your own risk"
        ) from error
    except ChildProcessError as error:
        raise RuntimeError(f"the check of the export {error}, so it was not published") from error
    if mismatches:
        raise RuntimeError(
            "the export's answers differ from the pipeline's, so it was not published:\n  "
            + "\n  ".join(mismatches)
        )


def in_fresh_process(module: str, *arguments: str) -> Json:
    """Runs a module's `main` in a new process and returns the JSON that it prints.

    Args:
        module: a module of this package that works without Keras; its `main` first calls
            `forget_ourselves`, and prints JSON as its last line.
        arguments: passed to `main`.

    Raises:
        TimeoutError: the process took too long.
        ChildProcessError: it failed; the message has its exit status and last lines.
    """
    package_root = str(Path(__file__).parents[3])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "PYTHONPATH": os.pathsep.join(paths),
        "CUDA_VISIBLE_DEVICES": "-1",  # the calling process uses the GPU
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    # Else TensorFlow would import Keras, which takes as long as the rest.
    code = "import sys; sys.modules['keras'] = None; "
    code += f"from {module} import main; main(*sys.argv[1:])"
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],  # -P: nothing from the current folder
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=os.environ | environment,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"took more than {_TIMEOUT_S} s") from None
    if process.returncode != 0:
        last_lines = "\n".join(process.stderr.splitlines()[-20:])
        raise ChildProcessError(
            f"ended with status {process.returncode} (negative: killed by that signal) and "
            f"printed:\n{last_lines}\n"
        )
    return json.loads(process.stdout.splitlines()[-1])


def forget_ourselves() -> None:
    """Makes Keras and this package impossible to import, and registers tensorflow-text's ops."""
    ours = {name for name in sys.modules if name.partition(".")[0] == "keras_transformers"}
    # None in sys.modules makes an import fail. Running code keeps its functions.
    sys.modules.update(dict.fromkeys({*ours, "keras", "keras_transformers"}))  # type: ignore[arg-type]
    register_ops()


def failures(folder: str) -> Iterator[str]:
    """Runs every stored example with both loaders and yields what fails or differs.

    It runs in this process, which may have loaded more than the export needs; see `self_check`.
    """
    metadata = json.loads(Path(folder, METADATA_FILE).read_text(encoding="utf-8"))
    for loader, load in LOADERS.items():
        try:
            run = load(folder, metadata["signatures"])
        except Exception as error:  # any error of the runtime is a finding
            yield f"{loader}: {why_not_loaded(Path(folder), error)}"
            continue
        for name in metadata["signatures"]:
            for failure in example_failures(run, metadata, name):
                yield f"{loader}, signature {name!r}, {failure}"


def example_failures(run: Runner, metadata: Mapping[str, Any], name: str) -> Iterator[str]:
    """Runs the stored examples of one signature and yields what fails or differs."""
    examples = list(stored_examples(metadata, name))
    largest = largest_values(example["outputs"] for example in examples)
    for index, example in enumerate(examples):
        try:
            outputs = run(name, example["inputs"])
        except Exception as error:
            yield f"example {index}: {first_words(error)}"
            continue
        wanted = example["outputs"]
        for difference in differences(outputs, wanted, metadata["tolerance"], largest):
            yield f"example {index}, {difference}"


def check_signatures(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Checks that an export's graph has the signatures and examples that its metadata describes.

    Args:
        folder: the export.
        metadata: from `read_metadata`; empty for a SavedModel that is not ours.

    Raises:
        ValueError: the graph's signatures differ, or a stored example cannot be read.
    """
    graph = graph_signatures(folder) if metadata else {}
    for name, signature in metadata.get("signatures", {}).items():
        place = f"{folder / METADATA_FILE}: signature {name!r}"
        if name not in graph:
            names = ", ".join(graph) or "none"
            raise ValueError(
                f"{place} is not in the graph, which has {names}; export the model again"
            )
        for side in ("inputs", "outputs"):
            told, in_graph = (_types(described[side]) for described in (signature, graph[name]))
            if told != in_graph:
                raise ValueError(
                    f"{place}: {side} {told}, but the graph has {in_graph}; export the model again"
                )
        try:
            for _ in stored_examples(metadata, name):
                pass
        except Exception as error:  # any error that damaged values cause in NumPy
            raise ValueError(
                f"{place}: a stored example is damaged ({first_words(error)}); export the model "
                "again"
            ) from error


def _types(specs: Mapping[str, Any]) -> dict[str, str]:
    return {name: specs[name]["dtype"] for name in sorted(specs)}


def largest_values(outputs: Iterable[Arrays]) -> dict[str, float]:
    """Returns output -> the largest size of its numbers in the examples, for outputs of floats.

    Rounding is a share of it: a number near 0 is a difference of larger ones.
    """
    largest: dict[str, float] = {}
    for name, value in (item for arrays in outputs for item in arrays.items()):
        if value.dtype.kind == "f":
            sizes = np.abs(value.astype("float64"))
            largest[name] = max(
                largest.get(name, 0.0), sizes.max(initial=0.0, where=sizes < _MASKED)
            )
    return largest


def differences(
    actual: Arrays,
    expected: Arrays,
    tolerance: float,
    largest: Mapping[str, float] | None = None,
) -> Iterator[str]:
    """Yields where outputs differ, one sentence per output.

    Names, shapes, types, strings and integers may not differ.

    Args:
        actual: output -> array.
        expected: the same.
        tolerance: how far a float may be, as a share of its output's largest value.
        largest: that value, from `largest_values`; by default, that of `expected`.
    """
    largest = largest_values([expected]) if largest is None else largest
    if set(actual) != set(expected):
        yield f"outputs {sorted(actual)} instead of {sorted(expected)}"
    for name in sorted(set(actual) & set(expected)):
        got, wanted = np.asarray(actual[name]), np.asarray(expected[name])
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            yield (
                f"output {name!r}: {got.dtype} of shape {got.shape} "
                f"instead of {wanted.dtype} of shape {wanted.shape}"
            )
            continue
        if got.dtype.kind == "f":
            size = np.where(np.isfinite(wanted), np.abs(wanted.astype("float64")), 0.0)
            size = np.maximum(size, largest[name])
            with np.errstate(invalid="ignore"):  # inf - inf
                difference = np.abs(got - wanted.astype("float64"))
                # True for NaN, unlike >. Equal infinities, such as the score of no beam, are equal.
                wrong = ~(difference <= tolerance * size) & (got != wanted)
        else:
            difference, wrong = np.zeros(got.shape), got != wanted
        if wrong.any():
            place = np.unravel_index(np.argmax(np.where(wrong, difference, -1)), got.shape)
            note = (
                f" (difference {difference[place]:.3g}, tolerance {tolerance:g} of "
                f"{largest.get(name, 0.0):.3g})"
            )
            yield (
                f"output {name!r}: {wrong.sum()} of {wrong.size} values differ, at "
                f"{tuple(int(i) for i in place)} {got[place]!r} instead of {wanted[place]!r}"
                + (note if got.dtype.kind == "f" else "")
            )


def relative_errors(
    actual: Mapping[str, Any], expected: Mapping[str, Any], *, of_same_texts: bool = False
) -> Iterator[tuple[str, float]]:
    """Yields how far apart the float outputs of two sets of stored examples are.

    Args:
        actual: signatures as in the metadata.
        expected: the same, with the same examples.
        of_same_texts: whether to compare only examples with equal strings and integers: for models
            that generate tokens, whose numbers depend on the text that they chose.

    Yields:
        The output, and the root mean square difference over all examples, as a share of the root
        mean square of `expected`.
    """
    for name, signature in expected.items():
        pairs = zip(
            stored_examples({"signatures": actual}, name),
            stored_examples({"signatures": expected}, name),
            strict=True,
        )
        outputs = [(ours["outputs"], theirs["outputs"]) for ours, theirs in pairs]
        if of_same_texts:
            outputs = [pair for pair in outputs if _same_texts(*pair)]
        for key in (key for key, spec in signature["outputs"].items() if "float" in spec["dtype"]):
            difference = sum(np.square(a[key] - b[key]).sum() for a, b in outputs)
            size = sum(np.square(b[key]).sum() for _, b in outputs)
            yield (
                f"signature {name!r}, output {key!r}",
                float(np.sqrt(difference / max(size, 1e-12))),
            )


def _same_texts(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    return all(
        np.array_equal(actual[key], array)
        for key, array in expected.items()
        if array.dtype.kind != "f"
    )


def _v2_load(folder: str, _: Mapping[str, Any]) -> Runner:
    loaded = tf.saved_model.load(folder)

    def run(signature: str, inputs: Arrays) -> dict[str, np.ndarray]:
        function = loaded.signatures[signature]
        specs = function.structured_input_signature[1]
        tensors = {name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()}
        return {name: value.numpy() for name, value in function(**tensors).items()}

    return run


def _v1_load(folder: str, signatures: Mapping[str, Any]) -> Runner:
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        definitions = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def
    for name, signature in signatures.items():
        method, wanted = definitions[name].method_name, signature["method_name"]
        if method != wanted:
            raise ValueError(f"signature {name!r} has method_name {method!r} instead of {wanted!r}")

    def run(signature: str, inputs: Arrays) -> dict[str, np.ndarray]:
        definition = definitions[signature]
        fetches = {name: tensor.name for name, tensor in definition.outputs.items()}
        return session.run(fetches, {definition.inputs[k].name: v for k, v in inputs.items()})

    return run


def why_not_loaded(folder: Path, error: Exception) -> str:
    """Returns in one line why a SavedModel could not be loaded, with the damaged file if found.

    TensorFlow's own message often names no file, so the graph and the variables are read again.

    Args:
        folder: the SavedModel.
        error: what the loader raised.
    """
    try:
        meta_graph(folder)
    except (OSError, ValueError) as damage:
        return str(damage)
    if (op := _UNKNOWN_OP.search(str(error))) and op[1] in TEXT_OPS:
        return (
            f"it needs {op[1]}, an op of tensorflow-text, which is missing or does not load into "
            f"TensorFlow {tf.__version__}: install the tensorflow-text of this TensorFlow, or "
            "export the pipeline with ops='core'"
        )
    return damage_to_variables(folder) or first_words(error)


LOADERS: dict[str, Callable[[str, Mapping[str, Any]], Runner]] = {
    "tf.saved_model.load": _v2_load,
    "V1 session loader": _v1_load,
}


def main(folder: str) -> None:
    """Prints `failures`, in a process that cannot import our code."""
    forget_ourselves()
    print(json.dumps(list(failures(folder))))
