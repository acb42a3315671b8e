"""Writes TF Serving's configuration files, for models, batching and monitoring.

All are text protos, described at https://www.tensorflow.org/tfx/serving/serving_config.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from keras_transformers.files import replaced
from keras_transformers.saved_model.models_config import ModelsConfig
from keras_transformers.saved_model.publishing import MODELS_CONFIG
from keras_transformers.saved_model.versions import versions

BATCHING_CONFIG = "batching.config"
MONITORING_CONFIG = "monitoring.config"
_MONITORING = """prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""
_MAX_ENQUEUED_BATCHES = 100  # beyond that, requests are rejected with UNAVAILABLE


def write_serving_config(
    base_paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    server_root: str | None = None,
    batch_sizes: Sequence[int] = (),
    batch_timeout_micros: int = 2000,
    num_batch_threads: int = 2,
    monitoring: bool = False,
) -> list[tuple[Path, str]]:
    """Writes the configuration files for TF Serving to serve these models.

    Args:
        base_paths: the models' folders of versions; each model has the name of its folder.
        output: the folder to write to. An existing `models.config` keeps its models, with their
            versions and labels, and gets the new ones.
        server_root: the folder of `base_paths` as TF Serving sees it, such as "/models" in a
            container; by default their actual folders.
        batch_sizes: writes `batching.config`: the server collects requests into batches of at most
            the largest of these numbers of rows, and pads them to the next one. Use the batch sizes
            of the warm-up requests.
        batch_timeout_micros: how long a batch waits for more requests, in microseconds.
        num_batch_threads: how many batches are computed at once, usually one per core.
        monitoring: whether to write `monitoring.config`: metrics for Prometheus.

    Returns:
        Each file written, with the flags that pass it to `tensorflow_model_server`.

    Raises:
        FileNotFoundError: a folder has no version.
        ValueError: two models have the same name, a number is below 1, a file cannot be read, or
            the extra `serving` is missing.
    """
    folder = Path(output).absolute()
    bases = [Path(path).absolute() for path in base_paths]
    _check(bases, [*batch_sizes, batch_timeout_micros, num_batch_threads])
    models = ModelsConfig(folder / MODELS_CONFIG)
    for base in bases:
        root = PurePosixPath(server_root) if server_root else base.parent
        models.add(base, str(root / base.name))
    models.write()
    flags = f"--model_config_file={models.path} --model_config_file_poll_wait_seconds=60"
    if any(map(models.labels, bases)):  # otherwise a server refuses the labels when it starts
        flags += " --allow_version_labels_for_unavailable_models=true"
    written = [(models.path, flags)]
    if batch_sizes:
        path = folder / BATCHING_CONFIG
        with replaced(path) as scratch:
            scratch.write_text(_batching(batch_sizes, batch_timeout_micros, num_batch_threads))
        written.append((path, f"--enable_batching --batching_parameters_file={path}"))
    if monitoring:
        path = folder / MONITORING_CONFIG
        with replaced(path) as scratch:
            scratch.write_text(_MONITORING)
        written.append((path, f"--monitoring_config_file={path}"))
    return written


def _check(bases: Sequence[Path], numbers: Sequence[int]) -> None:
    for base in bases:
        if not versions(base):
            raise FileNotFoundError(f"{base}: no version folder; publish an export there first")
    names = [base.name for base in bases]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"models {repeated} occur more than once: rename one of their folders")
    if min(numbers) < 1:
        raise ValueError(f"{min(numbers)}: batch sizes, microseconds and threads are 1 or more")


def _batching(batch_sizes: Sequence[int], timeout_micros: int, num_threads: int) -> str:
    """Returns a BatchingParameters message; max_batch_size must be the last of the sizes."""
    sizes = sorted(set(batch_sizes))
    values = {
        "max_batch_size": sizes[-1],
        "batch_timeout_micros": timeout_micros,
        "max_enqueued_batches": _MAX_ENQUEUED_BATCHES,
        "num_batch_threads": num_threads,
    }
    lines = [f"{name} {{ value: {value} }}" for name, value in values.items()]
    return "\n".join([*lines, *(f"allowed_batch_sizes: {size}" for size in sizes)]) + "\n"
