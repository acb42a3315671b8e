"""CoNLL files to sentences, sentences to batches, and logits to labels."""

import gzip
import logging

import keras
import numpy as np
import pytest
from checks import compile_toy, says
from pipelines_without_models import Reader

from keras_transformers.data.text import (
    Sentences,
    TaggedBatches,
    TaggedFiles,
    entity_labels,
    load_conll,
    to_iob2,
)
from keras_transformers.runs import outputs_of
from keras_transformers.tokenizers import WordPieceTokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh.", "##a", "##b", "##c"]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY)


def write(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# --- files -----------------------------------------------------------------------------------

IOB1 = """-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official NN I-NP O
Ekeus NNP I-NP I-PER
Smith NNP I-NP B-PER

-DOCSTART- -X- O O

Paris NNP I-NP I-LOC
Rome NNP I-NP I-ORG
"""
IOB2 = IOB1.replace("I-ORG", "B-ORG").replace("I-PER", "B-PER").replace("I-LOC", "B-LOC")
EXPECTED = [["B-ORG", "O", "B-PER", "B-PER"], ["B-LOC", "B-ORG"]]


@pytest.mark.parametrize(
    ("text", "scheme"),
    [(IOB1, "IOB1 with 0 exceptions, 4 con"), (IOB2, "IOB2 with 0 exceptions, 0 con")],
)
@pytest.mark.parametrize("name", ["eng.train", "eng.train.gz"])
def test_both_schemes_are_read(tmp_path, caplog, text, scheme, name):
    caplog.set_level(logging.INFO)
    expected = EXPECTED
    sentences = load_conll(write(tmp_path / name, text))
    assert sentences.labels == expected
    assert sentences.words == [["U.N.", "official", "Ekeus", "Smith"], ["Paris", "Rome"]]
    assert f"labels in {scheme}" in caplog.text
    assert "2 documents" in caplog.text


def test_columns_endings_and_odd_spaces(tmp_path):
    text = "PER\tNew\u00a0York\ta\r\nO  \"quoted'\tb \r\n \t\r\nO\tlast\tc"
    sentences = load_conll(
        write(tmp_path / "a", text.replace("PER", "I-PER")), word_column=-2, label_column=0
    )
    assert sentences.words == [["New\u00a0York", "\"quoted'"], ["last"]]
    assert sentences.labels == [["B-PER", "O"], ["O"]]
    unlabelled = load_conll(tmp_path / "a", word_column=1, label_column=None)
    assert (unlabelled.words, unlabelled.labels) == (sentences.words, None)


def test_a_file_of_both_schemes_is_reported(tmp_path, caplog):
    load_conll(write(tmp_path / "a", "a I-PER\nb B-LOC\nc I-LOC\nd I-ORG\n"))
    assert "labels in IOB1 with 1 exceptions, 2 converted to IOB2" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("I-PER I-PER O I-PER", "B-PER I-PER O B-PER"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("I-PER I-LOC", "B-PER B-LOC"),
        ("B-PER I-LOC I-LOC O O", "B-PER B-LOC I-LOC O O"),
        ("O", "O"),
        ("", ""),
    ],
)
def test_conversion(labels, expected):
    assert to_iob2(labels.split()) == expected.split()
    assert to_iob2(expected.split()) == expected.split()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a b O\nc O\n", {}, r"x\.conll:2: 2 columns.* 3"),
        ("a O\n\nb O O\n", {}, r"x\.conll:3: 3 columns.* 2"),
        ("word ner\na O\n", {}, r"x\.conll:1: .*'ner'.*B-TYPE.*header"),
        ("a O\nb ,\n", {}, r"x\.conll:2: label ','"),
        ("a DT\nb NNP\nc DT\n", {}, r"x\.conll:1: .*'DT'.*parts of speech"),
        ("a O\nb X-PER\nc PER-B\n", {}, r"x\.conll:3: label 'PER-B', expected"),
        ("a B-LOC\nb PER\n", {}, r":2: .*'PER'.*'B-LOC' at .*x\.conll:1: "),
        ("a B-LOC\nb L-LOC\nc S-LOC\n", {}, ":2: .*'L-LOC'.*'S-LOC' at .*:3: "),
        ("a B-LOC\nb I-loc\n", {}, r":2: .*'I-loc'.*'B-LOC' at .*x\.conll:1: spell"),
        ("a b O\n# c\nd e O\n", {}, ":2: 2 columns.* 3.*comments"),
        ("a I-\n", {}, r"x\.conll:1: label 'I-'"),
        ("a O\nb I-\n", {}, r"x\.conll:2: label 'I-'"),
        (
            "a O\n\n-DOCSTART- -X-\n\nb I-PER\n",
            {"labels": ["O", "B-LOC", "I-LOC"]},
            r"x\.conll:5: .*'B-PER'.*\['O'",
        ),
        ("a O\n", {"label_column": 2}, r"x\.conll:1: no column 2 of 0 to 1"),
        ("a O\n", {"word_column": -3}, r"x\.conll:1: no column -3 of 0 to 1"),
        ("", {}, r"x\.conll: no sentences"),
        ("-DOCSTART- -X- -X- O\n\n", {}, r"x\.conll: no sentences"),
        (b"a O\n\xff O\n", {}, r"x\.conll:2: not UTF-8"),
    ],
)
def test_bad_files(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        load_conll(write(tmp_path / "x.conll", text), **options)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_conll(tmp_path / "none")


def test_labels_in_order_and_one_class():
    sentences = Sentences([["a", "b"]], [["B-PER", "B-LOC"]])
    assert entity_labels(sentences) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    with pytest.raises(ValueError, match="no label but 'O'"):
        entity_labels(Sentences([["a"]], [["O"]]))
    with pytest.raises(ValueError, match="as many labels as words"):
        Sentences([["a", "b"]], [["O"]])


def test_the_files_of_a_recipe(tmp_path):
    train = write(tmp_path / "train", "I-PER Bob\nO saw\n\nI-LOC Rome\n")
    dev = write(tmp_path / "dev", "B-LOC Rome\n")
    files = {"train_file": train, "dev_file": dev, "word_column": 1, "label_column": 0}
    splits = TaggedFiles(**files, test_file=dev).read()
    assert splits.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert splits.train.words == [["Bob", "saw"], ["Rome"]]
    assert splits.dev.labels == splits.test.labels == [["B-LOC"]]
    assert TaggedFiles(**files).read().test is None
    with pytest.raises(ValueError, match=r"dev:1: unknown.*'B-ORG',.*\['O'"):
        TaggedFiles(**files | {"dev_file": write(dev, "B-ORG Rome\n")}).read()


@pytest.mark.slow
def test_conll2003(data_dir, caplog):
    caplog.set_level(logging.INFO)
    train = load_conll(data_dir / "conll2003/eng.train.gz")
    dev = load_conll(data_dir / "conll2003/eng.testa.gz", labels=entity_labels(train))
    assert [len(train), len(dev)] == [14041, 3250]
    assert [sum(map(len, part.words)) for part in (train, dev)] == [203621, 51362]
    starts = [
        sum(label.startswith("B-") for row in part.labels for label in row) for part in (train, dev)
    ]
    assert starts == [23499, 5942]  # numbers of entities stated by the corpus
    assert len(entity_labels(train)) == 9
    # The original file has two B- where IOB1 has none.
    assert "in IOB1 with 2 exceptions, 23427 converted to IOB2; 946 documents" in caplog.text
    assert "in IOB1 with 0 exceptions, 5938 converted to IOB2; 216 documents" in caplog.text


# --- files that people have ------------------------------------------------------------------

CONLL_U = """# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
# sent_id = 1
# text = Im Haus 10 000
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tIn\tin\tADP\t_\t_\t_\t_\t_\tO
2\tdem\tder\tDET\t_\t_\t_\t_\t_\tO
3\tHaus\tHaus\tNOUN\t_\t_\t_\t_\t_\tB-LOC
3.1\tist\tsein\tAUX\t_\t_\t_\t_\t_\t_
4\t10 000\t10000\tNUM\t_\t_\t_\t_\t_\tI-LOC

# newpar
# sent_id = 2
1\tAus\taus\tADP\t_\t_\t_\t_\t_\tO

"""
GERMEVAL = """#\thttp://de.wikipedia.org/wiki/Wien [2009-10-17]
1\tWien\tB-LOC\tO
2\tliegt\tO\tO

#\thttp://de.wikipedia.org/wiki/Bonn [2009-10-17]
1\tBonner\tB-LOCderiv\tO
"""
MULTICONER = """# id 1f2e\tdomain=en
robert _ _ B-PER
smith _ _ I-PER

# id 3a4b\tdomain=en
spoke _ _ O
"""
WNUT = """# id = 1
@paul O
# O

# id = 2
#Vienna B-location
is O

# O
fun O
"""


@pytest.mark.parametrize(
    ("text", "columns", "words", "labels"),
    [
        (
            CONLL_U,
            {},
            [["In", "dem", "Haus", "10 000"], ["Aus"]],
            [["O", "O", "B-LOC", "I-LOC"], ["O"]],
        ),
        (
            GERMEVAL,
            {"label_column": 2},
            [["Wien", "liegt"], ["Bonner"]],
            [["B-LOC", "O"], ["B-LOCderiv"]],
        ),
        (
            GERMEVAL,
            {"word_column": 1, "label_column": 2},
            [["Wien", "liegt"], ["Bonner"]],
            [["B-LOC", "O"], ["B-LOCderiv"]],
        ),
        (MULTICONER, {}, [["robert", "smith"], ["spoke"]], [["B-PER", "I-PER"], ["O"]]),
        # In tweets # and #Vienna are words, also the first of a sentence.
        (
            WNUT,
            {},
            [["@paul", "#"], ["#Vienna", "is"], ["#", "fun"]],
            [["O", "O"], ["B-location", "O"], ["O", "O"]],
        ),
        ("#x B-LOC\na O\n", {}, [["#x", "a"]], [["B-LOC", "O"]]),
        ("# newdoc\n#x LOC\na O\nb LOC\n", {}, [["#x", "a", "b"]], [["B-LOC", "O", "B-LOC"]]),
        ("1 O\n2 O\n", {}, [["1", "2"]], [["O", "O"]]),  # words
        ("#begin document (a);\na X O\n\n#end document\n", {}, [["a"]], [["O"]]),
    ],
)
def test_comments_and_numbers_are_no_words(tmp_path, text, columns, words, labels):
    path = write(tmp_path / "a.conll", text)
    found = load_conll(path, **columns)
    assert (found.words, found.labels) == (words, labels)
    assert load_conll(path, **columns | {"label_column": None}).words == words


def test_what_is_left_out_is_counted(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    load_conll(write(tmp_path / "a.conllu", CONLL_U))
    assert says(caplog.text, "5 comments ... column 0 ... 2 lines")


@pytest.mark.parametrize(
    ("scheme", "labels", "expected"),
    [
        ("BIOES", "B-PER I-PER E-PER S-PER O S-LOC", "B-PER I-PER I-PER B-PER O B-LOC"),
        ("BIOES", "O B-PER E-PER B-PER E-PER", "O B-PER I-PER B-PER I-PER"),
        ("BILOU", "B-PER I-PER L-PER U-PER O U-LOC", "B-PER I-PER I-PER B-PER O B-LOC"),
        ("BMES", "B-PER M-PER E-PER S-PER O", "B-PER I-PER I-PER B-PER O"),
        ("IO", "PER PER O LOC PER O", "B-PER I-PER O B-LOC B-PER O"),
        ("IOB2", "b-loc i-loc o b-loc b-loc", "B-loc I-loc O B-loc B-loc"),
        ("IOB2", "B_PER I_PER O B_PER B_PER", "B-PER I-PER O B-PER B-PER"),
        ("IOB2", "B-geo-loc I-geo-loc O B-geo-loc", "B-geo-loc I-geo-loc O B-geo-loc"),
    ],
)
def test_every_scheme_becomes_iob2(tmp_path, caplog, scheme, labels, expected):
    caplog.set_level(logging.INFO)
    text = "".join(f"w {label}\n" for label in labels.split())
    found = load_conll(write(tmp_path / "a", text))
    assert found.labels == [expected.split()]
    assert to_iob2(labels.split()) == expected.split()
    assert f"labels in {scheme} with 0 exceptions" in caplog.text
    assert set(expected.split()) <= {"O", *entity_labels(found)}


def test_exceptions_to_other_schemes_are_counted(tmp_path, caplog):
    load_conll(write(tmp_path / "a", "a O\nb E-PER\nc S-PER\n"))
    assert says(caplog.text, "BIOES ... 1 exceptions, 2 converted")
    assert caplog.records[0].levelno == logging.WARNING


def test_labels_of_no_scheme_are_not_converted():
    with pytest.raises(ValueError, match="'PER-B',.*B-TYPE"):
        to_iob2(["PER-B"])


def test_files_in_another_encoding(tmp_path):
    path = write(tmp_path / "a", "Köln B-LOC\nist O\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"a:1: not UTF-8 .*perhaps cp1252: .*encoding="):
        load_conll(path)
    files = TaggedFiles(train_file=path, dev_file=path, encoding="cp1252")
    assert files.read().train.words == [["Köln", "ist"]]


# --- batches ---------------------------------------------------------------------------------

SENTENCES = Sentences(
    [["a", "ba", "\u200b", "c."], ["d"], ["abcabcab", "e", "f", "g", "h"]],
    [["B-PER", "I-PER", "O", "O"], ["O"], ["B-LOC", "O", "O", "B-PER", "I-PER"]],
)
LABELS = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def batches_of(sentences, tokenizer, length, *, labels=LABELS, batch_size=2, **options):
    reader = Reader(tokenizer, max_sequence_length=length, labels=labels)
    return TaggedBatches(sentences, reader, batch_size=batch_size, **{"shuffle": False} | options)


def test_labels_are_at_first_tokens(tokenizer):
    two = Sentences(SENTENCES.words[:2], SENTENCES.labels[:2])
    batches = batches_of(two, tokenizer, 16)
    ((inputs, targets, weights),) = batches.dataset()
    assert inputs["token_ids"].numpy().tolist() == [
        [2, 5, 6, 14, 7, 13, 3],  # [CLS] a b ##a c . [SEP]
        [2, 8, 3, 0, 0, 0, 0],
    ]
    assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == [7, 3]
    assert targets["logits"].numpy().tolist() == [[0, 3, 4, 0, 0, 0, 0], [0] * 7]
    assert weights["logits"].numpy().tolist() == [[0, 1, 1, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0]]
    assert batches.statistics.num_without_tokens == 1
    assert says(str(batches.statistics), "1 words without tokens")
    (only_inputs,) = batches.of(Sentences(two.words)).dataset()
    np.testing.assert_array_equal(only_inputs["token_ids"], inputs["token_ids"])


@pytest.mark.one_case
@pytest.mark.parametrize(
    "length", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 5, 9)), 6, 7, 16]
)
def test_every_word_counts_once(tokenizer, length):
    batches = batches_of(SENTENCES, tokenizer, length)
    total, outputs = 0, []
    for inputs, targets, weights in batches.dataset():
        assert inputs["token_ids"].shape == weights["logits"].shape
        assert inputs["token_ids"].shape[1] <= length
        total += weights["logits"].numpy().sum()
        # A model that is right where the weight is 1, and wrong everywhere else.
        right = np.where(weights["logits"] > 0, targets["logits"], 2)
        outputs.append({"logits": np.eye(len(LABELS))[right]})
    assert total == 9  # all words except the one without tokens
    assert batches.word_labels(outputs) == SENTENCES.labels
    assert batches.statistics.num_split == (0 if length == 16 else 1 + (length < 7))


