"""Where the figures of a run come from: the command, the commit, the machine."""

import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.saved_model.metadata import of_environment

__all__ = ["origin"]

_PROCESSORS = Path("/proc/cpuinfo")  # of Linux


def origin(model: keras.Model | None, *, seed: int) -> dict[str, Any]:
    """Describes this process, so that others can repeat a run.

    Args:
        model: the trained model, if any.
        seed: the run's seed.

    Returns:
        `command`, as it was typed; the exact number of `parameters`, or None; `seed`; the `day` in
        UTC; `machine`: its processor, cores and accelerators; `commit` and `library_versions`, as
        in the metadata of exports.
    """
    return {
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "parameters": None if model is None else model.count_params(),
        "seed": seed,
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
            "accelerators": [
                tf.config.experimental.get_device_details(device).get("device_name", device.name)
                for device in tf.config.list_physical_devices()
                if device.device_type != "CPU"
            ],
        },
        **of_environment(),
    }


def _processor() -> str:
    lines = _PROCESSORS.read_text("utf-8").splitlines() if _PROCESSORS.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
