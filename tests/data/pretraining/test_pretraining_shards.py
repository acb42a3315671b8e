"""Text to shards: the same bytes with any number of processes and after a stop; bad input."""

import dataclasses
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.pretraining import shards as pretraining_shards
from keras_transformers.data.pretraining.batches import (
    PretrainingOptions,
    PretrainingReport,
    make_pretraining_data,
    open_records,
)
from keras_transformers.jobs.engines import Local
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

LETTERS = "abcdefghij"
VOCABULARY = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
OPTIONS = PretrainingOptions(
    max_sequence_length=32, max_predictions=6, dupe_factor=2, num_shards=3, seed=7
)


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCABULARY)


def text(num_documents: int, seed: int) -> str:
    """Documents of 2 to 9 sentences of 1 to 8 words."""
    random = np.random.default_rng(seed)

    def sentence() -> str:
        sizes = random.integers(1, 4, random.integers(1, 9))
        return " ".join("".join(random.choice(list(LETTERS), size)) for size in sizes)

    documents = ([sentence() for _ in range(random.integers(2, 10))] for _ in range(num_documents))
    return "\n\n".join("\n".join(document) for document in documents)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("text")
    for number in range(3):
        (folder / f"{number}.txt").write_text(text(20, number), "utf-8")
    return [folder / f"{number}.txt" for number in range(3)]


@pytest.fixture(scope="module")
def made(
    files: list[Path], tokenizer: WordPieceTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, PretrainingReport]:
    folder = tmp_path_factory.mktemp("made") / "data"
    return folder, make_pretraining_data(files, folder, tokenizer, OPTIONS)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def examples(folder: Path) -> list[dict[str, list[Any]]]:
    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))))
    parsed = [tf.train.Example.FromString(record.numpy()) for record in records]
    return [
        {
            name: list(feature.float_list.value or feature.int64_list.value)
            for name, feature in example.features.feature.items()
        }
        for example in parsed
    ]


def test_a_folder_of_shards_and_a_manifest(made: tuple[Path, PretrainingReport]) -> None:
    folder, report = made
    shards = [f"pretraining-0000{i}-of-00003.tfrecord" for i in range(3)]
    assert sorted(digests(folder)) == ["manifest.json", *shards]
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["shards"] == {name: (folder / name).stat().st_size for name in shards}
    assert manifest["configuration"]["max_predictions"] == 6
    assert open_records(folder).num_examples == report.num_examples


def test_the_report_counts_what_is_in_text_and_records(
    made: tuple[Path, PretrainingReport], files: list[Path], tokenizer: WordPieceTokenizer
) -> None:
    folder, report = made
    lines = [line for path in files for line in path.read_text("utf-8").split("\n") if line]
    assert (report.num_documents, report.num_sentences) == (60, len(lines))
    assert report.num_tokens == sum(len(row) for row in tokenizer.tokenize(lines).to_list())
    records = examples(folder)
    assert report.num_examples == len(records)
    assert report.num_random_next == sum(r["next_sentence_labels"][0] for r in records)
    assert report.num_positions == sum(sum(r["input_mask"]) for r in records)
    assert report.num_chosen_tokens == sum(sum(r["masked_lm_weights"]) for r in records)
    sentence = str(report)
    assert (
        f"60 documents (0 empty, skipped; 0 of one sentence, only used as random next ones), "
        f"{len(lines)} sentences" in sentence
    )
    assert f"{report.num_examples} examples, " in sentence


def test_records_have_googles_features(made: tuple[Path, PretrainingReport]) -> None:
    """Names, types, lengths and padding match create_pretraining_data.py."""
    for record in examples(made[0]):
        assert {name: len(values) for name, values in record.items()} == {
            "input_ids": 32,
            "input_mask": 32,
            "segment_ids": 32,
            "masked_lm_positions": 6,
            "masked_lm_ids": 6,
            "masked_lm_weights": 6,
            "next_sentence_labels": 1,
        }
        num_tokens = sum(record["input_mask"])
        assert record["input_mask"] == [1] * num_tokens + [0] * (32 - num_tokens)
        ids = record["input_ids"]
        assert ids[0] == 2
        assert ids[num_tokens - 1] == 3
        assert not any(ids[num_tokens:])
        first = num_tokens - sum(record["segment_ids"])
        assert record["segment_ids"] == (
            [0] * first + [1] * (num_tokens - first) + [0] * (32 - num_tokens)
        )
        assert ids[first - 1] == 3
        num_chosen = int(sum(record["masked_lm_weights"]))
        assert record["masked_lm_weights"] == [1.0] * num_chosen + [0.0] * (6 - num_chosen)
        assert not any(record["masked_lm_positions"][num_chosen:])
        assert not any(record["masked_lm_ids"][num_chosen:])


