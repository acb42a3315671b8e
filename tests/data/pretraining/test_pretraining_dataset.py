"""Our TFRecords and Google's to batches for `fit`, with fixed or new masks; broken files."""

import collections
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import compile_toy

from keras_transformers import heads
from keras_transformers.data.pretraining.batches import (
    Masker,
    PretrainingBatches,
    PretrainingOptions,
    make_pretraining_data,
    open_records,
    pretraining_dataset,
)
from keras_transformers.data.pretraining.replaced_tokens import ReplacedTokenBatches
from keras_transformers.families.bert.model import bert
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

LETTERS = "abcdefghij"
VOCABULARY = [*SPECIAL_TOKENS, *LETTERS]
LENGTH, CHOSEN = 24, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred examples in three shards."""
    parent = tmp_path_factory.mktemp("records")
    random = np.random.default_rng(1)
    lines = [" ".join(random.choice(list(LETTERS), 9)) for _ in range(400)]
    text = "\n".join(line + "\n" * (i % 5 == 4) for i, line in enumerate(lines))
    (parent / "a.txt").write_text(text, "utf-8")
    options = PretrainingOptions(
        max_sequence_length=LENGTH, max_predictions=CHOSEN, dupe_factor=1, num_shards=3
    )
    tokenizer = WordPieceTokenizer(VOCABULARY)
    make_pretraining_data(parent / "a.txt", parent / "data", tokenizer, options)
    return parent / "data"


def arrays(dataset: Iterable[Any]) -> list[tuple[dict[str, np.ndarray], ...]]:
    return [
        tuple({name: tensor.numpy() for name, tensor in part.items()} for part in batch)
        for batch in dataset
    ]


def tokens(dataset: Iterable[Any]) -> list[list[int]]:
    return [row for batch in arrays(dataset) for row in batch[0]["token_ids"].tolist()]


def same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    lefts, rights = arrays(left), arrays(right)
    return len(lefts) == len(rights) and all(
        np.array_equal(a[name], b[name])
        for batches in zip(lefts, rights, strict=True)
        for a, b in zip(*batches, strict=True)
        for name in a
    )


# Google's format.


def write_as_google(path: Path, rows: Iterable[dict[str, list[Any]]]) -> Path:
    """Writes instances step by step as create_pretraining_data.py does."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = collections.OrderedDict()
            for name, values in row.items():
                if name == "masked_lm_weights":
                    kind = {"float_list": tf.train.FloatList(value=values)}
                else:
                    kind = {"int64_list": tf.train.Int64List(value=values)}
                features[name] = tf.train.Feature(**kind)
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


GOOGLE = {
    "input_ids": [2, 4, 6, 3, 7, 4, 3, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 1, 0],
    "masked_lm_positions": [1, 5, 0],
    "masked_lm_ids": [5, 8, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": [1],
}


def test_googles_files_are_read(tmp_path: Path) -> None:
    path = write_as_google(tmp_path / "tf_examples.tfrecord-00000", [GOOGLE, GOOGLE])
    for records in (path, str(path), [path], tmp_path):
        dataset = pretraining_dataset(records, batch_size=2)
        ((inputs, targets, weights),) = arrays(dataset)
        expected = {"token_ids": "input_ids", "segment_ids": "segment_ids"}
        expected |= {"padding_mask": "input_mask", "mask_positions": "masked_lm_positions"}
        assert inputs.keys() == expected.keys()
        for name, feature in expected.items():
            np.testing.assert_array_equal(inputs[name], [GOOGLE[feature]] * 2)
        np.testing.assert_array_equal(targets["mask_logits"], [[5, 8, 0]] * 2)
        np.testing.assert_array_equal(targets["next_sentence_logits"], [1, 1])
        np.testing.assert_array_equal(weights["mask_logits"], [[1.0, 1.0, 0.0]] * 2)
        np.testing.assert_array_equal(weights["next_sentence_logits"], [1.0, 1.0])
        types = {name: array.dtype.name for name, array in (inputs | targets).items()}
        assert types.pop("padding_mask") == "bool"
        assert set(types.values()) == {"int32"}


def test_googles_reader_reads_ours(folder: Path) -> None:
    """Parses the features of run_pretraining.py, with its types and shapes."""
    integers = {"input_ids": LENGTH, "input_mask": LENGTH, "segment_ids": LENGTH}
    integers |= {"masked_lm_positions": CHOSEN, "masked_lm_ids": CHOSEN, "next_sentence_labels": 1}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in integers.items()}
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([CHOSEN], tf.float32)
    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))))
    parsed = [tf.io.parse_single_example(record, spec) for record in records]
    assert len(parsed) == open_records(folder).num_examples
    assert len(next(iter(parsed))) == 7


