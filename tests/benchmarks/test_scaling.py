"""The benchmark behind docs/scaling.md: its formulas, and its models' sizes."""

import importlib.util
import sys
from pathlib import Path

import pytest

from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.inspection import training_flops

FILE = Path(__file__).parents[2] / "benchmarks" / "scaling.py"


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("scaling_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cluster(scaling):
    return scaling.Cluster(
        peak_flops=1e12,
        utilisation=0.5,
        per_node=8,
        node_bandwidth=100.0,
        network_bandwidth=10.0,
        node_latency=0.001,
        network_latency=0.1,
    )


def test_rings(scaling, cluster):
    assert scaling.ring_time(1, 1000.0, 10.0, 1.0) == 0.0
    # 4 workers: 6 messages of a quarter each.
    assert scaling.ring_time(4, 1000.0, 10.0, 1.0) == pytest.approx(6 * (1 + 25))
    assert cluster.ring(8, 1000.0) == pytest.approx(14 * (0.001 + 1.25))
    assert cluster.ring(16, 1000.0) == pytest.approx(30 * (0.1 + 6.25))
    # Inside two nodes as above; between them, two messages of a half each.
    assert cluster.hierarchical(16, 1000.0) == pytest.approx(14 * (0.001 + 1.25) + 2 * (0.1 + 50))
    assert cluster.hierarchical(8, 1000.0) == cluster.ring(8, 1000.0)


def test_latency_and_bandwidth_are_found_again(scaling):
    measured = [
        (workers, size, scaling.ring_time(workers, size, 2e8, 3e-4))
        for workers in (2, 4)
        for size in (10**5, 10**6, 10**7)
    ]
    assert scaling.fitted(measured) == pytest.approx((3e-4, 2e8))


def test_layers_add_the_same(scaling):
    """FLOPs for many layers follow from models with one and two."""

    def build(num_layers):
        return heads.pretrainer(
            bert(vocabulary_size=30, num_layers=num_layers, num_heads=2, hidden_dim=8)
        )

    shapes = dict.fromkeys(build(1).input, (2, 4))
    assert scaling.flops(build, 5, shapes) == training_flops(build(5), shapes)


def test_the_report_of_scale(scaling, cluster, capsys):
    job = scaling.Job("a", 1000, "1 x 1", 10, int(1e12), 100)
    scaling.report_scale([job], cluster)
    lines = capsys.readouterr().out.splitlines()
    assert "compute 2000.0 ms" in lines[3]
    ring = cluster.ring(8, 4000.0)
    assert f"{ring * 1e3:.1f}" in lines[6]
    assert f"{2.0 / (2.0 + ring):.0%}" in lines[6]


PROGRAM = """
ENTRY %main {
  %left = f32[8,64]{1,0} parameter(0)
  %right = f32[64,32]{1,0} parameter(1)
  %dot.1 = f32[8,32]{1,0} dot(%left, %right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %all-reduce.2 = (f32[8,32]{1,0}, /*index=1*/f32[5]{0}) all-reduce(%dot.1, %x), to_apply=%add
  %item = f32[5]{0} get-tuple-element(%all-reduce.2), index=1
}
"""


def test_products_and_sums_of_a_compiled_program(scaling):
    assert scaling.product_flops(PROGRAM) == 2 * 8 * 32 * 64
    assert scaling.all_reduced_bytes(PROGRAM) == 4 * (8 * 32 + 5)


def test_one_gpu_is_compared_with_its_measurement(scaling, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "GPU_RESULTS", tmp_path / "gpu.txt")
    line = "a                  512 x 128    110,106,428     100.0      655,360     50 %     40 %"
    scaling.GPU_RESULTS.write_text(f"gpu: X, peak 500 TFLOP/s\n{line}\n", "utf-8")
    job = scaling.Job("a", 1000, "64 x 128 tokens, 20 masked", 8192, int(1e12), 100)
    scaling.report_gpu([job], 0.5)
    # It took 40 % of 5e14 operations a second for 0.1 s: 2e13, predicted at 2.5e14 a second.
    assert "a                     512 x 128    20.0          80.0        100.0  -20%" in (
        capsys.readouterr().out
    )
