"""Training on eight devices, simulated on the CPU, gives the weights of training on one."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformers.training.tensor_parallel import tensor_parallel_layout

TOY = Path(__file__).parent / "devices_toy.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("jax", reason="needs jax: pip install -e .[dev]")
    target = tmp_path_factory.mktemp("devices") / "weights.npz"
    result = subprocess.run(
        [sys.executable, TOY, target],
        env=os.environ
        | {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "PYTHONPATH": str(TOY.parents[2]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    with np.load(target) as found:
        return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "llama"])
@pytest.mark.parametrize("kind", ["data", "model"])
def test_eight_devices_train_as_one(trained, kind, model):
    names = [name for name in trained if name.startswith(f"one/{model}/") and "split" not in name]
    assert len(names) > 15
    for name in names:
        same = name.replace("one", kind, 1)
        np.testing.assert_allclose(trained[same], trained[name], rtol=0, atol=1e-6, err_msg=same)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "num_split"), [("bert", 25), ("llama", 16)])
def test_matrices_are_split(trained, model, num_split):
    """BERT: 2 * (4 + 2) matrices, 2 * 4 biases, the table, and two layers of the heads."""
    assert trained[f"model/{model}/split"] == num_split
    assert trained[f"data/{model}/split"] == 0


def test_a_mesh_without_the_axis_is_refused():
    mesh = keras.distribution.DeviceMesh((1,), ["batch"], ["cpu:0"])
    with pytest.raises(ValueError, match="axis='model': the mesh has 'batch'"):
        tensor_parallel_layout(mesh)
