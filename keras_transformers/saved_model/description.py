"""`keras-transformers show`: describes an export from its files alone."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.saved_model.manifest import MANIFEST, read
from keras_transformers.saved_model.versions import resolve

FINGERPRINT_FILE = "fingerprint.pb"
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
        ValueError: its metadata are damaged, or its variables are missing or cut.
    """
    folder = resolve(path)
    metadata = read_metadata(folder)
    if metadata:
        _check_variables(folder)
    signatures = metadata.get("signatures") or graph_signatures(folder)
    measured = {
        "path": str(folder),
        "num_bytes": sum(
            path.stat().st_size for path, _ in files.entries(folder) if path.is_file()
        ),
        "warm_up": (folder / WARM_UP_FILE).is_file(),
    }
    # An export may say what it likes about itself, but not what is seen from outside.
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
        What `saved_model.export` wrote. The fields that this package reads have the right types.

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
    for wrong in _mistakes(metadata):
        raise ValueError(f"{file}: {wrong}; export the model again")
    return metadata


def _mistakes(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yields what metadata lack or have of the wrong type."""
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
            yield "a model whose configuration is no list of layers"
    if not isinstance(metadata.get("scores", {}), dict):
        yield "scores that are no object"
    tolerance = metadata.get("tolerance", 0)
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
        yield f"the tolerance {tolerance!r} is no number"


def _signature_mistakes(signature: Any) -> Iterator[str]:
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
        yield "examples that are no list of inputs and outputs"


def _has(value: Any, **types: Any) -> bool:
    """Returns whether a value is an object with these fields, of these types."""
    return isinstance(value, dict) and all(
        name in value and isinstance(value[name], wanted) for name, wanted in types.items()
    )


def _each(values: Any, **types: Any) -> bool:
    """Returns whether a value is a list of objects with these fields, of these types."""
    return isinstance(values, list) and all(_has(value, **types) for value in values)


def graph_signatures(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns a SavedModel's signatures in the form of our metadata: method, inputs and outputs.

    Raises:
        ValueError: saved_model.pb is damaged, or not for serving.
    """
    try:
        return _graph_signatures(meta_graph(folder))
    except TypeError as error:  # a number that is no type of TensorFlow
        raise ValueError(f"{folder / 'saved_model.pb'}: {error}; export the model again") from error


def _graph_signatures(graph: Any) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "method_name": signature.method_name,
            "inputs": {key: _tensor(info) for key, info in sorted(signature.inputs.items())},
            "outputs": {key: _tensor(info) for key, info in sorted(signature.outputs.items())},
        }
        for name, signature in sorted(graph.signature_def.items())
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


def check_fingerprint(folder: Path) -> None:
    """Checks the file that identifies a SavedModel; none need be there.

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


def _check_variables(folder: Path) -> None:
    """Checks without TensorFlow that the files of variables are as long as their index says.

    Raises:
        ValueError: a file is missing or cut, or the index is damaged.
    """
    index = folder / "variables" / "variables.index"
    try:
        sizes = _sizes(index.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{index} is missing; export the model again") from None
    except (LookupError, StopIteration, ValueError) as error:
        raise ValueError(f"{index} is damaged; export the model again") from error
    for name, size in sizes.items():
        file = index.with_name(name)
        if not file.is_file():
            raise ValueError(f"{file} is missing; export the model again")
        if (found := file.stat().st_size) < size:
            raise ValueError(f"{file} is cut: {found} of {size} bytes; export the model again")


def _sizes(index: bytes) -> dict[str, int]:
    """Returns the least size of each file of variables: name -> bytes.

    The index is a table as in LevelDB: a block of entries, a block that says where these blocks
    are, and a footer. A value is a tensorflow.BundleEntryProto (tensor_bundle.proto).
    """
    if index[-8:] != bytes.fromhex("57fb808b247547db"):
        raise ValueError("it has no end")
    footer = index[-48:]
    _, at = _pair(footer)
    blocks, _ = _pair(footer, at)
    found = [
        (name, _integers(entry))
        for _, place in _table(index, *blocks)
        for name, entry in _table(index, *_pair(place)[0])
    ]
    number = next(fields[1] for name, fields in found if not name)  # the header has no name
    sizes: dict[str, int] = {}
    for name, fields in found:
        if name:
            file = f"variables.data-{fields.get(3, 0):05d}-of-{number:05d}"
            end = fields.get(4, 0) + fields.get(5, 0)
            sizes[file] = max(end, sizes.get(file, 0))
    return sizes


def _table(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block; a key begins like the one before it."""
    restarts = int.from_bytes(data[start + size - 4 : start + size], "little")
    at, end, key = start, start + size - 4 * (restarts + 1), b""
    while at < end:
        (shared, own), at = _pair(data, at)
        length, at = _varint(data, at)
        key = key[:shared] + data[at : at + own]
        yield key, data[at + own : at + own + length]
        at += own + length


def _integers(message: bytes) -> dict[int, int]:
    """Returns the integers in a protocol buffer: field -> value."""
    found, at = {}, 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            found[key >> 3], at = _varint(message, at)
        elif key & 7 == 2:
            length, at = _varint(message, at)
            at += length
        else:
            at += {1: 8, 5: 4}[key & 7]
    return found


def _pair(data: bytes, at: int = 0) -> tuple[tuple[int, int], int]:
    first, at = _varint(data, at)
    second, at = _varint(data, at)
    return (first, second), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns an integer in 7 bits a byte, and where it ends."""
    value = shift = 0
    while data[at] & 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


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
