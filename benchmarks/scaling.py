"""Estimates what an update costs at each scale: FLOPs, bytes between workers, bytes of input.

    python benchmarks/scaling.py > benchmarks/results/scaling.txt

The output has five parts:

1. Models. Parameters by formula; FLOPs counted by `keras_transformers.inspection` in models of one
   and two layers, since each layer adds the same; bytes of the gradients, float32 and dense, as
   `keras_transformers.training` sums them; bytes of a batch as `fit` receives it.
2. Processes on this machine: 1, 2 and 4 workers of MultiWorkerMirroredStrategy on loopback, one
   thread each, the shortest of 20 rounds. All-reduces of several sizes give latency and bandwidth
   by least squares. These and the time of a step without all-reduce predict the time with it, which
   is also measured. The workers share this machine's cores and memory, so this tests the form of
   the time model but not a network.
3. Eight simulated devices of JAX: FLOPs and all-reduced bytes of a device, as XLA compiled them,
   with those that part 1 counts; and the time of a step with the sum of its parts' times.
4. The time model for up to 1,024 accelerators: ring and hierarchical all-reduce, accumulation,
   input. It prints its assumptions, which you can change with options. With one accelerator, its
   time is compared with that measured on a GPU, from benchmarks/results/gpu.txt.
5. How often so many accelerators fail, and what checkpoints cost.

--assume-only leaves out parts 2 and 3, which measure.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np  # noqa: E402

GRADIENT_BYTES = 4  # float32 like the weights, even under mixed precision
STATE_BYTES = 12  # weights and Adam's two moments
SIZES = (2**16, 2**18, 2**20, 2**22)  # numbers that the workers sum
ROUNDS = 20
DEVICES = 8  # simulated
ROWS, LENGTH = 8, 64  # of the small model's batch
GPU_RESULTS = Path(__file__).with_name("results") / "gpu.txt"


@dataclasses.dataclass(frozen=True)
class Job:
    """A model and the batch of one accelerator.

    Attributes:
        name: name of the model.
        parameters: number of trainable parameters.
        batch: description of the batch.
        tokens: tokens in the batch; for pairs, only target tokens count.
        flops: FLOPs of an update, forward and backward.
        input_bytes: bytes of the arrays that `fit` receives.
    """

    name: str
    parameters: int
    batch: str
    tokens: int
    flops: int
    input_bytes: int


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Assumptions about the accelerators and their network, in bytes, FLOPs and seconds."""

    peak_flops: float
    utilisation: float
    per_node: int
    node_bandwidth: float
    network_bandwidth: float
    node_latency: float
    network_latency: float

    def ring(self, workers: int, size: float) -> float:
        """Returns the seconds of one ring through all nodes; the network is its slowest link."""
        if workers <= self.per_node:
            return ring_time(workers, size, self.node_bandwidth, self.node_latency)
        return ring_time(workers, size, self.network_bandwidth, self.network_latency)

    def hierarchical(self, workers: int, size: float) -> float:
        """Returns the seconds of sums within nodes, between nodes, and back: 2-D, or NCCL's trees.

        A node's accelerators send their parts at the same time and share its network.
        """
        inside = min(workers, self.per_node)
        nodes = math.ceil(workers / self.per_node)
        within = ring_time(inside, size, self.node_bandwidth, self.node_latency)
        return within + ring_time(nodes, size, self.network_bandwidth, self.network_latency)


def assumptions() -> dict[str, Any]:
    """Returns the default arguments of `Cluster`."""
    return {
        "peak_flops": 312e12,  # A100, bfloat16
        "utilisation": 0.4,
        "per_node": 8,
        "node_bandwidth": 200e9,
        "network_bandwidth": 25e9,  # of a node
        "node_latency": 5e-6,
        "network_latency": 20e-6,
    }


def ring_time(workers: int, size: float, bandwidth: float, latency: float) -> float:
    """Returns seconds for 2 (p - 1) messages of 1 / p of the bytes (Patarasuk & Yuan 2009)."""
    return 2 * (workers - 1) * (latency + size / workers / bandwidth)


