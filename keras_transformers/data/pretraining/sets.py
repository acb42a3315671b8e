"""From documents to what pretraining reads: a vocabulary, records to train and to evaluate on."""

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
    read_nltk,
    split_documents,
    write_documents,
)
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["Corpus", "PretrainingSets", "make_sets", "read_text"]

Corpus = Literal["brown", "movie_reviews", "state_union", "wikitext2"]

_VOCABULARY = "vocab.txt"
_PARTS = ("train", "dev")
_MASK_PROBABILITY = 0.15  # the paper's


@dataclasses.dataclass(frozen=True)
class PretrainingSets:
    """Records in `train-<length>/` and `dev-<length>/`, and their `vocab.txt`, in one folder.

    Attributes:
        folder: that holds them.
        tokenizer: of the vocabulary.
        whole_words: whether dynamic masking chooses all pieces of a word or none.
    """

    folder: Path
    tokenizer: WordPieceTokenizer
    whole_words: bool = False

    def open(self, length: int) -> tuple[RecordFiles, RecordFiles]:
        """The files to train and to evaluate on.

        Args:
            length: of the examples, in tokens.

        Raises:
            FileNotFoundError: one of the folders is not there.
            ValueError: records are damaged, not finished, of another length (see `open_records`),
                or made with another vocabulary.
        """
        found = []
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
                raise ValueError(f"{path}: made with another vocabulary than the one given")
            found.append(files)
        return found[0], found[1]

    def batches(
        self,
        length: int,
        *,
        batch_size: int,
        accumulate: int = 1,
        steps_per_epoch: int,
        dynamic_masking: bool = False,
        seed: int = 0,
    ) -> tuple[PretrainingBatches, PretrainingBatches]:
        """Batches to train `heads.pretrainer` on, shuffled and without end, and to evaluate it on.

        Args:
            length: of the examples, in tokens.
            batch_size: examples per batch.
            accumulate: so many batches of the training make one.
            steps_per_epoch: batches after which an epoch of the training ends.
            dynamic_masking: whether training has other masks each time an example comes. For
                evaluation the masks of the files stay.
            seed: of order and masks.

        Raises:
            FileNotFoundError, ValueError: as `open` and `pretraining_dataset`.
        """
        train, dev = self.open(length)
        return PretrainingBatches(
            train,
            batch_size=batch_size * accumulate,
            steps_per_epoch=steps_per_epoch,
            masker=self._masker(train) if dynamic_masking else None,
            seed=seed,
        ), PretrainingBatches(dev, batch_size=batch_size)

    def token_counts(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """How often each token is to be predicted in the files to train and to evaluate on.

        Args:
            length: of the examples, in tokens.

        Returns:
            Two arrays, int64 (vocabulary,).

        Raises:
            FileNotFoundError, ValueError: as `open`.
        """
        train, dev = (self._counts(files) for files in self.open(length))
        return train, dev

    def _counts(self, files: RecordFiles) -> np.ndarray:
        counts = np.zeros(self.tokenizer.vocabulary_size, np.int64)
        for _, targets, weights in pretraining_dataset(files.paths, batch_size=1024):
            is_chosen = weights["mask_logits"].numpy() > 0
            np.add.at(counts, targets["mask_logits"].numpy()[is_chosen], 1)
        return counts

    def _masker(self, files: RecordFiles) -> Masker:
        return Masker(
            self.tokenizer.vocabulary,
            mask_probability=_MASK_PROBABILITY,
            max_predictions=files.num_predictions,
            whole_words=self.whole_words,
        )


def read_text(
    path: str | os.PathLike[str] | None,
    *,
    text_format: TextFormat = "lines",
    corpora: Sequence[Corpus] = (),
) -> list[Document] | None:
    """The documents of text files, or of public corpora.

    Args:
        path: a file, or a folder of files, as `read_documents` takes them. With `corpora` the
            folder that holds `nltk/brown.zip`, `nltk/movie_reviews.zip` and `nltk/state_union.zip`
            as NLTK distributes them, and WikiText-2's tokens as `text/wikitext2.valid.txt.gz` and
            `text/wikitext2.test.txt.gz`; only those that are asked for need be there. None: there
            is no text, only records.
        text_format: of the files; without meaning for corpora.
        corpora: their names, in the order in which they are read.

    Returns:
        The documents; None without `path`.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: one is bad (see `read_nltk` and `read_documents`); `corpora` without `path`.
    """
    if path is None:
        if corpora:
            raise ValueError(f"{', '.join(corpora)}: give the folder that holds these corpora")
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
    vocabulary: str | os.PathLike[str] | None = None,
    vocabulary_size: int = 30522,
    lowercase: bool = True,
    whole_words: bool = False,
    dupe_factor: int = 10,
    num_processes: int = 1,
) -> PretrainingSets:
    """Makes `train.txt.gz`, `dev.txt.gz`, `vocab.txt`, and of them `train-128/`, `dev-128/`, ...

    What is there already is kept, so that a call that was stopped goes on when it is made again
    with the same arguments. Examples predict the paper's 15 % of their tokens, at most 20 of 128
    and 77 of 512. Documents held out are gone through once.

    Args:
        documents: what to split, by `split_documents`; None where there are only `vocab.txt` and
            records, of `make_pretraining_data` or Google's create_pretraining_data.
        folder: made if it is not there.
        lengths: of the examples, in tokens.
        dev_fraction: chance of a document to be held out, above 0 and below 1.
        vocabulary: a file with one token per line; None: that of the folder or, with documents,
            learned from those to train on.
        vocabulary_size: of the one that is learned.
        lowercase: as for the tokenizer.
        whole_words: see `PretrainingOptions`.
        dupe_factor: of the documents to train on; see `PretrainingOptions`.
        num_processes: that work at a time; see `make_pretraining_data`.

    Raises:
        FileNotFoundError: an input is not there.
        ValueError: the text is bad or too little, a number is out of range, or the folder's
            records were made with others; see `make_pretraining_data`.
    """
    folder = Path(folder)
    if documents is None:
        tokenizer = WordPieceTokenizer(vocabulary or folder / _VOCABULARY, lowercase=lowercase)
        sets = PretrainingSets(folder, tokenizer, whole_words)
        for length in lengths:
            sets.open(length)
        return sets
    _hold_out(documents, folder, dev_fraction)
    tokenizer = _tokenizer(folder, vocabulary, vocabulary_size, lowercase)
    for length in lengths:
        train = PretrainingOptions(
            max_sequence_length=length,
            max_predictions=math.ceil(_MASK_PROBABILITY * length),
            mask_probability=_MASK_PROBABILITY,
            whole_words=whole_words,
            dupe_factor=dupe_factor,
        )
        dev = dataclasses.replace(train, dupe_factor=1, num_shards=1)
        for part, options in zip(_PARTS, (train, dev), strict=True):
            make_pretraining_data(
                folder / f"{part}.txt.gz",
                folder / f"{part}-{length}",
                tokenizer,
                options,
                num_processes=num_processes,
            )
    return PretrainingSets(folder, tokenizer, whole_words)


