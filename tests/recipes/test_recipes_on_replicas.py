"""Recipes on two replicas, in one process and in two, give the figures of one replica."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Makes two devices in one process, then runs the recipe like a command.
ON_TWO_DEVICES = """
import runpy, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WORDS = ["good", "great", "fine", "warm", "bad", "dull", "poor", "cold"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences whose first word determines the label, and text for pretraining."""
    tmp_path = tmp_path_factory.mktemp("recipes")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text(
        "\n".join([*special, *WORDS, "a", "film", "the", "plot"]) + "\n"
    )
    rows = [
        f"{word} {['a film', 'the plot'][i % 2]} {'a ' * i}\t{'yes' if w < 4 else 'no'}"
        for w, word in enumerate(WORDS)
        for i in range(5)
    ]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    documents = [
        "\n".join(f"the {one} film is near the {other} plot." for _ in range(4))
        for one in WORDS
        for other in WORDS
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n", "utf-8")
    return tmp_path


def classification(folder):
    return {
        "train_file": folder / "train.tsv",
        "dev_file": folder / "train.tsv",
        "test_file": folder / "train.tsv",
        "model": "bert_tiny",
        "vocabulary": folder / "vocab.txt",
        "dropout": 0.0,
        "epochs": 2,
        "batch_size": 12,  # the last of 40 examples has 4
        "max_sequence_length": 16,
    }


def pretrain_bert(folder):
    return {
        "data": folder / "text.txt",
        "dev_fraction": 0.2,
        "vocabulary_size": 120,
        "dupe_factor": 1,
        "num_layers": 1,
        "hidden_dim": 32,
        "dropout": 0.0,
        "epochs": 2,
        "steps_per_epoch": 2,
        "phase_1_length": 16,
        "phase_2_length": 16,
        "batch_size": 7,
    }


def start(recipe, options, *, devices):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    path = str(ROOT / "recipes" / f"{recipe.__name__}.py")
    program = [path] if devices == 1 else ["-c", ON_TWO_DEVICES, path]
    return subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def figures(recipe, folder, name, *, devices=1, workers=0, **changes):
    """Returns the losses and accuracies of each epoch of a run, from its metrics.json."""
    options = recipe(folder) | {"name": name, "runs_dir": folder / "runs"} | changes
    processes = []
    if workers:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
        addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
        for opened in sockets:
            opened.close()
        for index in range(workers):
            config = {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            }
            os.environ["TF_CONFIG"] = json.dumps(config)
            processes.append(start(recipe, options, devices=1))
        del os.environ["TF_CONFIG"]
    else:
        processes.append(start(recipe, options, devices=devices))
    try:
        for process in processes:
            output, _ = process.communicate(timeout=900)
            assert process.returncode == 0, output[-4000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    metrics = json.loads((folder / "runs" / name / "metrics.json").read_text())
    # Figures of speed are left out.
    return [
        {k: v for k, v in epoch.items() if "loss" in k or "accuracy" in k}
        for epoch in metrics["epochs"]
    ]


@pytest.fixture(scope="module")
def of_one(folder):
    """Returns a recipe's figures on one replica, trained once for all strategies."""
    return functools.cache(lambda recipe: figures(recipe, folder, f"{recipe.__name__}_on_one"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored", "multi_worker"])
@pytest.mark.parametrize("recipe", [classification, pretrain_bert])
def test_two_replicas_have_the_figures_of_one(folder, of_one, recipe, strategy):
    name = f"{recipe.__name__}_{strategy}"
    if strategy == "multi_worker":
        export = folder / "exported" / recipe.__name__ / "1"  # by the chief; the other waits
        several = figures(recipe, folder, name, workers=2, strategy=strategy, export=export)
        assert (export / "saved_model.pb").is_file()
    else:
        half = recipe(folder)["batch_size"] // 2
        size = {"batch_size": half, "accumulate": 2} if recipe is classification else {}
        several = figures(recipe, folder, name, devices=2, strategy=strategy, **size)
    one = of_one(recipe)
    assert one[0].keys() == several[0].keys()
    for found, expected in zip(several, one, strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_two_replicas_train_with_static_shapes(folder, of_one):
    """Each replica's batches have one shape; rows that only fill them weigh nothing."""
    static = {"strategy": "mirrored", "static_shapes": 1}
    several = figures(classification, folder, "static_on_two", devices=2, **static)
    for found, expected in zip(several, of_one(classification), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
