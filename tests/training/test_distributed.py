"""Trainings on two replicas, in one process and in two, against one replica."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Two replicas take a minute; on one, test_classification_recipe.py trains with a strategy.
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "replicas.py"
OPTIMIZERS = ("sgd", "adamw", "lamb")
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}  # for sums in another order
IDS = {"ids-0.txt": range(4), "ids-1.txt": range(4, 9), "ids-2.txt": range(9, 12)}


def run(kind, *arguments):
    """Runs the program; nothing that it starts outlives its time limit."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), kind, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=900)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, output[-6000:]


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)
    for opened in sockets:
        opened.close()
    return addresses


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("replicas")
    for name, ids in IDS.items():
        (path / name).write_text("".join(f"{number}\n" for number in ids))
    return path


@pytest.fixture(scope="module")
def results(folder):
    """Returns the programs' results: "mirrored", "worker0" and "worker1" -> name -> array."""
    run("all", folder, *free_addresses(2))
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


@pytest.mark.parametrize("process", ["mirrored", "worker0", "worker1"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_replicas_train_as_one(results, process, optimizer):
    """Weights, losses, metrics, predictions; uneven batches; adamw in three parts per replica."""
    one, several = f"one/{optimizer}/", f"several/{optimizer}/"
    expected = {
        name.removeprefix(one): value
        for name, value in results["mirrored"].items()
        if name.startswith(one)
    }
    assert expected["updates"] == 6
    if optimizer == OPTIMIZERS[0]:  # evaluation and prediction use none
        assert expected["predictions"].shape == (17, 2)
        assert {"score loss", "log val_loss", "on batch"} <= expected.keys()
    for name, value in expected.items():
        found = results[process][several + name]
        assert np.all(np.isfinite(found)), name
        np.testing.assert_allclose(found, value, **TOLERANCE, err_msg=name)


def test_the_first_worker_alone_is_the_chief(results):
    assert results["worker0"]["is chief"]
    assert not results["worker1"]["is chief"]


def test_workers_load_what_the_chief_alone_wrote(results):
    for worker in ("worker0", "worker1"):
        np.testing.assert_array_equal(results[worker]["loaded"], [-1.0] * 4)


def test_workers_wait_for_what_the_chief_writes_last(results):
    assert results["worker0"]["waited"]
    assert results["worker1"]["waited"]


def test_replicas_drop_other_units(results):
    """Half of a row is kept: a quarter by both replicas, half by one replica, a quarter by none."""
    np.testing.assert_allclose(results["mirrored"]["masks"], [0.25, 0.5, 0.25], atol=0.08)


def test_what_is_dropped_follows_from_seed_step_and_replica(results):
    """So one process's checkpoint is enough to resume exactly, even after uneven shares."""
    whole, resumed = results["mirrored"]["resumed_masks"]
    assert len(np.unique(whole)) > 3
    np.testing.assert_array_equal(whole, resumed)


def test_the_norm_that_is_clipped_is_that_of_the_whole_batch(results):
    expected = -0.6 * np.sqrt([0.5, 0.5])
    np.testing.assert_allclose(results["mirrored"]["clipped"][:2], expected, rtol=1e-6)


def test_a_batch_is_predicted_once(results):
    assert results["mirrored"]["clipped"][2] == 3


def test_replicas_agree_on_what_overflows(results):
    """Three steps without an update; each halves both replicas' scale."""
    np.testing.assert_array_equal(results["mirrored"]["overflown"], [0, 2**12, 2**12])


@pytest.mark.parametrize(
    ("kind", "batches"),
    [
        ("batches", [range(8), range(8, 16), range(16, 17)]),
        ("token batches", [range(5), range(5, 6), range(6, 10), range(10, 17)]),
        ("element", [range(4), range(4, 8), range(8, 12)]),
    ],
)
def test_replicas_share_each_batch(results, kind, batches):
    """Each row goes to one worker, and the batches are the same as on one replica."""
    pairs = [[number, row] for number, rows in enumerate(batches) for row in rows]
    of_workers = [results[f"worker{index}"][f"rows/{kind}"] for index in range(2)]
    assert results["mirrored"][f"rows/{kind}"].tolist() == pairs
    assert sorted(np.concatenate(of_workers).tolist()) == pairs
    sizes = [np.bincount(rows[:, 0], minlength=len(batches)) for rows in of_workers]
    for first, second in zip(*sizes, strict=True):
        assert abs(first - second) <= 1


def test_workers_read_their_own_files(results):
    rows = [results[f"worker{index}"]["rows/file"][:, 1].tolist() for index in range(2)]
    assert sorted(rows[0]) == [*IDS["ids-0.txt"], *IDS["ids-2.txt"]]
    assert sorted(rows[1]) == [*IDS["ids-1.txt"]]
    assert results["mirrored"]["rows/file"][:, 1].tolist() == list(range(12))


# A failure below means that Keras fixed a bug: remove its workaround in `distributed.prepare`.


@pytest.fixture(scope="module")
def stock(folder):
    """Returns what stock Keras does on two replicas in one process, and on two workers."""
    run("stock", folder, *free_addresses(2))
    return {path.stem: dict(np.load(path)) for path in folder.glob("stock*.npz")}


def test_stock_keras_cannot_accumulate_under_a_strategy(stock):
    """keras#20582."""
    assert "merge_call" in str(stock["stock"]["accumulated"])


def test_stock_keras_clips_what_each_replica_has(stock):
    """tensorflow#33929."""
    np.testing.assert_allclose(stock["stock"]["clipped"][:2], [-0.5, -0.5])


def test_stock_keras_drops_the_same_units_everywhere(stock):
    """keras#20611."""
    _, by_one, _ = stock["stock"]["masks"]
    assert by_one == 0


def test_stock_keras_asks_one_replica_what_overflows(stock):
    """keras#18666."""
    weight, *_ = stock["stock"]["overflown"]
    assert not np.isfinite(weight)


def test_stock_keras_predicts_a_batch_once_for_each_replica(stock):
    assert stock["stock"]["clipped"][2] == 2 * 3


def test_stock_keras_does_not_train_on_several_workers(stock):
    """keras#20585."""
    assert "PerReplica" in str(stock["stock_worker0"]["fit"])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_lower_precision_stays_near(folder, policy):
    """Tests how far a small model drifts from float32, on two replicas with accumulation."""
    if not (folder / "precision.npz").is_file():
        run("precision", folder)
    found = dict(np.load(folder / "precision.npz"))
    assert found[f"{policy}/updates"] == 6, "none was left out"
    for name in ("log loss", "log val_loss", "score loss", "predictions"):
        expected, value = found[f"float32/{name}"], found[f"{policy}/{name}"]
        assert np.all(np.isfinite(value))
        np.testing.assert_allclose(value, expected, rtol=0.02, atol=0.02, err_msg=name)
