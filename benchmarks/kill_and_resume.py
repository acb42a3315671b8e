"""Kills a training run at random moments and checks that its final weights are unaffected.

    python benchmarks/kill_and_resume.py
    python benchmarks/kill_and_resume.py --signal TERM

Trains a tiny classifier twice with `runs.Run`: once uninterrupted, and once with several kill -9,
each at a random moment of a random step, even while a checkpoint is being written. The training run
has dropout, an optimizer with moments and averaged weights, a learning rate schedule, a shuffled
dataset, metrics, validation and early stopping. If there are several workers, all are killed. With
`--signal TERM` one or all of them get SIGTERM instead, every third time before training starts; all
must exit with status 75, and no finished step may be lost.

Prints where each run resumed and was killed, and how much the weights, the optimizer's variables
and the epochs' metrics differ at the end; the exit status is 1 if they differ. Operations are
deterministic; the replicas are two logical CPUs, the workers two processes on this machine.
"""

import argparse
import dataclasses
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.runs.preemption import PREEMPTED_STATUS

EPOCHS, STEPS, BATCH = 3, 10, 8
EVERY = 3  # batches between checkpoints
NUM_WORKERS = {"default": 1, "mirrored": 1, "multi_worker": 2}
JOINED = 0  # instead of a number of steps: once all workers are connected, before training starts
PATIENCE = 300  # seconds without a batch until a run counts as stuck


@dataclasses.dataclass(frozen=True)
class Stop:
    """When a training run is stopped."""

    step: int  # after this number of steps, or JOINED
    delay: float  # seconds from that step to the signal
    workers: tuple[int, ...]  # workers that get the signal


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of a training run."""

    strategy: Any  # a key of NUM_WORKERS
    folder: Path
    workers: tuple[str, ...] = ()  # host:port of each, for multi_worker
    index: int = 0


def run_alone(job: Job, progress: Any) -> None:
    """Runs `train` like a program: multiprocessing does not pass errors to Python's hook."""
    try:
        train(job, progress)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def train(job: Job, progress: Any) -> None:
    """Trains from the folder's last checkpoint to the end; the chief writes final.npz there.

    Args:
        job: the process to run.
        progress: two integers, shared with the parent: the steps done, -1 until this process has
            joined the others; and the step at which it resumed, -1 until then.
    """
    import keras
    import tensorflow as tf

    from keras_transformers.runs import Options, Run, is_chief

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(Options):
        """As in a recipe."""

        epochs: int = EPOCHS

    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if job.strategy == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    run = Run(
        Config(
            strategy=job.strategy,
            workers=job.workers,
            worker_index=job.index if job.workers else None,
            runs_dir=job.folder,
            name="run",
            resume=True,
            quiet=True,
            checkpoint_every=EVERY,
        )
    )
    progress[0] = JOINED
    with run.scope():
        model = build()

    class Progress(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            progress[0] = int(self.model.optimizer.iterations.numpy())

    batches = make_batches()
    stop_early = keras.callbacks.EarlyStopping("val_loss", patience=EPOCHS)
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(slice(3 * BATCH)),
        callbacks=[Progress()],
        last_callbacks=[stop_early],
    )
    progress[0] = progress[1] = run.position.step
    model.fit(**fit)
    if is_chief():
        arrays = {
            **{f"weight {v.path}": v.numpy() for v in model.variables},
            **{f"optimizer {v.path}": v.numpy() for v in model.optimizer.variables},
            **{
                f"{name} of the epochs": np.array(values)
                for name, values in model.history.history.items()
                if name != "tokens_per_second"  # depends on the clock
            },
        }
        scratch = job.folder / "scratch.npz"
        np.savez(scratch, **arrays)
        scratch.replace(job.folder / "final.npz")


