"""Sentence pairs: reading, encoding, batching by tokens, and errors."""

import gzip
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import says

from keras_transformers.data.static_shapes import best_limits
from keras_transformers.data.translation import (
    Pair,
    PairBatches,
    ParallelFiles,
    encode_pairs,
    read_multi30k,
    read_parallel,
    read_tsv,
)
from keras_transformers.data.translation.encoded_pairs import cut_anew
from keras_transformers.data.translation.pair_batches import batch_arrays
from keras_transformers.data.translation.token_batches import plan_batches
from keras_transformers.tokenizers import SentencePieceTokenizer, SymbolTokenizer

PAD, START, END = 0, 2, 3


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


# Reading.


@pytest.mark.parametrize("only_targets", [False, True])
def test_targets_keep_full_width_punctuation(tmp_path: Path, only_targets: bool) -> None:
    """What the targets' own tokenizer encodes, it decodes unchanged, so a model can write it."""
    chinese = "你好，世界！（第１页…）"  # noqa: RUF001 (full-width marks are meant)
    write(tmp_path / "train.en", "hello world!\n" * 3)
    write(tmp_path / "train.zh", f"{chinese}\n" * 3)
    files = ParallelFiles(
        data=tmp_path,
        source_language="en",
        target_language="zh",
        vocabulary_size=278,
        target_vocabulary_size=278,
    )
    targets = files.learn(tmp_path, only_targets=only_targets)[-1]
    assert targets.detokenize(targets.tokenize([chinese])).numpy()[0].decode() == chinese


def test_parallel_files_plain_and_gzipped(tmp_path: Path) -> None:
    """A tab, a line separator and an empty line are part of the text; a final newline is not."""
    german = write(tmp_path / "a.de", "Ein\tMann\n\nZwei\u2028Hunde")
    english = write(tmp_path / "a.en.gz", "A man\nA cat\nTwo dogs\n")
    assert list(read_parallel(german, english)) == [
        ("Ein\tMann", "A man"),
        ("", "A cat"),
        ("Zwei\u2028Hunde", "Two dogs"),
    ]


@pytest.mark.parametrize(("sources", "targets"), [(3, 5), (5, 3), (0, 1)])
def test_unequal_files_are_refused_with_both_counts(
    tmp_path: Path, sources: int, targets: int
) -> None:
    german = write(tmp_path / "a.de", "Hund\n" * sources)
    english = write(tmp_path / "a.en.gz", "dog\n" * targets)
    message = rf"a\.de has {sources} lines, .*a\.en\.gz has {targets}: the files must match"
    with pytest.raises(ValueError, match=message):
        list(read_parallel(german, english))


def test_bytes_that_are_not_utf8_are_refused_with_file_and_line(tmp_path: Path) -> None:
    german = tmp_path / "a.de"
    german.write_bytes(b"gut\nsch\xf6n\n")
    english = write(tmp_path / "a.en", "good\nnice\n")
    with pytest.raises(ValueError, match=r"a\.de:2: not UTF-8"):
        list(read_parallel(german, english))
    with pytest.raises(ValueError, match=r"a\.de:2: not UTF-8"):
        list(read_tsv(german, source_column=0, target_column=0))


def test_missing_files(tmp_path: Path) -> None:
    english = write(tmp_path / "a.en", "dog\n")
    with pytest.raises(FileNotFoundError, match=r"a\.de: no such file"):
        list(read_parallel(tmp_path / "a.de", english))
    with pytest.raises(FileNotFoundError, match=r"neither .*train\.de\.gz nor .*train\.de exists"):
        read_multi30k(tmp_path, "train")


def test_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv.gz", '1\tA "man\tEin Mann\n2\t\tHund\n')
    pairs = list(read_tsv(path, source_column=2, target_column=1))
    assert pairs == [("Ein Mann", 'A "man'), ("Hund", "")]