def jobs() -> Iterator[Job]:
    """Yields the papers' three models that were trained at scale."""
    from keras_transformers import heads
    from keras_transformers.families.bert import model as berts
    from keras_transformers.families.transformer import model as transformers

    length, masked = 128, 20
    for name, rows in (("bert_base", 64), ("bert_large", 32)):
        size = berts.SIZES[name]

        def pretrainer(num_layers: int, size: dict[str, int] = size) -> Any:
            return heads.pretrainer(
                berts.bert(**size | {"num_layers": num_layers}, vocabulary_size=30522)
            )

        tokens = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), (rows, length))
        yield Job(
            name,
            berts.num_parameters(num_layers=size["num_layers"], hidden_dim=size["hidden_dim"])
            + heads.pretraining_parameters(vocabulary_size=30522, hidden_dim=size["hidden_dim"]),
            f"{rows} x {length} tokens, {masked} masked",
            rows * length,
            flops(pretrainer, size["num_layers"], {**tokens, "mask_positions": (rows, masked)}),
            # ids and segments int32, mask bool; positions, ids and weights of the masked; label
            rows * (length * (4 + 4 + 1) + masked * (4 + 4 + 4) + 4),
        )
    size, rows, length = transformers.SIZES["transformer_big"], 128, 32

    def translator(num_layers: int) -> Any:
        layers = {"num_encoder_layers": num_layers, "num_decoder_layers": num_layers}
        return transformers.transformer(**size | layers, vocabulary_size=37000)

    sides = dict.fromkeys(("source_token_ids", "target_token_ids"), (rows, length))
    yield Job(
        "transformer_big",
        transformers.num_parameters(**size),
        f"{rows} x {length} source, {length} target tokens",
        rows * length,
        flops(translator, size["num_encoder_layers"], sides),
        rows * length * (4 + 4 + 4 + 4),  # sources, targets in and out, weights
    )


def flops(
    build: Callable[[int], Any], num_layers: int, input_shapes: dict[str, tuple[int, ...]]
) -> int:
    """Returns the FLOPs of an update, extrapolated from one and two layers, which are all alike."""
    from keras_transformers.inspection import training_flops

    one, two = (training_flops(build(count), input_shapes) for count in (1, 2))
    return one + (num_layers - 1) * (two - one)


# Part 2: the same file runs in each worker and writes JSON to standard output.


def run_workers(num_workers: int) -> list[dict[str, Any]]:
    """Returns the measurements of one cluster's workers, the chief's first."""
    ports = [free_port() for _ in range(num_workers)]
    addresses = [f"localhost:{port}" for port in ports]
    processes = []
    for index in range(num_workers):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(task)}
        command = [sys.executable, __file__, "--worker"]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()  # no effect if it has ended
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a worker of {num_workers} failed: see its traceback above")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def work() -> None:
    """Runs one worker: times all-reduces, and a small model's steps with and without them."""
    import tensorflow as tf

    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    several = strategy.num_replicas_in_sync > 1  # one worker has nothing to sum
    start = tf.Variable(1.0)  # TensorFlow might sum a constant while tracing

    def total(values: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values) if several else values

    @tf.function
    def all_reduce(size: int) -> Any:
        return strategy.run(lambda: total(tf.fill((size,), start.read_value())))

    step, parameters = small_model(strategy, total)
    calls: dict[str, Callable[[], Any]] = {
        str(size): functools.partial(all_reduce, size) for size in SIZES
    }
    calls |= {"alone": lambda: step(False), "together": lambda: step(True)}
    found = timed(calls, lambda: all_reduce(1))
    print(json.dumps(found | {"parameters": parameters}))


def small_model(strategy: Any, total: Callable[[Any], Any]) -> tuple[Callable[[bool], Any], int]:
    """Returns a step of a small BERT by gradient descent, and its number of parameters."""
    import tensorflow as tf

    with strategy.scope():
        model = small_pretrainer()
    inputs = {name: tf.constant(value) for name, value in ones().items()}
    weights = model.trainable_variables

    def on_replica(reduces: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True)["mask_logits"]))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights) if g is not None]
        gradients = total(gradients) if reduces else gradients
        return tf.add_n([tf.reduce_sum(gradient) for gradient in gradients])

    @tf.function
    def step(reduces: bool) -> Any:
        return strategy.run(on_replica, args=(reduces,))

    return step, sum(math.prod(weight.shape) for weight in weights)


