"""Files to examples, and examples to batches."""

import collections
import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pipelines_without_models import Reader

from keras_transformers.data.text import (
    Examples,
    TextBatches,
    deduplicate,
    label_set,
    load,
    overlap,
    split,
)
from keras_transformers.data.text.classification import label_ids
from keras_transformers.files import read_lines

ROOT = Path(__file__).parents[2]


class WordTokenizer:
    """Tokens are words and ids their lengths; [CLS] and [SEP] are 101 and 102."""

    def tokenize(self, text):
        words = tf.strings.split(text)
        return words.with_values(tf.strings.length(words.values))

    def num_special_tokens(self, num_segments):
        return 2

    def pack(self, segments, *, max_sequence_length):
        ids = tf.concat(segments, axis=1)[:, : max_sequence_length - 2]
        ends = tf.ones([ids.nrows(), 1], tf.int32)
        packed = tf.concat([101 * ends, ids, 102 * ends], axis=1)
        token_ids = packed.to_tensor()
        return {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": tf.sequence_mask(packed.row_lengths(), tf.shape(token_ids)[1]),
        }


def text_batches(examples, labels, *, length, **options):
    reader = Reader(WordTokenizer(), max_sequence_length=length, labels=labels)
    return TextBatches(examples, reader, **options)


def write(path, text, encoding="utf-8"):
    data = text if isinstance(text, bytes) else text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.tsv", "good film\t1\nbad film\t0\nso bad\t0\nso good\t1\n", {}),
        ("a.tsv.gz", "good film\t1\r\nbad film\t0\r\nso bad\t0\r\nso good\t1", {}),
        ("s.tsv", "sentence\tlabel\ngood film\t1\nbad film\t0\nso bad\t0\nso good\t1\n", {}),
        (
            "a.csv",
            "label,text\n1,good film\n0,bad film\n0,so bad\n1,so good\n",
            {"text_column": 1, "label_column": 0},
        ),
        (
            "b.csv",
            "\ufeff1,good film\n0,bad film\n0,so bad\n1,so good\n",
            {"text_column": -1, "label_column": 0},
        ),
        (
            "c.csv",
            '\ufeffy,t,z\n1,"good film",\n 0 ,bad film,9\n0,so bad,9\n1,so good,9\n',
            {"text_column": "t", "label_column": "y"},
        ),
        (
            "a.jsonl",
            '{"t": "good film", "y": 1}\n{"y": 0, "t": "bad film"}\n'
            '{"t": "so bad", "y": "0"}\n{"t": "so good", "y": "1"}\n',
            {"text_column": "t", "label_column": "y"},
        ),
        (
            "cola.tsv",
            "s\t1\t\tgood film\ns\t0\t*\tbad film\ns\t0\t*\tso bad\ns\t1\t\tso good\n",
            {"text_column": 3},
        ),
    ],
)
def test_the_same_examples_from_every_format(tmp_path, name, text, columns):
    examples = load(write(tmp_path / name, text), **columns)
    assert list(examples.texts) == ["good film", "bad film", "so bad", "so good"]
    assert list(examples.labels) == ["1", "0", "0", "1"]
    assert examples.texts_b is None
    assert examples.source == str(tmp_path / name)


def test_tsv_knows_no_quotes_and_only_newlines_end_a_line(tmp_path):
    hostile = (
        '"an unbalanced quote\t0\nnext\u2028line\x85 and \r carriage\t1\nemoji 🎬, e\u0301\t0\n'
    )
    examples = load(write(tmp_path / "a.tsv", hostile), header="absent")
    assert list(examples.texts) == [
        '"an unbalanced quote',
        "next\u2028line\x85 and \r carriage",
        "emoji 🎬, e\u0301",
    ]


