"""GLUE files by task name, SICK, the PASCAL challenges, and submission files."""

import collections
import gzip
import itertools
import zipfile

import pytest
import tensorflow as tf
from pipelines_without_models import Reader

from keras_transformers.data.text import (
    Examples,
    ScoredTextBatches,
    glue_file,
    glue_task,
    load_rte_challenge,
    regression,
    write_submission,
)
from keras_transformers.data.text.glue import TASKS
from keras_transformers.data.text.glue import load_glue as load
from keras_transformers.evaluation.glue import METRICS
from keras_transformers.tokenizers import WordPieceTokenizer


def write(path, *rows):
    data = "".join("\t".join(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# Header (none in CoLA) and two rows, as in the official files.
NLI = [f"x{i}" for i in range(8)]
FILES = {
    "cola": (None, ["gj04", "1", "", "Good one."], ["gj04", "0", "*", "Bad one."]),
    "sst2": ("sentence label", ["good ", "1"], ["bad ", "0"]),
    "mrpc": ("Quality|#1 ID|#2 ID|#1 String|#2 String", ["1", "7", "8", "a", 'b "x'],
             ["0", "9", "10", 'c "', "d"]),
    "qqp": ("id qid1 qid2 question1 question2 is_duplicate", ["1", "2", "3", "a?", "b?", "0"],
            ["1", "2", "3", "c?", "d?", "1"]),
    "stsb": ("index genre filename year old_index source1 source2 sentence1 sentence2 score",
             [*NLI[:7], "a", "b", "5.000"], [*NLI[:7], "c", "d", "0.25"]),
    "mnli": ("index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
             "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
             [*NLI, "a", "b", "entailment", "neutral"],
             [*NLI, "c", "d", "neutral", "contradiction"]),
    "qnli": ("index question sentence label", ["0", "a?", "b", "entailment"],
             ["1", "c?", "d", "not_entailment"]),
    "rte": ("index sentence1 sentence2 label", ["0", "a", "b", "not_entailment"],
            ["1", "c", "d", "entailment"]),
    "wnli": ("index sentence1 sentence2 label", ["0", "a", "b", "1"], ["1", "c", "d", "0"]),
}  # fmt: skip


def rows_of(name):
    header, *rows = FILES[name]
    if header is None:
        return rows
    return [header.split("|" if "|" in header else None), *rows]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz"])
def test_official_files(tmp_path, name, suffix):
    examples = load(name, write(tmp_path / f"train.{suffix}", *rows_of(name)))
    task = glue_task(name)
    assert len(examples) == 2
    assert (examples.texts_b is None) == (task.text_b is None)
    expected = {
        "cola": (["Good one.", "Bad one."], None, ["1", "0"]),
        "sst2": (["good ", "bad "], None, ["1", "0"]),
        "mrpc": (["a", 'c "'], ['b "x', "d"], ["1", "0"]),
        "qqp": (["a?", "c?"], ["b?", "d?"], ["0", "1"]),
        "stsb": (["a", "c"], ["b", "d"], ["5.000", "0.25"]),
        "mnli": (["a", "c"], ["b", "d"], ["neutral", "contradiction"]),
        "qnli": (["a?", "c?"], ["b", "d"], ["entailment", "not_entailment"]),
        "rte": (["a", "c"], ["b", "d"], ["not_entailment", "entailment"]),
        "wnli": (["a", "c"], ["b", "d"], ["1", "0"]),
    }[name]
    assert (examples.texts, examples.texts_b, examples.labels) == expected


TESTS = {
    "cola": "index sentence",
    "sst2": "index sentence",
    "mrpc": "index|#1 ID|#2 ID|#1 String|#2 String",
    "ax": "index sentence1 sentence2",
    "qqp": "id question1 question2",
}


@pytest.mark.parametrize("name", TESTS)
def test_test_files_have_no_labels(tmp_path, name):
    header = TESTS[name].split("|" if "|" in TESTS[name] else None)
    row = [str(i) for i in range(len(header))]
    examples = load(name, write(tmp_path / "test.tsv", header, row), labelled=False)
    assert examples.labels is None
    assert examples.texts == [row[header.index(glue_task(name).text)]]
    with pytest.raises(ValueError, match=r"test\.tsv:1: "):
        load(name, tmp_path / "test.tsv")


def test_columns_of_mnli_dev(tmp_path):
    header, row, other = rows_of("mnli")
    wide = [[*r[:-1], "label2", "label3", "label4", "label5", r[-1]] for r in (header, row, other)]
    examples = load("mnli", write(tmp_path / "dev_matched.tsv", *wide))
    assert examples.labels == ["neutral", "contradiction"]


def test_every_task_has_its_metrics_and_labels():
    assert list(TASKS)[:10] == [
        *("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax"),
    ]
    for name, task in TASKS.items():
        assert task.name == name
        assert set(task.metrics) <= set(METRICS)
        assert task.is_regression == ("pearson" in task.metrics)
    assert glue_task("mnli").labels == ("contradiction", "entailment", "neutral")
    with pytest.raises(ValueError, match="'sst-2';.*tasks.*sst2"):
        glue_task("sst-2")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cola", lambda rows: [["source", "label", "mark", "sentence"], *rows],
         r"x\.tsv:1: .*have no header.*remove this row"),
        ("cola", lambda rows: [["index", "sentence"], ["0", "a"]],
         r"x\.tsv:1: 2 columns.*source, label, mark, sentence.*labelled=False"),
        ("sst2", lambda rows: rows[1:], r"x\.tsv:1: 0 columns named 'sentence'.*the header"),
        ("stsb", lambda rows: rows[1:], r"x\.tsv:1: 0 columns named 'sentence1'"),
        ("rte", lambda rows: [rows[0], [*rows[1][:-1], "maybe"], rows[2]],
         r"x\.tsv:2: .*'maybe'.*\('entailment', 'not_entailment'\)"),
        ("rte", lambda rows: [rows[0], [*rows[1][:-1], ""]], r"x\.tsv:2: unknown label ''"),
        ("stsb", lambda rows: [*rows[:2], [*rows[2][:-1], "high"]],
         r"x\.tsv:3: .*'high'.*finite number"),
        ("stsb", lambda rows: [*rows[:2], [*rows[2][:-1], "5.1"]],
         r"x\.tsv:3: score 5\.1, expected within \(0, 5\)"),
        ("stsb", lambda rows: [*rows[:2], [*rows[2][:-1], "nan"]], r"x\.tsv:3: score is 'nan'"),
        ("qqp", lambda rows: [*rows, rows[1][:-2]], r"x\.tsv:4: 4 columns.* 6"),
        ("sst2", lambda rows: [rows[0], rows[1], rows[1]], r"all 2 examples have the label '1'"),
        ("stsb", lambda rows: [rows[0], rows[1], rows[1]], r"all 2 examples have the label '5"),
        ("sst2", lambda rows: rows[:1], r"x\.tsv: no examples.*header"),
        ("sst2", lambda rows: [], r"x\.tsv: no examples.*empty"),
        ("mrpc", lambda rows: [[*rows[0][:-1], "#1 String"], *rows[1:]], "2 columns named '#1 St"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, name, change, message):
    path = write(tmp_path / "x.tsv", *change(rows_of(name)))
    with pytest.raises(ValueError, match=message):
        load(name, path)


def test_malformed_rows_of_qqp_are_skipped_on_demand(tmp_path, caplog):
    header, first, second = rows_of("qqp")
    path = write(tmp_path / "x.tsv", header, first, first[:3], second, ["", ""])
    examples = load("qqp", path, malformed="skip")
    assert examples.texts == ["a?", "c?"]
    assert "2 malformed rows skipped, lines 3, 5" in caplog.text


def test_a_byte_order_mark_and_odd_lines(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('\ufeffsentence\tlabel\r\nnext\u2028line \x85\t1\r\n"open\t0\r\n', "utf-8")
    examples = load("sst2", path)
    assert (examples.texts, examples.labels) == (["next\u2028line \x85", '"open'], ["1", "0"])


def test_where_the_files_are(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"CoLA/train\.tsv: no such file"):
        glue_file("cola", tmp_path, "train")
    for folder, name in (("MNLI", "test_mismatched.tsv.gz"), ("diagnostic", "diagnostic.tsv")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).touch()
    assert glue_file("mnli", tmp_path, "test_mismatched").name == "test_mismatched.tsv.gz"
    assert glue_file("ax", tmp_path, "test").name == "diagnostic.tsv"


# --- submission files ------------------------------------------------------------------------


def test_submissions(tmp_path):
    path = tmp_path / "RTE.tsv"
    write_submission("rte", ["entailment", "not_entailment"], path)
    assert path.read_text() == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    write_submission("stsb", [3.14159, -0.5, 7], tmp_path / "STS-B.tsv")
    assert (tmp_path / "STS-B.tsv").read_text().split("\n")[1:-1] == [
        "0\t3.142", "1\t0.000", "2\t5.000",
    ]  # fmt: skip
    assert sorted(file.name for file in tmp_path.iterdir()) == ["RTE.tsv", "STS-B.tsv"]
    with pytest.raises(FileExistsError):
        write_submission("rte", [], path)
    for name, found, message in (
        ("rte", ["1"], r"prediction 0 is '1', expected one of rte's labels"),
        ("stsb", [1.0, float("nan")], "prediction 1 is nan, expected a finite"),
    ):
        with pytest.raises(ValueError, match=message):
            write_submission(name, found, tmp_path / "new.tsv")
    assert not (tmp_path / "new.tsv").exists()


def test_names_of_submissions():
    names = [glue_task(name).submission_name() for name in ("cola", "sst2", "stsb", "ax")]
    assert names == ["CoLA.tsv", "SST-2.tsv", "STS-B.tsv", "AX.tsv"]
    parts = ("test_matched", "test_mismatched")
    assert [glue_task("mnli").submission_name(part) for part in parts] == [
        "MNLI-m.tsv",
        "MNLI-mm.tsv",
    ]
    with pytest.raises(ValueError, match="part 'test', expected one of"):
        glue_task("mnli").submission_name()


# --- real files ------------------------------------------------------------------------------


def test_mrpc_and_sick(data_dir):
    mrpc = load("mrpc", data_dir / "mrpc/msr_paraphrase_train.txt.gz")
    assert collections.Counter(mrpc.labels) == {"1": 2753, "0": 1323}
    path = data_dir / "sick/SICK_train.txt.gz"
    relatedness, entailment = (load(f"sick_{kind}", path) for kind in ("relatedness", "entailment"))
    assert relatedness.texts == entailment.texts
    assert collections.Counter(entailment.labels) == {
        "NEUTRAL": 2536,
        "ENTAILMENT": 1299,
        "CONTRADICTION": 665,
    }
    scores = regression.scores(relatedness)
    assert (scores.min(), scores.max(), len(scores)) == (1.0, 5.0, 4500)


def test_the_pascal_challenges(data_dir):
    path = data_dir / "nltk/rte.zip"
    train = load_rte_challenge(path)
    assert collections.Counter(train.labels) == {"entailment": 1705, "not_entailment": 1662}
    test = load_rte_challenge(path, files=["rte3_test"])
    assert len(test) == 800
    assert test.source.endswith("rte.zip[rte3_test]")
    assert set(test.labels) == set(glue_task("rte").labels)
    assert train.texts[0].startswith("Crude oil for April delivery traded at $37.80 a barrel")
    with pytest.raises(ValueError, match=r"no rte/rte4\.xml in it"):
        load_rte_challenge(path, files=["rte4"])


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<c><pair id='1' value='TRUE'><t>a</t></pair></c>", "pair '1' is labelled 'TRUE', with"),
        (
            "<c><pair id='2' entailment='?'><t>a</t><h>b</h></pair></c>",
            r"pair '2' is labelled '\?'",
        ),
        ("<c>\n<pair>", r"rte\.zip:rte/rte1_dev\.xml: not XML .*line 2"),
    ],
)
def test_bad_challenges(tmp_path, xml, message):
    path = tmp_path / "rte.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rte/rte1_dev.xml", xml)
    with pytest.raises(ValueError, match=message):
        load_rte_challenge(path, files=["rte1_dev"])
    path.write_bytes(b"no zip")
    with pytest.raises(ValueError, match="not a zip file"):
        load_rte_challenge(path)
    with pytest.raises(FileNotFoundError):
        load_rte_challenge(tmp_path / "none.zip")


