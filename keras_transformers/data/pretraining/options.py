"""The text of a pretraining as options of a recipe: how it is read, and records made of it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from keras_transformers.data.pretraining import sets
from keras_transformers.data.pretraining.batches import Document

__all__ = ["PretrainingFiles"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFiles:
    """A recipe's configuration may start with these."""

    data: Path | None = None  # a text file, or a folder of them; with --corpora their folder
    text_format: sets.TextFormat = "lines"  # of the files
    corpora: tuple[sets.Corpus, ...] = ()  # read these there
    records: Path | None = None  # with vocab.txt, train-128, dev-128, ..., or to be made of data
    dev_fraction: float = 0.05  # of the documents, held out; the same for all seeds
    vocabulary: Path | None = None  # vocab.txt; None: learned from the text
    vocabulary_size: int = 8000  # of the one that is learned
    lowercase: bool = True  # False for cased vocabularies
    whole_words: bool = False  # mask all pieces of a word or none
    dupe_factor: int = 5  # passes over the text, each with other pairs and masks

    def read(self) -> list[Document] | None:
        """The documents; None where there are only records.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: there is neither text nor records; and as `read_text`.
        """
        if not (self.data or self.records):
            raise ValueError("give --data, or existing --records")
        return sets.read_text(self.data, text_format=self.text_format, corpora=self.corpora)

    def make(
        self,
        text: list[Document] | None,
        folder: Path,
        *,
        lengths: Sequence[int],
        vocabulary: Path | None,
    ) -> sets.PretrainingSets:
        """Makes the records that are not there yet.

        Args:
            text: of `read`.
            folder: of the records.
            lengths: of their examples, in tokens.
            vocabulary: vocab.txt; learned from the text by default.

        Raises:
            FileNotFoundError, ValueError: as `make_sets`.
        """
        return sets.make_sets(
            text,
            folder,
            lengths=lengths,
            dev_fraction=self.dev_fraction,
            vocabulary=vocabulary,
            vocabulary_size=self.vocabulary_size,
            lowercase=self.lowercase,
            whole_words=self.whole_words,
            dupe_factor=self.dupe_factor,
        )
