"""Makes shards of pretraining examples from text files, in parallel and resumable.

First each file becomes token ids on disk. Each shard then depends only on these ids, the options
and its number, so any process makes the same shard, and finished shards can be kept.
"""

import dataclasses
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.pretraining.corpus import CorpusFiles
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
from keras_transformers.jobs import places
from keras_transformers.jobs.engines import Engine, Local, Stage
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

_logger = logging.getLogger(__name__)

_UNREADABLE = "unreadable.jsonl"
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
        num_unreadable_lines: lines left out because they are not text.
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
    num_unreadable_lines: int = 0

    def __str__(self) -> str:
        return (
            f"{self.num_documents} documents ({self.num_empty_documents} empty, skipped; "
            f"{self.num_single_sentence_documents} of one sentence, only used as random next "
            f"ones), {self.num_sentences} sentences ({self.num_empty_sentences} empty, skipped), "
            f"{self.num_tokens} tokens ({100 * self.num_unknown_tokens / self.num_tokens:.2f}% "
            f"unknown); {self.num_examples} examples, "
            f"{100 * self.num_random_next / self.num_examples:.1f}% with a random next sentence, "
            f"{self.num_positions} tokens in them, {self.num_truncated_tokens} cut off, "
            f"{100 * self.num_chosen_tokens / self.num_positions:.1f}% to predict; "
            f"{self.num_unreadable_lines} unreadable lines"
        )


def make_pretraining_data(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    tokenizer: WordPieceTokenizer,
    options: PretrainingOptions,
    *,
    text_format: TextFormat = "lines",
    skip_unreadable: bool = False,
    engine: Engine | None = None,
) -> PretrainingReport:
    """Makes TFRecord shards of [CLS] A [SEP] B [SEP] examples with masks and next-sentence labels.

    The same files, vocabulary and options give the same bytes with any engine and any number of
    workers. The folder gets the shards `pretraining-00000-of-00016.tfrecord`, ... and a
    `manifest.json` with configuration, sizes and report. After an interruption, call this again
    with the same arguments to continue, on any engine: finished files and shards are kept. If
    everything is finished, this only returns the report.

    Google's script keeps all text and examples in memory; here a worker only keeps the pairs of
    one shard, a few numbers each. Token ids and sentence starts are on disk until the end: 2 bytes
    per token (4 if the vocabulary exceeds 65,536), briefly twice that.

    Args:
        files: text files or folders; see `read_documents`. Also URLs, see `jobs.places`.
        output_dir: a missing or empty folder, or one started with the same arguments; or a URL.
        tokenizer: tokenizer for the text.
        options: options for the examples.
        text_format: format of the files; see `read_documents`.
        skip_unreadable: whether to leave out lines that are not UTF-8 or contain a NUL byte. They
            are counted, and listed with file, line number and reason in `unreadable.jsonl` in the
            folder. False makes the first one an error.
        engine: what runs the work, `jobs.Local(num_processes)` or `jobs.Beam(options)`; by
            default this process.

    Raises:
        FileNotFoundError: an input is missing.
        FileExistsError: `output_dir` contains other files.
        ValueError: the text is malformed (see `read_documents`) or too short (a single document has
            no random next sentence), an option is out of range, or the folder was started with
            another configuration; the message names the differences.
        MissingExtraError: Beam, or a package for a URL, is needed but not installed.
    """
    inputs = [files] if isinstance(files, str | os.PathLike) else files
    texts = [text for place in inputs for text in _texts(os.fspath(place))]
    vocabulary, output = tuple(tokenizer.vocabulary), os.fspath(output_dir).rstrip("/")
    _masker(vocabulary, options)  # fail early if the options are wrong
    corpus = CorpusFiles(
        f"{output}/work", text_format, vocabulary, tokenizer.lowercase, skip_unreadable
    )
    job = _Job(output, corpus, options)
    report = _start(job, texts)
    if report is None:
        try:
            (engine or Local())(_stages(job, texts), corpus.work_dir)
        except ValueError:  # fixing the text changes the configuration, so keep nothing
            places.remove(corpus.work_dir)
            places.remove_file(job.manifest)
            raise
        report = _finish(job)
    places.remove(corpus.work_dir)
    _logger.info("%s: %s", output, report)
    return report


@dataclasses.dataclass(frozen=True)
class _Job:
    """The data that a process needs to make a shard."""

    output_dir: places.Place
    corpus: CorpusFiles
    options: PretrainingOptions

    @property
    def manifest(self) -> places.Place:
        return f"{self.output_dir}/{MANIFEST}"

    def shard(self, number: int) -> str:
        return f"pretraining-{number:05d}-of-{self.options.num_shards:05d}.tfrecord"

    def shard_counts(self, number: int) -> str:
        return f"work/shard-{number:05d}.json"


def _texts(place: places.Place) -> list[places.Place]:
    """Returns the file itself, or a folder's files; see `text_files`."""
    if not places.is_url(place):
        return list(map(str, text_files(place)))
    folder = place.rstrip("/")
    inside = [f"{folder}/{name}" for name in places.names(folder) if not _is_hidden(name)]
    paths = inside or places.find(place)
    if not paths:
        raise FileNotFoundError(f"{place}: no such file or folder; check the URL")
    return paths