def test_malformed_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\nc\td\te\n")
    with pytest.raises(ValueError, match=r"a\.tsv:2: 3 columns,.*2"):
        list(read_tsv(path))
    for column in (2, -1):
        with pytest.raises(ValueError, match=rf"a\.tsv:1: 2 columns; .*source_column={column}"):
            list(read_tsv(path, source_column=column))


def test_multi30k_directions_and_plain_files(tmp_path: Path) -> None:
    write(tmp_path / "val.de.gz", "Hund\n")
    write(tmp_path / "val.en", "dog\n")
    assert list(read_multi30k(tmp_path, "val")) == [("Hund", "dog")]
    pairs = read_multi30k(tmp_path, "val", languages=("en", "de"))
    assert list(pairs) == [("dog", "Hund")]


# Encoding.


def pipeline(tokenizer: Any, max_sequence_length: int = 99) -> Any:
    """What batches need from a `pipelines.Translator`."""
    return SimpleNamespace(
        tokenizer=tokenizer,
        target_tokenizer=tokenizer,
        max_sequence_length=max_sequence_length,
    )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    folder = tmp_path_factory.mktemp("translation")
    text = "Ein Mann geht. Zwei Hunde rennen.\nA man walks. Two dogs run.\n"
    return SentencePieceTokenizer.train(
        [write(folder / "text", text)], folder / "shared.model", vocabulary_size=300
    )


def test_empty_and_too_long_pairs_are_dropped_and_counted(
    tokenizer: SentencePieceTokenizer,
) -> None:
    pairs = [
        ("Ein Mann", "A man"),
        ("", "A man"),
        ("Ein Mann", " \t "),
        ("", ""),
        ("Hunde", "Two dogs"),
        ("Ein Mann " * 9, "A man"),
        ("Ein Mann", "A man " * 9),
        ("Mann", "man"),
    ]
    encoded = encode_pairs(pairs, tokenizer, max_sequence_length=12)
    assert encoded.indices.tolist() == [0, 4, 7]
    assert len(encoded) == 3
    report = encoded.report
    assert (report.num_pairs, report.num_empty, report.num_too_long) == (8, 3, 2)
    assert report.num_source_tokens == encoded.source.lengths.sum()
    assert report.num_target_tokens == encoded.target.lengths.sum() - 3
    assert "3 of 8 pairs kept" in str(report)
    assert says(str(report), "3 with an empty side, 2 ... 12 tokens")


def test_the_longest_pair_that_fits(tokenizer: SentencePieceTokenizer) -> None:
    """The limit includes the end token of a source, and the start or end token of a target."""
    pairs = [("Ein Mann geht", "man"), ("Mann", "Two dogs run")]
    source = len(tokenizer.tokenize([pairs[0][0]]).to_list()[0]) + 1
    target = len(tokenizer.tokenize([pairs[1][1]]).to_list()[0]) + 1
    for limit in (source, target):
        kept = encode_pairs(pairs, tokenizer, max_sequence_length=limit).indices.tolist()
        assert kept == [i for i, size in enumerate((source, target)) if size <= limit]


def test_ids_and_ends(tokenizer: SentencePieceTokenizer) -> None:
    batches = PairBatches(
        [("Ein Mann", "A man")], pipeline(tokenizer), batch_tokens=99, shuffle=False
    )
    encoded = batches.pairs
    (source,), (target,) = (tokenizer.tokenize([t]).to_list() for t in ("Ein Mann", "A man"))
    assert encoded.source.values.tolist() == [*source, END]
    assert encoded.target.values.tolist() == [START, *target, END]
    ((inputs, targets, weights),) = batches.dataset()
    assert inputs["source_token_ids"].numpy().tolist() == [[*source, END]]
    assert inputs["target_token_ids"].numpy().tolist() == [[START, *target]]
    assert targets["logits"].numpy().tolist() == [[*target, END]]
    assert weights["logits"].numpy().tolist() == [[1.0] * (len(target) + 1)]


