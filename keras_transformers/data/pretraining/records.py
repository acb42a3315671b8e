"""Reads and writes TFRecords in the format of Google's create_pretraining_data.

A record is a tf.train.Example: `input_ids`, `input_mask`, `segment_ids` (one integer per token),
`masked_lm_positions`, `masked_lm_ids` (one integer per prediction), `masked_lm_weights` (one float
per prediction) and `next_sentence_labels` (one integer). See github.com/google-research/bert.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from keras_transformers.dependencies import graph_errors
from keras_transformers.files import read_json

MANIFEST = "manifest.json"
_SEQUENCE_FEATURES = ("input_ids", "input_mask", "segment_ids")
_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids")
_WEIGHTS, _LABELS = "masked_lm_weights", "next_sentence_labels"

Records = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """Complete files whose records have the same shape.

    Attributes:
        paths: paths of the files.
        num_examples: number of examples in all files.
        sequence_length: tokens per example, padding included.
        num_predictions: slots for predictions per example.
        vocabulary_digest: digest of the vocabulary; None without a manifest.
    """

    paths: tuple[str, ...]
    num_examples: int
    sequence_length: int
    num_predictions: int
    vocabulary_digest: str | None


def open_records(records: Records) -> RecordFiles:
    """Finds record files and checks that they are complete and match each other.

    Args:
        records: a folder made by `make_pretraining_data`, any folder of files with `.tfrecord` in
            their names, or one or more files.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: there are no files or records, a file is truncated, the folder is unfinished, or
            records lack a feature or differ in length from those of the first file; the message
            names the file.
    """
    digest, sizes = None, None
    if isinstance(records, str | os.PathLike) and Path(records).is_dir():
        paths = sorted(path for path in Path(records).glob("*.tfrecord*") if path.is_file())
        if (Path(records) / MANIFEST).is_file():
            manifest = _finished_manifest(Path(records))
            digest, sizes = manifest["configuration"]["vocabulary"], manifest["shards"]
            paths = [Path(records) / name for name in sizes]
        if not paths:
            raise ValueError(f"{records}: no file with .tfrecord in its name; check the folder")
    else:
        paths = list(map(Path, [records] if isinstance(records, str | os.PathLike) else records))
        if not paths:
            raise ValueError("no TFRecord files given: pass a folder, or at least one file")
    counts = [count_records(path, sizes and sizes[path.name]) for path in paths]
    lengths = [_lengths(path) for path, count in zip(paths, counts, strict=True) if count]
    if not lengths:
        raise ValueError(f"{paths[0]}: no records in it, nor in {len(paths) - 1} more files")
    filled = [path for path, count in zip(paths, counts, strict=True) if count]
    for path, sizes in zip(filled, lengths, strict=True):
        if sizes != lengths[0]:
            raise ValueError(
                f"{path}: examples of {sizes[0]} tokens and {sizes[1]} predictions, {filled[0]} "
                f"has {lengths[0][0]} and {lengths[0][1]}: read files of one kind at a time"
            )
    return RecordFiles(tuple(map(str, filled)), sum(counts), *lengths[0], digest)


def count_records(path: str | os.PathLike[str], num_bytes: int | None = None) -> int:
    """Counts the records of a TFRecord file from their lengths, without reading them.

    Args:
        path: the file.
        num_bytes: expected size of the file, if known.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file ends within a record, or has a different size.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path, or make the data again")
    size = path.stat().st_size
    if num_bytes is not None and size != num_bytes:
        raise ValueError(
            f"{path}: {size} bytes, but {MANIFEST} says {num_bytes}: fetch or make it again"
        )
    count = offset = 0
    with path.open("rb") as file:
        while offset < size:  # 8 bytes of length, 4 of checksum, the record, 4 of checksum
            header = file.read(12)
            offset += 16 + int.from_bytes(header[:8], "little")
            count += 1
            if offset > size or len(header) < 12:
                raise ValueError(
                    f"{path}: truncated within record {count} (it has {size} bytes), or not a "
                    "TFRecord file: fetch or make it again"
                )
            file.seek(offset)
    return count


