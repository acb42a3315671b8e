"""Pairs and masks on a real corpus: the proportions in the paper, and the strict rules."""

import collections
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.pretraining.batches import Masker, read_nltk, write_documents
from keras_transformers.data.pretraining.corpus import CorpusFiles
from keras_transformers.data.pretraining.examples import TokenizedCorpus, draw_pairs, pack_pairs
from keras_transformers.data.pretraining.masking import unmask
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

LENGTH = 128


@pytest.fixture(scope="module")
def vocabulary(data_dir: Path) -> list[str]:
    """Special tokens, letters as words and as pieces, and the most frequent words."""
    words: collections.Counter[str] = collections.Counter()
    for document in itertools.islice(read_nltk(data_dir / "nltk/movie_reviews.zip"), 300):
        for sentence in document:
            words.update(sentence.split())
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    frequent = [word for word, _ in words.most_common(2000) if len(word) > 1 and word.isalpha()]
    marks = [mark for mark in words if len(mark) == 1 and not mark.isalnum()]
    return [*SPECIAL_TOKENS, *marks, *letters, *(f"##{letter}" for letter in letters), *frequent]


@pytest.fixture(scope="module")
def corpus(
    data_dir: Path, vocabulary: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TokenizedCorpus]:
    folder = tmp_path_factory.mktemp("corpus")
    documents = list(itertools.islice(read_nltk(data_dir / "nltk/movie_reviews.zip"), 300))
    write_documents([*documents, ["One alone ."]], folder / "a.txt")
    files = CorpusFiles(f"{folder}/work", "lines", tuple(vocabulary), True, False)
    files.tokenize((0, f"{folder}/a.txt"))
    files.join(1)
    counts = files.counts()
    assert (counts["num_documents"], counts["num_single_sentence_documents"]) == (301, 1)
    with files.opened() as opened:
        yield opened


@pytest.fixture(scope="module")
def pairs(corpus: TokenizedCorpus) -> np.ndarray:
    documents = np.tile(corpus.documents_of_pairs(), 2)
    return draw_pairs(
        corpus,
        documents,
        max_sequence_length=LENGTH,
        short_sequence_probability=0.1,
        seed="1",
    )


@pytest.fixture(scope="module")
def packed(
    corpus: TokenizedCorpus, pairs: np.ndarray, vocabulary: list[str]
) -> dict[str, np.ndarray]:
    tensors = pack_pairs(
        corpus,
        pairs,
        cls_token_id=vocabulary.index("[CLS]"),
        sep_token_id=vocabulary.index("[SEP]"),
        pad_token_id=vocabulary.index("[PAD]"),
        max_sequence_length=LENGTH,
    )
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def near(count: float, total: float, share: float) -> bool:
    """Tells whether a count of independent draws is within four standard deviations."""
    return bool(abs(count - share * total) < 4 * np.sqrt(total * share * (1 - share)))


def document_starts(corpus: TokenizedCorpus) -> np.ndarray:
    return corpus.sentence_starts[corpus.document_starts]


# Pairs.


def test_half_of_the_next_sentences_are_random(pairs: np.ndarray) -> None:
    assert len(pairs) > 3000
    assert near(pairs["is_random"].sum(), len(pairs), 0.5)


def test_random_next_sentences_come_from_other_documents(
    corpus: TokenizedCorpus, pairs: np.ndarray
) -> None:
    """Judged by the places of the tokens, not by the pair's own fields."""
    starts = document_starts(corpus)
    for side in "ab":
        document = pairs[f"document_{side}"]
        np.testing.assert_array_equal(
            np.searchsorted(starts, pairs[f"{side}_start"], "right") - 1, document
        )
        assert (pairs[f"{side}_stop"] <= starts[document + 1]).all()
        assert (pairs[f"{side}_start"] < pairs[f"{side}_stop"]).all()
    is_same = pairs["document_a"] == pairs["document_b"]
    np.testing.assert_array_equal(is_same, ~pairs["is_random"])
    # Every other document is drawn at some point, even the one of a single sentence.
    others = pairs["document_b"][pairs["is_random"]]
    assert len(np.unique(others)) > 0.99 * corpus.num_documents
    assert corpus.num_documents - 1 in others
    assert corpus.num_documents - 1 not in pairs["document_a"]


