"""Kills a training run, at random and at every moment, and checks that its results are unaffected.

    python benchmarks/kill_and_resume.py
    python benchmarks/kill_and_resume.py --signal TERM
    python benchmarks/kill_and_resume.py --moments

Trains a tiny classifier twice with `runs.Run`: once uninterrupted, and once with several kill -9,
each at a random moment of a random step, even while a checkpoint is being written. The training run
has dropout, an optimizer with moments and averaged weights, a learning rate schedule, a shuffled
dataset, metrics, validation and early stopping. If there are several workers, all are killed. With
`--signal TERM` one or all of them get SIGTERM instead, every third time before training starts; all
must exit with status 75, and no finished step may be lost.

With `--moments`, shorter training runs kill themselves at each call of a callback in turn, from the
first update to the end: before and after each update and its checkpoint, before validation, after
it, and after an epoch's checkpoint. They are the classifier, and two of `keras_transformers.fit`: a
classifier of texts with LoRA, and an embedder.

Prints where each run resumed and was killed, and how much the weights, the optimizer's variables
and the epochs' metrics differ at the end; the exit status is 1 if they differ. Operations are
deterministic; the replicas are two logical CPUs, the workers two processes on this machine.
"""

import argparse
import dataclasses
import json
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

BATCH = 8
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
class Length:
    """How long a training run is."""

    epochs: int
    steps: int  # of an epoch
    every: int  # batches between checkpoints


LONG = Length(epochs=3, steps=10, every=3)
LAST = LONG.epochs * LONG.steps - 1
# The last step of each epoch has a checkpoint of its own, the first has none.
SHORT = Length(epochs=2, steps=2, every=2)


@dataclasses.dataclass(frozen=True)
class Job:
    """One process of a training run."""

    training: str  # a key of TRAININGS
    folder: Path
    length: Length = LONG
    strategy: Any = "default"  # a key of NUM_WORKERS
    workers: tuple[str, ...] = ()  # host:port of each, for multi_worker
    index: int = 0
    moment: tuple[str, int] | None = None  # the callback's method, and the step, to end at


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
    import tensorflow as tf

    from keras_transformers.runs import is_chief

    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if job.strategy == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    hooks = make_hooks(job, progress)
    weights, history = TRAININGS[job.training](job, progress, hooks)
    if is_chief():
        arrays = {
            **{f"weight {v.path}": v.numpy() for v in weights},
            **{f"optimizer {v.path}": v.numpy() for v in hooks.model.optimizer.variables},
            **{
                f"{name} of the epochs": np.array(values)
                for name, values in history.items()
                if name != "tokens_per_second"  # depends on the clock
            },
        }
        (job.folder / "moments.json").write_text(json.dumps(hooks.moments))
        scratch = job.folder / "scratch.npz"
        np.savez(scratch, **arrays)
        scratch.replace(job.folder / "final.npz")