# --- scores as targets -----------------------------------------------------------------------


@pytest.mark.slow
def test_batches_with_scores():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    reader = Reader(tokenizer, max_sequence_length=8)
    examples = Examples(["a", "b", "a a", "b b"], ["b"] * 4, ["4.5", "0", "-1e0", "4.5"])
    shuffled = ScoredTextBatches(examples, reader, batch_size=3)
    in_order = shuffled.of(examples)
    batches = list(in_order.dataset())
    assert [y["score"].numpy().tolist() for _, y in batches] == [[4.5, 0.0, -1.0], [4.5]]
    assert {y["score"].dtype for _, y in batches} == {tf.float32}
    assert len(shuffled) == 2
    passes = iter(shuffled.dataset())
    for _ in range(3):
        seen = {}
        for inputs, targets in itertools.islice(passes, 2):
            for row, score in zip(
                inputs["token_ids"].numpy(), targets["score"].numpy(), strict=True
            ):
                seen[tuple(row[:4])] = float(score)
        assert seen == {(2, 5, 3, 6): 4.5, (2, 6, 3, 6): 0.0, (2, 5, 5, 3): -1.0, (2, 6, 6, 3): 4.5}
    (inputs, _) = in_order.of(Examples(examples.texts, examples.texts_b)).dataset()
    assert set(inputs) == {"token_ids", "segment_ids", "padding_mask"}
    with pytest.raises(ValueError, match="'inf',.*number"):
        ScoredTextBatches(Examples(["a", "b"], None, ["1", "inf"]), reader, batch_size=3)
    with pytest.raises(ValueError, match="examples without labels"):
        regression.scores(Examples(["a"]))