def small_pretrainer() -> Any:
    from keras_transformers import heads
    from keras_transformers.families.bert import model as berts

    return heads.pretrainer(
        berts.bert(vocabulary_size=8000, num_layers=2, num_heads=2, hidden_dim=128)
    )


def ones() -> dict[str, np.ndarray]:
    """Returns inputs of the small model."""
    tokens = np.ones((ROWS, LENGTH), "int32")
    return {
        "token_ids": tokens,
        "segment_ids": tokens,
        "padding_mask": tokens == 1,
        "mask_positions": tokens[:, :8],
    }


def timed(calls: Mapping[str, Callable[[], Any]], wait: Callable[[], Any]) -> dict[str, float]:
    """Returns the shortest time of each call in seconds; all workers start each call together.

    The shortest counts, because other work on the machine can only add to a time.
    """
    least = dict.fromkeys(calls, math.inf)
    for round_number in range(ROUNDS + 1):
        for name, call in calls.items():
            wait()
            started = time.perf_counter()
            call()
            if round_number:  # the first traces
                least[name] = min(least[name], time.perf_counter() - started)
    wait()  # no worker exits while another still needs it
    return least


def fitted(measured: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """Fits latency and bandwidth to (workers, bytes, seconds), by relative least squares."""
    rows = [(2 * (p - 1) / t, 2 * (p - 1) / p * size / t) for p, size, t in measured]
    latency, per_byte = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
    return float(latency), float(1 / per_byte)


def report_processes() -> None:
    found = {workers: run_workers(workers) for workers in (1, 2, 4)}
    print("\n2. Processes on this machine, MultiWorkerMirroredStrategy on loopback, a thread each")
    print(f"   {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    points = [
        (workers, size * GRADIENT_BYTES, max(one[str(size)] for one in each))
        for workers, each in found.items()
        if workers > 1
        for size in SIZES
    ]
    latency, bandwidth = fitted(points)
    print(f"   all-reduce: latency {latency * 1e3:.2f} ms a message, {bandwidth / 1e6:.0f} MB/s")
    print("   workers   MB    measured ms   model ms")
    for workers, size, seconds in points:
        model = ring_time(workers, size, bandwidth, latency)
        print(f"   {workers:7}  {size / 1e6:5.2f}  {seconds * 1e3:10.1f} {model * 1e3:10.1f}")
    print("   a step of a small BERT, 8 x 64 tokens a worker; `alone` is without all-reduce")
    print("   workers  parameters  alone ms  predicted ms  measured ms  error")
    for workers, each in found.items():
        alone, together = (max(one[name] for one in each) for name in ("alone", "together"))
        size = each[0]["parameters"] * GRADIENT_BYTES
        predicted = alone + ring_time(workers, size, bandwidth, latency)
        print(
            f"   {workers:7} {each[0]['parameters']:11,}  {alone * 1e3:8.1f}  "
            f"{predicted * 1e3:12.1f}  {together * 1e3:11.1f}  {predicted / together - 1:+.0%}"
        )


# Part 3: the same file runs once more, on JAX with eight devices of the host.


def report_devices() -> None:
    """Compares a step on eight simulated devices with what the model of time counts and adds up."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    environment = os.environ | {"KERAS_BACKEND": "jax", "XLA_FLAGS": flags}
    command = [sys.executable, __file__, "--devices"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"\n3. {DEVICES} simulated devices of JAX, a small BERT, {ROWS} x {LENGTH} tokens each")
    print("                             predicted    of the program  error")
    for name, (predicted, actual) in found["counts"].items():
        print(f"   {name:24} {predicted:12,}  {actual:16,}  {predicted / actual - 1:+.1%}")
    alone, summing, together = (found[name] for name in ("alone", "all-reduce", "together"))
    print("   step alone ms  all-reduce ms  predicted ms  measured ms  error")
    print(
        f"   {alone * 1e3:13.1f}  {summing * 1e3:13.1f}  {(alone + summing) * 1e3:12.1f}"
        f"  {together * 1e3:11.1f}  {(alone + summing) / together - 1:+.0%}"
    )


def measure_devices() -> None:
    """Writes what a step on simulated devices computes, sends and takes, as JSON."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    from keras_transformers.inspection import training_flops

    model = small_pretrainer()
    weights = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]
    inputs = {
        name: np.ones((DEVICES * x.shape[0], *x.shape[1:]), x.dtype) for name, x in ones().items()
    }

    def loss(weights: Any, inputs: Any) -> Any:
        outputs, _ = model.stateless_call(weights, others, inputs, training=True)
        return sum((output**2).mean() for output in outputs.values())

    def step(weights: Any, inputs: Any, *, sums: bool) -> Any:
        gradients = jax.grad(loss)(weights, inputs)
        if sums:
            gradients = jax.lax.psum(gradients, "batch")
        return [w - 0.01 * gradient for w, gradient in zip(weights, gradients, strict=True)]

    mesh, whole, part = Mesh(jax.devices(), "batch"), PartitionSpec(), PartitionSpec("batch")

    def compiled(function: Callable[..., Any], *arguments: Any, specs: Any) -> Any:
        mapped = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=whole, check_vma=False
        )
        return jax.jit(mapped).lower(*arguments).compile()

    programs = {
        name: functools.partial(
            compiled(functools.partial(step, sums=sums), weights, inputs, specs=(whole, part)),
            weights,
            inputs,
        )
        for name, sums in (("alone", False), ("together", True))
    }
    total = compiled(lambda xs: jax.lax.psum(xs, "batch"), weights, specs=(whole,))
    programs["all-reduce"] = functools.partial(total, weights)
    calls = {
        name: lambda program=program: jax.block_until_ready(program())
        for name, program in programs.items()
    }
    found: dict[str, Any] = timed(calls, lambda: None)
    text = programs["together"].func.as_text()
    shapes = {name: x.shape for name, x in ones().items()}
    found["counts"] = {
        "FLOPs of the products": (training_flops(model, shapes), product_flops(text)),
        "bytes all-reduced": (model.count_params() * GRADIENT_BYTES, all_reduced_bytes(text)),
    }
    print(json.dumps(found))