def test_masks_of_google_are_taken_off_and_drawn_anew(tmp_path: Path) -> None:
    path = write_as_google(tmp_path / "g.tfrecord", [GOOGLE] * 50)
    masker = Masker(VOCABULARY, mask_probability=0.3, max_predictions=5)
    ((inputs, targets, weights),) = arrays(pretraining_dataset(path, batch_size=50, masker=masker))
    original = np.array([2, 5, 6, 3, 7, 8, 3, 0])
    is_real = weights["mask_logits"] > 0
    assert inputs["mask_positions"].shape == (50, 5)
    assert (is_real.sum(axis=1) == 2).all()
    positions = inputs["mask_positions"][is_real]
    np.testing.assert_array_equal(targets["mask_logits"][is_real], original[positions])
    assert set(positions) == {1, 2, 4, 5}
    not_chosen = np.ones((50, 8), bool)
    not_chosen[np.nonzero(is_real)[0], positions] = False
    np.testing.assert_array_equal(
        inputs["token_ids"][not_chosen], np.tile(original, (50, 1))[not_chosen]
    )


# Batches.


def test_one_pass_in_order_has_each_example_once(folder: Path) -> None:
    num_examples = open_records(folder).num_examples
    dataset = pretraining_dataset(folder, batch_size=num_examples // 3 - 1)
    batches = arrays(dataset)
    assert [len(batch[0]["token_ids"]) for batch in batches[:-1]] == [num_examples // 3 - 1] * 3
    assert len(batches[-1][0]["token_ids"]) == num_examples - 3 * (num_examples // 3 - 1)
    assert len(dataset) == 4
    assert same(dataset, dataset)
    shuffled = pretraining_dataset(folder, batch_size=32, shuffle=True)
    assert tokens(shuffled) != tokens(dataset)
    assert sorted(tokens(shuffled)) == sorted(tokens(dataset))


def test_shuffling_differs_by_epoch_and_is_the_same_by_seed(folder: Path) -> None:
    def make(seed: int) -> tf.data.Dataset:
        return pretraining_dataset(folder, batch_size=32, shuffle=True, seed=seed)

    dataset, again = make(1), make(1)
    first, second = tokens(dataset), tokens(dataset)
    assert first != second
    assert sorted(first) == sorted(second)
    assert [tokens(again), tokens(again)] == [first, second]
    assert tokens(make(2)) != first


@pytest.mark.parametrize("is_masked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_goes_on_as_if_it_had_not_stopped(folder: Path, is_masked: bool) -> None:
    def make(skip_batches: int) -> tf.data.Dataset:
        return pretraining_dataset(
            folder,
            batch_size=64,
            masker=Masker(VOCABULARY) if is_masked else None,
            shuffle=True,
            repeat=True,
            seed=3,
            skip_batches=skip_batches,
        )

    assert make(0).element_spec[0]["token_ids"].shape == (64, LENGTH)
    assert make(0).cardinality() == tf.data.INFINITE_CARDINALITY
    assert same(make(7).take(5), make(0).take(12).skip(7))


@pytest.mark.slow
def test_masks_differ_by_epoch_and_the_text_does_not(folder: Path) -> None:
    """This holds without `repeat` too, and batches never all get the same draws."""
    masker = Masker(VOCABULARY, mask_probability=0.2, max_predictions=CHOSEN)
    dataset = pretraining_dataset(folder, batch_size=32, masker=masker)
    first, second = arrays(dataset), arrays(dataset)
    assert same(dataset, dataset) is False
    for one, two in zip(first, second, strict=True):
        for name in ("segment_ids", "padding_mask"):
            np.testing.assert_array_equal(one[0][name], two[0][name])
        differs = (one[0]["mask_positions"] != two[0]["mask_positions"]).any(axis=1)
        assert differs.mean() > 0.8
    assert same(
        pretraining_dataset(folder, batch_size=32, masker=masker),
        pretraining_dataset(folder, batch_size=32, masker=masker),
    )
    full = [batch[0]["mask_positions"].tolist() for batch in first[:2]]
    assert full[0] != full[1]


# Training.


def pretrainer(max_sequence_length: int = LENGTH) -> keras.Model:
    encoder = bert(
        vocabulary_size=len(VOCABULARY),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=max_sequence_length,
        dropout=0.0,
        attention_dropout=0.0,
    )
    model = heads.pretrainer(encoder)
    loss = {
        name: keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        for name in ("mask_logits", "next_sentence_logits")
    }
    compile_toy(model, "adam", loss, weighted_metrics={"mask_logits": ["accuracy"]})
    return model


@pytest.mark.slow
def test_it_fits_the_pretrainer_and_weights_losses_by_tokens(folder: Path) -> None:
    model = pretrainer()
    dataset = pretraining_dataset(folder, batch_size=32, shuffle=True, repeat=True)
    losses = model.fit(dataset, steps_per_epoch=4, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
    (inputs, targets, weights), *_ = arrays(pretraining_dataset(folder, batch_size=1000))
    outputs = model.predict(inputs, verbose=0)
    log_probabilities = keras.ops.log_softmax(outputs["mask_logits"]).numpy()
    chosen = np.take_along_axis(log_probabilities, targets["mask_logits"][..., None], 2)[..., 0]
    expected = -chosen[weights["mask_logits"] > 0].mean()
    result = model.evaluate(
        pretraining_dataset(folder, batch_size=1000), return_dict=True, verbose=0
    )
    assert result["mask_logits_loss"] == pytest.approx(expected, rel=1e-5)


def test_sequences_longer_than_the_positions_are_refused(folder: Path) -> None:
    dataset = pretraining_dataset(folder, batch_size=32, repeat=True)
    with pytest.raises(ValueError, match=f"{LENGTH}.*16 positions"):
        pretrainer(max_sequence_length=16).fit(dataset, steps_per_epoch=1, verbose=0)


# Broken files.


@pytest.mark.parametrize("size", [-1, -700, 5, 13])
def test_a_file_that_was_cut_off_is_named(folder: Path, tmp_path: Path, size: int) -> None:
    data = next(folder.glob("*.tfrecord")).read_bytes()
    cut = tmp_path / "cut.tfrecord"
    cut.write_bytes(data[:size])
    with pytest.raises(ValueError, match=r"cut\.tfrecord: truncated.*\d+"):
        pretraining_dataset(cut, batch_size=2)
    cut.write_bytes(data)
    assert len(tokens(pretraining_dataset(cut, batch_size=2))) > 10


def test_a_folder_that_is_not_as_its_manifest_says(folder: Path, tmp_path: Path) -> None:
    """Even a file truncated exactly between two records is refused."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "pretraining-00001-of-00003.tfrecord"
    data = shard.read_bytes()
    shard.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])
    with pytest.raises(ValueError, match=r"00001-of-00003\.tfrecord: \d+.*manifest"):
        pretraining_dataset(tmp_path, batch_size=2)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"00001-of-00003\.tfrecord: no such file"):
        pretraining_dataset(tmp_path, batch_size=2)
    (tmp_path / "manifest.json").unlink()
    assert len(open_records(tmp_path).paths) == 2


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    def refuse(records: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            pretraining_dataset(records, batch_size=1)

    good = write_as_google(tmp_path / "good.tfrecord", [GOOGLE])
    short = {name: values[:-1] if len(values) == 8 else values for name, values in GOOGLE.items()}
    short_file = write_as_google(tmp_path / "short.tfrecord", [short])
    refuse([good, short_file], r"short\.tfrecord: examples of 7 tokens and 3 predictions, .*good")
    missing = {name: values for name, values in GOOGLE.items() if name != "masked_lm_weights"}
    refuse(write_as_google(tmp_path / "m.tfrecord", [missing]), r"m\.tfrecord: .* 0 masked_lm_w")
    (tmp_path / "text.tfrecord").write_text("This is no TFRecord.", "utf-8")
    refuse(tmp_path / "text.tfrecord", "or not a TFRecord file")
    data = bytearray(good.read_bytes())
    data[40] ^= 1
    (tmp_path / "flip.tfrecord").write_bytes(data)
    refuse(tmp_path / "flip.tfrecord", r"flip\.tfrecord: the first record is damaged")
    with tf.io.TFRecordWriter(str(tmp_path / "bytes.tfrecord")) as writer:
        writer.write(b"\xff\xff")
    refuse(tmp_path / "bytes.tfrecord", r"bytes\.tfrecord: the first record is damaged")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", r"empty: no file with \.tfrecord in its name")
    refuse([], "no TFRecord files given")
    (tmp_path / "none.tfrecord").write_bytes(b"")
    refuse(tmp_path / "none.tfrecord", r"none\.tfrecord: no records")
    with pytest.raises(FileNotFoundError, match=r"x\.tfrecord: no such file"):
        pretraining_dataset(tmp_path / "x.tfrecord", batch_size=1)


def test_wrong_arguments(folder: Path) -> None:
    with pytest.raises(ValueError, match="batch_size=0"):
        pretraining_dataset(folder, batch_size=0)
    other = Masker([*VOCABULARY, "k"])
    with pytest.raises(ValueError, match="vocabulary .*masker"):
        pretraining_dataset(folder, batch_size=2, masker=other)


# ELECTRA's batches.


@pytest.mark.parametrize("dynamic", [True, False])
def test_for_electra_85_percent_of_the_chosen_tokens_are_masks(folder: Path, dynamic: bool) -> None:
    """Targets, weights and other inputs are those of the records; the texts come back whole."""
    mask, masked_shares = VOCABULARY.index("[MASK]"), []
    bert_batches = PretrainingBatches(
        open_records(folder),
        batch_size=50,
        steps_per_epoch=3,
        masker=Masker(VOCABULARY, max_predictions=CHOSEN) if dynamic else None,
    )
    batches = ReplacedTokenBatches(bert_batches, mask)
    assert (len(batches), batches.num_rows) == (3, 150)
    for (inputs, targets, weights), (given, masked, of_masks) in zip(
        arrays(batches.dataset().take(3)), arrays(bert_batches.dataset().take(3)), strict=True
    ):
        assert targets.keys() == weights.keys() == {"mask_logits", "replaced"}
        rows = np.arange(50)[:, None]
        is_real = of_masks["mask_logits"] > 0
        chosen = np.zeros_like(given["token_ids"], dtype=bool)
        chosen[(rows + 0 * given["mask_positions"])[is_real], given["mask_positions"][is_real]] = 1
        is_mask = inputs["token_ids"] == mask
        assert not is_mask[~chosen].any()
        kept = chosen & ~is_mask
        np.testing.assert_array_equal(inputs["token_ids"][kept], targets["replaced"][kept])
        masked_shares.append(is_mask[chosen].mean())
        np.testing.assert_array_equal(inputs["token_ids"][~chosen], given["token_ids"][~chosen])
        np.testing.assert_array_equal(targets["replaced"][~chosen], given["token_ids"][~chosen])
        assert mask not in targets["replaced"]
        found = np.take_along_axis(targets["replaced"], given["mask_positions"], 1)
        np.testing.assert_array_equal(found[is_real], masked["mask_logits"][is_real])
        np.testing.assert_array_equal(weights["replaced"], given["padding_mask"])
        for name in ("segment_ids", "padding_mask", "mask_positions"):
            np.testing.assert_array_equal(inputs[name], given[name])
    # Some 450 tokens: one standard deviation is 0.017.
    assert np.mean(masked_shares) == pytest.approx(0.85, abs=0.06)
    static = batches.dataset().element_spec[0]["token_ids"].shape
    assert static == (50, LENGTH)


@pytest.mark.one_case
@pytest.mark.parametrize("pack", [False, True])
def test_validation_batches_can_be_full(folder: Path, pack: bool) -> None:
    """Rows of weight 0 complete the last one, for ELECTRA too."""
    plain, fixed = (
        PretrainingBatches(open_records(folder), batch_size=50, pack=pack, static_shapes=most)
        for most in (None, 1)
    )
    assert fixed.dataset().element_spec[0]["token_ids"].shape == (50, LENGTH)
    pairs = [(plain, fixed)]
    if not pack:
        pairs.append(tuple(ReplacedTokenBatches(each, 4) for each in (plain, fixed)))
    for one, other in pairs:
        *_, expected = arrays(one.dataset())
        *_, found = arrays(other.dataset())
        assert len(one) == len(other)
        size = len(expected[0]["token_ids"])
        assert size < 50
        for part, like in zip(found, expected, strict=True):
            for name, values in like.items():
                np.testing.assert_array_equal(part[name][:size], values)
        for values in found[2].values():
            assert len(values) == 50
            assert not values[size:].any()


@pytest.mark.slow
def test_electras_batches_continue_where_a_run_stopped(folder: Path) -> None:
    bert_batches = PretrainingBatches(
        open_records(folder),
        batch_size=8,
        steps_per_epoch=3,
        masker=Masker(VOCABULARY, max_predictions=CHOSEN),
    )
    batches = ReplacedTokenBatches(bert_batches, VOCABULARY.index("[MASK]"))
    assert same(batches.dataset().take(5).skip(2), batches.dataset(skip=2).take(3))
    dev = batches.of(open_records(folder))
    assert len(dev) == len(list(dev.dataset()))
    assert dev.damage() is None


def test_damage_after_the_first_record_is_found(tmp_path: Path) -> None:
    """Such files are opened, because reading them whole would take too long before training."""
    path = write_as_google(tmp_path / "a.tfrecord", [GOOGLE] * 5)
    size = path.stat().st_size // 5
    whole = path.read_bytes()
    other = write_as_google(tmp_path / "b.tfrecord", [GOOGLE, GOOGLE | {"input_ids": [1]}])
    assert PretrainingBatches(open_records(path), batch_size=2).damage() is None
    flipped = bytearray(whole)
    flipped[3 * size + 20] ^= 0xFF
    path.write_bytes(flipped)
    batches = PretrainingBatches(open_records(path), batch_size=2)
    with pytest.raises(tf.errors.DataLossError):
        list(batches.dataset())
    assert batches.damage() == f"{path}: record 4 is damaged: fetch or make the file again"
    batches = PretrainingBatches(open_records(other), batch_size=2)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(batches.dataset())
    assert f"{other}: record 2 is damaged" in str(batches.damage())
