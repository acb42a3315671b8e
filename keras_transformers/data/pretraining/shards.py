"""Makes shards of pretraining examples from text files, in parallel and resumable.

First each file becomes token ids on disk. Each shard then depends only on these ids, the options
and its number, so any process makes the same shard, and finished shards can be kept.
"""

import contextlib
import dataclasses
import functools
import hashlib
import logging
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.pretraining.corpus import CorpusFiles, Run
from keras_transformers.data.pretraining.documents import TextFormat, text_files
from keras_transformers.data.pretraining.examples import (
    PretrainingOptions,
    TokenizedCorpus,
    draw_pairs,
    pack_pairs,
)
from keras_transformers.data.pretraining.masking import Masker, vocabulary_digest
from keras_transformers.data.pretraining.records import (
    MANIFEST,
    read_manifest,
    write_records,
)
from keras_transformers.files import read_json, sync, write_json
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

_logger = logging.getLogger(__name__)

_PAIRS_AT_ONCE = 1024  # packed and masked together; affects the masks


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingReport:
    """Counts of the text and of the examples made from it.

    Attributes:
        num_documents: documents in the text.
        num_empty_documents: documents without tokens, which are skipped.
        num_single_sentence_documents: documents of one sentence, which have no next sentence and
            are only used as random ones.
        num_sentences: sentences in the text.
        num_empty_sentences: sentences without tokens, which are skipped.
        num_tokens: tokens in the text.
        num_unknown_tokens: tokens that are not in the vocabulary.
        num_examples: examples from all passes over the documents.
        num_random_next: examples with a random next sentence.
        num_positions: tokens in all examples, with [CLS] and [SEP], without padding.
        num_truncated_tokens: tokens cut off pairs that were too long.
        num_chosen_tokens: tokens to predict.
    """

    num_documents: int
    num_empty_documents: int
    num_single_sentence_documents: int
    num_sentences: int
    num_empty_sentences: int
    num_tokens: int
    num_unknown_tokens: int
    num_examples: int
    num_random_next: int
    num_positions: int
    num_truncated_tokens: int
    num_chosen_tokens: int

    def __str__(self) -> str:
        return (
            f"{self.num_documents} documents ({self.num_empty_documents} empty, skipped; "
            f"{self.num_single_sentence_documents} of one sentence, only used as random next "
            f"ones), {self.num_sentences} sentences ({self.num_empty_sentences} empty, skipped), "
            f"{self.num_tokens} tokens ({100 * self.num_unknown_tokens / self.num_tokens:.2f}% "
            f"unknown); {self.num_examples} examples, "
            f"{100 * self.num_random_next / self.num_examples:.1f}% with a random next sentence, "
            f"{self.num_positions} tokens in them, {self.num_truncated_tokens} cut off, "
            f"{100 * self.num_chosen_tokens / self.num_positions:.1f}% to predict"
        )


def make_pretraining_data(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    tokenizer: WordPieceTokenizer,
    options: PretrainingOptions,
    *,
    text_format: TextFormat = "lines",
    num_processes: int = 1,
) -> PretrainingReport:
    """Makes TFRecord shards of [CLS] A [SEP] B [SEP] examples with masks and next-sentence labels.

    The same files, vocabulary and options give the same bytes with any number of processes. The
    folder gets the shards `pretraining-00000-of-00016.tfrecord`, ... and a `manifest.json` with
    configuration, sizes and report. After a stop, call this again with the same arguments to
    continue: finished files and shards are kept. If all is finished, this only returns the report.

    Google's script keeps all text and examples in memory; here a process only keeps the pairs of
    one shard, a few numbers each. Token ids and sentence starts are on disk until the end: 2 bytes
    per token (4 if the vocabulary exceeds 65,536), briefly twice that.

    Args:
        files: text files or folders; see `read_documents`.
        output_dir: a missing or empty folder, or one started with the same arguments.
        tokenizer: tokenizer for the text.
        options: options for the examples.
        text_format: format of the files; see `read_documents`.
        num_processes: number of parallel processes, each working on a file or a shard. They import
            the calling script, so above 1 it needs an `if __name__ == "__main__"` guard.

    Raises:
        FileNotFoundError: an input is missing.
        FileExistsError: `output_dir` contains other files.
        ValueError: the text is malformed (see `read_documents`) or too short (a single document has
            no random next sentence), an option is out of range, or the folder was started with
            another configuration; the message names the differences.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes is {num_processes}, must be 1 or more")
    inputs = [files] if isinstance(files, str | os.PathLike) else files
    paths = [path for given in inputs for path in text_files(given)]
    vocabulary, output_dir = tuple(tokenizer.vocabulary), Path(output_dir)
    _masker(vocabulary, options)  # fail early if the options are wrong
    corpus = CorpusFiles(output_dir / "work", text_format, vocabulary, tokenizer.lowercase)
    job = _Job(output_dir, corpus, options)
    report = _start(job, paths)
    if report is None:
        with _workers(num_processes) as run:
            _make_corpus(job, paths, run)
            missing = [n for n in range(options.num_shards) if not job.has_shard(n)]
            run(_write_shard, [(job, number) for number in missing])
        report = _finish(job)
    shutil.rmtree(corpus.work_dir, ignore_errors=True)
    _logger.info("%s: %s", output_dir, report)
    return report


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a process needs to make a shard."""

    output_dir: Path
    corpus: CorpusFiles
    options: PretrainingOptions

    def shard(self, number: int) -> Path:
        total = self.options.num_shards
        return self.output_dir / f"pretraining-{number:05d}-of-{total:05d}.tfrecord"

    def shard_counts(self, number: int) -> Path:
        return self.corpus.work_dir / f"shard-{number:05d}.json"

    def has_shard(self, number: int) -> bool:
        return self.shard(number).is_file() and self.shard_counts(number).is_file()


