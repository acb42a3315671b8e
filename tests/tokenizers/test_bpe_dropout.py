"""BPE-dropout: the same text in different tokens each time, determined by the seed."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformers.files import read_lines
from keras_transformers.tokenizers.bpe_dropout import BytePairDropout
from keras_transformers.tokenizers.sentencepiece import SentencePieceTokenizer

SENTENCE = "Two young, White males are outside near many bushes."
ODD = ["", "  ", "a  b\x00 </s>", "東京 🙂 ﬁ", "x" * 60]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    folder = tmp_path_factory.mktemp("bpe_dropout")
    (folder / "text").write_text(f"{SENTENCE}\nMany young white males are near bushes.\n")
    return SentencePieceTokenizer.train(
        [folder / "text"], folder / "small.model", vocabulary_size=320
    )


def make(tokenizer: SentencePieceTokenizer, texts: list[str]) -> BytePairDropout:
    ids = tokenizer.tokenize(texts, add_end=True)
    return BytePairDropout(tokenizer.vocabulary, ids.values.numpy(), ids.row_lengths().numpy())


def rows_of(cut: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    return tf.RaggedTensor.from_row_lengths(*cut).to_list()


def test_one_text_is_cut_in_many_ways(tokenizer: SentencePieceTokenizer) -> None:
    cut = make(tokenizer, [SENTENCE] * 50)(dropout=0.3, seed=0)
    rows = {tuple(row) for row in rows_of(cut)}
    assert len(rows) > 45
    plain = len(tokenizer.tokenize([SENTENCE]).to_list()[0]) + 1
    assert min(map(len, rows)) >= plain
    assert np.mean(cut[1]) > 1.2 * plain
    assert cut[0].dtype == np.int32


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5, 1.0])
def test_the_text_stays_the_same(tokenizer: SentencePieceTokenizer, dropout: float) -> None:
    texts = [*ODD, *[SENTENCE] * 5, ""]
    cut = make(tokenizer, texts)(dropout=dropout, seed=1)
    back = tokenizer.detokenize(tf.RaggedTensor.from_row_lengths(*cut))
    expected = tokenizer.detokenize(tokenizer.tokenize(texts))
    assert back.numpy().tolist() == expected.numpy().tolist()
    assert [row[-1] for row in rows_of(cut)] == [tokenizer.end_token_id] * len(texts)


def test_no_dropout_is_tokenizing_and_full_dropout_is_characters(
    tokenizer: SentencePieceTokenizer,
) -> None:
    texts = [*ODD, SENTENCE]
    sampler = make(tokenizer, texts)
    expected = tokenizer.tokenize(texts, add_end=True).to_list()
    assert rows_of(sampler(dropout=0.0, seed=0)) == expected
    characters = rows_of(sampler(dropout=1.0, seed=0))[-1][:-1]
    assert tokenizer.tokens(characters).numpy().tolist() == [
        character.encode() for character in "▁" + SENTENCE.replace(" ", "▁")
    ]


def test_the_seed_decides(tokenizer: SentencePieceTokenizer) -> None:
    """A new object gives the same cuts as one already used, so runs can be resumed."""
    texts = [SENTENCE] * 20
    sampler = make(tokenizer, texts)
    epochs = [sampler(dropout=0.2, seed=(7, epoch)) for epoch in range(3)]
    for epoch, (token_ids, row_lengths) in enumerate(epochs):
        again = make(tokenizer, texts)(dropout=0.2, seed=(7, epoch))
        np.testing.assert_array_equal(again[0], token_ids)
        np.testing.assert_array_equal(again[1], row_lengths)
    for one, other in itertools.combinations(epochs, 2):
        assert rows_of(one) != rows_of(other)


def test_seeds_give_these_cuts_for_good(tokenizer: SentencePieceTokenizer) -> None:
    """Frozen: if these numbers change, runs cannot be repeated across versions."""
    cut = make(tokenizer, [SENTENCE])(dropout=0.2, seed=0)
    assert b" ".join(tokenizer.tokens(cut[0]).numpy()).decode() == (
        "▁Two ▁y ou ng , ▁ W hite ▁ ma les ▁are ▁ o u t side ▁ne a r ▁ m a ny ▁bu sh e s . </s>"
    )


def test_dropout_out_of_range(tokenizer: SentencePieceTokenizer) -> None:
    with pytest.raises(ValueError, match=r"dropout is 1\.5, must be from 0 to 1"):
        make(tokenizer, [SENTENCE])(dropout=1.5, seed=0)


def test_no_merge_crosses_the_border_of_a_text(tokenizer: SentencePieceTokenizer) -> None:
    """Not even where a text starts in the middle of a word."""
    ids = np.array([tokenizer.vocabulary.index(letter) for letter in "youngsmales"], np.int32)
    sampler = BytePairDropout(tokenizer.vocabulary, ids, np.ones(len(ids), np.int64))
    token_ids, row_lengths = sampler(dropout=0.3, seed=0)
    np.testing.assert_array_equal(token_ids, ids)
    assert row_lengths.tolist() == [1] * len(ids)


def test_no_texts(tokenizer: SentencePieceTokenizer) -> None:
    token_ids, row_lengths = make(tokenizer, [])(dropout=0.1, seed=0)
    assert (len(token_ids), len(row_lengths)) == (0, 0)


@pytest.mark.one_case
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_as_often_as_sentencepiece(data_dir: Path, tmp_path: Path, dropout: float) -> None:
    """On real text, row lengths and token frequencies match SentencePiece's."""
    files = [data_dir / "multi30k" / f"train.{language}.gz" for language in ("de", "en")]
    path = tmp_path / "multi30k.model"
    tokenizer = SentencePieceTokenizer.train(files, path)
    texts = list(read_lines(data_dir / "multi30k" / "val.de.gz")) * 3
    token_ids, row_lengths = make(tokenizer, texts)(dropout=dropout, seed=0)
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    theirs = library.encode(texts, enable_sampling=True, alpha=dropout, nbest_size=-1)
    their_lengths = np.array([len(row) + 1 for row in theirs])
    assert row_lengths.mean() == pytest.approx(their_lengths.mean(), rel=0.01)
    assert row_lengths.std() == pytest.approx(their_lengths.std(), rel=0.05)
    counts = np.bincount(token_ids, minlength=tokenizer.vocabulary_size)
    their_counts = np.bincount(np.concatenate(theirs), minlength=tokenizer.vocabulary_size)
    frequent = np.flatnonzero(their_counts > 400)
    assert len(frequent) > 20
    np.testing.assert_allclose(counts[frequent], their_counts[frequent], rtol=0.2)
