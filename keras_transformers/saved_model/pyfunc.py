"""Makes an export a model of MLflow: a pyfunc, from a DataFrame to a DataFrame of answers."""

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from keras_transformers.dependencies.extras import optional
from keras_transformers.dependencies.untyped import Json
from keras_transformers.saved_model.description import read_metadata
from keras_transformers.saved_model.examples import stored_examples
from keras_transformers.saved_model.metadata import of_environment
from keras_transformers.saved_model.prediction import Predictor
from keras_transformers.saved_model.versions import resolve
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.texts import text_inputs

__all__ = ["pyfunc_arguments"]

_SIGNATURE = "serving_default"


def pyfunc_arguments(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the arguments with which MLflow logs or saves an export as a pyfunc model.

    The model takes a DataFrame with the export's inputs as columns, and returns one with a column
    per output and the same index. It needs this package, at the version that is installed here.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.

    Returns:
        `loader_module`, `data_path`, `signature`, `input_example` and `pip_requirements`.

    Raises:
        FileNotFoundError: there is no export.
        MissingExtraError: MLflow is not installed.
        ValueError: the SavedModel was not written by this package.

    Example:
        mlflow.pyfunc.log_model(name="model", **kt.saved_model.pyfunc_arguments("sentiment/"))
    """
    folder = resolve(path)
    metadata = read_metadata(folder)
    described = _described(metadata)
    if not described:
        raise ValueError(f"{folder} does not say its inputs: export the pipeline with this version")
    versions = dict(of_environment()["library_versions"])
    del versions["python"]  # which MLflow records itself
    versions["pandas"] = optional("pandas", extra="tracking").__version__
    return {
        "loader_module": __name__,
        "data_path": str(folder),
        "signature": _signature(described),
        "input_example": _example(metadata, described["inputs"]),
        "pip_requirements": [f"{name}=={version}" for name, version in versions.items()],
    }


def _load_pyfunc(path: str) -> "_Model":
    """Loads an export for MLflow, which calls this by its name."""
    return _Model(path)


class _Model:
    def __init__(self, path: str) -> None:
        self._predictor = Predictor(path, signature=_SIGNATURE)
        self._outputs = sorted(_described(read_metadata(self._predictor.path))["outputs"])

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Answers the rows of a DataFrame; other columns than the export's inputs are not read."""
        pandas = optional("pandas", extra="tracking")
        frame = data if isinstance(data, pandas.DataFrame) else pandas.DataFrame(data)
        columns = {
            name: [x.tolist() if isinstance(x, np.ndarray) else x for x in frame[name]]
            for name in self._predictor.inputs
            if name in frame.columns
        }
        rows = self._predictor(columns)
        return pandas.DataFrame(rows, columns=self._outputs, index=frame.index)


def _described(metadata: Json) -> Json:
    return metadata.get("signatures", {}).get(_SIGNATURE, {})


def _example(metadata: Json, inputs: Collection[str]) -> Any:
    """Returns a row of the export's examples as a DataFrame; None if it takes no texts."""
    if not text_inputs(list(inputs)):
        return None
    batches = [example["inputs"] for example in stored_examples(metadata, _SIGNATURE)]
    rows = [row for batch in batches for row in reading.rows(batch, ())]
    return optional("pandas", extra="tracking").DataFrame(rows[:1]) if rows else None


def _signature(described: Json) -> Any:
    """Returns MLflow's signature of an export's: its columns with their types."""
    types = optional("mlflow.types", extra="tracking")
    inputs = described["inputs"]
    texts = text_inputs(list(inputs))

    def schema(specs: Json, *, strings: str) -> Any:
        columns = []
        for name, spec in specs.items():
            kind = getattr(types.DataType, {**_TYPES, "string": strings}[spec["dtype"]])
            for _ in spec["shape"][1:]:  # without the rows
                kind = types.schema.Array(kind)
            columns.append(types.ColSpec(kind, name))
        return types.Schema(columns)

    ordered = {name: inputs[name] for name in texts or sorted(inputs)}
    outputs = {name: described["outputs"][name] for name in sorted(described["outputs"])}
    return optional("mlflow.models", extra="tracking").ModelSignature(
        inputs=schema(ordered, strings="string" if texts else "binary"),
        outputs=schema(outputs, strings="string"),
    )


# Of Python's values, into which answers are read.
_TYPES = {
    "bool": "boolean",
    "int32": "long",
    "int64": "long",
    "float16": "double",
    "float32": "double",
    "float64": "double",
}
