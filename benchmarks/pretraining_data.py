"""Measures how fast BERT's pretraining examples are made and read, compared with training.

    python benchmarks/pretraining_data.py VOCAB.txt TEXT [TEXT ...]

All figures are CPU time on one thread, that is, per core. First the text is written as shards, with
each token once (dupe factor 1). Then the shards are read in batches of 32, as stored and with new
masks, the best of three passes. Training is bert_tiny with both heads and AdamW, the best of five
batches, or with --training a rate that you measured elsewhere. The ratios say how many such
training runs one core can feed.

    python benchmarks/pretraining_data.py VOCAB.txt TEXT [TEXT ...] --engines EXPORT

compares the engines instead: making the same shards, and an export's answers to 400 lines of the
text, without Beam and with Beam's direct runner in this process, in turn. Rates are medians of
three rounds; the fixed cost of a Beam pipeline is that of one with an empty task.
"""

import os

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras

import keras_transformers as kt
from keras_transformers.data.pretraining.batches import (
    Masker,
    PretrainingOptions,
    make_pretraining_data,
    pretraining_dataset,
)
from keras_transformers.data.pretraining.documents import read_documents
from keras_transformers.jobs.engines import Beam, Engine, Local, Stage
from keras_transformers.saved_model import predict_files
from keras_transformers.tokenizers import WordPieceTokenizer

BATCH_SIZE = 32
NUM_TASKS, NUM_LINES = 4, 400


def seconds(function: Callable[[], object]) -> float:
    """Returns the CPU time of one call, over all threads."""
    started = time.process_time()
    function()
    return time.process_time() - started


def training_rate(shards: Path, vocabulary_size: int, max_sequence_length: int) -> float:
    """Returns how many examples bert_tiny trains on per second of CPU time."""
    encoder = kt.create_model(
        "bert_tiny", vocabulary_size=vocabulary_size, max_sequence_length=max_sequence_length
    )
    model = kt.heads.pretrainer(encoder)
    losses = {
        name: keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        for name in ("mask_logits", "next_sentence_logits")
    }
    model.compile(keras.optimizers.AdamW(1e-4), loss=losses, jit_compile=False)
    batches = list(pretraining_dataset(shards, batch_size=BATCH_SIZE, repeat=True).take(6))
    model.train_on_batch(*batches[0])
    best = min(seconds(lambda batch=batch: model.train_on_batch(*batch)) for batch in batches[1:])
    return BATCH_SIZE / best


def compare_engines(
    texts: list[Path], tokenizer: WordPieceTokenizer, options: PretrainingOptions, export: Path
) -> None:
    """Prints how many records a core makes per second, without Beam and with it."""
    engines: dict[str, Engine] = {"local": Local(), "beam": Beam(("runner=DirectRunner",))}
    with tempfile.TemporaryDirectory() as folder:
        lines = [" ".join(line) for text in texts for line in read_documents(text)][:NUM_LINES]
        for number in range(NUM_TASKS):
            path = Path(folder, f"{number}.txt")
            path.write_text("\n".join(lines[number::NUM_TASKS]), "utf-8")
        counts: dict[str, int] = {}

        def make(engine: Engine, output: Path) -> None:
            report = make_pretraining_data(texts, output, tokenizer, options, engine=engine)
            counts["examples made"] = report.num_examples

        def answer(engine: Engine, output: Path) -> None:
            report = predict_files(export, [f"{folder}/*.txt"], output, engine=engine)
            counts["lines answered"] = report.num_lines

        def nothing(engine: Engine, output: Path) -> None:
            engine([Stage("nothing", _nothing, [0])], str(output))

        for job in (make, answer, nothing):
            times: dict[str, list[float]] = {name: [] for name in engines}
            for turn in range(4):
                for name, engine in engines.items():
                    output = Path(folder, f"{job.__name__}-{turn}-{name}")
                    times[name].append(seconds(lambda: job(engine, output)))  # noqa: B023
            local, beam = (statistics.median(times[name][1:]) for name in engines)  # 1st: warm-up
            if job is nothing:
                print(f"a pipeline with one empty task: {beam:.2f} s")
                continue
            what, count = list(counts.items())[-1]
            print(
                f"{what}: {count:,}; local {count / local:,.0f} per second and core, Beam "
                f"{count / beam:,.0f}: {local / beam:.2f} of local ({local:.2f} s, {beam:.2f} s)",
                flush=True,
            )


def _nothing(task: int) -> dict[str, int]:
    return {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("texts", type=Path, nargs="+", help="one sentence per line")
    parser.add_argument("--text-format", choices=["lines", "prose", "wikitext"], default="lines")
    parser.add_argument("--max-sequence-length", type=int, default=128)
    parser.add_argument("--max-predictions", type=int, default=20)
    parser.add_argument("--training", type=float, help="examples per second; measured by default")
    parser.add_argument("--engines", type=Path, metavar="EXPORT", help="compare engines instead")
    parsed = parser.parse_args()
    tokenizer = WordPieceTokenizer(parsed.vocabulary)
    tokenizer.tokenize(["warm up"])
    if parsed.engines:
        options = PretrainingOptions(
            max_sequence_length=parsed.max_sequence_length,
            max_predictions=parsed.max_predictions,
            num_shards=NUM_TASKS,
        )
        compare_engines(parsed.texts, tokenizer, options, parsed.engines)
        return
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for whole_words in (False, True):
            options = PretrainingOptions(
                max_sequence_length=parsed.max_sequence_length,
                max_predictions=parsed.max_predictions,
                whole_words=whole_words,
                dupe_factor=1,
                num_shards=1,
            )
            shards = Path(folder, str(whole_words))
            started = time.process_time()
            report = make_pretraining_data(
                parsed.texts, shards, tokenizer, options, text_format=parsed.text_format
            )
            name = "made" + ", whole words" * whole_words
            rates[name] = report.num_examples / (time.process_time() - started)
        print(report)
        for name, masker in (
            ("read", None),
            ("read, masked anew", Masker(tokenizer.vocabulary)),
            ("read, masked anew, whole words", Masker(tokenizer.vocabulary, whole_words=True)),
        ):
            dataset = pretraining_dataset(shards, batch_size=BATCH_SIZE, masker=masker)
            best = min(seconds(lambda dataset=dataset: list(dataset)) for _ in range(3))
            rates[name] = report.num_examples / best
        training = parsed.training or training_rate(
            shards, tokenizer.vocabulary_size, parsed.max_sequence_length
        )
    print(f"training takes {training:,.0f} examples per second")
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} examples per second and core, {rate / training:.1f} trainings")


if __name__ == "__main__":
    main()
