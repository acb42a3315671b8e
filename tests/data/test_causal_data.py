"""Rows of a language model's text: nothing lost, nothing twice, the right token next."""

import numpy as np
import pytest

from keras_transformers.data.language_models import causal
from keras_transformers.data.text.examples import Examples
from keras_transformers.tokenizers import BytePairTokenizer

TEXTS = ["the ship is near the shore\n" * 5, "it is the end\n", "é 中\n\nthe ships"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe") / "vocabulary"
    return BytePairTokenizer.train(TEXTS * 3, folder, vocabulary_size=280)


@pytest.fixture(scope="module")
def stream(tokenizer):
    return causal.tokenize(TEXTS, tokenizer)


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def test_the_stream_holds_all_documents(stream, tokenizer):
    start = tokenizer.start_token_id
    starts = np.flatnonzero(stream.token_ids == start)
    assert len(starts) == 4  # of three documents, and the last one's end
    assert starts[0] == 0
    assert starts[-1] == len(stream.token_ids) - 1 == stream.num_targets
    np.testing.assert_array_equal(
        stream.document_ids, np.searchsorted(starts, np.arange(starts[-1] + 1), side="right") - 1
    )
    text = tokenizer.detokenize([stream.token_ids]).numpy()[0].decode()
    assert text == "".join(TEXTS)
    assert stream.num_bytes == len(text.encode())
    assert stream.num_words == (30 + 4 + 4) + (5 + 1 + 2)  # words, and line ends
    documents = stream.documents()
    assert len(documents) == 3
    assert sum(map(len, documents)) == stream.num_targets
    for document, expected in zip(documents, TEXTS, strict=True):
        assert document[-1] == start
        assert tokenizer.detokenize([document]).numpy()[0].decode() == expected


@pytest.mark.parametrize("separate_documents", [False, True])
def test_training_rows_are_pieces_of_the_text(stream, separate_documents):
    length, rows = 7, causal.num_rows(stream, 7)
    batches = causal.training_batches(
        stream, length=length, batch_size=4, seed=3, separate_documents=separate_documents
    )
    steps = -(-rows // 4)
    cuts = set()
    for epoch in range(3):
        starts = []
        for inputs, targets in take(batches.skip(epoch * steps), steps):
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
        assert len(starts) == rows
        cuts.add(min(min(places) for places in starts) % length)
    assert len(cuts) > 1  # another cut each epoch


def test_training_starts_where_it_is_told_to(stream):
    options = {"length": 7, "batch_size": 4, "seed": 3}
    steps = -(-causal.num_rows(stream, 7) // 4)
    whole = take(causal.training_batches(stream, **options), 3 * steps)
    later = take(causal.training_batches(stream, **options, skip_epochs=2), steps)
    for (one, _), (other, _) in zip(whole[2 * steps :], later, strict=True):
        np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
    other_seed = take(causal.training_batches(stream, **(options | {"seed": 4})), 1)
    assert not np.array_equal(whole[0][0]["token_ids"], other_seed[0][0]["token_ids"])


@pytest.mark.parametrize("stride", [None, 1, 3, 7])
@pytest.mark.parametrize("length", [7, 500])
def test_evaluation_counts_every_token_once_and_in_context(stream, length, stride):
    counted = np.zeros(stream.num_targets, int)
    least_context = length
    batches = causal.evaluation_batches(stream, length=length, batch_size=4, stride=stride)
    row_number = 0
    for inputs, targets, weights in batches.as_numpy_iterator():
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
    assert int(batches.cardinality()) == -(-row_number // 4)
    assert least_context >= length - (stride or length)


def test_texts_of_files(tmp_path):
    (tmp_path / "a.txt").write_text("one\r\ntwo\u2028still two", "utf-8")
    (tmp_path / "b.txt").write_text("  \n", "utf-8")
    assert causal.read_texts([tmp_path / "a.txt", tmp_path / "b.txt"]) == [
        "one\ntwo\u2028still two\n"
    ]
    articles = " \n = A = \n \n of a \n = = B = = \n more of a \n = C = \n of c \n"
    (tmp_path / "wiki").write_text(articles, "utf-8")
    found = causal.read_texts([tmp_path / "wiki"], text_format="wikitext")
    assert "".join(found) == articles
    assert [text.split("\n")[-2] for text in found] == [" more of a ", " of c "]
    with pytest.raises(ValueError, match="b.txt: no text"):
        causal.read_texts([tmp_path / "b.txt"])
    with pytest.raises(ValueError, match="text_format='pdf'"):
        causal.read_texts([tmp_path / "a.txt"], text_format="pdf")
    with pytest.raises(FileNotFoundError):
        causal.read_texts([tmp_path / "none"])


def test_wikitext_has_its_articles(data_dir):
    found = causal.read_texts([data_dir / "text/wikitext2.valid.txt.gz"], text_format="wikitext")
    assert len(found) == 60  # of WikiText-2's validation set


def test_the_tail_is_split_off_at_a_line():
    lines = [f"line {i:03}\n" for i in range(100)]
    kept, held_out = causal.split_tail(["".join(lines)], held_out_fraction=0.1)
    assert kept == ["".join(lines[:91])]  # to the end of the line in which the border falls
    assert held_out == ["".join(lines[91:])]
    kept, held_out = causal.split_tail(lines, held_out_fraction=0.25)
    assert kept + held_out == lines
    assert len(held_out) == 25
    for fraction in (0, 1, 1.5):
        with pytest.raises(ValueError, match=f"held_out_fraction is {fraction}"):
            causal.split_tail(lines, held_out_fraction=fraction)
    with pytest.raises(ValueError, match="leaves 1 documents to train on and 0 held out"):
        causal.split_tail(["one line alone"], held_out_fraction=0.5)


def test_bad_numbers_are_refused(stream):
    with pytest.raises(ValueError, match="length=0 and batch_size=4"):
        causal.training_batches(stream, length=0, batch_size=4)
    with pytest.raises(ValueError, match="has no row of 500 at every cut"):
        causal.training_batches(stream, length=500, batch_size=4)
    for stride in (0, 8):
        with pytest.raises(ValueError, match=f"stride={stride}: give from 1 to length=7"):
            causal.evaluation_batches(stream, length=7, batch_size=4, stride=stride)


def test_batches_of_a_classifier(tokenizer):
    texts = ["the ship", "", "it is the end of the shore"]
    end = tokenizer.end_token_id
    batches = causal.classification_batches(
        Examples(texts, labels=["a", "b", "a"]),
        tokenizer,
        ["a", "b"],
        batch_size=3,
        max_sequence_length=6,
    )
    ((inputs, targets, weights),) = batches.as_numpy_iterator()
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
    packer = causal.TextPacker(tokenizer)
    pairs = packer(["the ship"], ["the end"], max_sequence_length=20)["token_ids"].numpy()[0]
    assert (pairs == end).sum() == 3
    assert packer.lengths(["the ship"], ["the end"]).numpy().tolist() == [len(pairs)]