def test_csv_quotes_commas_and_line_ends(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"a, ""b""\nc",x\nd,y\n')
    assert list(load(path).texts) == ['a, "b"\nc', "d"]
    write(path, 'text,label\n"a\nb",x\nc\n')
    with pytest.raises(ValueError, match=r"a\.csv:4: 1 columns,.*2"):
        load(path)


def test_pairs_of_mrpc(data_dir):
    examples = load(
        data_dir / "mrpc/msr_paraphrase_train.txt.gz",
        text_column=3,
        text_b_column=4,
        label_column="Quality",
    )
    # The corpus states 4,076 rows; the byte order mark hides no column.
    assert (len(examples), len(examples.texts_b)) == (4076, 4076)
    assert label_set(examples) == ["0", "1"]
    assert any(text.count('"') % 2 for text in examples.texts)


def test_sst2(data_dir):
    train = load(data_dir / "sst2/train.tsv.gz")
    dev = load(data_dir / "sst2/dev.tsv.gz", labels=label_set(train))
    assert (len(train), len(dev)) == (6920, 872)
    assert collections.Counter(dev.labels) == {"1": 444, "0": 428}


def test_unlabelled(tmp_path):
    path = write(tmp_path / "test.tsv", "index\tsentence\n0\tgood\n1\tbad\n")
    examples = load(path, text_column="sentence", label_column=None)
    assert (list(examples.texts), examples.labels) == (["good", "bad"], None)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.tsv", "a\t1\nb\n", {}, r"a\.tsv:2: 1 columns.* 2$"),
        ("a.tsv", "a\t1\nb\t0\textra\n", {}, r"a\.tsv:2: 3 columns.* 2$"),
        ("a.tsv", "a\t1\n\nb\t0\n", {}, r"a\.tsv:2: an empty row"),
        ("a.tsv", "a\t1\nb\t \n", {}, r"a\.tsv:2: an empty label"),
        ("a.tsv", "a\t1\nb\t2\n", {"labels": ["0", "1"]}, r"a\.tsv:2: unknown label '2'.*\['0'"),
        ("a.tsv", "sentence\tlabel\na\t1\nb\t2\n", {"labels": ["1"]}, r"a\.tsv:3: unknown label"),
        ("a.tsv", b"a\t1\nb\xff\t0\n", {}, r"a\.tsv:2: not UTF-8 \(byte 0xff at byte 2"),
        ("a.tsv.gz", b"a\t1\n\xe4\t0\n", {}, r"a\.tsv\.gz:2: not UTF-8"),
        ("a.tsv", "", {}, r"a\.tsv: no examples"),
        ("a.csv", "text,label\n", {}, r"a\.csv: no examples"),
        ("a.csv", 'a,1\n"b,0\n', {}, r"a\.csv:2: not comma-separated values"),
        ("a.tsv", "a\t1\n", {"label_column": 2}, r"a\.tsv:1: no column 2 of 0 to 1"),
        ("a.tsv", "a\t1\n", {"label_column": "y"}, r"a\.tsv:1: 0 columns named 'y' among \['a'"),
        ("a.tsv", "y\ty\na\t1\n", {"label_column": "y"}, r"2 columns named 'y'"),
        ("a.jsonl", '{"t": "a"}\n', {}, r"pass the name of a key"),
        ("a.jsonl", '{"t": "a"}\n', {"text_column": "t", "label_column": "y"}, r":1: no key 'y'"),
        ("a.jsonl", '{"t": 1\n', {"text_column": "t", "label_column": None}, r":1: not JSON"),
        ("a.jsonl", "[1]\n", {"text_column": "t", "label_column": None}, r":1: a JSON list"),
        ("a.jsonl", '{"t": null}', {"text_column": "t", "label_column": None}, r":1: 't' is null"),
        ("a.data", "a\t1\n", {}, r"a\.data: .*format"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path, name, text, options, message):
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=message):
        load(path, **options)


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.tsv: no such file"):
        load(tmp_path / "none.tsv")
    path = tmp_path / "cut.tsv.gz"
    path.write_bytes(gzip.compress(os.urandom(4000).hex().encode())[:-20])
    with pytest.raises(ValueError, match="damaged gzip data"):
        list(read_lines(path))
    path.write_bytes(b"not gzip at all")
    with pytest.raises(ValueError, match="damaged gzip data"):
        list(read_lines(path))


def test_headers_stated_wrongly_are_refused(tmp_path):
    data = write(tmp_path / "data.tsv", "a\t1\nb\t0\nc\t1\nd\t0\n")
    with pytest.raises(ValueError, match=r"data\.tsv:1: given as a header.*'1'"):
        load(data, header="present")
    odd = write(tmp_path / "odd.tsv", "phrase\tpolarity\na\t1\nb\t0\nc\t1\nd\t0\n")
    with pytest.raises(ValueError, match=r"odd\.tsv:1:.*label 'polarity'"):
        load(odd)
    assert len(load(odd, header="present")) == 4
    assert len(load(odd, header="absent")) == 5
    plain = write(tmp_path / "plain.tsv", "text\tlabel\na\t1\nb\t0\nc\t1\nd\t0\n")
    with pytest.raises(ValueError, match="'label'.*row"):
        load(plain, header="absent")
    with pytest.raises(ValueError, match="header='absent', but the columns"):
        load(plain, header="absent", text_column="text")