def _start(job: _Job, paths: Sequence[Path]) -> PretrainingReport | None:
    """Writes or compares the configuration; returns the report if everything is finished."""
    configuration: dict[str, Any] = {
        **dataclasses.asdict(job.options),
        "text_format": job.corpus.text_format,
        "lowercase": job.corpus.lowercase,
        "vocabulary": vocabulary_digest(job.corpus.vocabulary),
        "files": [f"{path.name} {_file_digest(path)}" for path in paths],
    }
    if not (job.output_dir / MANIFEST).is_file():
        job.output_dir.mkdir(parents=True, exist_ok=True)
        if any(path.name[0] != "." for path in job.output_dir.iterdir()):
            raise FileExistsError(
                f"{job.output_dir} contains files, but no {MANIFEST}: use a new or empty folder"
            )
        started = {"configuration": configuration, "shards": None, "report": None}
        write_json(job.output_dir / MANIFEST, started)
        return None
    manifest = read_manifest(job.output_dir)
    if manifest["configuration"] != configuration:
        raise ValueError(
            f"{job.output_dir} was started with another configuration: "
            f"{_differences(manifest['configuration'], configuration)}; use another folder, or "
            "remove this one"
        )
    return PretrainingReport(**manifest["report"]) if manifest["report"] else None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    differences = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old != new and name == "files":  # there may be many
            gone, added = (
                sorted({*before[name]} - {*now[name]}),
                sorted({*now[name]} - {*before[name]}),
            )
            differences.append(f"files without {gone}, with {added}, or in another order")
        elif old != new:
            differences.append(f"{name} was {old}, is {new}")
    return ", ".join(differences)


def _finish(job: _Job) -> PretrainingReport:
    numbers = range(job.options.num_shards)
    counts = job.corpus.counts()
    for number in numbers:
        counts.update(read_json(job.shard_counts(number)))
    report = PretrainingReport(**counts)
    manifest = read_manifest(job.output_dir) | {
        "shards": {job.shard(i).name: job.shard(i).stat().st_size for i in numbers},
        "report": counts,
    }
    write_json(job.output_dir / MANIFEST, manifest)
    return report


def _make_corpus(job: _Job, paths: Sequence[Path], run: Run) -> None:
    try:
        job.corpus.make(paths, run)
        _check_corpus(job, paths)
    except ValueError:  # fixing the text changes the configuration: keep nothing
        shutil.rmtree(job.corpus.work_dir, ignore_errors=True)
        (job.output_dir / MANIFEST).unlink()
        raise


def _check_corpus(job: _Job, paths: Sequence[Path]) -> None:
    counts = job.corpus.counts()
    where = ", ".join(map(str, paths[:3])) + (f" and {len(paths) - 3} more" if paths[3:] else "")
    num_documents = counts["num_documents"] - counts["num_empty_documents"]
    num_usable = num_documents - counts["num_single_sentence_documents"]
    options = job.options
    if counts["num_tokens"] < options.max_sequence_length - 3:
        raise ValueError(
            f"{where}: {counts['num_tokens']} tokens in all, too few to fill one example of "
            f"max_sequence_length={options.max_sequence_length}: give more text, or lower the "
            "length"
        )
    if num_documents < 2:
        raise ValueError(
            f"{where}: only one document, but a random next sentence must come from another one: "
            "put blank lines between documents (text_format 'lines'), or give several files"
        )
    if not num_usable:
        raise ValueError(
            f"{where}: each of the {num_documents} documents has only one sentence, so none has a "
            "next sentence: put blank lines between documents only, not between sentences, or "
            "split prose with text_format 'prose'"
        )
    if num_usable * options.dupe_factor < options.num_shards:
        raise ValueError(
            f"{where}: {num_usable} documents of more than one sentence, used "
            f"{options.dupe_factor} times each, cannot fill num_shards={options.num_shards}: give "
            "fewer shards"
        )


