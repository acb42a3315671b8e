"""Finds the machines that train together and sets TF_CONFIG, which TensorFlow reads.

The list comes from flags, from TF_CONFIG itself, from SLURM or from an indexed Kubernetes job.
Worker 0 is always the chief, which writes the files.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence

__all__ = ["Cluster"]

VARIABLE = "TF_CONFIG"
PORT = 12345  # the default port of a worker

_SPAN = r"\d+(?:-\d+)?"
_HOSTS = rf"(?=[^,])([^,\[\]]*)(?:\[({_SPAN}(?:,{_SPAN})*)\]([^,\[\]]*))?"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Lists the workers that train together, and this process's place among them.

    Attributes:
        workers: host:port of each worker, in the same order on every machine.
        worker_index: the index of this process, from 0.

    Raises:
        ValueError: there are no workers, a worker is not a host:port or occurs twice, or the index
            is out of range.
    """

    workers: tuple[str, ...]
    worker_index: int

    def __post_init__(self) -> None:
        if not self.workers:
            raise ValueError("the cluster has no workers: pass each as host:port")
        for worker in self.workers:
            host, _, port = worker.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"worker {worker!r}: expected host:port, such as node1:{PORT}")
        if len(set(self.workers)) < len(self.workers):
            twice = sorted({worker for worker in self.workers if self.workers.count(worker) > 1})
            raise ValueError(
                f"worker {', '.join(twice)} occurs twice: use one port per worker on a host"
            )
        if not 0 <= self.worker_index < len(self.workers):
            raise ValueError(
                f"worker index {self.worker_index} of {len(self.workers)} workers: expected 0 to "
                f"{len(self.workers) - 1}"
            )

    def config(self) -> str:
        """Returns the value for TF_CONFIG."""
        task = {"type": "worker", "index": self.worker_index}
        return json.dumps({"cluster": {"worker": list(self.workers)}, "task": task})


def join(workers: Sequence[str], worker_index: int | None) -> Cluster:
    """Finds this process's cluster and sets TF_CONFIG for TensorFlow.

    Looks at the flags first, then TF_CONFIG, SLURM and Kubernetes.

    Args:
        workers: value of --workers; empty if not given.
        worker_index: value of --worker-index; None if not given.

    Raises:
        ValueError: no cluster is described, or its description is incomplete or wrong.
    """
    if workers or worker_index is not None:
        if not workers or worker_index is None:
            raise ValueError("--workers and --worker-index: pass both or neither")
        cluster = Cluster(tuple(workers), worker_index)
    else:
        described = from_environment() or from_slurm() or from_kubernetes()
        if described is None:
            raise ValueError(
                "--strategy multi_worker: no workers found. Pass --workers host:port host:port ... "
                f"and --worker-index, set {VARIABLE}, or start with SLURM's srun or as an indexed "
                "Kubernetes job (docs/distributed_training.md)"
            )
        cluster = described
    os.environ[VARIABLE] = cluster.config()
    return cluster


def from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster that TF_CONFIG describes, or None if it is not set.

    A separate chief counts as the first worker.

    Raises:
        ValueError: TF_CONFIG is malformed, or this process is neither a worker nor the chief.
    """
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        config = json.loads(text)
        if not config.get("cluster"):
            return None
        chiefs = tuple(config["cluster"].get("chief", ()))
        workers = (*chiefs, *config["cluster"].get("worker", ()))
        kind, index = config["task"]["type"], int(config["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{VARIABLE}={text!r}: not in TensorFlow's format ({error!r}), such as "
            f"{Cluster(('node0:1', 'node1:1'), 0).config()}"
        ) from error
    if kind not in ("chief", "worker"):
        raise ValueError(
            f"{VARIABLE}: this process is a {kind!r}; it must be a worker or the chief"
        )
    return Cluster(workers, index + (len(chiefs) if kind == "worker" else 0))


def from_slurm(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster of a SLURM step, one worker per task, or None outside a step.

    Tasks on one node listen on consecutive ports. Hosts stay in SLURM's order. TensorFlow's
    SlurmClusterResolver sorts them by name: gpu10 comes before gpu9, and indices differ from
    SLURM_PROCID.

    Raises:
        ValueError: SLURM's variables contradict each other.
    """
    if "SLURM_PROCID" not in environment or "SLURM_STEP_NODELIST" not in environment:
        return None
    hosts = expand_hosts(environment["SLURM_STEP_NODELIST"])
    tasks = _tasks(environment.get("SLURM_STEP_TASKS_PER_NODE", "1"), len(hosts))
    workers = [
        f"{host}:{PORT + task}"
        for host, count in zip(hosts, tasks, strict=True)
        for task in range(count)
    ]
    return Cluster(tuple(workers), _number(environment, "SLURM_PROCID"))


def from_kubernetes(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster of an indexed Kubernetes job, or None outside such a job.

    Kubernetes sets JOB_COMPLETION_INDEX. The manifest sets JOB_NAME, JOB_SERVICE (the job's
    headless service) and JOB_WORKERS (their number): see docs/kubernetes/train.yaml.

    Raises:
        ValueError: a variable is missing or is not a number.
    """
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    missing = sorted({"JOB_NAME", "JOB_SERVICE", "JOB_WORKERS"} - environment.keys())
    if missing:
        raise ValueError(
            f"JOB_COMPLETION_INDEX is set, but not {', '.join(missing)}: set all of them in the "
            "manifest, as docs/kubernetes/train.yaml does"
        )
    job, service = environment["JOB_NAME"], environment["JOB_SERVICE"]
    count = _number(environment, "JOB_WORKERS")
    workers = tuple(f"{job}-{index}.{service}:{PORT}" for index in range(count))
    return Cluster(workers, _number(environment, "JOB_COMPLETION_INDEX"))


def expand_hosts(text: str) -> list[str]:
    """Expands a SLURM host list.

    Raises:
        ValueError: it is malformed.

    Example:
        >>> expand_hosts("gpu[01-03,7],login")
        ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    hosts: list[str] = []
    malformed = ValueError(f"{text!r} is not a list of nodes such as gpu[01-03,7],login")
    if not re.fullmatch(f"{_HOSTS}(?:,{_HOSTS})*", text):
        raise malformed
    for prefix, spans, suffix in re.findall(_HOSTS, text):
        if not spans:
            hosts.append(prefix)
        for first, last in re.findall(r"(\d+)-?(\d*)", spans):
            numbers = range(int(first), int(last or first) + 1)
            if not numbers:
                raise malformed
            hosts += [f"{prefix}{number:0{len(first)}}{suffix}" for number in numbers]
    return hosts


def _tasks(text: str, num_hosts: int) -> list[int]:
    """Returns the number of tasks on each node: [2, 2, 2, 1] for "2(x3),1"."""
    tasks: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if not match:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE={text!r}: expected a list such as 2(x3),1")
        tasks += [int(match[1])] * int(match[2] or 1)
    if len(tasks) != num_hosts:
        raise ValueError(
            f"SLURM_STEP_TASKS_PER_NODE={text!r} is for {len(tasks)} nodes, SLURM_STEP_NODELIST "
            f"for {num_hosts}"
        )
    return tasks


def _number(environment: Mapping[str, str], name: str) -> int:
    if not environment[name].isdigit():
        raise ValueError(f"{name}={environment[name]!r} is not a number")
    return int(environment[name])
