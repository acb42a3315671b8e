"""TFRecords of pretraining examples, in the format of Google's create_pretraining_data.

A record is a tf.train.Example: `input_ids`, `input_mask`, `segment_ids` (seq integers each),
`masked_lm_positions`, `masked_lm_ids` (chosen integers each), `masked_lm_weights` (as many floats)
and `next_sentence_labels` (one integer). See github.com/google-research/bert.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

MANIFEST = "manifest.json"
_SEQUENCE_FEATURES = ("input_ids", "input_mask", "segment_ids")
_MASK_FEATURES = ("masked_lm_positions", "masked_lm_ids")
_WEIGHTS, _LABELS = "masked_lm_weights", "next_sentence_labels"

Records = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """Files that were found whole and alike.

    Attributes:
        paths: of the files.
        num_examples: in all of them.
        sequence_length: of each example, padding included.
        num_predictions: places for chosen tokens in each example.
        vocabulary_digest: of the vocabulary, where a manifest tells it.
    """

    paths: tuple[str, ...]
    num_examples: int
    sequence_length: int
    num_predictions: int
    vocabulary_digest: str | None


def open_records(records: Records) -> RecordFiles:
    """Finds the files and looks whether they are whole and fit together.

    Args:
        records: a folder that `make_pretraining_data` filled, or any folder of files with
            `.tfrecord` in their names; or one or more files.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: no file or no record, a file cut off, a folder not finished, records without a
            feature, or of other lengths than the first file's; the file is named.
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
            raise ValueError("no TFRecord files given; name a folder, or one file or more")
    counts = [count_records(path, sizes and sizes[path.name]) for path in paths]
    lengths = [_lengths(path) for path, count in zip(paths, counts, strict=True) if count]
    if not lengths:
        raise ValueError(f"{paths[0]}: no records here or in {len(paths) - 1} more files")
    filled = [path for path, count in zip(paths, counts, strict=True) if count]
    for path, found in zip(filled, lengths, strict=True):
        if found != lengths[0]:
            raise ValueError(
                f"{path}: examples of {found[0]} tokens and {found[1]} predictions, {filled[0]} "
                f"has {lengths[0][0]} and {lengths[0][1]}: read files of one kind at a time"
            )
    return RecordFiles(tuple(map(str, filled)), sum(counts), *lengths[0], digest)


def count_records(path: str | os.PathLike[str], num_bytes: int | None = None) -> int:
    """Counts the records of a TFRecord file by their lengths, without reading what is in them.

    Args:
        path: of the file.
        num_bytes: what the file has to have, if that is known.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it ends within a record, or has another size.
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
        while offset < size:  # length in 8 bytes, its checksum in 4; the record, its checksum in 4
            header = file.read(12)
            offset += 16 + int.from_bytes(header[:8], "little")
            count += 1
            if offset > size or len(header) < 12:
                raise ValueError(
                    f"{path}: cut off within record {count} (the file has {size} bytes), or no "
                    "TFRecord file: fetch or make it again"
                )
            file.seek(offset)
    return count


def write_records(path: Path, batches: Iterable[Mapping[str, Any]]) -> None:
    """Writes batches of arrays, keyed by the record's features, as one file, in their order."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch in batches:
            arrays = {name: np.asarray(values).tolist() for name, values in sorted(batch.items())}
            for row in zip(*arrays.values(), strict=True):
                features = dict(zip(arrays, row, strict=True))
                writer.write(_serialize(features))


def parse_records(serialized: tf.Tensor, files: RecordFiles) -> dict[str, tf.Tensor]:
    """Serialized examples (batch,) to arrays keyed by the record's features; integers in int32."""
    shapes = dict.fromkeys(_SEQUENCE_FEATURES, files.sequence_length)
    shapes |= dict.fromkeys(_MASK_FEATURES, files.num_predictions) | {_LABELS: 1}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in shapes.items()}
    spec[_WEIGHTS] = tf.io.FixedLenFeature([files.num_predictions], tf.float32)
    parsed = tf.io.parse_example(serialized, spec)
    return {
        name: values if name == _WEIGHTS else tf.cast(values, tf.int32)
        for name, values in parsed.items()
    }


def read_manifest(directory: Path) -> dict[str, Any]:
    """What `make_pretraining_data` noted in a folder.

    Raises:
        ValueError: the file is damaged.
    """
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        if manifest.keys() >= {"configuration", "shards", "report"}:
            return manifest
    except (ValueError, AttributeError):
        pass
    raise ValueError(f"{path}: not a manifest of pretraining data: remove the folder")


def _finished_manifest(directory: Path) -> dict[str, Any]:
    manifest = read_manifest(directory)
    if manifest["shards"] is None:
        raise ValueError(
            f"{directory}: not finished: run make_pretraining_data again with the same arguments, "
            "and it goes on where it stopped"
        )
    return manifest


def _serialize(features: dict[str, Any]) -> bytes:
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        kind = feature.float_list if name == _WEIGHTS else feature.int64_list
        kind.value.extend(values)
    return example.SerializeToString(deterministic=True)  # the map of features is sorted


def _lengths(path: Path) -> tuple[int, int]:
    """Tokens and places for predictions of a file's first record."""
    try:
        record = next(iter(tf.data.TFRecordDataset(str(path)).take(1))).numpy()
        features = tf.train.Example.FromString(record).features.feature
    except (tf.errors.DataLossError, DecodeError) as error:
        raise ValueError(
            f"{path}: the first record is damaged ({error}): fetch or make the file again"
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
