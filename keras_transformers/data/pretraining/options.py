"""Defines recipe options for pretraining text, and for making records from it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from keras_transformers.data.pretraining import sets
from keras_transformers.data.pretraining.batches import Document
from keras_transformers.ranges import Fraction, PositiveInt
from keras_transformers.tokenizers.vocabulary import WordPieceMerges
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["PretrainingFiles"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFiles:
    """Pretraining-text options; a base class for recipe configurations."""

    data: Path | None = None  # a text file or a folder of them; with --corpora, their folder
    text_format: sets.TextFormat = "lines"  # format of the text files
    corpora: tuple[sets.Corpus, ...] = ()  # public corpora to read from the folder
    records: Path | None = None  # folder of vocab.txt, train-128, dev-128, ...; made if missing
    dev_fraction: Fraction = 0.05  # share of the documents to hold out; the same for all seeds
    vocabulary: Path | None = None  # vocab.txt; None: learned from the text
    vocabulary_size: PositiveInt = 8000  # size of a learned vocabulary
    merges: WordPieceMerges = "frequency"  # how it is learned: see `WordPieceTokenizer.train`
    lowercase: bool = True  # False for cased vocabularies
    whole_words: bool = False  # mask all pieces of a word or none
    # share of the tokens to predict in training; dev keeps BERT's 0.15, for comparable figures
    mask_probability: Fraction = sets.MASK_PROBABILITY
    dupe_factor: PositiveInt = 5  # passes over the text, each with different pairs and masks

    def read(self) -> list[Document] | None:
        """Reads the documents; returns None if there are only records.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: there is neither text nor records, or see `read_text`.
        """
        if not (self.data or self.records):
            raise ValueError("pass data=FILE, or existing records=FOLDER")
        return sets.read_text(self.data, text_format=self.text_format, corpora=self.corpora)

    def make(
        self,
        text: list[Document] | None,
        folder: Path,
        *,
        lengths: Sequence[int],
        tokenizer: WordPieceTokenizer | None = None,
    ) -> sets.PretrainingSets:
        """Makes missing records.

        Args:
            text: documents from `read`.
            folder: folder for the records.
            lengths: lengths of their examples, in tokens.
            tokenizer: a pretrained model's tokenizer, instead of `vocabulary` or one learned from
                the text.

        Raises:
            FileNotFoundError, ValueError: see `make_sets`.
        """
        return sets.make_sets(
            text,
            folder,
            lengths=lengths,
            dev_fraction=self.dev_fraction,
            tokenizer=tokenizer,
            vocabulary=self.vocabulary,
            vocabulary_size=self.vocabulary_size,
            merges=self.merges,
            lowercase=self.lowercase,
            whole_words=self.whole_words,
            mask_probability=self.mask_probability,
            dupe_factor=self.dupe_factor,
        )
