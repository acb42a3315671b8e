"""Tokenizes text files into one corpus on disk, in parallel and resumable."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.data.pretraining.documents import TextFormat, read_documents
from keras_transformers.data.pretraining.examples import TokenizedCorpus
from keras_transformers.files import new_folder, read_json, write_json
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

# Calls a function with each tuple of arguments, in this process or in worker processes.
Run = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]

_DOCUMENTS_AT_ONCE = 256  # tokenized together
_TOKENS, _SENTENCES, _DOCUMENTS, _COUNTS = (
    "tokens.bin",
    "sentences.bin",
    "documents.bin",
    "counts.json",
)


@dataclasses.dataclass(frozen=True)
class CorpusFiles:
    """A corpus of token ids in a folder, and the settings it is made with.

    Attributes:
        work_dir: contains the corpus, or the parts made so far.
        text_format: format of the text files; see `read_documents`.
        vocabulary: the tokens, in the order of their ids.
        lowercase: whether the tokenizer lowercases.
    """

    work_dir: Path
    text_format: TextFormat
    vocabulary: tuple[str, ...]
    lowercase: bool

    @property
    def _dir(self) -> Path:
        return self.work_dir / "corpus"

    @property
    def _token_type(self) -> type[np.generic]:
        return np.uint16 if len(self.vocabulary) <= 2**16 else np.int32

    def make(self, paths: Sequence[Path], run: Run) -> None:
        """Tokenizes the remaining files and joins them all, unless the corpus exists.

        Raises:
            ValueError: the text is malformed; see `read_documents`.
        """
        parts = [self.work_dir / f"file-{number:05d}" for number in range(len(paths))]
        if not self._dir.is_dir():
            self.work_dir.mkdir(exist_ok=True)
            pairs = zip(paths, parts, strict=True)
            run(self.tokenize, [(path, part) for path, part in pairs if not part.is_dir()])
            with new_folder(self._dir) as folder:
                _join(parts, folder)
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)

    def counts(self) -> "collections.Counter[str]":
        """Returns counts of the text, named as in `PretrainingReport`."""
        return collections.Counter(read_json(self._dir / _COUNTS))

    def load(self) -> TokenizedCorpus:
        """Memory-maps the corpus, which must have at least one token."""
        return TokenizedCorpus(
            np.memmap(self._dir / _TOKENS, self._token_type, "r"),
            np.memmap(self._dir / _SENTENCES, np.int64, "r"),
            np.memmap(self._dir / _DOCUMENTS, np.int64, "r"),
        )

    def tokenize(self, path: Path, part: Path) -> None:
        """Writes a file's tokens, sentence lengths and document lengths into a new folder."""
        tokenizer = _tokenizer(self.vocabulary, self.lowercase)
        counts: collections.Counter[str] = collections.Counter()
        documents = read_documents(path, text_format=self.text_format)
        with new_folder(part) as folder, contextlib.ExitStack() as stack:
            outputs = [
                stack.enter_context((folder / name).open("wb"))
                for name in (_TOKENS, _SENTENCES, _DOCUMENTS)
            ]
            while chunk := list(itertools.islice(documents, _DOCUMENTS_AT_ONCE)):
                rows = tokenizer.tokenize([sentence for document in chunk for sentence in document])
                tokens, lengths = rows.values.numpy(), rows.row_lengths().numpy()
                first = np.cumsum([0, *map(len, chunk)])[:-1]
                sizes = np.add.reduceat(lengths > 0, first, dtype=np.int64)  # sentences with tokens
                arrays = tokens.astype(self._token_type), lengths[lengths > 0], sizes[sizes > 0]
                for output, array in zip(outputs, arrays, strict=True):
                    array.tofile(output)
                counts.update(
                    num_documents=len(sizes),
                    num_empty_documents=int(np.sum(sizes == 0)),
                    num_single_sentence_documents=int(np.sum(sizes == 1)),
                    num_sentences=len(lengths),
                    num_empty_sentences=int(np.sum(lengths == 0)),
                    num_tokens=len(tokens),
                    num_unknown_tokens=int(np.sum(tokens == tokenizer.unknown_token_id)),
                )
            write_json(folder / _COUNTS, counts)


def _join(parts: Sequence[Path], folder: Path) -> None:
    """Joins the parts into one corpus: token ids, and the starts of sentences and documents."""
    with (folder / _TOKENS).open("wb") as output:
        for part in parts:
            with (part / _TOKENS).open("rb") as tokens:
                shutil.copyfileobj(tokens, output)
    for name in (_SENTENCES, _DOCUMENTS):
        lengths = [np.fromfile(part / name, np.int64) for part in parts]
        np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])).tofile(folder / name)
    counts: collections.Counter[str] = collections.Counter()
    for part in parts:
        counts.update(read_json(part / _COUNTS))
    write_json(folder / _COUNTS, counts)


@functools.lru_cache(maxsize=1)
def _tokenizer(vocabulary: tuple[str, ...], lowercase: bool) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocabulary, lowercase=lowercase)