def test_more_pairs_than_a_chunk(
    tokenizer: SentencePieceTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [("Ein " * (i % 5), "A man" * (i % 3)) for i in range(23)]
    whole = encode_pairs(pairs, tokenizer, max_sequence_length=20)
    monkeypatch.setattr("keras_transformers.data.translation.encoded_pairs._CHUNK", 4)
    parts = encode_pairs(iter(pairs), tokenizer, max_sequence_length=20)
    np.testing.assert_array_equal(whole.source.values, parts.source.values)
    np.testing.assert_array_equal(whole.target.lengths, parts.target.lengths)
    assert whole.report == parts.report


# Batches.


NUMBERS = pipeline(SymbolTokenizer([str(i) for i in range(3000)], cut_at_spaces=True))


def random_pairs(count: int, seed: int = 0, max_length: int = 30) -> list[Pair]:
    """Pairs with correlated lengths; each word is the number of its pair, to recognize it."""
    random = np.random.default_rng(seed)
    sources = random.integers(2, max_length + 1, count)
    targets = np.clip(sources + random.integers(-3, 4, count), 2, max_length)
    return [  # positions of each side, end token included
        (" ".join([str(i)] * (source - 1)), " ".join([str(i)] * (target - 1)))
        for i, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


def elements(dataset: tf.data.Dataset) -> Iterator[tuple[dict[str, Any], ...]]:
    return dataset.as_numpy_iterator()


def epoch_of(batches: PairBatches, number: int = 0) -> list[Any]:
    """Returns the batches of an epoch."""
    sizes = [len(batches.plan(epoch)) for epoch in range(number + 1)]
    return list(elements(batches.dataset(skip=sum(sizes[:-1])).take(sizes[-1])))


def check_batch(
    inputs: dict[str, Any], by_output: dict[str, Any], weights_by_output: dict[str, Any]
) -> list[int]:
    """Checks the padding and the shift of a batch; returns the numbers of its pairs."""
    targets, weights = by_output["logits"], weights_by_output["logits"]
    source, target = inputs["source_token_ids"], inputs["target_token_ids"]
    assert source.dtype == target.dtype == targets.dtype == np.int32
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, targets != PAD)
    numbers = []
    for i in range(len(source)):
        source_row, target_row = source[i][source[i] != PAD], target[i][target[i] != PAD]
        length = len(target_row)
        if not weights[i].any():  # an empty row
            assert (source_row.tolist(), target_row.tolist()) == ([END], [START])
            continue
        number = source[i][0]
        assert set(source_row[:-1]) == {number}
        assert source_row[-1] == END
        assert (source[i][len(source_row) :] == PAD).all()
        assert target_row.tolist() == [START] + [number] * (length - 1)
        assert targets[i][:length].tolist() == [number] * (length - 1) + [END]
        assert (targets[i][length:] == PAD).all()
        numbers.append(int(number) - 4)
    return numbers


@pytest.mark.parametrize("static_shapes", [None, 1, 3])
def test_every_pair_is_in_an_epoch_once_within_the_budget(static_shapes: int | None) -> None:
    batches = PairBatches(random_pairs(300), NUMBERS, batch_tokens=500, static_shapes=static_shapes)
    statistics = batches.statistics
    seen, shapes, positions, tokens = [], set(), 0, 0
    for inputs, targets, weights in elements(batches.dataset().take(len(batches))):
        seen += check_batch(inputs, targets, weights)
        source, target = inputs["source_token_ids"], inputs["target_token_ids"]
        assert source.size + target.size <= 500
        shapes.add((source.shape, target.shape))
        positions += source.size + target.size
    report = batches.report
    tokens = report.num_source_tokens + report.num_target_tokens
    assert sorted(seen) == list(range(300))
    assert len(shapes) == statistics.num_shapes
    assert static_shapes is None or len(shapes) <= static_shapes
    assert (statistics.num_positions, statistics.num_padding) == (positions, positions - tokens)
    assert f"300 pairs in {len(batches)} batches" in str(statistics)
    assert batches.num_rows == 300
    lengths = {"source_token_ids": report.num_source_tokens / 300}
    assert batches.mean_lengths == lengths | {"target_token_ids": report.num_target_tokens / 300}


def test_accumulated_batches_are_so_many_parts() -> None:
    """Accumulation is for training only: evaluation uses the smaller batches."""
    pairs = random_pairs(300)
    whole = PairBatches(pairs, NUMBERS, batch_tokens=600)
    parts = PairBatches(pairs, NUMBERS, batch_tokens=200, accumulate=3)
    assert same(epoch_of(parts), epoch_of(whole))
    in_order = PairBatches(pairs, NUMBERS, batch_tokens=200, shuffle=False)
    assert same(list(elements(parts.of(pairs).dataset())), list(elements(in_order.dataset())))


def test_one_shape_is_part_of_the_type() -> None:
    dataset = PairBatches(random_pairs(50), NUMBERS, batch_tokens=300, static_shapes=1).dataset()
    inputs, targets, weights = dataset.element_spec
    assert inputs["source_token_ids"].shape == targets["logits"].shape == (5, 30)
    assert weights["logits"].shape == (5, 30)
    assert {inputs["source_token_ids"].shape for inputs, _, _ in elements(dataset.take(30))} == {
        (5, 30)
    }


def test_one_shape_has_equal_parts() -> None:
    batches = PairBatches(
        random_pairs(50), NUMBERS, batch_tokens=150, accumulate=3, static_shapes=1
    )
    inputs, *_ = batches.dataset().element_spec
    assert inputs["source_token_ids"].shape == (6, 30)  # 7 rows have room


def test_batches_are_well_filled() -> None:
    batches = PairBatches(random_pairs(3000), NUMBERS, batch_tokens=1000)
    assert batches.statistics.num_padding / batches.statistics.num_positions < 0.1
    sizes = [targets["logits"].size for _, targets, _ in epoch_of(batches)]
    assert np.median(sizes) > 400  # out of about 500 on each side


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a[0]["source_token_ids"], b[0]["source_token_ids"])
        and np.array_equal(a[1]["logits"], b[1]["logits"])
        for a, b in zip(one, other, strict=True)
    )


