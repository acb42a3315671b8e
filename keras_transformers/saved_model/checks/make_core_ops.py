"""Writes core_ops.json, the table of TensorFlow's ops by release, from the wheels on PyPI.

    python -m keras_transformers.saved_model.checks.make_core_ops

It downloads `tensorflow-cpu` of each release in `WHEELS`, without installing it, and queries its C
library for the registered ops; add a line to `WHEELS` for a new release. It needs Linux on x86, as
the wheels do, and 2 GB of temporary space, because it handles one wheel at a time.

The file maps the oldest release to all its ops, each with its attributes, and every later release
to the changes since the previous one: new ops, ops with different attributes, and null for removed
ops. Attributes are names without their types.
"""

import ctypes
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from keras_transformers import files
from keras_transformers.saved_model.checks.core_ops import FILE

# The last patch of each release: the release that TF Serving names -> the wheel's version.
WHEELS = {
    "2.12": "2.12.1",
    "2.13": "2.13.1",
    "2.14": "2.14.1",
    "2.15": "2.15.1",
    "2.16": "2.16.2",
    "2.17": "2.17.1",
    "2.18": "2.18.1",
    "2.19": "2.19.1",
    "2.20": "2.20.0",
    "2.21": "2.21.0",
    "2.22": "2.22.0rc0",
}
# In this order, because the second needs the first.
_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")


def main() -> None:
    """Downloads the wheels one by one and replaces the table."""
    if sys.argv[1:2] == ["--list"]:  # in a separate process: one TensorFlow per process
        sys.stdout.buffer.write(registered_ops(Path(sys.argv[2])))
        return
    before: dict[str, str] = {}
    changes: dict[str, dict[str, str | None]] = {}
    for release, version in WHEELS.items():
        ops = ops_of_wheel(version)
        gone = dict.fromkeys(set(before) - set(ops))
        changed = {op: names for op, names in ops.items() if before.get(op) != names}
        changes[release] = dict(sorted({**changed, **gone}.items()))
        before = ops
        print(f"{release}: {len(ops)} ops, {len(changes[release])} other than before", flush=True)
    with files.replaced(FILE) as scratch:
        scratch.write_text(json.dumps(changes, indent=0) + "\n", "utf-8")


def ops_of_wheel(version: str) -> dict[str, str]:
    """Returns the ops that tensorflow-cpu registers: op -> its attributes, joined by spaces.

    Raises:
        subprocess.CalledProcessError: the wheel could not be downloaded or its library not loaded.
    """
    from tensorflow.core.framework import op_def_pb2

    with tempfile.TemporaryDirectory() as temporary:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*download, "--dest", temporary, f"tensorflow-cpu=={version}"], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in _LIBRARIES:
                archive.extract(f"tensorflow/{name}", temporary)
        wheel.unlink()
        listed = subprocess.run(
            [sys.executable, "-m", __spec__.name, "--list", f"{temporary}/tensorflow"],
            check=True,
            stdout=subprocess.PIPE,
        )
    ops = op_def_pb2.OpList.FromString(listed.stdout).op
    return {op.name: " ".join(sorted(attribute.name for attribute in op.attr)) for op in ops}


def registered_ops(folder: Path) -> bytes:
    """Returns the ops of the TensorFlow libraries in a folder: a serialized tensorflow.OpList."""

    class Buffer(ctypes.Structure):
        """TF_Buffer of TensorFlow's C API."""

        _fields_ = (
            ("data", ctypes.c_void_p),
            ("length", ctypes.c_size_t),
            ("deallocator", ctypes.c_void_p),
        )

    *_, library = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in _LIBRARIES]
    library.TF_GetAllOpList.restype = ctypes.POINTER(Buffer)
    buffer = library.TF_GetAllOpList().contents
    return ctypes.string_at(buffer.data, buffer.length)


if __name__ == "__main__":
    main()