def product_flops(program: str) -> int:
    """Counts the operations of the matrix products in the text of a program of XLA."""
    shapes = {
        name: [int(size) for size in sizes.split(",") if size]
        for name, sizes in re.findall(r"%?([\w.-]+) = \w+\[([\d,]*)\]", program)
    }
    products = re.findall(
        r"%?([\w.-]+) = \S+ dot\((?:\S+ )?%?([\w.-]+), .*?lhs_contracting_dims={([\d,]*)}", program
    )
    return sum(
        2 * math.prod(shapes[name]) * math.prod(shapes[left][int(axis)] for axis in axes.split(","))
        for name, left, axes in products
    )


def all_reduced_bytes(program: str) -> int:
    """Counts the bytes that the all-reduces in the text of a program of XLA sum."""
    results = re.findall(r"^.*? = (.*) all-reduce(?:-start)?\(", program, re.MULTILINE)
    sizes = re.findall(r"f32\[([\d,]*)\]", " ".join(results))
    return GRADIENT_BYTES * sum(math.prod(int(x) for x in s.split(",") if x) for s in sizes)


def report_models(found: Sequence[Job]) -> None:
    print("1. An update on one accelerator's batch")
    print("   model            parameters  all-reduced MB  TFLOPs  MFLOPs/token  input KB  batch")
    for job in found:
        print(
            f"   {job.name:15} {job.parameters:11,}  {job.parameters * GRADIENT_BYTES / 1e6:14.1f}"
            f"  {job.flops / 1e12:6.3f}  {job.flops / job.tokens / 1e6:12.1f}"
            f"  {job.input_bytes / 1e3:8.1f}  {job.batch}"
        )