def test_true_next_sentences_follow(corpus: TokenizedCorpus, pairs: np.ndarray) -> None:
    whole = pairs[~pairs["is_random"] & (pairs["num_truncated"] == 0)]
    assert len(whole) > 400
    np.testing.assert_array_equal(whole["a_stop"], whole["b_start"])
    for edge in ("a_start", "a_stop", "b_stop"):
        assert np.isin(whole[edge], corpus.sentence_starts).all()
    cut = pairs[~pairs["is_random"]]
    assert (cut["a_stop"] <= cut["b_start"]).all()


def test_pairs_fill_the_examples_and_never_exceed_them(pairs: np.ndarray) -> None:
    lengths = 3 + pairs["a_stop"] - pairs["a_start"] + pairs["b_stop"] - pairs["b_start"]
    assert lengths.max() == LENGTH
    assert (lengths[pairs["num_truncated"] > 0] == LENGTH).all()
    assert lengths.mean() > 0.85 * LENGTH


def test_every_sentence_is_used(corpus: TokenizedCorpus) -> None:
    """Without a limit, all tokens of a document are in A, or in B as the true next sentence."""
    documents = corpus.documents_of_pairs()[:50]
    pairs = draw_pairs(
        corpus,
        documents,
        max_sequence_length=10**6,
        short_sequence_probability=0,
        seed="2",
    )
    assert not pairs["num_truncated"].any()
    starts = document_starts(corpus)
    for document in documents:
        own = pairs[pairs["document_a"] == document]
        ranges = [(p["a_start"], p["a_stop"]) for p in own]
        ranges += [(p["b_start"], p["b_stop"]) for p in own if not p["is_random"]]
        covered = np.concatenate([np.arange(*each) for each in ranges])
        np.testing.assert_array_equal(
            np.unique(covered), np.arange(starts[document], starts[document + 1])
        )


def test_short_sequences_and_seeds(corpus: TokenizedCorpus, pairs: np.ndarray) -> None:
    documents = corpus.documents_of_pairs()

    def draw(probability: float, seed: str) -> np.ndarray:
        return draw_pairs(
            corpus,
            documents,
            max_sequence_length=LENGTH,
            short_sequence_probability=probability,
            seed=seed,
        )

    np.testing.assert_array_equal(draw(0.1, "1"), pairs[: len(draw(0.1, "1"))])
    assert len(draw(1, "1")) > 1.3 * len(draw(0, "1"))
    assert draw(0.1, "1").tolist() != draw(0.1, "2").tolist()


def test_packed_pairs(
    corpus: TokenizedCorpus,
    pairs: np.ndarray,
    packed: dict[str, np.ndarray],
    vocabulary: list[str],
) -> None:
    cls, sep = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    for i in range(0, len(pairs), 97):
        a = corpus.tokens[pairs["a_start"][i] : pairs["a_stop"][i]]
        b = corpus.tokens[pairs["b_start"][i] : pairs["b_stop"][i]]
        expected = [cls, *a, sep, *b, sep]
        padding = [0] * (LENGTH - len(expected))
        assert packed["token_ids"][i].tolist() == expected + padding
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert packed["segment_ids"][i].tolist() == segments + padding
        assert packed["padding_mask"][i].tolist() == [True] * len(expected) + [False] * len(padding)


# Masks.


def mask(masker: Masker, token_ids: np.ndarray, seed: tuple[int, int]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in masker(token_ids, seed).items()}