# --- labels, duplicates, splits --------------------------------------------------------------


def test_label_set_orders_numbers_by_value_and_names_naturally():
    labels = ["10", "class10", "2", "-1", "class2", "nan", "1.5"]
    examples = Examples(list("abcdefg"), labels=labels)
    assert label_set(examples) == ["-1", "1.5", "2", "10", "class2", "class10", "nan"]
    with pytest.raises(ValueError, match=r"1 different labels \['1'\]"):
        label_set(Examples(["a", "b"], labels=["1", "1"]))


def test_duplicates_are_counted_and_conflicts_dropped():
    texts = ["A film", "a  film", "b", "c", "C", "d"]
    examples = Examples(texts, labels=["1", "1", "0", "0", "1", "1"])
    kept, report = deduplicate(examples)
    assert list(kept.texts) == ["A film", "b", "d"]
    assert (report.repeated, report.conflicting) == (1, 2)
    assert "1 repeated" in str(report)
    assert "2 whose text" in str(report)
    assert "'c'" in str(report)
    pairs = Examples(["a", "a"], ["x", "y"], ["1", "0"])
    assert len(deduplicate(pairs)[0]) == 2
    assert overlap(examples, kept) == 4  # both spellings of "a film", "b" and "d"


def toy(count=100):
    return Examples(
        [f"text {i}" for i in range(count)],
        labels=["rare" if i % 10 == 0 else "common" for i in range(count)],
    )


def test_split_is_stratified_and_complete():
    parts = split(toy(), {"train": 0.8, "dev": 0.1, "test": 0.1}, seed=1)
    counts = {name: collections.Counter(part.labels) for name, part in parts.items()}
    assert counts["train"] == {"common": 72, "rare": 8}
    assert counts["dev"] == counts["test"] == {"common": 9, "rare": 1}
    together = [text for part in parts.values() for text in part.texts]
    assert sorted(together) == sorted(toy().texts)
    # Labels are mixed within a part, and so in unshuffled batches.
    assert list(parts["train"].labels) != sorted(parts["train"].labels)


def test_split_depends_on_the_seed_not_on_the_order():
    examples = toy()
    backwards = examples.select(reversed(range(len(examples))))
    first = split(examples, {"train": 0.5, "dev": 0.5}, seed=1)
    assert first["dev"].texts == split(backwards, {"train": 0.5, "dev": 0.5}, seed=1)["dev"].texts
    assert first["dev"].texts != split(examples, {"train": 0.5, "dev": 0.5}, seed=2)["dev"].texts