def _write_shard(job: _Job, number: int) -> str:
    """Makes one shard from every num_shards-th document of each shuffled copy of the corpus."""
    options, corpus = job.options, job.corpus.load()
    usable = corpus.documents_of_pairs()
    dealt = []
    for copy in range(options.dupe_factor):
        shuffled = np.random.default_rng((options.seed, copy)).permutation(usable)
        # Copies start at different shards, so that even a few documents reach every shard.
        dealt.append(
            shuffled[(number - copy * len(usable)) % options.num_shards :: options.num_shards]
        )
    pairs = draw_pairs(
        corpus,
        np.concatenate(dealt),
        max_sequence_length=options.max_sequence_length,
        short_sequence_probability=options.short_sequence_probability,
        seed=f"{options.seed} {number}",
    )
    np.random.default_rng((options.seed, options.dupe_factor, number)).shuffle(pairs)
    counts = {
        "num_examples": len(pairs),
        "num_random_next": int(pairs["is_random"].sum()),
        "num_truncated_tokens": int(pairs["num_truncated"].sum()),
        "num_positions": 0,
        "num_chosen_tokens": 0,
    }
    # In the work folder, so that a killed process leaves no partial shard behind.
    scratch = job.corpus.work_dir / job.shard(number).name
    write_records(scratch, _batches(job, number, corpus, pairs, counts))
    sync(scratch)
    # The counts come first, so that every finished shard has them.
    write_json(job.shard_counts(number), counts)
    os.replace(scratch, job.shard(number))
    return job.shard(number).name


def _batches(
    job: _Job, number: int, corpus: TokenizedCorpus, pairs: np.ndarray, counts: dict[str, int]
) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the shard's examples, keyed by record feature, and updates the counts."""
    tokenizer_ids = {
        f"{name}_token_id": job.corpus.vocabulary.index(f"[{name.upper()}]")
        for name in ("cls", "sep", "pad")
    }
    mask = _masker(job.corpus.vocabulary, job.options)
    for block, start in enumerate(range(0, len(pairs), _PAIRS_AT_ONCE)):
        chunk = pairs[start : start + _PAIRS_AT_ONCE]
        packed = pack_pairs(
            corpus, chunk, max_sequence_length=job.options.max_sequence_length, **tokenizer_ids
        )
        # Each block of each shard has its own seed.
        seed = tf.constant([job.options.seed, (number << 32) + block], tf.int64)
        masked = mask(packed["token_ids"], seed)
        counts["num_positions"] += int(np.sum(packed["padding_mask"]))
        counts["num_chosen_tokens"] += int(np.sum(masked["mask_weights"]))
        yield {
            "input_ids": masked["token_ids"],
            "input_mask": tf.cast(packed["padding_mask"], tf.int32),
            "segment_ids": packed["segment_ids"],
            "masked_lm_positions": masked["mask_positions"],
            "masked_lm_ids": masked["mask_ids"],
            "masked_lm_weights": masked["mask_weights"],
            "next_sentence_labels": chunk["is_random"].astype(np.int32)[:, None],
        }


@functools.lru_cache(maxsize=1)
def _masker(vocabulary: tuple[str, ...], options: PretrainingOptions) -> Callable[..., Any]:
    masker = Masker(
        vocabulary,
        mask_probability=options.mask_probability,
        max_predictions=options.max_predictions,
        whole_words=options.whole_words,
    )
    return tf.function(masker, reduce_retracing=True)


@contextlib.contextmanager
def _workers(num_processes: int) -> Iterator[Run]:
    if num_processes == 1:
        yield lambda function, arguments: [function(*each) for each in arguments]
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow cannot be forked
    with ProcessPoolExecutor(num_processes, context, _start_worker) as pool:
        yield lambda function, arguments: list(pool.map(function, *zip(*arguments, strict=True)))


def _start_worker() -> None:
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
