"""Defines a translation recipe's options for its pairs and vocabularies, and reads them."""

import dataclasses
import logging
from pathlib import Path
from typing import NamedTuple

from keras_transformers.data.faults import faults
from keras_transformers.data.translation.parallel_text import (
    Pair,
    contents_of_pairs,
    multi30k_files,
    read_multi30k,
)
from keras_transformers.ranges import PositiveInt
from keras_transformers.tokenizers.sentencepiece import Normalization, SentencePieceTokenizer

_logger = logging.getLogger(__name__)

__all__ = ["PairSplits", "ParallelFiles"]


class PairSplits(NamedTuple):
    """Pairs for training, model selection and testing."""

    train: list[Pair]
    val: list[Pair]
    test: list[Pair]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Options for pairs of texts in two languages; a base class for recipe configurations."""

    data: Path  # folder of train.*, val.*, test_2016_flickr.*
    source_language: str = "de"
    target_language: str = "en"
    test_split: str = "test_2016_flickr"
    # one vocabulary for both languages; fewer, with a warning, if the text yields fewer
    vocabulary_size: PositiveInt = 8000
    # the targets' own vocabulary; --vocabulary-size is then only the sources'
    target_vocabulary_size: PositiveInt | None = None

    def read(self) -> PairSplits:
        """Reads the pairs; see `read_multi30k`.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: two files do not match line by line, or one is not UTF-8.
        """
        splits = ("train", "val", self.test_split)
        languages = (self.source_language, self.target_language)
        pairs = [list(read_multi30k(self.data, name, languages=languages)) for name in splits]
        if line := faults(*zip(splits, map(contents_of_pairs, pairs), strict=True)):
            _logger.warning("%s", line)
        return PairSplits(*pairs)

    def learn(self, folder: Path, *, only_targets: bool = False) -> list[SentencePieceTokenizer]:
        """Learns the tokenizer of both languages, or one for each, from the training set.

        The targets' own tokenizer keeps characters as they are, because a model can write only
        what its tokenizer has: NFKC, which the other ones apply, leaves Chinese no full-width
        punctuation.

        Args:
            folder: gets `vocabulary.model`, and `target_vocabulary.model` if the targets have their
                own. Existing files are read.
            only_targets: whether the sources already have a tokenizer. The targets' tokenizer then
                has `vocabulary_size` tokens unless `target_vocabulary_size` is set.
        """
        languages = (self.source_language, self.target_language)
        source, target = multi30k_files(self.data, "train", languages=languages)
        size, target_size = self.vocabulary_size, self.target_vocabulary_size
        wanted = {"vocabulary": _Vocabulary([source, target], size)}
        if only_targets:
            wanted = {"target_vocabulary": _Vocabulary([target], target_size or size, "identity")}
        elif target_size is not None:
            wanted = {
                "vocabulary": _Vocabulary([source], size),
                "target_vocabulary": _Vocabulary([target], target_size, "identity"),
            }
        return [of.tokenizer(folder / f"{name}.model") for name, of in wanted.items()]


class _Vocabulary(NamedTuple):
    files: list[Path]
    size: int
    normalization: Normalization = "nmt_nfkc"

    def tokenizer(self, path: Path) -> SentencePieceTokenizer:
        if path.is_file():
            return SentencePieceTokenizer(path)
        return SentencePieceTokenizer.train(
            self.files, path, vocabulary_size=self.size, normalization=self.normalization
        )
