"""`keras-transformers show`: describes an export using only its files."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.untyped import Json, Message
from keras_transformers.files import entries, read_json
from keras_transformers.saved_model.manifest import MANIFEST, read
from keras_transformers.saved_model.versions import resolve

FINGERPRINT_FILE = "fingerprint.pb"
METADATA_FILE = "assets.extra/keras_transformers.json"
# Of the metadata. Fields may join a format; one that leaves, or means something else, makes a new
# one (docs/versions.md).
FORMAT_NUMBER = 1
__all__ = ["describe"]

WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Collects what is known about an export.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.

    Returns:
        JSON values: the contents of `assets.extra/keras_transformers.json`, but with the number of
        each signature's `examples`; `path`; `num_bytes` of all files; `warm_up`, whether it has
        warm-up requests; and `provenance`, its entry in the manifest beside it, if there is one.
        For a SavedModel that is not ours, only the signatures are known, from its graph.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: its metadata are damaged, or its variables are missing or damaged.
    """
    folder = resolve(path)
    metadata = read_metadata(folder)
    if metadata and (damage := damage_to_variables(folder)):
        raise ValueError(damage)
    signatures = metadata.get("signatures") or graph_signatures(folder)
    measured = {
        "path": str(folder),
        "num_bytes": sum(path.stat().st_size for path, _ in entries(folder) if path.is_file()),
        "warm_up": (folder / WARM_UP_FILE).is_file(),
    }
    # An export may not override what is seen from outside.
    seen = {"provenance", *measured}
    return {
        **measured,
        **{name: value for name, value in metadata.items() if name not in seen},
        "signatures": {
            name: {**signature, "examples": len(signature.get("examples", ()))}
            for name, signature in signatures.items()
        },
        **_provenance(folder),
    }


def read_metadata(folder: Path) -> dict[str, Any]:
    """Reads the export's metadata; empty for a SavedModel that is not ours.

    Returns:
        The metadata from `saved_model.export`. Fields that this package reads have the right types.

    Raises:
        ValueError: the file is damaged, or comes from a newer version of this package.
    """
    file = folder / METADATA_FILE
    if not file.is_file():
        return {}
    try:
        metadata = read_json(file)
    except ValueError as error:
        raise ValueError(f"{error}; export the model again") from error
    number = metadata.get("format", 1)  # those in saved_models say none
    if type(number) is not int or number < 1:
        raise ValueError(f"{file}: format {number!r}, expected a number; export the model again")
    if number > FORMAT_NUMBER:
        raise ValueError(
            f"{file}: format {number}, and this version reads up to {FORMAT_NUMBER}: pip install "
            "--upgrade keras-transformers, or export the model again with this version"
        )
    for wrong in _mistakes(metadata):
        raise ValueError(f"{file}: {wrong}; export the model again")
    return metadata