def test_order_depends_on_seed_and_epoch_alone() -> None:
    pairs = random_pairs(200)
    first, again, seeded, other = (
        PairBatches(pairs, NUMBERS, batch_tokens=400, seed=seed) for seed in (0, 0, 5, 5)
    )
    assert same(epoch_of(first), epoch_of(again))
    assert not same(epoch_of(first), epoch_of(seeded))
    assert not same(epoch_of(first), epoch_of(first, 1))
    assert same(epoch_of(seeded, 2), epoch_of(other, 2))


def test_one_dataset_object_begins_anew_each_time() -> None:
    dataset = PairBatches(random_pairs(100), NUMBERS, batch_tokens=400).dataset().take(20)
    assert same(list(elements(dataset)), list(elements(dataset)))


def test_batches_mix_lengths_and_pairs() -> None:
    """Batches are not ordered by length, and pairs get different neighbours in the next epoch."""
    batches = PairBatches(random_pairs(2000), NUMBERS, batch_tokens=400)
    lengths = [targets["logits"].shape[1] for _, targets, _ in epoch_of(batches)]
    assert abs(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1]) < 0.5

    def company(epoch: int) -> set[frozenset[int]]:
        return {
            frozenset(couple)
            for batch in epoch_of(batches, epoch)
            for couple in itertools.combinations(check_batch(*batch), 2)
        }

    first, second = company(0), company(1)
    assert len(first & second) < 0.4 * len(first)