def _corpus(folder: Path, corpus: Corpus) -> Iterator[Document]:
    if corpus != "wikitext2":
        yield from read_nltk(folder / "nltk" / f"{corpus}.zip")
        return
    for split in ("valid", "test"):
        file = folder / "text" / f"wikitext2.{split}.txt.gz"
        yield from read_documents(file, text_format="wikitext")


def _hold_out(documents: Iterable[Document], folder: Path, dev_fraction: float) -> None:
    """Writes the texts of both parts, unless they are there."""
    paths = [folder / f"{part}.txt.gz" for part in _PARTS]
    if not paths[-1].is_file():
        parts = split_documents(documents, held_out_share=dev_fraction)
        folder.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):  # dev last: with it, both are there
            path.unlink(missing_ok=True)
            write_documents(part, path)


def _tokenizer(
    folder: Path,
    vocabulary: str | os.PathLike[str] | None,
    vocabulary_size: int,
    lowercase: bool,
) -> WordPieceTokenizer:
    path = folder / _VOCABULARY
    if vocabulary is not None:
        tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        if not path.exists():
            shutil.copyfile(vocabulary, path)
        elif WordPieceTokenizer(path).vocabulary != tokenizer.vocabulary:
            raise ValueError(f"{path}: another vocabulary than {vocabulary}; take another folder")
        return tokenizer
    if path.exists():
        return WordPieceTokenizer(path, lowercase=lowercase)
    return WordPieceTokenizer.train(
        [folder / "train.txt.gz"], path, vocabulary_size=vocabulary_size, lowercase=lowercase
    )