def test_words_of_long_sentences_have_context(tokenizer):
    batches = batches_of(Sentences([["a"] * 50], [["O"] * 50]), tokenizer, 18, batch_size=9)
    ((_, _, weights),) = batches.dataset()
    counted = [np.flatnonzero(row).tolist() for row in weights["logits"].numpy()]
    # Windows of 16 words after [CLS], 8 apart; each word counts in one of them.
    assert [(row[0], row[-1]) for row in counted] == [(1, 12), *[(5, 12)] * 4, (5, 10)]
    assert [len(row) for row in counted] == [12, 8, 8, 8, 8, 6]


def test_shuffled_batches_hold_every_word_once(tokenizer):
    batches = batches_of(SENTENCES, tokenizer, 6, shuffle=True, seed=3)
    elements = list(batches.dataset().take(4 * len(batches)))
    starts = range(0, len(elements), len(batches))
    passes = [elements[start : start + len(batches)] for start in starts]
    assert [sum(w["logits"].numpy().sum() for *_, w in part) for part in passes] == [9] * 4
    orders = {tuple(tuple(x["token_ids"].numpy().ravel()) for x, *_ in part) for part in passes}
    assert len(orders) > 1


@pytest.mark.slow
def test_a_model_fits_and_its_loss_knows_the_weights(tokenizer):
    inputs = {
        name: keras.Input((None,), dtype=dtype, name=name)
        for name, dtype in (
            ("token_ids", "int32"),
            ("segment_ids", "int32"),
            ("padding_mask", "bool"),
        )
    }
    embedded = keras.layers.Embedding(len(VOCABULARY), 8)(inputs["token_ids"])
    model = keras.Model(
        inputs, {"logits": keras.layers.Dense(len(LABELS), name="logits")(embedded)}
    )
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = {"logits": [accuracy]}
    compile_toy(model, keras.optimizers.Adam(0.3), {"logits": loss}, weighted_metrics=metrics)
    easy = Sentences([["a", "bab"], ["c", "d", "a"]], [["B-PER", "O"], ["B-LOC", "I-LOC", "B-PER"]])
    batches = batches_of(easy, tokenizer, 8)
    history = model.fit(batches.dataset().repeat(10), epochs=2, shuffle=False, verbose=0)
    assert history.history["accuracy"][-1] == 1.0
    others = batches_of(Sentences(easy.words), tokenizer, 8, batch_size=1)
    assert others.word_labels(outputs_of(model, others)) == easy.labels


def test_what_cannot_be_batched(tokenizer):
    with pytest.raises(ValueError, match="no sentences"):
        batches_of(Sentences([]), tokenizer, 8)
    with pytest.raises(ValueError, match=r"unknown labels \['B-LOC'\]"):
        batches_of(SENTENCES, tokenizer, 8, labels=["O", "B-PER", "I-PER"])
    with pytest.raises(ValueError, match="batch_size is 0"):
        batches_of(SENTENCES, tokenizer, 8, batch_size=0)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 7, 5), "logits of 1 windows, but there are"),
        ((9, 7, 5), "windows 0 to 8 of"),
        ((2, 7, 4), r"expected \(batch, length, 5\)"),
    ],
)
def test_logits_that_do_not_fit(tokenizer, shape, message):
    batches = batches_of(SENTENCES, tokenizer, 8)
    with pytest.raises(ValueError, match=message):
        batches.word_labels([{"logits": np.zeros(shape)}])
