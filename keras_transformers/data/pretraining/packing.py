"""Puts several short pretraining examples into one row, so that less of it is padding.

Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination",
https://arxiv.org/abs/2107.02027; here by first-fit decreasing within a pool of examples.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.data.pretraining.records import RecordFiles, parse_records

__all__ = ["MAX_EXAMPLES", "pack_examples", "packed_rows"]

MAX_EXAMPLES = 8  # examples per row; each has a slot for its label, so that shapes are static
_POOL = 1024  # examples that are packed together; more fill the rows better


def packed_rows(records: tf.data.Dataset, files: RecordFiles) -> tf.data.Dataset:
    """Turns a dataset of serialized records into one of rows; see `pack_examples`."""
    pools = records.batch(_POOL).map(lambda pool: parse_records(pool, files))
    spec = pools.element_spec
    rows = {name: (tensor.dtype, tensor.shape[1:]) for name, tensor in spec.items()}
    rows["document_ids"] = rows["input_ids"]
    rows["start_positions"] = rows["next_sentence_labels"] = (tf.int32, (MAX_EXAMPLES,))
    rows["next_sentence_weights"] = (tf.float32, (MAX_EXAMPLES,))
    del rows["input_mask"]
    names = sorted(rows)

    def pack(pool: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        def run(*arrays: np.ndarray) -> list[np.ndarray]:
            columns = pack_examples(dict(zip(pool, arrays, strict=True)))
            return [columns[name] for name in names]

        arrays = tf.numpy_function(
            run, list(pool.values()), [rows[name][0] for name in names], stateful=False
        )
        for name, array in zip(names, arrays, strict=True):
            array.set_shape((None, *rows[name][1]))
        return dict(zip(names, arrays, strict=True))

    return pools.map(pack, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).unbatch()


def pack_examples(examples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Packs examples into as few rows of the same length as first-fit decreasing finds.

    Args:
        examples: the arrays of `records.parse_records`.

    Returns:
        The same features, one row per packed row, without `input_mask`. Also `document_ids`
        int32 (rows, length), the number of the example from 1 and 0 at padding; `start_positions`
        int32, `next_sentence_labels` int32 and `next_sentence_weights` float32 (rows, 8), for each
        example of a row, with weight 0 in unused slots. Rows are in the order of their first
        example.
    """
    length, slots = examples["input_ids"].shape[1], examples["masked_lm_ids"].shape[1]
    lengths = examples["input_mask"].sum(axis=1)
    masks = (examples["masked_lm_weights"] > 0).sum(axis=1)
    labels = examples["next_sentence_labels"][:, 0]
    needs = np.stack([lengths, masks, np.ones_like(lengths)], axis=1)
    rows = first_fit(needs, (length, slots, MAX_EXAMPLES))
    packed = {
        name: np.zeros((len(rows), *values.shape[1:]), values.dtype)
        for name, values in examples.items()
        if name not in ("input_mask", "next_sentence_labels")
    }
    packed["document_ids"] = np.zeros((len(rows), length), np.int32)
    for name, dtype in (
        ("start_positions", np.int32),
        ("next_sentence_labels", np.int32),
        ("next_sentence_weights", np.float32),
    ):
        packed[name] = np.zeros((len(rows), MAX_EXAMPLES), dtype)
    for row, members in enumerate(rows):
        start = first_mask = 0
        for number, member in enumerate(members):
            tokens = slice(start, start + lengths[member])
            chosen = slice(first_mask, first_mask + masks[member])
            for name in ("input_ids", "segment_ids"):
                packed[name][row, tokens] = examples[name][member, : lengths[member]]
            for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
                packed[name][row, chosen] = examples[name][member, : masks[member]]
            packed["masked_lm_positions"][row, chosen] += start
            packed["document_ids"][row, tokens] = number + 1
            packed["start_positions"][row, number] = start
            packed["next_sentence_labels"][row, number] = labels[member]
            packed["next_sentence_weights"][row, number] = 1
            start, first_mask = tokens.stop, chosen.stop
    return packed


def first_fit(needs: np.ndarray, room: Sequence[int]) -> list[list[int]]:
    """Divides examples into rows; the largest go first, into the first row with room.

    Args:
        needs: what each example needs of a row, such as tokens, (examples, kinds); the first kind
            says which are large.
        room: what a row has of each kind, at least as much as any example needs.

    Returns:
        The examples of each row, ascending; rows are in the order of their first example.
    """
    left = np.tile(room, (len(needs), 1))  # in each row
    rows: list[list[int]] = [[] for _ in needs]
    for example in np.argsort(-needs[:, 0], kind="stable"):
        row = int(np.argmax((left >= needs[example]).all(axis=1)))
        rows[row].append(int(example))
        left[row] -= needs[example]
    return sorted(sorted(row) for row in rows if row)
