"""Which machines train together: TF_CONFIG from flags, SLURM, Kubernetes."""

import json
import os

import pytest

from keras_transformers.runs import clusters
from keras_transformers.runs.clusters import Cluster

WORKERS = ("node1:2222", "node2:2222", "node3:2222")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Starts without a cluster, and undoes what `join` sets."""
    names = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "JOB_COMPLETION_INDEX")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(clusters.VARIABLE, "")


def test_flags():
    cluster = clusters.join(WORKERS, 2)
    assert json.loads(os.environ["TF_CONFIG"]) == {
        "cluster": {"worker": list(WORKERS)},
        "task": {"type": "worker", "index": 2},
    }
    assert clusters.from_environment() == cluster == Cluster(WORKERS, 2)


def test_flags_come_before_the_environment(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", Cluster(("other:1",), 0).config())
    assert clusters.join(WORKERS, 1) == Cluster(WORKERS, 1)
    assert clusters.join((), None) == Cluster(WORKERS, 1), "which flags set"


def test_a_separate_chief_is_the_first_worker():
    tasks = {"chief": 0, "worker": 1}
    for kind, place in tasks.items():
        config = {
            "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
            "task": {"type": kind, "index": 0},
        }
        found = clusters.from_environment({"TF_CONFIG": json.dumps(config)})
        assert found == Cluster(("a:1", "b:1", "c:1"), place)


def test_slurm():
    environment = {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NODELIST": "gpu[08-10],big",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2),2,1",
    }
    expected = ("gpu08:12345", "gpu09:12345", "gpu10:12345", "gpu10:12346", "big:12345")
    assert clusters.from_slurm(environment) == Cluster(expected, 3)
    assert clusters.from_slurm({"SLURM_JOB_ID": "7"}) is None


def test_kubernetes():
    environment = {
        "JOB_COMPLETION_INDEX": "1",
        "JOB_NAME": "train",
        "JOB_SERVICE": "workers",
        "JOB_WORKERS": "2",
    }
    expected = Cluster(("train-0.workers:12345", "train-1.workers:12345"), 1)
    assert clusters.from_kubernetes(environment) == expected
    assert clusters.from_kubernetes({"JOB_NAME": "train"}) is None
    del environment["JOB_SERVICE"]
    with pytest.raises(ValueError, match="JOB_COMPLETION_INDEX.*JOB_SERVICE"):
        clusters.from_kubernetes(environment)
    environment |= {"JOB_SERVICE": "workers", "JOB_WORKERS": "two"}
    with pytest.raises(ValueError, match="JOB_WORKERS='two'.*number"):
        clusters.from_kubernetes(environment)


@pytest.mark.parametrize(
    ("workers", "index", "message"),
    [
        ((), None, "no workers found. Pass --workers host:port"),
        (WORKERS, None, "--workers and --worker-index: pass both"),
        ((), 1, "--workers and --worker-index: pass both"),
        (WORKERS, 3, "worker index 3 of 3 workers: expected 0 to 2"),
        (WORKERS, -1, "worker index -1 of 3 workers"),
        (("node1", "node2"), 0, "worker 'node1': expected host:port"),
        (("node1:70000",), 0, "worker 'node1:70000': expected host:port"),
        (("a:1", "b:1", "a:1"), 0, "worker a:1 occurs twice"),
    ],
)
def test_wrong_flags_are_named(workers, index, message):
    with pytest.raises(ValueError, match=message):
        clusters.join(workers, index)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker0", "not in TensorFlow's format"),
        ('{"cluster": {"worker": ["a:1"]}}', "not in TensorFlow's format .KeyError.'task'"),
        ('["a:1"]', "not in TensorFlow's format"),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
            "'ps'.*worker or the chief",
        ),
        (
            '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}',
            "expected host:port",
        ),
    ],
)
def test_a_wrong_variable_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        clusters.from_environment({"TF_CONFIG": text})


def test_lists_of_nodes():
    assert clusters.expand_hosts("rack[9-10]-ib,a-1.b") == ["rack9-ib", "rack10-ib", "a-1.b"]


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,", "gpu[1-", "gpu[a-b]", "gpu[3-1]", "gpu[1,]", "gpu[1,3-2]", "gpu]", "g[]"],
)
def test_a_wrong_list_of_nodes_is_named(text):
    with pytest.raises(ValueError, match="not a list"):
        clusters.expand_hosts(text)


def test_slurm_that_contradicts_itself():
    environment = {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "gpu[1-3]"}
    with pytest.raises(ValueError, match="2 nodes, SLURM_STEP_NODELIST.*3"):
        clusters.from_slurm(environment | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)"})
    with pytest.raises(ValueError, match="expected a list such as"):
        clusters.from_slurm(environment | {"SLURM_STEP_TASKS_PER_NODE": "2x3"})