def chosen(masked: dict[str, np.ndarray], length: int = LENGTH) -> np.ndarray:
    """Returns which positions were chosen: bool (batch, seq)."""
    result = np.zeros((len(masked["mask_ids"]), length), bool)
    rows = np.repeat(np.arange(len(result))[:, None], masked["mask_positions"].shape[1], axis=1)
    is_real = masked["mask_weights"] > 0
    result[rows[is_real], masked["mask_positions"][is_real]] = True
    assert result.sum() == is_real.sum(), "a position was chosen twice"
    return result


@pytest.mark.parametrize("whole_words", [False, True])
def test_shares_of_the_masks(
    packed: dict[str, np.ndarray], vocabulary: list[str], whole_words: bool
) -> None:
    token_ids = packed["token_ids"]
    masked = mask(Masker(vocabulary, whole_words=whole_words), token_ids, (3, 4))
    is_chosen = chosen(masked)
    num_tokens = packed["padding_mask"].sum(axis=1)
    budget = np.clip(np.round(0.15 * num_tokens), 1, 20)
    if whole_words:  # no remaining word fits
        assert (is_chosen.sum(axis=1) <= budget).all()
        assert is_chosen.sum() > 0.99 * budget.sum()
    else:
        np.testing.assert_array_equal(is_chosen.sum(axis=1), budget)
    assert is_chosen.sum() / num_tokens.sum() == pytest.approx(0.15, abs=0.003)

    special = [vocabulary.index(token) for token in SPECIAL_TOKENS]
    assert not np.isin(token_ids[is_chosen], special).any()
    hidden, total = masked["token_ids"], is_chosen.sum()
    is_mask = hidden[is_chosen] == vocabulary.index("[MASK]")
    is_kept = hidden[is_chosen] == token_ids[is_chosen]
    ordinary = len(vocabulary) - len(special)
    assert near(is_mask.sum(), total, 0.8)
    assert near(is_kept.sum(), total, 0.1 + 0.1 / ordinary)
    random_ids = hidden[is_chosen][~is_mask & ~is_kept]
    assert not np.isin(random_ids, special).any()
    counts = np.bincount(random_ids, minlength=len(vocabulary))
    assert near(counts[: len(vocabulary) // 2].sum(), len(random_ids), 0.5 - 2.5 / ordinary)
    np.testing.assert_array_equal(hidden[~is_chosen], token_ids[~is_chosen])


def test_any_ordinary_token_may_be_chosen(
    packed: dict[str, np.ndarray], vocabulary: list[str]
) -> None:
    is_ordinary = ~np.isin(packed["token_ids"], range(len(SPECIAL_TOKENS)))
    is_chosen = chosen(mask(Masker(vocabulary), packed["token_ids"], (5, 6)))
    halves = np.arange(LENGTH) < LENGTH // 2
    share = is_chosen[:, halves].sum() / is_chosen.sum()
    assert share == pytest.approx(is_ordinary[:, halves].sum() / is_ordinary.sum(), abs=0.01)


def test_targets_are_what_was_hidden(packed: dict[str, np.ndarray], vocabulary: list[str]) -> None:
    masked = mask(Masker(vocabulary), packed["token_ids"], (1, 1))
    is_real = masked["mask_weights"] == 1
    originals = np.take_along_axis(packed["token_ids"], masked["mask_positions"], axis=1)
    np.testing.assert_array_equal(masked["mask_ids"], np.where(is_real, originals, 0))
    assert not masked["mask_positions"][~is_real].any()
    assert not masked["mask_weights"][~is_real].any()
    steps = np.diff(masked["mask_positions"], axis=1)
    assert (steps[is_real[:, 1:]] > 0).all()
    np.testing.assert_array_equal(unmask(**masked), packed["token_ids"])


def test_whole_words_are_whole(packed: dict[str, np.ndarray], vocabulary: list[str]) -> None:
    token_ids = packed["token_ids"]
    is_chosen = chosen(mask(Masker(vocabulary, whole_words=True), token_ids, (7, 8)))
    is_ordinary = ~np.isin(token_ids, range(len(SPECIAL_TOKENS)))
    continues = np.char.startswith(np.array(vocabulary), "##")[token_ids]
    joins = continues[:, 1:] & is_ordinary[:, :-1]  # a piece and the piece before it, in one word
    assert joins.sum() > 10_000
    assert (is_chosen[:, 1:][joins] == is_chosen[:, :-1][joins]).all()
    assert is_chosen[:, 1:][joins].any()
    # Without the option they are not, which shows that the check above can fail.
    parts = chosen(mask(Masker(vocabulary), token_ids, (7, 8)))
    assert (parts[:, 1:][joins] != parts[:, :-1][joins]).any()


def test_every_chosen_token_may_become_a_mask(
    packed: dict[str, np.ndarray], vocabulary: list[str]
) -> None:
    token_ids = packed["token_ids"]
    usual, always = (
        mask(Masker(vocabulary, always_mask=choice), token_ids, (3, 4)) for choice in (False, True)
    )
    np.testing.assert_array_equal(usual["mask_positions"], always["mask_positions"])
    assert (always["token_ids"][chosen(always)] == vocabulary.index("[MASK]")).all()


def test_masks_are_a_function_of_the_seed(
    packed: dict[str, np.ndarray], vocabulary: list[str]
) -> None:
    masker, token_ids = Masker(vocabulary), packed["token_ids"][:64]
    first, again = (mask(masker, token_ids, (1, 2)) for _ in range(2))
    in_graph = tf.function(masker)(token_ids, tf.constant([1, 2], tf.int64))
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
        np.testing.assert_array_equal(values, in_graph[name])
    for seed in ((1, 3), (2, 2)):
        other = mask(masker, token_ids, seed)
        assert (other["mask_positions"] != first["mask_positions"]).any(axis=1).mean() > 0.95


WORDS = [*SPECIAL_TOKENS, "a", "b", "##c", "##d"]
A, B, C, D = 5, 6, 7, 8


def test_the_first_draws_stay_as_they_are() -> None:
    """Other versions of TensorFlow make the same files."""
    token_ids = np.array([[2, A, B, A, B, A, 3, B, A, B, 3, 0]])
    masked = mask(Masker(WORDS, mask_probability=0.4, max_predictions=5), token_ids, (1, 2))
    assert masked["mask_positions"].tolist() == [[3, 4, 5, 8, 0]]
    assert masked["token_ids"].tolist() == [[2, A, B, 4, 4, A, 3, B, 4, B, 3, 0]]


def test_words_that_do_not_fit_are_skipped() -> None:
    """With a budget of two, words of three pieces are never chosen, but shorter ones are."""
    masker = Masker(WORDS, mask_probability=0.2, whole_words=True)
    token_ids = np.tile([[2, A, C, D, 3, B, B, B, 3, 0]], (200, 1))
    counts = chosen(mask(masker, token_ids, (1, 2)), 10).sum(axis=0)
    assert counts[1:4].tolist() == [0, 0, 0]
    assert counts[5:8].sum() == 400


def test_rows_without_words_and_more_places_than_tokens() -> None:
    """A piece whose start was cut off is a word; [UNK] is never predicted."""
    masker = Masker(WORDS, mask_probability=0.5, max_predictions=9, whole_words=True)
    masked = mask(masker, np.array([[2, 1, 3, 1, 3, 0], [2, C, 3, 1, 3, 0]]), (1, 2))
    assert masked["mask_weights"].sum(axis=1).tolist() == [0, 1]
    assert masked["mask_positions"].shape == (2, 9)
    assert masked["mask_ids"][1, 0] == C


def test_maskers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ValueError, match=r"\[MASK\].*4 tokens"):
        Masker(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match="mask_probability is 1.5"):
        Masker(WORDS, mask_probability=1.5)
    with pytest.raises(ValueError, match="max_predictions is 0"):
        Masker(WORDS, max_predictions=0)
    with pytest.raises(ValueError, match="only special tokens"):
        Masker(SPECIAL_TOKENS)