@pytest.mark.slow
def test_two_processes_make_the_same_bytes(
    made: tuple[Path, PretrainingReport],
    files: list[Path],
    tokenizer: WordPieceTokenizer,
    tmp_path: Path,
) -> None:
    report = make_pretraining_data(files, tmp_path, tokenizer, OPTIONS, engine=Local(2))
    assert digests(tmp_path) == digests(made[0])
    assert report == made[1]


def test_another_seed_or_copy_gives_other_examples(
    made: tuple[Path, PretrainingReport],
    files: list[Path],
    tokenizer: WordPieceTokenizer,
    tmp_path: Path,
) -> None:
    records = examples(made[0])
    assert len({json.dumps(record) for record in records}) > 0.95 * len(records)
    options = PretrainingOptions(
        max_sequence_length=32, max_predictions=6, dupe_factor=2, num_shards=3, seed=8
    )
    make_pretraining_data(files, tmp_path, tokenizer, options)
    assert not set(digests(tmp_path).values()) & set(digests(made[0]).values())


KILLED = """
import os, signal, sys
from pathlib import Path
from keras_transformers.data.pretraining import shards
from keras_transformers.jobs.engines import Local
from keras_transformers.tokenizers import WordPieceTokenizer
write, count = shards.write_records, [0]
def write_or_die(path, batches):
    count[0] += 1
    if count[0] == 2:
        path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, batches)
shards.write_records = write_or_die
output, vocabulary, *files = sys.argv[1:]
options = shards.PretrainingOptions(
    max_sequence_length=32, max_predictions=6, dupe_factor=2, num_shards=3, seed=7
)
shards.make_pretraining_data(files, output, WordPieceTokenizer(vocabulary), options)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_at_the_first_missing_shard(
    made: tuple[Path, PretrainingReport],
    files: list[Path],
    tokenizer: WordPieceTokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", "utf-8")
    output = tmp_path / "data"
    command = [sys.executable, "-c", KILLED, output, tmp_path / "vocab.txt", *files]
    killed = subprocess.run(list(map(str, command)), capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-1000:]
    assert [path.name for path in output.glob("*.tfrecord")] == [
        "pretraining-00000-of-00003.tfrecord"
    ]
    with pytest.raises(ValueError, match="finished: run make_pretraining_data"):
        open_records(output)

    written = []
    write = pretraining_shards.write_records
    monkeypatch.setattr(
        pretraining_shards, "write_records", lambda *given: written.append(write(*given))
    )
    report = make_pretraining_data(files, output, tokenizer, OPTIONS)
    assert len(written) == 2
    assert (digests(output), report) == (digests(made[0]), made[1])
    assert make_pretraining_data(files, output, tokenizer, OPTIONS) == report
    assert len(written) == 2


def test_a_changed_configuration_is_refused_with_the_differences(
    made: tuple[Path, PretrainingReport], files: list[Path], tokenizer: WordPieceTokenizer
) -> None:
    before = digests(made[0])
    other = PretrainingOptions(
        max_sequence_length=64, max_predictions=6, dupe_factor=2, num_shards=3, seed=7
    )
    with pytest.raises(ValueError, match="max_sequence_length.*32,.*64;"):
        make_pretraining_data(files, made[0], tokenizer, other)
    with pytest.raises(ValueError, match=r"\['2.txt [0-9a-f]{64}'\],.*\[\]"):
        make_pretraining_data(files[:2], made[0], tokenizer, OPTIONS)
    cased = WordPieceTokenizer([*VOCABULARY, "new"], lowercase=False)
    with pytest.raises(ValueError, match="lowercase.* True.* False.* vocabulary"):
        make_pretraining_data(files, made[0], cased, OPTIONS)
    assert digests(made[0]) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b\nc d\ne f g h i j a b c d e f g h i j a b c d e f g h i j", "only one document, but"),
        ("a b c d e f g h\n\n" * 10, "10 documents .*one sentence"),
        ("a\nb\n\nc\nd", "4 tokens .*max_sequence_length=32"),
        ("", "0 tokens in all, too few"),
        (
            "a b c d e f g h\n" * 4 + "\nb\n",
            "1 documents .*2 times .*num_shards=3",
        ),
        ("a\n\nb\nok \0\n", r"bad\.txt:4: a NUL byte"),
    ],
)
def test_text_that_makes_no_examples(
    content: str, message: str, tokenizer: WordPieceTokenizer, tmp_path: Path
) -> None:
    """After fixing the text, the same folder can be used."""
    bad = tmp_path / "bad.txt"
    bad.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message) as info:
        make_pretraining_data(bad, tmp_path / "data", tokenizer, OPTIONS)
    assert "bad.txt" in str(info.value)
    assert not list((tmp_path / "data").iterdir())
    bad.write_text(text(20, 1), "utf-8")
    make_pretraining_data(bad, tmp_path / "data", tokenizer, OPTIONS)


def test_what_cannot_be_used_is_counted(tokenizer: WordPieceTokenizer, tmp_path: Path) -> None:
    """U+FFFD makes a sentence without tokens, and x is unknown."""
    lines = text(20, 1) + "\n\nx y a\n\n\ufffd\n\n\ufffd\na b\n"
    (tmp_path / "a.txt").write_text(lines, "utf-8")
    report = make_pretraining_data(tmp_path / "a.txt", tmp_path / "data", tokenizer, OPTIONS)
    assert report.num_documents == 23
    assert (report.num_empty_documents, report.num_single_sentence_documents) == (1, 2)
    assert (report.num_empty_sentences, report.num_unknown_tokens) == (2, 2)


def test_unreadable_lines_are_skipped_counted_and_listed(
    tokenizer: WordPieceTokenizer, tmp_path: Path
) -> None:
    """The shards are those of the text without these lines."""
    good = text(20, 1).encode()
    (tmp_path / "a.txt").write_bytes(good)
    (tmp_path / "b.txt").write_bytes(b"\xff\n" + good + b"\na\0b\n")
    expected = make_pretraining_data(tmp_path / "a.txt", tmp_path / "a", tokenizer, OPTIONS)
    report = make_pretraining_data(
        tmp_path / "b.txt", tmp_path / "b", tokenizer, OPTIONS, skip_unreadable=True
    )
    assert report == dataclasses.replace(expected, num_unreadable_lines=2)
    assert str(report).endswith("; 2 unreadable lines")
    listed = (tmp_path / "b" / "unreadable.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in listed] == [
        {"file": f"{tmp_path}/b.txt", "line": line, "reason": reason}
        for line, reason in (
            (1, "not UTF-8 (byte 0xff at byte 1 of the line), but perhaps cp1252"),
            (good.count(b"\n") + 3, "a NUL byte, so this is not text"),
        )
    ]
    shards = {name: digest for name, digest in digests(tmp_path / "a").items() if "tf" in name}
    assert shards.items() <= digests(tmp_path / "b").items()
    with pytest.raises(ValueError, match="skip_unreadable.*None"):
        make_pretraining_data(tmp_path / "b.txt", tmp_path / "b", tokenizer, OPTIONS)


def test_few_documents_fill_all_shards(tokenizer: WordPieceTokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c d e f g\nh i j a b c\n\nd e f g h\ni j a b c d", "utf-8")
    options = PretrainingOptions(max_sequence_length=16, dupe_factor=3, num_shards=6)
    report = make_pretraining_data(tmp_path / "a.txt", tmp_path / "data", tokenizer, options)
    assert report.num_examples >= 6
    assert len(open_records(tmp_path / "data").paths) == 6


def test_places_that_are_not_free(
    files: list[Path], tokenizer: WordPieceTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(FileExistsError, match=r"manifest\.json"):
        make_pretraining_data(files, tmp_path, tokenizer, OPTIONS)
    (tmp_path / "manifest.json").write_text("[]", "utf-8")
    with pytest.raises(ValueError, match="not a manifest of pretraining data"):
        make_pretraining_data(files, tmp_path, tokenizer, OPTIONS)
    with pytest.raises(FileNotFoundError, match="missing: no such file or folder"):
        make_pretraining_data(tmp_path / "missing", tmp_path / "data", tokenizer, OPTIONS)
    with pytest.raises(ValueError, match="num_processes=0"):
        make_pretraining_data(files, tmp_path / "data", tokenizer, OPTIONS, engine=Local(0))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"max_sequence_length": 4}, "max_sequence_length=4: must be 5 or more"),
        ({"dupe_factor": 0}, "dupe_factor=0: must be 1 or more"),
        ({"num_shards": 0}, "num_shards=0: must be 1 or more"),
        ({"seed": -1}, "seed=-1: must be 0 to"),
        ({"short_sequence_probability": 2}, "short_sequence_probability=2: must be 0 to 1"),
    ],
)
def test_options_out_of_range(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PretrainingOptions(**option)