def make_hooks(job: Job, progress: Any) -> Any:
    """Returns a callback that reports the steps, and kills this process at the job's moment."""
    import keras

    class Hooks(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.moments: list[tuple[str, int]] = []

        def _at(self, method: str) -> None:
            step = int(self.model.optimizer.iterations.numpy())
            self.moments.append((method, step))
            if (method, step) == job.moment:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._at("on_epoch_begin")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._at("on_train_batch_begin")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            progress[0] = int(self.model.optimizer.iterations.numpy())
            self._at("on_train_batch_end")

        def on_test_begin(self, logs: Any = None) -> None:
            self._at("on_test_begin")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._at("on_epoch_end")

        def on_train_end(self, logs: Any = None) -> None:
            self._at("on_train_end")

    return Hooks()


def train_classifier(job: Job, progress: Any, hooks: Any) -> tuple[Any, Any]:
    """Trains with `Run`, as recipes do; returns the weights, and the metrics of each epoch."""
    import keras

    from keras_transformers.runs import Options, Run

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(Options):
        """As in a recipe."""

        epochs: int = job.length.epochs

    run = Run(
        Config(
            strategy=job.strategy,
            workers=job.workers,
            worker_index=job.index if job.workers else None,
            runs_dir=job.folder,
            name="run",
            resume=True,
            quiet=True,
            checkpoint_every=job.length.every,
        )
    )
    progress[0] = JOINED
    with run.scope():
        model = build(job.length)
    batches = make_batches(job.length)
    stop_early = keras.callbacks.EarlyStopping("val_loss", patience=job.length.epochs)
    fit = run.prepare(
        model,
        batches,
        validation=batches.of(slice(3 * BATCH)),
        callbacks=hooks,
        last_callbacks=stop_early,
    )
    progress[0] = progress[1] = run.position.step
    model.fit(**fit)
    return model.variables, model.history.history


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijkl")


def encoder() -> tuple[Any, Any]:
    """Returns a small BERT with dropout, and its tokenizer."""
    import keras

    import keras_transformers as kt
    from keras_transformers.families.bert.model import bert

    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 16}
    model = bert(vocabulary_size=len(WORDS), **sizes)
    return model, kt.tokenizers.WordPieceTokenizer(list(WORDS))


