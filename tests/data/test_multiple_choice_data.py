"""SWAG's, COPA's and plain files with choices, and their batches."""

import gzip
import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import compile_toy

import keras_transformers as kt
from keras_transformers.data.text import ChoiceBatches, ChoiceExamples, load_choices
from keras_transformers.families.bert.model import bert

# The columns of SWAG's train.csv; its test.csv lacks the last one.
SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,lsmdc1-1,18,"Rain falls, hard. She","Rain falls, hard.",She,gold,'
    '"opens an ""umbrella"".",sings.,sleeps.,runs away.,0\n'
    "1,anetv_2,19,A man swims. He,A man swims.,He,gen,is dry.,is wet.,flies.,reads.,1\n"
)
COPA = [
    {"premise": "The lawn is wet.", "choice1": "It rained.", "choice2": "It is noon.",
     "question": "cause", "label": 0, "idx": 0},
    {"premise": "He fell.", "choice1": "He slept.", "choice2": "It hurt.",
     "question": "effect", "label": 1, "idx": 1},
]  # fmt: skip
PLAIN = [
    {"text": "two", "choices": ["dogs", "a film"], "label": 1},
    {"text": "", "choices": ["good", "bad", "very bad"], "label": 0},
]


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(rows, **changes):
    return "".join(json.dumps({**row, **changes}) + "\n" for row in rows)


def without_label(table):
    return "".join(line.rpartition(",")[0] + "\n" for line in table.splitlines())


@pytest.mark.parametrize("name", ["train.csv", "train.csv.gz"])
def test_swag(tmp_path, name):
    found = load_choices(write(tmp_path / name, SWAG))
    assert found.texts == ["Rain falls, hard.", "A man swims."]
    assert found.choices[0][0] == 'She opens an "umbrella".'
    assert found.choices[1] == ["He is dry.", "He is wet.", "He flies.", "He reads."]
    assert found.labels == [0, 1]
    unlabelled = load_choices(write(tmp_path / name, without_label(SWAG)))
    assert (unlabelled.labels, unlabelled.choices) == (None, found.choices)


@pytest.mark.parametrize("name", ["val.jsonl", "val.jsonl.gz"])
def test_copa(tmp_path, name):
    found = load_choices(write(tmp_path / name, lines(COPA)))
    assert found.texts == [
        "The lawn is wet. What was the cause of this?",
        "He fell. What happened as a result?",
    ]
    assert found.choices == [["It rained.", "It is noon."], ["He slept.", "It hurt."]]
    assert found.labels == [0, 1]
    assert load_choices(write(tmp_path / name, lines(COPA, label=-1))).labels is None


def test_labels_as_pandas_writes_them(tmp_path):
    path = write(tmp_path / "a.jsonl", lines([row | {"label": 1.0} for row in PLAIN]))
    assert set(load_choices(path).labels) == {1}


def test_plain_lines_with_any_number_of_choices(tmp_path):
    found = load_choices(write(tmp_path / "a.jsonl", lines(PLAIN)))
    assert (found.texts, found.labels) == (["two", ""], [1, 0])
    assert [len(choices) for choices in found.choices] == [2, 3]
    assert found.source == str(tmp_path / "a.jsonl")
    assert found.select([1]).texts == [""]
    rows = [{"text": row["text"], "choices": row["choices"]} for row in PLAIN]
    assert load_choices(write(tmp_path / "b.jsonl", lines(rows))).labels is None


BOTH = r":1, \S+a\.jsonl:2: "  # the same fault in both rows


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", SWAG.replace("ending3", "other"), ":1: .*ending3"),
        ("a.csv", SWAG.replace("He,gen,is dry.", "He,gen,"), ":3: ending0 is empty"),
        ("a.csv", SWAG.replace("reads.,1", "reads.,4"), ":3: the label is 4, expected 0 to 3"),
        ("a.csv", SWAG.replace("reads.,1", "reads.,b"), ":3: .*'b', .*number"),
        ("a.csv", SWAG.replace("reads.,1", "reads.,-1"), ":3: no label"),
        ("a.csv", SWAG.splitlines()[0] + "\n", ": no examples"),
        ("a.csv", "", ":1: .*sent1, sent2, ending0"),
        ("a.csv", SWAG + "2,x\n", ":4: 2 columns.* 12"),
        ("a.jsonl", "", ": no examples"),
        ("a.jsonl", lines(PLAIN) + "no JSON\n", ":3: not JSON"),
        ("a.jsonl", lines(PLAIN, label=2), ":1: the label is 2, expected 0 to 1"),
        ("a.jsonl", lines(PLAIN, label=-2), ":1: the label is -2, expected 0 to 1"),
        ("a.jsonl", lines(PLAIN, label=True), BOTH + ".*True, .*number"),
        ("a.jsonl", lines(PLAIN, label=None), BOTH + ".*None, .*number"),
        ("a.jsonl", lines(PLAIN, choices=["a"]), BOTH + r"the choices are \['a'\], expected two"),
        ("a.jsonl", lines(PLAIN, choices=["a", ""]), BOTH + "choice 1 is empty"),
        (
            "a.jsonl",
            lines(PLAIN, choices=["a", 1]),
            BOTH + r"'choices' is \['a', 1\], expected a li",
        ),
        ("a.jsonl", lines(PLAIN, choices="ab"), BOTH + "'choices' .*'ab', .*list"),
        ("a.jsonl", lines(PLAIN, text=None), BOTH + "'text' .*None, .*string"),
        ("a.jsonl", lines(COPA, question="why"), BOTH + "'question' .*'why', .*'cause'"),
        ("a.jsonl", lines(COPA, choice2=None), BOTH + "'choice2' .*None, .*string"),
        ("a.tsv", "a\tb\n", r": expected SWAG's .csv, or .jsonl"),
        ("a.jsonl.gz", b"no gzip", ":1: damaged gzip data"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        load_choices(path)
    assert str(path) in str(caught.value)
    with pytest.raises(FileNotFoundError):
        load_choices(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], []), "0 choices for 1 texts"),
        ((["a"], [["b", "c"]], [0, 1]), "2 labels for 1 texts"),
        ((["a"], [["b", "c"]], [2]), "row 0: the label is 2, expected 0 to 1"),
        ((["a"], ["bc"]), "row 0: .*'bc', .*two or more"),
    ],
)
def test_examples_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        ChoiceExamples(*arguments)