def test_split_is_the_same_under_another_hash_seed():
    program = (
        "from keras_transformers.data.text.cleaning import split\n"
        "from keras_transformers.data.text.examples import Examples\n"
        "toy = Examples([str(i) for i in range(40)], labels=['ab'[i % 2] for i in range(40)])\n"
        "print(split(toy, {'a': 0.5, 'b': 0.5}, seed=3)['b'].texts)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_empty_splits_and_wrong_shares_are_refused():
    with pytest.raises(ValueError, match="dev split .*2 examples"):
        split(toy(2), {"train": 0.9, "dev": 0.1}, seed=0)
    with pytest.raises(ValueError, match="above 0.*sum 1"):
        split(toy(), {"train": 0.9, "dev": 0.2}, seed=0)


# --- batches ---------------------------------------------------------------------------------


def long_and_short(count=1001):
    rng = np.random.default_rng(0)
    texts = [f"{'word ' * rng.integers(0, 60)}{'x' * i}" for i in range(count)]
    return Examples(texts, labels=[str(i % 2) for i in range(count)])


def batches(data, count=None):
    elements = data.dataset().take(len(data) if count is None else count)
    return [(inputs["token_ids"].numpy(), target["logits"].numpy()) for inputs, target in elements]


def test_unshuffled_batches_keep_the_order_and_pad_to_their_longest():
    examples = Examples(["a bb", "ccc", "", "d d d d d"], labels=["y", "n", "n", "y"])
    data = text_batches(examples, ["n", "y"], batch_size=2, length=5, shuffle=False)
    (first, first_ids), (second, second_ids) = batches(data)
    assert first.tolist() == [[101, 1, 2, 102], [101, 3, 102, 0]]
    assert second.tolist() == [[101, 102, 0, 0, 0], [101, 1, 1, 1, 102]]
    assert (first_ids.tolist(), second_ids.tolist()) == ([1, 0], [0, 1])
    assert len(data) == len(list(data.dataset())) == 2
    assert len(list(data.dataset(skip=1))) == 1
    inputs, target = data.dataset().element_spec
    assert {key: spec.dtype for key, spec in inputs.items()} == {
        "token_ids": tf.int32,
        "segment_ids": tf.int32,
        "padding_mask": tf.bool,
    }
    assert target["logits"].dtype == tf.int32


def test_each_pass_sees_every_example_once_in_another_order():
    examples = long_and_short()
    numbers = Examples(examples.texts, labels=[str(i) for i in range(len(examples))])
    data = text_batches(numbers, numbers.labels, batch_size=16, length=64, seed=7)
    both = [ids for _, ids in batches(data, 2 * len(data))]
    passes = [both[: len(data)], both[len(data) :]]
    for ids in passes:
        assert len(ids) == len(data) == 63
        assert sorted(len(i) for i in ids) == [9] + [16] * 62
        assert sorted(np.concatenate(ids)) == list(range(1001))
    first, second = (np.concatenate(ids).tolist() for ids in passes)
    assert first != second
    # Not only the order of the batches differs, but also which examples they contain.
    assert {frozenset(i) for i in passes[0]}.isdisjoint({frozenset(i) for i in passes[1]})


def test_the_shuffle_is_reproducible_and_skips_batches():
    def fresh(seed):
        return text_batches(long_and_short(100), ["0", "1"], batch_size=8, length=64, seed=seed)

    data = fresh(3)
    two_passes = [tokens.tolist() for tokens, _ in batches(data, 26)]
    assert two_passes == [tokens.tolist() for tokens, _ in batches(fresh(3), 26)]
    skipped = fresh(3).dataset(skip=15).take(11)
    assert two_passes[15:] == [inputs["token_ids"].numpy().tolist() for inputs, _ in skipped]
    assert two_passes[:13] != [tokens.tolist() for tokens, _ in batches(fresh(4))]


def test_statistics_count_what_is_trimmed_and_padded():
    examples = long_and_short()
    for shuffle in (False, True):
        data = text_batches(examples, ["0", "1"], batch_size=16, length=50, shuffle=shuffle)
        counted = data.statistics
        elements = data.dataset().take(len(data))
        masks = [inputs["padding_mask"].numpy() for inputs, _ in elements]
        assert counted.num_tokens == sum(mask.sum() for mask in masks)
        padding = sum((~mask).sum() for mask in masks)
        if not shuffle:
            assert counted.num_padding == padding > 0.5 * counted.num_tokens
        assert counted.num_trimmed == sum(len(t.split()) + 2 > 50 for t in examples.texts) > 0
        assert abs(counted.num_padding - padding) < 0.02 * counted.num_tokens
    assert counted.num_padding < 0.05 * counted.num_tokens  # similar lengths in a batch
    assert f"{counted.num_trimmed} inputs trimmed" in str(counted)


def test_accumulated_batches_are_larger_in_training_only():
    data = text_batches(long_and_short(100), ["0", "1"], batch_size=8, accumulate=3, length=64)
    assert len(data) == 5
    assert len(data.of(long_and_short(100))) == 13


def test_pairs_and_unlabelled_examples():
    pairs = Examples(["a", "b b"], ["c", "d d d"])
    (inputs,) = text_batches(pairs, ["0"], batch_size=2, length=16, shuffle=False).dataset()
    assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == [4, 7]


def test_bad_requests_are_refused():
    def make(examples, **options):
        return text_batches(examples, ["0", "1"], length=8, **{"batch_size": 2} | options)

    with pytest.raises(ValueError, match="no examples"):
        make(Examples([], labels=[]))
    with pytest.raises(ValueError, match=r"unknown labels \['2'\]"):
        make(Examples(["a"], labels=["2"]))
    with pytest.raises(ValueError, match="without labels"):
        label_ids(Examples(["a"]), ["0", "1"])
    with pytest.raises(ValueError, match="batch_size is 0"):
        make(Examples(["a"], labels=["1"]), batch_size=0)
    with pytest.raises(ValueError, match="1 labels for 2 texts"):
        Examples(["a", "b"], labels=["1"])
