"""Running text to windows: what is cut, spelled, predicted and counted."""

import itertools
import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.language_models.bidirectional import (
    WindowBatches,
    cut,
    encode,
    make_texts,
    plan_windows,
)
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.tokenizers.word_vocabulary import MARKS, WordVocabulary
from keras_transformers.tokenizers.words import split as split_words

DOCUMENTS = [
    ["The cat (a tom) sat.", "It's \u200b the U.S. mat , 3.5 cm !"],
    ["the end"],
    ["a " * 7, "x" * 60 + " <S> </S> the"],
]
# As `tokenizers.words.spans` cuts them; the last full stop of "U.S." follows a word.
WORDS = [
    ["The", "cat", "(", "a", "tom", ")", "sat", "."],
    ["It's", "the", "U.S", ".", "mat", ",", "3.5", "cm", "!"],
    ["the", "end"],
    ["a"] * 7,
    ["x" * 60, "<", "S", ">", "<", "/", "S", ">", "the"],
]
VOCABULARY = WordVocabulary([*MARKS, "the", "a", ".", "<", "S"])


@pytest.fixture(scope="module")
def text():
    return encode(cut(DOCUMENTS), VOCABULARY, max_characters=20)


def expected_ids():
    known = {word: number for number, word in enumerate(VOCABULARY.words)}
    sentences = [[0, *(known.get(word, 2) for word in row), 1] for row in WORDS]
    return [sentences[0] + sentences[1], sentences[2], sentences[3] + sentences[4]]


def test_text_is_cut_as_labelled_words_are():
    sentences = list(itertools.chain(*DOCUMENTS))
    found = [[word.decode() for word in row] for row in split_words(sentences).to_list()]
    assert [[word.replace("\u200b", "") for word in row] for row in found] == [
        [word for word in row if word] for row in WORDS
    ]
    words = cut(DOCUMENTS)
    assert words.document_lengths.tolist() == [2, 1, 2]
    assert words.sentence_lengths.tolist() == [len(row) for row in WORDS]
    assert len(set(words.spellings)) == len(words.spellings)
    of_text = [words.spellings[i] for i in words.indices]
    assert of_text == [word.decode() for word in split_words(sentences).values.numpy()]
    assert dict(zip(words.spellings, words.counts, strict=True))["a"] == 8


def test_a_document_is_a_stream_of_ids_between_marks(text):
    assert [ids.tolist() for ids in text.sequences()] == expected_ids()
    ids = np.concatenate(expected_ids())
    counts = np.bincount(ids, minlength=8)
    assert text.token_counts().tolist() == [0, *counts[1:]]


def test_words_are_spelled_as_the_tokenizer_spells_them(text):
    tokenizer = CharacterTokenizer(max_characters=20)
    expected = tokenizer(tf.constant(["the end"]))["character_ids"][0].numpy()
    rows = np.split(text.documents.values, np.cumsum(text.documents.lengths)[:-1])[1]
    np.testing.assert_array_equal(text.character_ids[rows], expected)
    assert not text.character_ids[0].any()


def test_what_is_unknown_or_cut_is_counted(text, caplog):
    unknown = sum(word not in VOCABULARY.words for row in WORDS for word in row)
    counts = text.statistics
    assert (counts.num_documents, counts.num_sentences) == (3, 5)
    assert counts.num_words == sum(map(len, WORDS))
    assert (counts.num_unknown, counts.num_cut) == (unknown, 1)
    with caplog.at_level(logging.INFO, "keras_transformers"):
        encode(cut([["the"]]), VOCABULARY)
    assert "1 documents, 1 sentences, 1 words, 0 of them (0.0%) not in" in caplog.text


@pytest.mark.parametrize("length", [2, 3, 5, 100])
def test_windows_meet_in_one_token(length):
    lengths = np.array([2, 9, 3, 1, 0, 5])
    starts, sizes = plan_windows(lengths, length)
    ends_of_lists = np.cumsum(lengths)
    forward, backward = [], []
    for start, size in zip(starts, sizes, strict=True):
        assert 2 <= size <= length
        of_list = np.searchsorted(ends_of_lists, start, side="right")
        assert start + size <= ends_of_lists[of_list]  # no window spans two documents
        forward += range(start + 1, start + size)
        backward += range(start, start + size - 1)
    first = ends_of_lists - lengths
    every = set(range(lengths.sum()))
    assert sorted(forward) == sorted(every - set(first[lengths > 0]))
    assert sorted(backward) == sorted(every - set(ends_of_lists[lengths > 0] - 1))