# --- batches ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def choose():
    return tiny.pipeline("multiple_choice")


def examples(count=12):
    choices = [["good", "two dogs", "a film", "very bad"][: 2 + i % 3] for i in range(count)]
    return ChoiceExamples(
        ["a " * (i % 5) for i in range(count)], choices, [i % 2 for i in range(count)]
    )


def test_a_batch_is_what_the_pipeline_encodes(choose):
    given = examples(6)
    (inputs, targets), *others = ChoiceBatches(given, choose, batch_size=4, shuffle=False).dataset()
    assert len(others) == 1
    padded = tf.ragged.constant(given.choices[:4]).to_tensor("")
    expected = choose.encode(tf.constant(given.texts[:4]), padded)
    assert inputs.keys() == expected.keys() == choose.model.input.keys()
    for name, value in expected.items():
        assert value.shape[:2] == (4, 4)
        np.testing.assert_array_equal(inputs[name], value)
    assert targets["logits"].numpy().tolist() == [0, 1, 0, 1]
    assert not inputs["padding_mask"][0, 2:].numpy().any()


def test_shuffled_batches_have_all_examples_and_resume_by_skipping(choose):
    batches = ChoiceBatches(examples(), choose, batch_size=2, accumulate=2, seed=3)
    assert (len(batches), batches.num_rows) == (3, 12)
    first = list(batches.dataset().take(7))
    texts = np.concatenate(
        [inputs["padding_mask"].numpy().any(2).sum(1) for inputs, _ in first[:3]]
    )
    assert sorted(texts) == sorted(len(choices) for choices in examples().choices)
    resumed = list(batches.dataset(skip=4).take(3))
    for (inputs, targets), (wanted, labels) in zip(resumed, first[4:], strict=True):
        np.testing.assert_array_equal(targets["logits"], labels["logits"])
        for name in wanted:
            np.testing.assert_array_equal(inputs[name], wanted[name])


def test_counts(choose, caplog):
    given = ChoiceExamples(["a film", "good"], [["a", "a film"], ["a " * 40, "bad", "bad"]], [0, 2])
    with caplog.at_level(logging.INFO):
        batches = ChoiceBatches(given, choose, batch_size=2)
    length = choose.max_sequence_length
    assert batches.lengths.tolist() == [7, length]
    assert batches.mean_lengths == (2.5, (6 + 7 + length + 5 + 5) / 5)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == (
        f"memory: 2 examples with 5 choices, {23 + length} tokens, 1 choices trimmed"
    )
    assert batches.samples(1).expected == ["a"]
    unlabelled = ChoiceExamples(given.texts, given.choices)
    assert [type(batch) for batch in batches.of(unlabelled).dataset()] == [dict]
    assert not batches.of(unlabelled).samples(1).expected
    with pytest.raises(ValueError, match="memory: no examples"):
        batches.of(ChoiceExamples([], []))


@pytest.mark.slow
def test_a_toy_learns(choose):
    """The good choice is right, wherever it stands and however many there are."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(120):
        some = random.permutation(["bad", "film", "dogs"])[: random.integers(1, 4)].tolist()
        label = int(random.integers(len(some) + 1))
        rows.append(("a film", [*some[:label], "good", *some[label:]], label))
    texts, choices, labels = map(list, zip(*rows, strict=True))
    keras.utils.set_random_seed(0)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "max_sequence_length": 16}
    encoder = bert(vocabulary_size=choose.tokenizer.vocabulary_size, **shape)
    model = kt.heads.multiple_choice(encoder)
    pipeline = kt.pipelines.MultipleChoice(model, choose.tokenizer)
    batches = ChoiceBatches(ChoiceExamples(texts, choices, labels), pipeline, batch_size=12, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compile_toy(model, keras.optimizers.Adam(1e-2), {"logits": loss})
    model.fit(batches.dataset(), steps_per_epoch=len(batches), epochs=4, verbose=0)
    found = [answer.choice_index for answer in pipeline(texts, choices)]
    assert found == labels