def report_scale(found: Sequence[Job], cluster: Cluster) -> None:
    print("\n4. The model of time: compute + all-reduce after it, nothing overlapped")
    print("   assumed: " + ", ".join(f"{k} {v:g}" for k, v in vars(cluster).items()))
    for job in found:
        size = job.parameters * GRADIENT_BYTES
        compute = job.flops / cluster.peak_flops / cluster.utilisation
        print(f"   {job.name}: compute {compute * 1e3:.1f} ms; efficiency = compute / step")
        print(
            "   workers  tokens/update  ring ms  hierarchical ms  efficiency: ring  hierarchical  "
            "and accumulate 8  input MB/s/node"
        )
        for workers in (1, 8, 64, 256, 1024):
            ring, tree = cluster.ring(workers, size), cluster.hierarchical(workers, size)
            seconds = compute + tree
            feed = min(workers, cluster.per_node) * job.input_bytes / seconds
            print(
                f"   {workers:7}  {workers * job.tokens:13,}  {ring * 1e3:7.1f}  {tree * 1e3:15.1f}"
                f"  {compute / (compute + ring):16.0%}  {compute / seconds:12.0%}"
                f"  {8 * compute / (8 * compute + tree):16.0%}  {feed / 1e6:15.2f}"
            )


def report_gpu(found: Sequence[Job], utilisation: float) -> None:
    """Compares the time of an update on one accelerator with that measured on a GPU.

    The FLOPs are those of the code that was measured, which its share of the peak gives.
    """
    text = GPU_RESULTS.read_text("utf-8")
    peak = float(re.search(r"peak (\d+) TFLOP/s", text)[1]) * 1e12
    print(f"   one GPU of {peak:g} FLOP/s, measured in {GPU_RESULTS.name}")
    print("   model            batch x length  TFLOPs  predicted ms  measured ms  error")
    for job in found:
        row = re.search(
            rf"^{job.name} +(\d+ x \d+) +[\d,]+ +([\d.]+) +[\d,]+ +[\d.]+ % +([\d.]+) %",
            text,
            re.MULTILINE,
        )
        if row is None:
            continue
        measured, share = float(row[2]), float(row[3]) / 100
        predicted = measured * share / utilisation
        print(
            f"   {job.name:15} {row[1]:>15}  {share * peak * measured / 1e15:6.1f}"
            f"  {predicted:12.1f}  {measured:11.1f}  {predicted / measured - 1:+.0%}"
        )


def report_failures(found: Sequence[Job], failures_per_day: float, disk: float) -> None:
    print("\n5. Interruptions and checkpoints")
    print(
        f"   assumed: {failures_per_day:g} interruptions per accelerator and day (Llama 3, section "
        f"3.3.4: 419 in 54 days of 16,384), {disk / 1e9:g} GB/s to the disk"
    )
    print("   model            checkpoint GB  write s  hours between stops  save every (Young) min")
    for job in found:
        state = job.parameters * STATE_BYTES
        write, between = state / disk, 86400 / failures_per_day / 1024
        print(
            f"   {job.name:15} {state / 1e9:14.2f}  {write:7.1f}  {between / 3600:19.1f}"
            f"  {math.sqrt(2 * write * between) / 60:22.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--assume-only", action="store_true", help="measure nothing")
    for name in ("--worker", "--devices"):  # what runs in other processes
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    assumed = assumptions()
    for name, value in assumed.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--failures-per-day", type=float, default=419 / 54 / 16384)
    parser.add_argument("--disk", type=float, default=1e9, help="bytes per second")
    arguments = vars(parser.parse_args())
    for name in (*assumed, "failures_per_day", "disk"):
        value, may_be_zero = arguments[name], name.endswith("latency")
        if value < 0 or (value == 0 and not may_be_zero):
            least = "of at least" if may_be_zero else "above"
            parser.error(f"--{name.replace('_', '-')} {value}: use a number {least} 0")
    if arguments["worker"]:
        work()
        return
    if arguments["devices"]:
        measure_devices()
        return
    found = list(jobs())
    report_models(found)
    if not arguments["assume_only"]:
        report_processes()
        report_devices()
    report_scale(found, Cluster(**{name: arguments[name] for name in assumed}))
    report_gpu(found, arguments["utilisation"])
    report_failures(found, arguments["failures_per_day"], arguments["disk"])


if __name__ == "__main__":
    main()