def _is_hidden(name: str) -> bool:
    return any(part[0] == "." for part in name.split("/"))


def _start(job: _Job, texts: Sequence[places.Place]) -> PretrainingReport | None:
    """Writes or compares the configuration; returns the report if everything is finished."""
    configuration: dict[str, Any] = {
        **dataclasses.asdict(job.options),
        "text_format": job.corpus.text_format,
        "lowercase": job.corpus.lowercase,
        "vocabulary": vocabulary_digest(job.corpus.vocabulary),
        "files": [f"{text.rpartition('/')[2]} {_digest(text)}" for text in texts],
    }
    if job.corpus.skip_unreadable:
        configuration["skip_unreadable"] = True
    names = places.names(job.output_dir)
    if MANIFEST not in names:
        if not all(map(_is_hidden, names)):
            raise FileExistsError(
                f"{job.output_dir} contains files, but no {MANIFEST}: use a new or empty folder"
            )
        places.write(job.manifest, {"configuration": configuration, "shards": None, "report": None})
        return None
    manifest = _manifest(job)
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


def _manifest(job: _Job) -> dict[str, Any]:
    with places.fetched(job.manifest) as path:
        return read_manifest(path.parent)


def _stages(job: _Job, texts: Sequence[places.Place]) -> list[Stage]:
    """Returns the work that remains."""
    names = set(places.names(job.output_dir))
    in_work = {name.removeprefix("work/") for name in names if name.startswith("work/")}
    stages = []
    if not job.corpus.is_made(in_work):
        missing = job.corpus.missing_parts(len(texts), in_work)
        tasks = [(number, texts[number]) for number in missing]
        stages = [
            Stage("tokenize", job.corpus.tokenize, tasks),
            Stage("join", functools.partial(_join, job), [tuple(texts)]),
        ]
    shards = [
        number
        for number in range(job.options.num_shards)
        if not {job.shard(number), job.shard_counts(number)} <= names
    ]
    return [*stages, Stage("write shards", functools.partial(_write_shard, job), shards)]


def _finish(job: _Job) -> PretrainingReport:
    counts = job.corpus.counts()
    sizes = {}
    for number in range(job.options.num_shards):
        record = places.read(f"{job.output_dir}/{job.shard_counts(number)}")
        sizes[job.shard(number)] = record.pop("num_bytes")
        counts.update(record)
    report = PretrainingReport(**counts)
    if job.corpus.skip_unreadable:
        with places.stored(f"{job.output_dir}/{_UNREADABLE}") as path:
            path.write_text(job.corpus.unreadable_lines(), "utf-8")
    places.write(job.manifest, _manifest(job) | {"shards": sizes, "report": counts})
    return report


def _join(job: _Job, texts: Sequence[places.Place]) -> Mapping[str, int]:
    job.corpus.join(len(texts))
    _check_corpus(job, texts)
    return {}


def _check_corpus(job: _Job, texts: Sequence[places.Place]) -> None:
    counts = job.corpus.counts()
    where = ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if texts[3:] else "")
    num_documents = counts["num_documents"] - counts["num_empty_documents"]
    num_usable = num_documents - counts["num_single_sentence_documents"]
    options = job.options
    if counts["num_tokens"] < options.max_sequence_length - 3:
        raise ValueError(
            f"{where}: {counts['num_tokens']} tokens in all, too few to fill one example of "
            f"max_sequence_length={options.max_sequence_length}: use more text, or lower the "
            "length"
        )
    if num_documents < 2:
        raise ValueError(
            f"{where}: only one document, but a random next sentence must come from another one: "
            "put blank lines between documents (text_format 'lines'), or pass several files"
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
            f"{options.dupe_factor} times each, cannot fill num_shards={options.num_shards}: pass "
            "fewer shards"
        )


def _write_shard(job: _Job, number: int) -> Mapping[str, int]:
    """Makes one shard from every num_shards-th document of each shuffled copy of the corpus."""
    with job.corpus.opened() as corpus:
        pairs = _draw(job, number, corpus)
        counts = {
            "num_examples": len(pairs),
            "num_random_next": int(pairs["is_random"].sum()),
            "num_truncated_tokens": int(pairs["num_truncated"].sum()),
            "num_positions": 0,
            "num_chosen_tokens": 0,
        }
        # In the work folder, so that a killed process leaves no partial shard beside the others.
        shard = f"{job.output_dir}/{job.shard(number)}"
        with places.stored(shard, scratch_folder=job.corpus.work_dir) as path:
            write_records(path, _batches(job, number, corpus, pairs, counts))
            size = path.stat().st_size
    places.write(f"{job.output_dir}/{job.shard_counts(number)}", counts | {"num_bytes": size})
    return counts


def _draw(job: _Job, number: int, corpus: TokenizedCorpus) -> np.ndarray:
    options = job.options
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
    return pairs


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


def _digest(text: places.Place) -> str:
    with places.fetched(text) as path, path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
