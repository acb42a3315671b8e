"""Makes batches for pretraining BERT from TFRecords of masked sentence pairs.

    read_documents, read_nltk, read_imdb -> split_documents -> write_documents
    make_pretraining_data -> pretraining_dataset

The files have the format of Google's create_pretraining_data, so each project reads the other's.
They contain fixed pairs and masks; `pretraining_dataset` can draw new masks in each epoch.
"""

from typing import Any, Self

import tensorflow as tf

from keras_transformers.data.batching import Batches
from keras_transformers.data.pretraining.documents import (
    Document,
    TextFormat,
    read_documents,
    read_imdb,
    read_nltk,
    split_documents,
    split_sentences,
    write_documents,
)
from keras_transformers.data.pretraining.examples import PretrainingOptions
from keras_transformers.data.pretraining.masking import Masker, unmask
from keras_transformers.data.pretraining.packing import MAX_EXAMPLES, packed_rows
from keras_transformers.data.pretraining.records import (
    RecordFiles,
    Records,
    first_damage,
    open_records,
    parse_records,
)
from keras_transformers.data.pretraining.shards import PretrainingReport, make_pretraining_data
from keras_transformers.data.static_shapes import filled

__all__ = [
    "Document",
    "Masker",
    "PretrainingBatches",
    "PretrainingOptions",
    "PretrainingReport",
    "RecordFiles",
    "Records",
    "TextFormat",
    "make_pretraining_data",
    "open_records",
    "pretraining_dataset",
    "read_documents",
    "read_imdb",
    "read_nltk",
    "split_documents",
    "split_sentences",
    "write_documents",
]

_FILES_AT_ONCE = 8  # files to interleave


