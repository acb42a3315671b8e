"""Which machines train together: what TensorFlow wants to know in the variable TF_CONFIG.

It comes from flags, from SLURM, from an indexed job of Kubernetes, or is there already. In all of
them worker 0 is the chief: it writes the files.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence

VARIABLE = "TF_CONFIG"
PORT = 12345  # where a worker listens if nothing says otherwise


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a training, and which of them this process is.

    Attributes:
        workers: host:port of each, in the same order everywhere.
        worker_index: this one's place among them, from 0.

    Raises:
        ValueError: no workers, one that is no host:port or comes twice, or an index beyond them.
    """

    workers: tuple[str, ...]
    worker_index: int

    def __post_init__(self) -> None:
        if not self.workers:
            raise ValueError("a cluster of no workers: name each as host:port")
        for worker in self.workers:
            host, _, port = worker.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f"worker {worker!r} is no host:port, such as node1:{PORT}")
        if len(set(self.workers)) < len(self.workers):
            twice = sorted({worker for worker in self.workers if self.workers.count(worker) > 1})
            raise ValueError(f"worker {', '.join(twice)} comes twice: two on a host need two ports")
        if not 0 <= self.worker_index < len(self.workers):
            raise ValueError(
                f"worker index {self.worker_index} of {len(self.workers)} workers: give 0 to "
                f"{len(self.workers) - 1}"
            )

    def config(self) -> str:
        """What TF_CONFIG is to be."""
        task = {"type": "worker", "index": self.worker_index}
        return json.dumps({"cluster": {"worker": list(self.workers)}, "task": task})


def join(workers: Sequence[str], worker_index: int | None) -> Cluster:
    """Finds out which cluster this process belongs to, and sets TF_CONFIG for TensorFlow.

    Flags come first, then TF_CONFIG, then SLURM, then Kubernetes.

    Args:
        workers: as given by flags; empty where none were.
        worker_index: likewise; None where it was not.

    Raises:
        ValueError: what is given is incomplete or wrong, or nothing is.
    """
    if workers or worker_index is not None:
        if not workers or worker_index is None:
            raise ValueError("--workers and --worker-index: give both, or neither")
        cluster = Cluster(tuple(workers), worker_index)
    else:
        found = from_environment() or from_slurm() or from_kubernetes()
        if found is None:
            raise ValueError(
                "--strategy multi_worker: which machines? Give --workers host:port host:port ... "
                f"and --worker-index, or set {VARIABLE}, or start it by SLURM's srun or as an "
                "indexed job of Kubernetes (docs/distributed_training.md)"
            )
        cluster = found
    os.environ[VARIABLE] = cluster.config()
    return cluster


def from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """The cluster that TF_CONFIG describes; None where it is not set.

    A cluster with a chief of its own has that as its first worker.

    Raises:
        ValueError: it is no JSON of that kind, or this process is no worker of it.
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
            f"{VARIABLE}={text!r}: not what TensorFlow reads there ({error!r}), such as "
            f"{Cluster(('node0:1', 'node1:1'), 0).config()}"
        ) from error
    if kind not in ("chief", "worker"):
        raise ValueError(f"{VARIABLE}: this process is a {kind!r}, must be a worker or the chief")
    return Cluster(workers, index + (len(chiefs) if kind == "worker" else 0))


def from_slurm(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """The cluster of a SLURM step, a worker a task; None outside of one.

    Tasks of one node listen on ports one after the other.

    Raises:
        ValueError: SLURM's variables do not belong together.
    """
    if "SLURM_PROCID" not in environment or "SLURM_STEP_NODELIST" not in environment:
        return None
    hosts = expand_hosts(environment["SLURM_STEP_NODELIST"])
    tasks = _tasks(environment.get("SLURM_STEP_TASKS_PER_NODE", "1"), len(hosts))
    workers = [
        f"{host}:{PORT + place}"
        for host, count in zip(hosts, tasks, strict=True)
        for place in range(count)
    ]
    return Cluster(tuple(workers), _number(environment, "SLURM_PROCID"))


def from_kubernetes(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """The cluster of an indexed job of Kubernetes; None outside of one.

    Kubernetes sets JOB_COMPLETION_INDEX; JOB_NAME, JOB_SERVICE (a headless service of that job) and
    JOB_WORKERS (how many) stand in the manifest, see docs/kubernetes/train.yaml.

    Raises:
        ValueError: one of them is missing, or no number.
    """
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    missing = sorted({"JOB_NAME", "JOB_SERVICE", "JOB_WORKERS"} - environment.keys())
    if missing:
        raise ValueError(
            f"JOB_COMPLETION_INDEX is set and {', '.join(missing)} not: set all in the manifest, "
            "as docs/kubernetes/train.yaml does"
        )
    job, service = environment["JOB_NAME"], environment["JOB_SERVICE"]
    count = _number(environment, "JOB_WORKERS")
    workers = tuple(f"{job}-{index}.{service}:{PORT}" for index in range(count))
    return Cluster(workers, _number(environment, "JOB_COMPLETION_INDEX"))


def expand_hosts(text: str) -> list[str]:
    """SLURM's short form of host names, such as "gpu[01-03,7],login", written out.

    Raises:
        ValueError: it is none.

    Example:
        >>> expand_hosts("gpu[01-03,7],login")
        ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    hosts: list[str] = []
    items = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if not text or ",".join(items) != text:
        raise ValueError(f"{text!r}: not a list of nodes that this reads")
    for item in items:
        match = re.fullmatch(r"([^\[\]]*)\[([\d,-]+)\]([^\[\]]*)|[^\[\]]+", item)
        if not match:
            raise ValueError(f"{text!r}: not a list of nodes that this reads, at {item!r}")
        if match[2] is None:
            hosts.append(item)
            continue
        for span in match[2].split(","):
            first, _, last = span.partition("-")
            if not first or (last and int(last) < int(first)):
                raise ValueError(f"{text!r}: not a list of nodes that this reads, at {span!r}")
            numbers = range(int(first), int(last or first) + 1)
            hosts += [f"{match[1]}{number:0{len(first)}}{match[3]}" for number in numbers]
    return hosts


def _tasks(text: str, num_hosts: int) -> list[int]:
    """SLURM's "2(x3),1", tasks of each node, as [2, 2, 2, 1]."""
    tasks: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if not match:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE={text!r}: expected such as 2(x3),1")
        tasks += [int(match[1])] * int(match[2] or 1)
    if len(tasks) != num_hosts:
        raise ValueError(
            f"SLURM_STEP_TASKS_PER_NODE={text!r} is of {len(tasks)} nodes, SLURM_STEP_NODELIST of "
            f"{num_hosts}"
        )
    return tasks


def _number(environment: Mapping[str, str], name: str) -> int:
    if not environment[name].isdigit():
        raise ValueError(f"{name}={environment[name]!r} is no number")
    return int(environment[name])
