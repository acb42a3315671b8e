"""Compares two revisions of this package: exports, searches and training steps.

    pip install -e '.[dev]'
    python benchmarks/suite/revisions.py REVISION

Each revision runs in its own process, on one thread, and the two take turns, job by job. The jobs
are those of the other tables: MiniLM's and BERT-Base's shapes as exports (signature `tokens` in a
V1 session), GPT-2 small's greedy search, the Transformer's beam search, and a fine-tuning step.
Both have the same random weights, and times are measured only if their answers agree.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest  # first: it sets the number of threads
import numpy as np

BASE = {"num_layers": 12, "num_heads": 12, "hidden_dim": 768}
MINILM = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384}
LENGTHS = [5, 7, 9, 12, 14, 17, 19, 21, 22, 24, 25, 26, 28, 29, 30, 32]
LENGTHS += [33, 34, 36, 37, 38, 40, 41, 42, 44, 46, 48, 50, 53, 56, 60, 66]
Job = Callable[[], Any]


def ids(*shape: int, least: int = 1000, below: int = 30_000) -> np.ndarray:
    return np.random.default_rng(0).integers(least, below, shape).astype(np.int32)


def export(size: dict[str, int], folder: Path) -> Callable[[list[int]], Any]:
    """Returns an export's signature `tokens`, of rows with these numbers of tokens."""
    import keras
    import tensorflow as tf

    import keras_transformers as kt

    keras.utils.set_random_seed(0)
    encoder = kt.models.encoders.bert.bert(vocabulary_size=30522, **size)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"[unused{number}]" for number in range(30522 - len(words))]
    pipeline = kt.pipelines.TextClassifier(
        kt.heads.classifier(encoder, 2), kt.tokenizers.WordPieceTokenizer(words), ["no", "yes"]
    )
    path = kt.export(pipeline, folder, check=False)
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
            )
        )
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = loaded.signature_def["tokens"]
    names = sorted(signature.inputs)
    run = session.make_callable(
        graph.get_tensor_by_name(signature.outputs["probabilities"].name),
        [graph.get_tensor_by_name(signature.inputs[name].name) for name in names],
    )

    def ask(lengths: list[int]) -> Any:
        mask = np.arange(max(lengths))[None] < np.asarray(lengths)[:, None]
        batch = {
            "token_ids": np.where(mask, ids(*mask.shape), 0).astype(np.int32),
            "segment_ids": np.zeros(mask.shape, np.int32),
            "padding_mask": mask,
        }
        return run(*(batch[name] for name in names))

    return ask


def generation() -> Job:
    """Returns GPT-2 small's greedy search for 32 tokens after 16."""
    import keras
    import tensorflow as tf

    import keras_transformers as kt
    from keras_transformers.decoding import greedy_search

    keras.utils.set_random_seed(0)
    model = kt.gpt2_small()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def generate(prompt: Any) -> Any:
        step, last_token_ids, cache = model.start_decoding(prompt)
        return greedy_search(
            step, last_token_ids, cache, end_token_id=None, max_length=32, growing_axis=2
        ).token_ids

    prompt = tf.constant(ids(1, 16))
    return lambda: generate(prompt).numpy()