def pretraining_dataset(
    records: Records,
    *,
    batch_size: int,
    masker: Masker | None = None,
    shuffle: bool = False,
    repeat: bool = False,
    seed: int = 0,
    skip_batches: int = 0,
    shuffle_buffer: int = 10_000,
    pack: bool = False,
) -> tf.data.Dataset:
    """Returns batches for training a model from `heads.pretrainer`.

    An element is `(inputs, targets, sample_weights)`:
      - inputs: `token_ids`, `segment_ids` int32 and `padding_mask` bool, (batch, seq) each, and
        `mask_positions` int32 (batch, chosen).
      - targets: `mask_logits`, the ids of the masked tokens, int32 (batch, chosen), and
        `next_sentence_logits`, int32 (batch,): 0 is next, 1 random.
      - sample_weights: `mask_logits` float32 (batch, chosen), 1 at masked tokens and 0 after
        them, and `next_sentence_logits` float32 (batch,), all 1. For a mean over masked tokens,
        set the loss's `reduction="mean_with_sample_weight"`; Keras's default counts zeros too.

    Batches depend only on the arguments: with `repeat`, a run that stopped after n batches
    continues with `skip_batches=n` as if it had not stopped. Each iteration over the dataset draws
    a new order and new masks, where these are random.

    Args:
        records: a folder made by `make_pretraining_data`, or files from it or from Google's
            create_pretraining_data; see `open_records`.
        batch_size: examples per batch; without `repeat` the last batch may be smaller.
        masker: draws new masks in each epoch; None keeps the masks in the files.
        shuffle: whether to reshuffle files and examples in each epoch.
        repeat: whether batches are endless, with static shapes; pass `fit` a `steps_per_epoch`
            then, such as `open_records(records).num_examples // batch_size`.
        seed: seed for order and masks.
        skip_batches: batches to skip at the start.
        shuffle_buffer: size of the shuffle buffer, in examples.
        pack: whether short examples share a row, for models from `heads.packed`. Batches then
            contain packed rows. Instead of `padding_mask`, the inputs have `document_ids` int32
            (batch, seq), the number of the example in its row from 1, 0 at padding, and
            `start_positions` int32 (batch, 8), where each begins; the targets and weights of
            `next_sentence_logits` have the shape (batch, 8).

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: a file is truncated, unfinished or of the wrong kind (see `open_records`), the
            masker's vocabulary differs from the folder's, or a number is out of range.
    """
    if batch_size < 1 or skip_batches < 0 or shuffle_buffer < 1:
        raise ValueError(
            f"batch_size={batch_size}, skip_batches={skip_batches}, shuffle_buffer="
            f"{shuffle_buffer}: must be at least 1, 0 and 1"
        )
    files = open_records(records)
    if masker and files.vocabulary_digest not in (None, masker.vocabulary_digest):
        raise ValueError(
            f"{files.paths[0]}: made with a vocabulary other than the masker's: build the masker "
            "with the vocabulary used by make_pretraining_data"
        )
    dataset = tf.data.Dataset.from_tensor_slices(list(files.paths))
    if shuffle:
        dataset = dataset.shuffle(len(files.paths), seed=seed)
    dataset = dataset.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(_FILES_AT_ONCE, len(files.paths)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if shuffle:
        dataset = dataset.shuffle(shuffle_buffer, seed=seed)
    if repeat:
        dataset = dataset.repeat()
    if pack:
        dataset = packed_rows(dataset, files)
    dataset = dataset.batch(batch_size, drop_remainder=repeat)
    # One number per batch, drawn anew in each iteration.
    numbers = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
    dataset = tf.data.Dataset.zip(dataset, numbers).skip(skip_batches)
    dataset = dataset.map(
        lambda rows, number: _example(
            rows if pack else parse_records(rows, files),
            masker,
            tf.stack([tf.cast(seed, tf.int64), number]),
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if not (repeat or pack):
        num_batches = max(0, -(-files.num_examples // batch_size) - skip_batches)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    return dataset.prefetch(tf.data.AUTOTUNE)


class PretrainingBatches(Batches):
    """Batches of `pretraining_dataset`, for `runs.Run.prepare`.

    Args:
        files: record files.
        batch_size: examples per batch.
        steps_per_epoch: batches per epoch of endless, shuffled batches. None makes one pass in
            order.
        masker: draws new masks each time an example is used; None keeps the masks in the files.
        seed: seed for order and masks.
        pack: whether short examples share a row; see `pretraining_dataset`.
        static_shapes: see `LengthBatches`; all rows have one length, and only the last of one pass
            in order needs completing.
        next_sentence: False leaves out `segment_ids` and `next_sentence_logits`, for models of
            `heads.masked_lm` without segments.

    Raises:
        ValueError: the batch size is below 1. `dataset` raises the errors of `pretraining_dataset`.
    """

    def __init__(
        self,
        files: RecordFiles,
        *,
        batch_size: int,
        steps_per_epoch: int | None = None,
        masker: Masker | None = None,
        seed: int = 0,
        pack: bool = False,
        static_shapes: int | None = None,
        next_sentence: bool = True,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: must be 1 or more")
        self._files = files
        self._batch_size = batch_size
        self._steps_per_epoch = steps_per_epoch
        self._masker = masker
        self._seed = seed
        self._pack = pack
        self._static_shapes = static_shapes
        self._next_sentence = next_sentence
        self.mean_lengths = float(files.sequence_length)
        self.other_lengths = {"mask_positions": float(files.num_predictions)}
        if pack:
            self.other_lengths["start_positions"] = float(MAX_EXAMPLES)
        if steps_per_epoch:
            self.num_rows = batch_size * steps_per_epoch
        else:
            self.num_rows = self._num_packed() if pack else files.num_examples

    def __len__(self) -> int:
        return self._steps_per_epoch or -(-self.num_rows // self._batch_size)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless with `steps_per_epoch`, otherwise one pass in order."""
        is_endless = self._steps_per_epoch is not None
        dataset = pretraining_dataset(
            self._files.paths,
            batch_size=self._batch_size,
            masker=self._masker,
            shuffle=is_endless,
            repeat=is_endless,
            seed=self._seed,
            skip_batches=skip,
            pack=self._pack,
        )
        if not self._next_sentence:
            dataset = dataset.map(_masked_words)
        if is_endless or not self._static_shapes:
            return dataset
        return dataset.map(lambda *batch: filled(batch, self._batch_size))

    def of(self, examples: RecordFiles) -> Self:
        """Returns batches of other records, in order, with the masks in the files."""
        return type(self)(
            examples,
            batch_size=self._batch_size,
            pack=self._pack,
            static_shapes=self._static_shapes,
            next_sentence=self._next_sentence,
        )

    def damage(self) -> str | None:
        """Returns the damaged record and its file; None if all are intact."""
        return first_damage(self._files)

    def _num_packed(self) -> int:
        """Counts the rows of one pass in order."""
        batches = pretraining_dataset(self._files.paths, batch_size=1024, pack=True)
        return sum(len(inputs["token_ids"]) for inputs, _, _ in batches)


def _masked_words(*batch: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Leaves out the parts for models with segments and next sentences."""
    left_out = ("segment_ids", "next_sentence_logits")
    return tuple(
        {name: value for name, value in part.items() if name not in left_out} for part in batch
    )


def _example(
    record: dict[str, tf.Tensor], masker: Masker | None, seed: tf.Tensor
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Converts a batch of records to inputs, targets and sample weights."""
    masked = {
        "token_ids": record["input_ids"],
        "mask_positions": record["masked_lm_positions"],
        "mask_ids": record["masked_lm_ids"],
        "mask_weights": record["masked_lm_weights"],
    }
    if masker:
        masked = masker(unmask(**masked), seed)
    inputs = {
        "token_ids": masked["token_ids"],
        "segment_ids": record["segment_ids"],
        "mask_positions": masked["mask_positions"],
    }
    if "document_ids" in record:
        inputs |= {name: record[name] for name in ("document_ids", "start_positions")}
        labels, label_weights = record["next_sentence_labels"], record["next_sentence_weights"]
    else:
        inputs["padding_mask"] = record["input_mask"] > 0
        labels = record["next_sentence_labels"][:, 0]
        label_weights = tf.ones_like(labels, tf.float32)
    targets = {"mask_logits": masked["mask_ids"], "next_sentence_logits": labels}
    weights = {"mask_logits": masked["mask_weights"], "next_sentence_logits": label_weights}
    return inputs, targets, weights
