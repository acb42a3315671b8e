"""Rows of language-model text: nothing lost or repeated, and the right next tokens."""

import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.data.language_models import (
    NextTokenTextBatches,
    RowBatches,
    TextFiles,
    TokenStream,
    read_texts,
    split_tail,
)
from keras_transformers.data.text import Examples
from keras_transformers.families.gpt import model as gpt
from keras_transformers.tokenizers import BytePairTokenizer

TEXTS = ["the ship is near the shore\n" * 5, "it is the end\n", "é 中\n\nthe ships"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe") / "vocabulary"
    return BytePairTokenizer.train(TEXTS * 3, folder, vocabulary_size=280)


@pytest.fixture(scope="module")
def stream(tokenizer):
    return TokenStream.of(TEXTS, tokenizer)


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def test_the_stream_holds_all_documents(stream, tokenizer):
    start = tokenizer.start_token_id
    starts = np.flatnonzero(stream.token_ids == start)
    assert len(starts) == 4  # three documents, and the end of the last one
    assert starts[0] == 0
    assert starts[-1] == len(stream.token_ids) - 1 == stream.num_targets
    np.testing.assert_array_equal(
        stream.document_ids, np.searchsorted(starts, np.arange(starts[-1] + 1), side="right") - 1
    )
    text = tokenizer.detokenize([stream.token_ids]).numpy()[0].decode()
    assert text == "".join(TEXTS)
    assert stream.num_bytes == len(text.encode())
    assert stream.num_words == (30 + 4 + 4) + (5 + 1 + 2)  # words and line ends
    documents = stream.documents()
    assert len(documents) == 3
    assert sum(map(len, documents)) == stream.num_targets
    for document, expected in zip(documents, TEXTS, strict=True):
        assert document[-1] == start
        assert tokenizer.detokenize([document]).numpy()[0].decode() == expected


@pytest.mark.parametrize("separate_documents", [False, True])
def test_training_rows_are_pieces_of_the_text(stream, separate_documents):
    length = 7
    batches = RowBatches(
        stream, length=length, batch_size=4, seed=3, separate_documents=separate_documents
    )
    steps = len(batches)
    assert steps == -(-batches.num_rows // 4)
    assert batches.mean_lengths == length
    cuts = set()
    for epoch in range(3):
        starts = []
        for inputs, targets in take(batches.dataset(skip=epoch * steps), steps):
            assert ("document_ids" in inputs) == separate_documents
            for number, (read, following) in enumerate(
                zip(inputs["token_ids"], targets["logits"], strict=True)
            ):
                np.testing.assert_array_equal(read[1:], following[:-1])
                row = np.append(read, following[-1])
                places = [
                    s
                    for s in range(len(stream.token_ids) - length)
                    if (stream.token_ids[s : s + length + 1] == row).all()
                    and (
                        not separate_documents
                        or (
                            stream.document_ids[s : s + length] == inputs["document_ids"][number]
                        ).all()
                    )
                ]
                assert places
                starts.append(places)
        assert len(starts) == batches.num_rows
        cuts.add(min(min(places) for places in starts) % length)
    assert len(cuts) > 1  # each epoch cuts elsewhere


def test_words_of_chinese_are_characters(tokenizer):
    assert TokenStream.of(["我在北京。\n", "他看 film\n"], tokenizer).num_words == 5 + 3 + 2


def test_training_resumes_at_any_batch(stream):
    batches = RowBatches(stream, length=7, batch_size=4, seed=3)
    whole = take(batches.dataset(), 3 * len(batches))
    for skip in (2 * len(batches), len(batches) + 3):
        rest = take(batches.dataset(skip=skip), 3 * len(batches) - skip)
        for (one, _), (other, _) in zip(whole[skip:], rest, strict=True):
            np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
    ((other_seed, _),) = take(RowBatches(stream, length=7, batch_size=4, seed=4).dataset(), 1)
    assert not np.array_equal(whole[0][0]["token_ids"], other_seed["token_ids"])


def test_accumulated_batches_are_so_many_parts(stream):
    """Accumulation is for training only: evaluation uses the smaller batches."""
    parts = RowBatches(stream, length=7, batch_size=2, accumulate=3)
    whole = RowBatches(stream, length=7, batch_size=6)
    (((one, _),), ((other, _),)) = (take(batches.dataset(), 1) for batches in (parts, whole))
    np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
    ((inputs, _, _),) = take(parts.of(stream).dataset(), 1)
    assert inputs["token_ids"].shape == (2, 7)


@pytest.mark.parametrize("stride", [None, 1, 3, 7])
@pytest.mark.parametrize("length", [7, 500])
def test_evaluation_counts_every_token_once_and_in_context(stream, length, stride):
    counted = np.zeros(stream.num_targets, int)
    least_context = length
    batches = RowBatches(stream, length=length, batch_size=4, shuffle=False, stride=stride)
    row_number = 0
    for inputs, targets, weights in batches.dataset().as_numpy_iterator():
        for read, following, weight in zip(
            inputs["token_ids"], targets["logits"], weights["logits"], strict=True
        ):
            start = row_number * (stride or length)
            for place in np.flatnonzero(weight):
                counted[start + place] += 1
                assert following[place] == stream.token_ids[start + place + 1]
                assert read[place] == stream.token_ids[start + place]
                if start:
                    least_context = min(least_context, place)
            row_number += 1
    assert (counted == 1).all()
    assert row_number == batches.num_rows
    assert int(batches.dataset().cardinality()) == len(batches) == -(-row_number // 4)
    assert int(batches.dataset(skip=1).cardinality()) == len(batches) - 1
    assert least_context >= length - (stride or length)


def test_texts_of_files(tmp_path):
    (tmp_path / "a.txt").write_text("one\r\ntwo\u2028still two", "utf-8")
    (tmp_path / "b.txt").write_text("  \n", "utf-8")
    assert read_texts([tmp_path / "a.txt", tmp_path / "b.txt"]) == ["one\ntwo\u2028still two\n"]
    articles = " \n = A = \n \n of a \n = = B = = \n more of a \n = C = \n of c \n"
    (tmp_path / "wiki").write_text(articles, "utf-8")
    found = read_texts([tmp_path / "wiki"], text_format="wikitext")
    assert "".join(found) == articles
    assert [text.split("\n")[-2] for text in found] == [" more of a ", " of c "]
    with pytest.raises(ValueError, match="b.txt: no text"):
        read_texts([tmp_path / "b.txt"])
    with pytest.raises(ValueError, match="text_format='pdf'"):
        read_texts([tmp_path / "a.txt"], text_format="pdf")
    with pytest.raises(FileNotFoundError):
        read_texts([tmp_path / "none"])


def test_wikitext_has_its_articles(data_dir):
    found = read_texts([data_dir / "text/wikitext2.valid.txt.gz"], text_format="wikitext")
    assert len(found) == 60  # articles in WikiText-2's validation set


def test_the_tail_is_split_off_at_a_line():
    lines = [f"line {i:03}\n" for i in range(100)]
    kept, held_out = split_tail(["".join(lines)], held_out_fraction=0.1)
    assert kept == ["".join(lines[:91])]  # up to the end of the line with the border
    assert held_out == ["".join(lines[91:])]
    kept, held_out = split_tail(lines, held_out_fraction=0.25)
    assert kept + held_out == lines
    assert len(held_out) == 25
    for fraction in (0, 1, 1.5):
        with pytest.raises(ValueError, match=f"held_out_fraction is {fraction}"):
            split_tail(lines, held_out_fraction=fraction)
    with pytest.raises(ValueError, match="1 documents.*0 held out"):
        split_tail(["one line alone"], held_out_fraction=0.5)


def test_the_splits_of_files(tmp_path):
    (tmp_path / "a").write_text("".join(f"line {i:03}\n" for i in range(100)))
    (tmp_path / "b").write_text("other text\n")
    splits = TextFiles(data=(tmp_path / "a",), held_out_fraction=0.2, dev_fraction=0.1).read()
    assert {name: len(text.split("\n")) - 1 for name, (text,) in splits.items()} == {
        "train": 73,
        "dev": 8,
        "held_out": 19,
    }
    splits = TextFiles(data=(tmp_path / "a",), held_out=(tmp_path / "b",)).read()
    assert splits["held_out"] == ["other text\n"]
    assert len("".join(splits["train"] + splits["dev"])) == 900


def test_bad_numbers_are_refused(stream):
    for shuffle in (True, False):
        with pytest.raises(ValueError, match="length=0 and batch_size=4"):
            RowBatches(stream, length=0, batch_size=4, shuffle=shuffle)
    with pytest.raises(ValueError, match="too short .*500"):
        RowBatches(stream, length=500, batch_size=4)
    for stride in (0, 8):
        with pytest.raises(ValueError, match=f"stride={stride}:.*1.*length=7"):
            RowBatches(stream, length=7, batch_size=4).of(stream, stride=stride)


@pytest.fixture(scope="module")
def classify(tokenizer):
    model = gpt.gpt(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        max_sequence_length=20,
    )
    labels = ["a", "b"]
    model = heads.causal_classifier(model, len(labels))
    return kt.pipelines.TextClassifier(model, tokenizer, labels, max_sequence_length=6)


def test_batches_of_a_classifier(tokenizer, classify):
    texts = ["the ship", "", "it is the end of the shore"]
    end = tokenizer.end_token_id
    examples = Examples(texts, labels=["a", "b", "a"])
    batches = NextTokenTextBatches(examples, classify, batch_size=3, shuffle=False)
    ((inputs, targets, weights),) = batches.dataset().as_numpy_iterator()
    assert set(inputs) == {"token_ids", "padding_mask"}
    assert targets["logits"].tolist() == [0, 1, 0]
    assert weights["logits"].tolist() == [1, 1, 1]
    for row, text in enumerate(texts):
        ids = [end, *tokenizer.tokenize([text]).to_list()[0][:4], end]
        length = len(ids)
        assert inputs["token_ids"][row, :length].tolist() == ids
        assert inputs["padding_mask"][row].sum() == length
        assert targets["token_logits"][row, : length - 1].tolist() == ids[1:]
        np.testing.assert_array_equal(
            weights["token_logits"][row], np.arange(inputs["token_ids"].shape[1]) < length - 1
        )
    (unlabelled,) = batches.of(Examples(texts)).dataset().as_numpy_iterator()
    np.testing.assert_array_equal(unlabelled["token_ids"], inputs["token_ids"])
    segments = [tokenizer.tokenize([text]) for text in ("the ship", "the end")]
    pair = tokenizer.pack(segments, max_sequence_length=20)["token_ids"].numpy()[0]
    assert (pair == end).sum() == tokenizer.num_special_tokens(2) == 3


@pytest.mark.slow
def test_a_classifier_is_saved_and_loaded(classify, tmp_path):
    found = kt.load(classify.save(tmp_path / "classify"))
    texts = ["the ship", "", "it is the end of the shore"]
    assert found(texts) == classify(texts)