def translation(batch: int, num_beams: int) -> Job:
    """Returns the Transformer's beam search for 25 tokens."""
    import keras
    import tensorflow as tf

    import keras_transformers as kt
    from keras_transformers.decoding import beam_search

    keras.utils.set_random_seed(0)
    model = kt.transformer_base(vocabulary_size=32_000, max_sequence_length=128, dropout=0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def translate(source: Any) -> Any:
        step, cache = model.start_decoding(source)
        return beam_search(
            step,
            tf.fill([tf.shape(source)[0]], 2),
            cache,
            end_token_id=3,
            max_length=25,
            min_length=25,
            num_beams=num_beams,
            num_hypotheses=1,
            pad_token_id=0,
            growing_axis=2,
        ).token_ids

    source = tf.constant(ids(batch, 25, least=4))
    return lambda: translate(source).numpy()


def training() -> Job:
    """Returns a step of fine-tuning MiniLM's shape, 32 x 30; its answer is the first loss."""
    import keras

    import keras_transformers as kt

    keras.utils.set_random_seed(0)
    encoder = kt.models.encoders.bert.bert(vocabulary_size=30522, dropout=0.0, **MINILM)
    model = kt.heads.classifier(encoder, 2, dropout=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kt.training.adamw(1e-5), loss={"logits": loss})
    tokens = ids(32, 30)
    inputs = {
        "token_ids": tokens,
        "segment_ids": np.zeros_like(tokens),
        "padding_mask": np.ones_like(tokens, bool),
    }
    targets = {"logits": ids(32, least=0, below=2)}
    return lambda: np.float32(model.train_on_batch(inputs, targets))


def jobs(folder: Path) -> dict[str, Job]:
    """Returns all jobs for this process's revision."""
    minilm, base = export(MINILM, folder / "minilm"), export(BASE, folder / "base")
    return {
        "export, MiniLM, 1 x 12": lambda: minilm([12]),
        "export, MiniLM, 1 x 128": lambda: minilm([128]),
        "export, MiniLM, 32 sentences": lambda: minilm(LENGTHS),
        "export, BERT-Base, 1 x 16": lambda: base([16]),
        "export, BERT-Base, 1 x 128": lambda: base([128]),
        "GPT-2 small, greedy, 1 x 32": generation(),
        "Transformer, greedy, 1 x 25": translation(1, 1),
        "Transformer, beam 4, 1 x 25": translation(1, 4),
        "Transformer, beam 4, 8 x 25": translation(8, 4),
        "step of fine-tuning MiniLM, 32 x 30": training(),
    }


def work() -> None:
    """Runs the jobs that stdin names, and prints the answer or the CPU milliseconds of each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps other output apart from the answers
    with tempfile.TemporaryDirectory() as folder:
        todo = jobs(Path(folder))
        print(json.dumps(list(todo)), file=answers, flush=True)
        for line in sys.stdin:
            kind, name = json.loads(line)
            start = time.process_time()
            found = todo[name]()
            took = (time.process_time() - start) * 1e3
            said = took if kind == "time" else np.asarray(found).ravel().tolist()
            print(json.dumps(said), file=answers, flush=True)


class Revision:
    """A process that runs jobs with the package in a folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names: list[str] = self._answer()

    def ask(self, kind: str, name: str) -> Any:
        """Returns a job's "answer", or the "time" it takes."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, name]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("revision", nargs="?", help="the revision to compare with, such as a tag")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work()
        return
    if arguments.revision is None:
        parser.error("give the revision to compare with")
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder, "earlier")
        subprocess.run(
            ["git", "worktree", "add", "--detach", earlier, arguments.revision],
            cwd=root,
            check=True,
        )
        try:
            rows = compare(Revision(earlier), Revision(root), arguments.seconds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", earlier], cwd=root, check=True)
    command = f"python benchmarks/suite/revisions.py {arguments.revision}"
    contest.write("revisions", command, rows)


def compare(before: Revision, after: Revision, seconds: float) -> dict[str, Any]:
    """Returns row -> contestant -> its median, quartiles and number of turns."""
    rows = {}
    for name in after.names:
        expected, found = (np.array(each.ask("answer", name)) for each in (before, after))
        difference = np.abs(found - expected).max()
        assert difference < 1e-5, f"{name} differs by {difference}"
        times: dict[str, list[float]] = {"before": [], "ours": []}
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(times["ours"]) < 5:
            # The first one has the colder cache, so they swap places.
            turns = [("before", before), ("ours", after)]
            for who, revision in turns if len(times["ours"]) % 2 else reversed(turns):
                times[who].append(revision.ask("time", name))
        rows[name] = {who: contest.summary(taken) for who, taken in times.items()}
        print(contest.line(name, rows[name]), flush=True)
    return rows


if __name__ == "__main__":
    main()