def fit_in_one_call(
    pipeline: Any, data: Any, job: Job, hooks: Any, **options: Any
) -> tuple[Any, Any]:
    """Trains with `keras_transformers.fit`; see `train_classifier`."""
    import keras_transformers as kt

    history = kt.fit(
        pipeline,
        data,
        validation=data,
        epochs=job.length.epochs,
        batch_size=-(-len(data[0]) // job.length.steps),
        folder=job.folder / "run",
        checkpoint_every=job.length.every,
        callbacks=hooks,
        learning_rate=1e-2,
        quiet=True,
        **options,
    )
    return pipeline.model.variables, history.history


def texts(job: Job) -> list[str]:
    """Returns random texts, one fewer than fill the batches."""
    numbers = random.Random(1)
    count = 4 * job.length.steps - 1
    return [" ".join(numbers.choices(WORDS[5:], k=numbers.randint(2, 9))) for _ in range(count)]


def train_lora(job: Job, progress: Any, hooks: Any) -> tuple[Any, Any]:
    """Trains a classifier of texts with low-rank updates; see `train_classifier`."""
    import keras_transformers as kt

    model, tokenizer = encoder()
    classify = kt.pipelines.TextClassifier(
        kt.heads.classifier(model, 2), tokenizer, ["no", "yes"], max_sequence_length=16
    )
    data = (texts(job), [len(text) % 4 // 2 for text in texts(job)])
    return fit_in_one_call(classify, data, job, hooks, lora=2)


def train_embedder(job: Job, progress: Any, hooks: Any) -> tuple[Any, Any]:
    """Trains an embedder of texts; see `train_classifier`."""
    import keras_transformers as kt

    model, tokenizer = encoder()
    embed = kt.pipelines.Embedder(kt.heads.embedder(model), tokenizer, max_sequence_length=16)
    data = (texts(job), [text[::-1] for text in texts(job)])
    return fit_in_one_call(embed, data, job, hooks)


TRAININGS = {"classifier": train_classifier, "lora": train_lora, "embedding": train_embedder}


def build(length: Length) -> Any:
    """Returns a compiled classifier of token ids, small because each kill means a new trace."""
    import keras

    from keras_transformers.training.optimizers import adam
    from keras_transformers.training.schedules import WarmupLinearDecay

    token_ids = keras.Input((12,), dtype="int32", name="token_ids")
    hidden = keras.layers.Embedding(50, 16)(token_ids)
    hidden = keras.layers.Dropout(0.2)(keras.layers.LayerNormalization()(hidden))
    hidden = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling1D()(hidden))
    model = keras.Model({"token_ids": token_ids}, {"logits": keras.layers.Dense(3)(hidden)})
    total = length.epochs * length.steps
    schedule = WarmupLinearDecay(0.01, warmup_steps=length.steps // 2, total_steps=total)
    model.compile(
        optimizer=adam(schedule, clip_norm=1.0, ema=0.9),
        loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
        metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
        jit_compile=False,
    )
    return model


def make_batches(length: Length) -> Any:
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
    rows = length.steps * BATCH - 3
    return Texts(numbers.integers(1, 50, (rows, 12), dtype="int32"), shuffle=True)


class Trainings:
    """Starts training runs, each in new processes.

    The processes are forked from one that has done all imports, which take longer than training.

    Args:
        terminate: stop them with SIGTERM, not SIGKILL.
    """

    def __init__(self, *, terminate: bool) -> None:
        self._terminate = terminate
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tensorflow", "keras_transformers.fitting.fit"])

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
        jobs = [
            Job("classifier", folder, strategy=strategy, workers=workers, index=index)
            for index in range(count)
        ]
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

    def run_to(self, job: Job) -> None:
        """Trains to the job's moment, or to the end.

        Raises:
            SystemExit: the run failed, or ended before the moment.
        """
        shared = self._context.RawArray("l", [-1, -1])
        process = self._context.Process(target=run_alone, args=(job, shared))
        process.start()
        process.join()
        expected = 0 if job.moment is None else -signal.SIGKILL
        if process.exitcode != expected:
            sys.exit(f"error: exit status {process.exitcode}, not {expected}, at {job.moment}")

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
    for place, step in enumerate(
        sorted(numbers.sample(range(1, LONG.epochs * LONG.steps - 1), kills))
    ):
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
    seconds = time.monotonic() - started
    same = report(f"{strategy}: kills {len(stops)}", folder)
    print(f"    steps {story}; {seconds:.0f} s", flush=True)
    return same


def compare_moments(trainings: Trainings, training: str, folder: Path) -> bool:
    """Trains without stops, and with one at each moment; see `compare`."""
    started = time.monotonic()
    whole, killed = (Job(training, folder / name, SHORT) for name in ("undisturbed", "killed"))
    for job in (whole, killed):
        job.folder.mkdir(parents=True)
    trainings.run_to(whole)
    everything = json.loads((whole.folder / "moments.json").read_text())
    moments = [(method, step) for method, step in everything if step or method != "on_epoch_begin"]
    for moment in moments:
        trainings.run_to(dataclasses.replace(killed, moment=moment))
    trainings.run_to(killed)
    seconds = time.monotonic() - started
    same = report(f"{training}: killed at {len(moments)} moments", folder)
    steps = sorted({step for _, step in moments})
    print(f"    after steps {', '.join(map(str, steps))}; {seconds:.0f} s", flush=True)
    return same


def report(what: str, folder: Path) -> bool:
    """Prints how much two trainings differ; returns whether all bits agree."""
    found = differences(folder / "undisturbed/final.npz", folder / "killed/final.npz")
    said = ", ".join(f"{kind} {value:g}" for kind, value in found.items())
    print(f"{what}, difference {max(found.values()):g} ({said})")
    return not any(found.values())


def main() -> None:
    """Runs the chosen strategies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--strategies", nargs="+", choices=NUM_WORKERS, default=list(NUM_WORKERS), metavar="NAME"
    )
    parser.add_argument(
        "--kills", type=int, default=10, help=f"below {LONG.epochs * LONG.steps - 1}"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for the times of the kills")
    parser.add_argument("--signal", choices=("KILL", "TERM"), default="KILL")
    parser.add_argument(
        "--moments", nargs="*", choices=TRAININGS, metavar="NAME", help="of these runs, or of all"
    )
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    length = LONG if options.moments is None else SHORT
    print(
        f"{length.epochs} epochs of {length.steps} steps, a checkpoint every {length.every} steps",
        flush=True,
    )
    terminate = options.signal == "TERM"
    trainings = Trainings(terminate=terminate)
    with tempfile.TemporaryDirectory() as folder:
        if options.moments is not None:
            same = [
                compare_moments(trainings, name, Path(folder) / name)
                for name in options.moments or TRAININGS
            ]
        else:
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
