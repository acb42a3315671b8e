"""`keras-transformers show`: describes an export from its files alone."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.saved_model.manifest import MANIFEST, read
from keras_transformers.saved_model.versions import resolve

METADATA_FILE = "assets.extra/keras_transformers.json"
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
        ValueError: its metadata are damaged.
    """
    folder = resolve(path)
    metadata = read_metadata(folder)
    signatures = metadata.get("signatures") or graph_signatures(folder)
    return {
        "path": str(folder),
        "num_bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "warm_up": (folder / WARM_UP_FILE).is_file(),
        **metadata,
        "signatures": {
            name: {**signature, "examples": len(signature.get("examples", ()))}
            for name, signature in signatures.items()
        },
        **_provenance(folder),
    }


def read_metadata(folder: Path) -> dict[str, Any]:
    """Reads the export's metadata; empty for a SavedModel that is not ours.

    Raises:
        ValueError: the file is damaged.
    """
    file = folder / METADATA_FILE
    if not file.is_file():
        return {}
    try:
        metadata = files.read_json(file)
    except ValueError as error:
        raise ValueError(f"{error}; export the model again") from error
    if not isinstance(metadata.get("signatures"), dict):
        raise ValueError(f"{file}: no signatures; export the model again")
    return metadata


def graph_signatures(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns a SavedModel's signatures in the form of our metadata: method, inputs and outputs.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    return {
        name: {
            "method_name": signature.method_name,
            "inputs": {key: _tensor(info) for key, info in sorted(signature.inputs.items())},
            "outputs": {key: _tensor(info) for key, info in sorted(signature.outputs.items())},
        }
        for name, signature in sorted(meta_graph(folder).signature_def.items())
        if not name.startswith("__")  # those are TensorFlow's own, to initialize the graph
    }


def meta_graph(folder: Path) -> Any:
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
    for found in parsed.meta_graphs:
        if set(found.meta_info_def.tags) == {"serve"}:
            return found
    tags = [sorted(found.meta_info_def.tags) for found in parsed.meta_graphs]
    raise ValueError(f"{file}: has graphs tagged {tags}, and servers load the one tagged 'serve'")


def shape_of(info: Any) -> tuple[int | None, ...] | None:
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
    known = {"path", "num_bytes", "warm_up", "task", "model", "signatures", "provenance"}
    fields = {**description, **description.get("provenance", {})}
    for name, value in fields.pop("scores", {}).items():
        yield f"  {'score':<18} {value}: {name}"
    for name, value in fields.items():
        if name not in known and value not in (None, "", {}):
            yield f"  {name:<18} {_plain(value)}"
    for name, signature in description["signatures"].items():
        yield f"  {name} ({signature['method_name'].rpartition('/')[2]})"
        for side, arrow in (("inputs", "->"), ("outputs", "<-")):
            for key, spec in signature[side].items():
                yield f"    {arrow} {key} {spec['dtype']} {_shape(spec['shape'])}"
        yield f"    {signature['examples']} stored examples"


def _provenance(folder: Path) -> dict[str, Any]:
    """Returns the export's entry in the manifest beside it, without the hashes of its files."""
    folder = folder.absolute()
    manifest = folder.parent.parent / MANIFEST
    entries = read(manifest) if manifest.is_file() else {}
    entry = entries.get(f"{folder.parent.name}/{folder.name}")
    if entry is None:
        return {}
    return {"provenance": {name: value for name, value in entry.items() if name != "files"}}


def _tensor(info: Any) -> dict[str, Any]:
    import tensorflow as tf

    shape = shape_of(info)
    return {
        "dtype": tf.dtypes.as_dtype(info.dtype).name,
        "shape": None if shape is None else list(shape),
    }


def _shape(shape: list[int | None] | None) -> str:
    return "(any)" if shape is None else str(tuple(shape)).replace("None", "?")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return str(value)