def _mistakes(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yields fields of the metadata that are missing or have the wrong type."""
    if not isinstance(metadata.get("signatures"), dict):
        yield "no signatures"
        return
    for name, signature in metadata["signatures"].items():
        yield from (f"signature {name!r}: {wrong}" for wrong in _signature_mistakes(signature))
    model = metadata.get("model", {"name": "", "num_parameters": 0})
    if not _has(model, name=str, num_parameters=int):
        yield "a model without a name and a number of parameters"
    else:
        layers = model.get("configuration", [])
        if not _each(layers, **{"class": str}, count=int, options=dict):
            yield "a model whose configuration is not a list of layers"
    if not isinstance(metadata.get("scores", {}), dict):
        yield "scores that are not an object"
    tolerance = metadata.get("tolerance", 0)
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
        yield f"the tolerance {tolerance!r} is not a number"


def _signature_mistakes(signature: Json) -> Iterator[str]:
    if not _has(signature, method_name=str, inputs=dict, outputs=dict):
        yield "not an object with method_name, inputs and outputs"
        return
    for side in ("inputs", "outputs"):
        for name, spec in signature[side].items():
            if not _has(spec, dtype=str, shape=list | None):
                yield f"{side} {name!r}: not an object with dtype and shape"
            elif not all(isinstance(size, int | None) for size in spec["shape"] or ()):
                yield f"{side} {name!r}: the shape {spec['shape']} is not of integers"
    if not _each(signature.get("examples", []), inputs=dict, outputs=dict):
        yield "examples that are not a list of inputs and outputs"


def _has(value: Json, **types: Any) -> bool:
    """Returns whether a value is an object with these fields, of these types."""
    return isinstance(value, dict) and all(
        name in value and isinstance(value[name], wanted) for name, wanted in types.items()
    )


def _each(values: Json, **types: Any) -> bool:
    """Returns whether a value is a list of objects with these fields, of these types."""
    return isinstance(values, list) and all(_has(value, **types) for value in values)


def graph_signatures(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns a SavedModel's signatures in the form of our metadata: method, inputs and outputs.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    try:
        return _graph_signatures(meta_graph(folder))
    except TypeError as error:  # a number that is not a TensorFlow type
        raise ValueError(f"{folder / 'saved_model.pb'}: {error}; export the model again") from error


def _graph_signatures(graph: Message) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "method_name": signature.method_name,
            "inputs": {key: _tensor(info) for key, info in sorted(signature.inputs.items())},
            "outputs": {key: _tensor(info) for key, info in sorted(signature.outputs.items())},
        }
        for name, signature in sorted(graph.signature_def.items())
        if not name.startswith("__")  # TensorFlow's own, to initialize the graph
    }


def meta_graph(folder: Path) -> Message:
    """Returns the tensorflow.MetaGraphDef that servers load.

    Raises:
        ValueError: saved_model.pb is damaged, or has no graph whose only tag is "serve".
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    file = folder / "saved_model.pb"
    try:
        parsed = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{file}: not a SavedModel ({error}); export the model again") from error
    for graph in parsed.meta_graphs:
        if set(graph.meta_info_def.tags) == {"serve"}:
            return graph
    tags = [sorted(graph.meta_info_def.tags) for graph in parsed.meta_graphs]
    raise ValueError(f"{file}: has graphs tagged {tags}, but servers load the one tagged 'serve'")


def check_fingerprint(folder: Path) -> None:
    """Checks the file that identifies a SavedModel, which is optional.

    TensorFlow loads the model without it, but prints a traceback if it is damaged.

    Raises:
        ValueError: it is damaged.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import fingerprint_pb2

    file = folder / FINGERPRINT_FILE
    try:
        if file.exists():
            fingerprint_pb2.FingerprintDef.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{file} is damaged ({error}); export the model again") from error


def damage_to_variables(folder: Path) -> str | None:
    """Returns in one line which file of variables is damaged or missing; None if all can be read.

    It reads each variable, because only then does TensorFlow verify checksums.
    """
    import tensorflow as tf

    prefix = folder / "variables" / "variables"
    index = Path(f"{prefix}.index")
    if not index.is_file():
        return f"{index} is missing; export the model again"
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = sorted(reader.get_variable_to_shape_map())
    except Exception as error:  # any error that a damaged file causes in TensorFlow
        return f"{index} is damaged ({first_words(error)}); export the model again"
    for name in names:
        try:
            reader.get_tensor(name)
        except Exception as error:
            data = ", ".join(map(str, sorted(prefix.parent.glob("variables.data-*"))))
            return (
                f"{data or f'{prefix}.data-*'} is damaged or missing ({first_words(error)}); "
                "export the model again"
            )
    return None


def first_words(error: Exception) -> str:
    """Returns an error's type and the start of its message, in one line."""
    words = graph_errors.sentence(str(error)).split()
    return f"{type(error).__name__}: {' '.join(words)[:500]}"


def shape_of(info: Message) -> tuple[int | None, ...] | None:
    """Returns the shape in a tensorflow.TensorInfo.

    Returns:
        The dimensions, None for unknown ones; or None if the rank is unknown.
    """
    if info.tensor_shape.unknown_rank:
        return None
    return tuple(None if d.size < 0 else d.size for d in info.tensor_shape.dim)


def lines(description: Mapping[str, Any]) -> Iterator[str]:
    """Yields a description as lines of text."""
    model = description.get("model", {})
    yield f"{description['path']}: {description.get('task', 'not an export of this package')}"
    yield f"  files              {description['num_bytes']:,} bytes" + (
        ", warm-up requests" if description["warm_up"] else ""
    )
    if model:
        yield f"  model              {model['name']}, {model['num_parameters']:,} parameters"
    for entry in model.get("configuration", ()):
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        yield f"    {entry['count']} x {entry['class']}({options})"
    elsewhere = {"path", "num_bytes", "warm_up", "task", "model", "signatures", "provenance"}
    fields = {**description, **description.get("provenance", {})}
    for name, value in fields.pop("scores", {}).items():
        yield f"  {'score':<18} {value}: {name}"
    for name, value in fields.items():
        if name not in elsewhere and value not in (None, "", {}):
            yield f"  {name:<18} {plain(value)}"
    for name, signature in description["signatures"].items():
        yield f"  {name} ({signature['method_name'].rpartition('/')[2]})"
        for side, arrow in (("inputs", "->"), ("outputs", "<-")):
            for key, spec in signature[side].items():
                yield f"    {arrow} {key} {spec['dtype']} {shape_text(spec['shape'])}"
        examples = signature["examples"]
        yield f"    {examples} stored example{'' if examples == 1 else 's'}"


def _provenance(folder: Path) -> dict[str, Any]:
    """Returns the export's entry in the manifest beside it, without the hashes of its files."""
    folder = folder.absolute()
    manifest = folder.parent.parent / MANIFEST
    listed = read(manifest) if manifest.is_file() else {}
    entry = listed.get(f"{folder.parent.name}/{folder.name}")
    if entry is None:
        return {}
    return {"provenance": {name: value for name, value in entry.items() if name != "files"}}


def _tensor(info: Message) -> dict[str, Any]:
    import tensorflow as tf

    shape = shape_of(info)
    return {
        "dtype": tf.dtypes.as_dtype(info.dtype).name,
        "shape": None if shape is None else list(shape),
    }


def shape_text(shape: list[int | None] | None) -> str:
    """Returns a shape as text, such as "(?, 5)"."""
    return "(any)" if shape is None else str(tuple(shape)).replace("None", "?")


def plain(value: Json) -> str:
    """Returns a value of the metadata as text, without brackets and quotes."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return str(value)