def write_records(path: Path, batches: Iterable[Mapping[str, Any]]) -> None:
    """Writes batches of arrays, keyed by feature, to one file, in order.

    Raises:
        OSError: the file cannot be written; the disk may be full.
    """
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for batch in batches:
                arrays = {name: np.asarray(rows).tolist() for name, rows in sorted(batch.items())}
                for row in zip(*arrays.values(), strict=True):
                    features = dict(zip(arrays, row, strict=True))
                    writer.write(_serialize(features))
    except tf.errors.OpError as error:
        reason = graph_errors.sentence(error.message)
        raise OSError(f"{path}: cannot be written: {reason}") from error


def parse_records(serialized: tf.Tensor, files: RecordFiles) -> dict[str, tf.Tensor]:
    """Parses serialized examples (batch,) to arrays keyed by feature; integers become int32."""
    shapes = dict.fromkeys(_SEQUENCE_FEATURES, files.sequence_length)
    shapes |= dict.fromkeys(_MASK_FEATURES, files.num_predictions) | {_LABELS: 1}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in shapes.items()}
    spec[_WEIGHTS] = tf.io.FixedLenFeature([files.num_predictions], tf.float32)
    parsed = tf.io.parse_example(serialized, spec)
    return {
        name: values if name == _WEIGHTS else tf.cast(values, tf.int32)
        for name, values in parsed.items()
    }


def first_damage(files: RecordFiles) -> str | None:
    """Reads all records; returns the first that cannot be read or parsed, or None."""
    for path in files.paths:
        records = tf.data.TFRecordDataset(path).batch(1)
        number = 0
        try:
            for _ in records.map(lambda record: parse_records(record, files)):
                number += 1
        except tf.errors.OpError:
            return f"{path}: record {number + 1} is damaged: fetch or make the file again"
    return None


def read_manifest(directory: Path) -> dict[str, Any]:
    """Reads the manifest of a folder made by `make_pretraining_data`.

    Raises:
        ValueError: the file is damaged.
    """
    path = directory / MANIFEST
    with contextlib.suppress(ValueError):
        manifest = read_json(path)
        if manifest.keys() >= {"configuration", "shards", "report"}:
            return manifest
    raise ValueError(f"{path}: not a manifest of pretraining data: remove the folder")


def _finished_manifest(directory: Path) -> dict[str, Any]:
    manifest = read_manifest(directory)
    if manifest["shards"] is None:
        raise ValueError(
            f"{directory}: not finished: run make_pretraining_data again with the same arguments "
            "to continue"
        )
    return manifest


def _serialize(features: dict[str, Any]) -> bytes:
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        kind = feature.float_list if name == _WEIGHTS else feature.int64_list
        kind.value.extend(values)
    return example.SerializeToString(deterministic=True)  # sorts the features


def _lengths(path: Path) -> tuple[int, int]:
    """Returns the numbers of tokens and predictions in a file's first record."""
    try:
        record = next(iter(tf.data.TFRecordDataset(str(path)).take(1))).numpy()
        features = tf.train.Example.FromString(record).features.feature
    except (tf.errors.DataLossError, DecodeError) as error:
        reason = graph_errors.sentence(str(error))
        raise ValueError(
            f"{path}: the first record is damaged ({reason}): fetch or make the file again"
        ) from error
    sizes = {name: len(features[name].int64_list.value) for name in _SEQUENCE_FEATURES}
    sizes |= {name: len(features[name].int64_list.value) for name in (*_MASK_FEATURES, _LABELS)}
    sizes[_WEIGHTS] = len(features[_WEIGHTS].float_list.value)
    length, chosen = sizes["input_ids"], sizes["masked_lm_ids"]
    expected = dict.fromkeys(_SEQUENCE_FEATURES, length) | {_LABELS: 1, _WEIGHTS: chosen}
    expected |= dict.fromkeys(_MASK_FEATURES, chosen)
    if sizes != expected or not length or not chosen:
        raise ValueError(
            f"{path}: not in the format of Google's create_pretraining_data: its first record has "
            + ", ".join(f"{size} {name}" for name, size in sizes.items())
        )
    return length, chosen