def collect(dataset):
    """Returns (inputs, weights) of every window without padding, and checks the shapes."""
    found = []
    for inputs, targets, weights in dataset:
        characters, ids = inputs["character_ids"].numpy(), inputs["token_ids"].numpy()
        real = (characters > 0).any(-1)
        assert characters.shape == (*ids.shape, 20)
        assert not ids[~real].any()
        for name in ("forward_loss", "backward_loss"):
            assert targets[name].shape == weights[name].shape == (len(ids), ids.shape[1] - 1)
            assert not targets[name].numpy().any()
            assert not weights[name].numpy()[~real[:, 1:]].any()
        for row, length in enumerate(real.sum(1)):
            counted = [weights[name].numpy()[row, : length - 1] for name in weights]
            found.append((ids[row, :length], characters[row, :length], *counted))
    return found


@pytest.mark.parametrize("window_length", [2, 4, 64])
def test_each_word_counts_once_in_each_direction(text, window_length):
    rows = collect(WindowBatches(text, batch_size=3, window_length=window_length).dataset())
    for direction, mark in (("forward", 0), ("backward", 1)):
        counted = []
        for ids, _, forward, backward in rows:
            targets, weights = (
                (ids[1:], forward) if direction == "forward" else (ids[:-1], backward)
            )
            counted += targets[weights > 0].tolist()
        expected = [i for ids in expected_ids() for i in ids if i != mark]
        assert sorted(counted) == sorted(expected)
    # Together, the windows make up the text.
    streams, stream = [], []
    for ids, *_ in rows:
        stream += ids.tolist() if not stream else ids[1:].tolist()
        if stream in expected_ids():
            streams.append(stream)
            stream = []
    assert streams == expected_ids()


def test_passes_are_shuffled_and_the_same_again(text):
    num_batches = len(WindowBatches(text, batch_size=2, window_length=3))

    def passes(seed, skip=0):
        batches = WindowBatches(
            text, batch_size=2, window_length=3, steps_per_epoch=num_batches, seed=seed
        )
        dataset = batches.dataset(skip=skip).take(40)
        return [inputs["token_ids"].numpy().tolist() for inputs, *_ in dataset]

    one = passes(1)
    assert one == passes(1)
    assert one != passes(2)
    assert one[:num_batches] != one[num_batches : 2 * num_batches]
    for begin in (0, num_batches):  # every pass sees every window
        rows = [tuple(filter(None, r)) for b in one[begin : begin + num_batches] for r in b]
        assert len(rows) == len(plan_windows(text.documents.lengths, 3)[0])
    # A resumed run sees the same batches as an uninterrupted one.
    assert passes(1, skip=num_batches + 3)[:20] == one[num_batches + 3 :][:20]


def test_batches_know_how_many_and_how_long_they_are(text):
    windows = plan_windows(text.documents.lengths, 4)[1]
    once = WindowBatches(text, batch_size=3, window_length=4)
    assert (once.num_rows, len(once)) == (len(windows), -(-len(windows) // 3))
    assert once.mean_lengths == windows.mean()
    endless = WindowBatches(text, batch_size=3, accumulate=2, window_length=4, steps_per_epoch=5)
    assert (endless.num_rows, len(endless)) == (30, 5)
    # Each pass has one smaller batch, anywhere.
    assert max(len(inputs["token_ids"]) for inputs, *_ in endless.dataset().take(5)) == 6
    dev = endless.of(text)  # one pass in order, without accumulation
    for ours, theirs in zip(dev.dataset(), once.dataset(), strict=True):
        np.testing.assert_array_equal(ours[0]["token_ids"], theirs[0]["token_ids"])


def test_documents_to_both_texts_and_their_vocabulary(tmp_path):
    documents = [[f"the {word} sat .", "again ."] for word in "abcdefghijklmnop"]
    train, dev, vocabulary = make_texts(documents, dev_fraction=0.3, vocabulary_size=7)
    assert vocabulary.words == [*MARKS, ".", "again", "sat", "the"]
    assert train.statistics.num_documents + dev.statistics.num_documents == 16
    assert dev.statistics.num_unknown == dev.statistics.num_documents
    vocabulary.write(tmp_path / "words.txt")
    again = make_texts(documents, dev_fraction=0.3, vocabulary=tmp_path / "words.txt")
    assert again[2].words == vocabulary.words
    np.testing.assert_array_equal(again[1].token_ids, dev.token_ids)


def test_what_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match="no sentences in 0 documents"):
        cut([])
    with pytest.raises(ValueError, match="window_length=1: nothing to predict"):
        WindowBatches(text, batch_size=2, window_length=1)
    with pytest.raises(ValueError, match="batch_size is 0"):
        WindowBatches(text, batch_size=0, window_length=4)
    with pytest.raises(ValueError, match="max_characters=2:.*word.*3 ids"):
        encode(cut(DOCUMENTS), VOCABULARY, max_characters=2)