def build() -> Any:
    """Returns a compiled classifier of token ids, small because each kill means a new trace."""
    import keras

    from keras_transformers.training.optimizers import adam
    from keras_transformers.training.schedules import WarmupLinearDecay

    token_ids = keras.Input((12,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(50, 16)(token_ids)
    hidden = keras.layers.Dropout(0.2)(keras.layers.LayerNormalization()(hidden))
    hidden = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling1D()(hidden))
    model = keras.Model({"token_ids": token_ids}, {"logits": keras.layers.Dense(3)(hidden)})
    schedule = WarmupLinearDecay(0.01, warmup_steps=5, total_steps=EPOCHS * STEPS)
    model.compile(
        optimizer=adam(schedule, clip_norm=1.0, ema=0.9),
        loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
        jit_compile=False,
    )
    return model


def make_batches() -> Any:
    """Returns random texts with labels that depend on them. The last batch of a pass is smaller."""
    import tensorflow as tf

    from keras_transformers.data.batching import LengthBatches

    class Texts(LengthBatches):
        def __init__(self, token_ids: np.ndarray, *, shuffle: bool) -> None:
            lengths = np.full(len(token_ids), 12, np.int32)
            super().__init__(lengths, batch_size=BATCH, shuffle=shuffle, seed=2)
            self.token_ids = token_ids

        def batch(self, indices: tf.Tensor) -> Any:
            token_ids = tf.gather(tf.constant(self.token_ids), indices)
            return {"token_ids": token_ids}, {"logits": tf.reduce_sum(token_ids, axis=1) % 3}

        def of(self, examples: slice) -> Any:
            return Texts(self.token_ids[examples], shuffle=False)

    numbers = np.random.default_rng(1)
    return Texts(numbers.integers(1, 50, (STEPS * BATCH - 3, 12), dtype="int32"), shuffle=True)


class Trainings:
    """Starts training runs, each in new processes.

    The processes are forked from one that has done all imports, which take longer than training.

    Args:
        terminate: stop them with SIGTERM, not SIGKILL.
    """

    def __init__(self, *, terminate: bool) -> None:
        self._terminate = terminate
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tensorflow", "keras_transformers.runs.run"])

    def run(self, strategy: str, folder: Path, stop: Stop | None) -> tuple[int, int]:
        """Trains to the end, or to where it is stopped.

        Args:
            strategy: a key of NUM_WORKERS.
            folder: the folder of the run.
            stop: None to let it finish.

        Returns:
            The step where it resumed, or -1 if it did not, and the steps done at the end.

        Raises:
            SystemExit: the run failed, hung, or ended before it was stopped.
        """
        count = NUM_WORKERS[strategy]
        workers = tuple(f"localhost:{port}" for port in free_ports(count)) if count > 1 else ()
        shared = [self._context.RawArray("l", [-1, -1]) for _ in range(count)]
        jobs = [Job(strategy, folder, workers, index) for index in range(count)]
        processes = [
            self._context.Process(target=run_alone, args=pair)
            for pair in zip(jobs, shared, strict=True)
        ]
        for process in processes:
            process.start()
        expected = 0
        try:
            if stop is not None:
                self._wait(processes, shared, stop.step)
                time.sleep(stop.delay)
                for index in stop.workers:
                    process = processes[index]
                    process.terminate() if self._terminate else process.kill()
                expected = PREEMPTED_STATUS if self._terminate else -signal.SIGKILL
            self._wait(processes, shared, None)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
        statuses = [process.exitcode for process in processes]
        if set(statuses) != {expected}:
            sys.exit(f"error: exit statuses {statuses}, not {expected}, after {stop}")
        return shared[0][1], max(array[0] for array in shared)

    @staticmethod
    def _wait(processes: Any, shared: Any, steps: int | None) -> None:
        """Waits until all processes have done `steps` steps, or have ended."""
        last, since = None, time.monotonic()
        needed = any if steps is None else all
        while needed(process.is_alive() for process in processes):
            done = [array[0] for array in shared]
            if steps is not None and min(done) >= steps:
                return
            if done != last:
                last, since = done, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                sys.exit(f"error: no step in {PATIENCE} seconds, after {done}")
            time.sleep(0.001)
        if steps is not None:
            sys.exit(f"error: ended before step {steps}: {[p.exitcode for p in processes]}")


def free_ports(count: int) -> list[int]:
    """Returns free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def differences(left: Path, right: Path) -> dict[str, float]:
    """Returns the largest difference between two runs, by kind (weight, optimizer, figures).

    Values whose bits differ count as different, even if they are equal.
    """
    found: dict[str, float] = {}
    with np.load(left) as a, np.load(right) as b:
        if sorted(a) != sorted(b):
            sys.exit(f"error: only one of the trainings has {sorted(set(a) ^ set(b))}")
        for name in a:
            kind = name.split()[0] if "of the epochs" not in name else "figures of the epochs"
            difference = 0.0
            if a[name].tobytes() != b[name].tobytes():
                values = np.abs(a[name].astype("float64") - b[name].astype("float64"))
                difference = max(float(values.max()), sys.float_info.min)
            found[kind] = max(found.get(kind, 0.0), difference)
    return found


def stops(strategy: str, kills: int, *, terminate: bool, seed: int) -> list[Stop]:
    """Returns random stops, in order."""
    numbers = random.Random(f"{seed} {strategy}")
    everyone = tuple(range(NUM_WORKERS[strategy]))
    found = []
    for place, step in enumerate(sorted(numbers.sample(range(1, EPOCHS * STEPS - 1), kills))):
        stop = Stop(step, numbers.uniform(0, 0.02), everyone)
        if terminate:
            told = numbers.choice([everyone, *((index,) for index in everyone)])
            stop = dataclasses.replace(stop, workers=told)
            if place % 3 == 1:
                stop = Stop(JOINED, numbers.uniform(0, 1), told)
        found.append(stop)
    return found


def compare(trainings: Trainings, strategy: str, stops: list[Stop], folder: Path) -> bool:
    """Trains with and without stops, prints the results; returns whether all bits agree."""
    started = time.monotonic()
    trainings.run(strategy, folder / "undisturbed", None)
    parts = [trainings.run(strategy, folder / "killed", stop) for stop in [*stops, None]]
    story = ", ".join("start" if first < 0 else f"{first}-{done}" for first, done in parts)
    found = differences(folder / "undisturbed/final.npz", folder / "killed/final.npz")
    said = ", ".join(f"{kind} {value:g}" for kind, value in found.items())
    seconds = time.monotonic() - started
    print(f"{strategy}: kills {len(stops)}, difference {max(found.values()):g} ({said})")
    print(f"    steps {story}; {seconds:.0f} s", flush=True)
    return not any(found.values())


def main() -> None:
    """Runs the chosen strategies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--strategies", nargs="+", choices=NUM_WORKERS, default=list(NUM_WORKERS), metavar="NAME"
    )
    parser.add_argument("--kills", type=int, default=10, help=f"below {EPOCHS * STEPS - 1}")
    parser.add_argument("--seed", type=int, default=0, help="seed for the times of the kills")
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print(f"{EPOCHS} epochs of {STEPS} steps, a checkpoint every {EVERY} steps")
    terminate = options.signal == "TERM"
    trainings = Trainings(terminate=terminate)
    with tempfile.TemporaryDirectory() as folder:
        same = [
            compare(
                trainings,
                strategy,
                stops(strategy, options.kills, terminate=terminate, seed=options.seed),
                Path(folder) / strategy,
            )
            for strategy in options.strategies
        ]
    if not all(same):
        sys.exit(1)


if __name__ == "__main__":
    main()