def test_epochs_of_fit_follow_each_other() -> None:
    """`steps_per_epoch` cuts the endless dataset; the next epoch continues it."""
    seen = []

    class Recorder(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            seen.append(data)
            return {"loss": tf.zeros(())}

    batches = PairBatches(random_pairs(60), NUMBERS, batch_tokens=400)
    model = Recorder()
    model.compile(run_eagerly=True)
    model.fit(batches.dataset(), steps_per_epoch=len(batches), epochs=2, shuffle=False, verbose=0)
    assert same(seen, list(elements(batches.dataset().take(2 * len(batches)))))


@pytest.mark.parametrize("skip", [1, 17, 45])
def test_a_resumed_run_goes_on_where_it_stopped(skip: int) -> None:
    batches = PairBatches(random_pairs(100), NUMBERS, batch_tokens=400)
    whole = list(elements(batches.dataset().take(60)))
    resumed = batches.dataset(skip=skip).take(60 - skip)
    assert same(whole[skip:], list(elements(resumed)))


def test_batches_in_order_have_every_pair_once_and_know_their_number() -> None:
    pairs = random_pairs(150)
    for static_shapes in (None, 2):
        batches = PairBatches(pairs, NUMBERS, batch_tokens=300, static_shapes=static_shapes).of(
            pairs
        )
        dataset = batches.dataset()
        for _ in range(2):
            found = list(elements(dataset))
            assert int(dataset.cardinality()) == len(found) == len(batches)
            assert sorted(n for batch in found for n in check_batch(*batch)) == list(range(150))
        assert same(list(elements(batches.dataset(skip=3))), found[3:])


def test_plan_and_arrays_bring_outputs_back_into_order() -> None:
    """Decoding in batches of similar length: `indices` maps rows to pairs."""
    batches = PairBatches(random_pairs(40), NUMBERS, batch_tokens=200, shuffle=False)
    for batch in batches.plan(0):
        arrays = batch_arrays(batches.pairs, batch, NUMBERS.tokenizer, NUMBERS.tokenizer)
        assert check_batch(*arrays) == batch.indices.tolist()


def test_best_limits_against_all_choices() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        lengths, count = random.integers(1, 12, 30), int(random.integers(1, 6))
        values = np.unique(lengths)

        def padded(limits: Any, lengths: Any = lengths) -> int:
            return int(np.sort(limits)[np.searchsorted(np.sort(limits), lengths)].sum())

        choices = itertools.combinations(values[:-1], min(count, len(values)) - 1)
        best = min(padded([*choice, values[-1]]) for choice in choices)
        limits = best_limits(lengths, count)
        assert limits == sorted(set(limits))
        assert len(limits) <= count
        assert padded(limits) == best


def test_bad_batches() -> None:
    pairs = random_pairs(50)
    with pytest.raises(ValueError, match="no pairs .*0 of 2"):
        PairBatches([("", "1"), ("1 " * 99, "1")], NUMBERS, batch_tokens=100)
    for options, message in (
        ({"batch_tokens": 40}, r"batch_tokens is 40, but the longest pair takes \d+"),
        ({"batch_tokens": 59, "static_shapes": 2}, "batch_tokens is 59, .* takes 60 positions"),
        ({"batch_tokens": 100, "static_shapes": 0}, "0 length classes: must be 1"),
    ):
        for shuffle in (True, False):
            with pytest.raises(ValueError, match=message):
                PairBatches(pairs, NUMBERS, shuffle=shuffle, **options)
    lengths = np.array([30, 2])
    with pytest.raises(ValueError, match=r"30 exceeds shape_lengths=\[29\]"):
        plan_batches(lengths, lengths, batch_tokens=100, seed=0, shape_lengths=[29])


def test_what_is_dropped_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "keras_transformers")
    PairBatches([("1", "1"), ("2", "2")], NUMBERS, batch_tokens=100)
    PairBatches([("1", "1"), ("2", "")], NUMBERS, batch_tokens=100)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "1 of 2 pairs kept" in caplog.text
    assert "1 pairs in 1 batches of 1 shapes, 0.0% of 4 positions are padding" in caplog.text


# BPE dropout.

TEXTS = [("Zwei Hunde rennen.", "Two dogs run."), ("Ein Mann geht.", "A man walks.")] * 20


def test_dropout_changes_the_cut_but_not_the_text(tokenizer: SentencePieceTokenizer) -> None:
    pairs = encode_pairs(TEXTS, tokenizer, max_sequence_length=40)
    vocabularies = tokenizer.vocabulary, tokenizer.vocabulary
    of_epoch = cut_anew(pairs, *vocabularies, dropout=0.3, seed=0)
    first, second = of_epoch(0), of_epoch(1)
    assert len(first.source.values) > len(pairs.source.values)
    assert not np.array_equal(first.source.values, second.source.values)
    assert not np.array_equal(first.target.values, second.target.values)
    again = cut_anew(pairs, *vocabularies, dropout=0.3, seed=0)(1)
    np.testing.assert_array_equal(again.target.values, second.target.values)
    ragged = tf.RaggedTensor.from_row_lengths(second.target.values, second.target.lengths)
    back = tokenizer.detokenize(ragged).numpy().tolist()
    assert back == [target.encode() for _, target in TEXTS]
    assert {(row[0], row[-1]) for row in ragged.to_list()} == {(START, END)}


def test_dropout_counts_pairs_that_become_too_long(tokenizer: SentencePieceTokenizer) -> None:
    texts = [("Hunde", "dogs")] * 5 + [("Zwei Hunde rennen", "Two dogs run")] * 5
    pairs = encode_pairs(texts, tokenizer, max_sequence_length=16)
    cut = cut_anew(pairs, tokenizer.vocabulary, tokenizer.vocabulary, dropout=1.0, seed=0)(0)
    assert cut.indices.tolist() == [0, 1, 2, 3, 4]
    assert cut.report.num_too_long == 5


@pytest.mark.parametrize("static_shapes", [None, 2])
def test_dropout_in_batches(tokenizer: SentencePieceTokenizer, static_shapes: int | None) -> None:
    options = {"batch_tokens": 300, "static_shapes": static_shapes}
    translator = pipeline(tokenizer, 30)
    batches = PairBatches(TEXTS, translator, bpe_dropout=0.3, **options)
    found = list(elements(batches.dataset().take(30)))
    fresh = PairBatches(TEXTS, translator, bpe_dropout=0.3, **options)
    assert same(found[21:], list(elements(fresh.dataset(skip=21).take(9))))
    shapes = {batch[0]["source_token_ids"].shape for batch in found}
    assert static_shapes is None or len(shapes) <= static_shapes
    plain = PairBatches(TEXTS, translator, shuffle=False, **options)
    assert same(list(elements(batches.of(TEXTS).dataset())), list(elements(plain.dataset())))
    with pytest.raises(ValueError, match="dropout is 2"):
        PairBatches(TEXTS, translator, bpe_dropout=2, **options)


# Real data.


@pytest.mark.slow
def test_multi30k(data_dir: Path, tmp_path: Path) -> None:
    directory = data_dir / "multi30k"
    tokenizer = SentencePieceTokenizer.train(
        [directory / "train.de.gz", directory / "train.en.gz"], tmp_path / "multi30k.model"
    )
    translator = pipeline(tokenizer, 128)
    batches = PairBatches(read_multi30k(directory, "train"), translator, batch_tokens=4096)
    pairs, statistics = batches.pairs, batches.statistics
    assert len(pairs) == pairs.report.num_pairs == 29_000
    assert (pairs.source.lengths.max(), pairs.target.lengths.max()) == (58, 50)
    assert statistics.num_padding / statistics.num_positions < 0.07
    lengths = pairs.source.lengths, pairs.target.lengths - 1
    limits = best_limits(np.maximum(*lengths), 8)
    bounded = plan_batches(*lengths, batch_tokens=4096, seed=0, shape_lengths=limits)
    assert len({batch.source_length for batch in bounded}) == 8
    num_tokens = sum(map(np.sum, lengths))
    assert num_tokens > (1 - 0.15) * sum(batch.num_positions for batch in bounded)
    assert batches.of(read_multi30k(directory, "val")).num_rows == 1014
    test = read_multi30k(directory, "test_2016_flickr", languages=("en", "de"))
    assert sum(1 for _ in test) == 1000
