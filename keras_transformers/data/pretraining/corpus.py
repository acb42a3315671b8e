"""Tokenizes text files into a corpus on disk, in one part per file, and joins the parts."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import shutil
from collections.abc import Collection, Iterator
from typing import IO

import numpy as np

from keras_transformers.data.pretraining.documents import TextFormat, read_documents
from keras_transformers.data.pretraining.examples import TokenizedCorpus
from keras_transformers.jobs import places
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

_DOCUMENTS_AT_ONCE = 256  # tokenized together
_TOKENS, _SENTENCES, _DOCUMENTS = _ARRAYS = ("tokens.bin", "sentences.bin", "documents.bin")
_UNREADABLE = "unreadable.jsonl"
_COUNTS = "counts.json"  # written last, so a part that has it is complete


@dataclasses.dataclass(frozen=True)
class CorpusFiles:
    """A corpus of token ids in a folder, and its settings.

    Attributes:
        work_dir: contains the corpus, or the parts made so far.
        text_format: format of the text files; see `read_documents`.
        vocabulary: the tokens, in the order of their ids.
        lowercase: whether the tokenizer lowercases.
        skip_unreadable: whether to leave out lines that are not text, and list them.
    """

    work_dir: places.Place
    text_format: TextFormat
    vocabulary: tuple[str, ...]
    lowercase: bool
    skip_unreadable: bool

    @property
    def _dir(self) -> places.Place:
        return f"{self.work_dir}/corpus"

    @property
    def _token_type(self) -> type[np.generic]:
        return np.uint16 if len(self.vocabulary) <= 2**16 else np.int32

    def _part(self, number: int) -> places.Place:
        return f"{self.work_dir}/file-{number:05d}"

    def is_made(self, names: Collection[str]) -> bool:
        """Returns whether the corpus is joined, from the names of the files in the work folder."""
        return f"corpus/{_COUNTS}" in names

    def missing_parts(self, num_files: int, names: Collection[str]) -> list[int]:
        """Returns the parts still to make, from the names of the files in the work folder."""
        return [n for n in range(num_files) if f"file-{n:05d}/{_COUNTS}" not in names]

    def counts(self) -> "collections.Counter[str]":
        """Returns counts of the text, named as in `PretrainingReport`."""
        return collections.Counter(places.read(f"{self._dir}/{_COUNTS}"))

    def unreadable_lines(self) -> str:
        """Returns the unreadable lines, as JSON Lines of file, line and reason."""
        with places.fetched(f"{self._dir}/{_UNREADABLE}") as path:
            return path.read_text("utf-8")

    @contextlib.contextmanager
    def opened(self) -> Iterator[TokenizedCorpus]:
        """Yields the corpus, memory-mapped; it must have at least one token."""
        with contextlib.ExitStack() as stack:
            paths = [stack.enter_context(places.fetched(f"{self._dir}/{n}")) for n in _ARRAYS]
            yield TokenizedCorpus(
                np.memmap(paths[0], self._token_type, "r"),
                np.memmap(paths[1], np.int64, "r"),
                np.memmap(paths[2], np.int64, "r"),
            )

    def tokenize(self, task: tuple[int, places.Place]) -> "collections.Counter[str]":
        """Writes a file's tokens, sentence lengths and document lengths.

        Args:
            task: the number of the part, and the text file.

        Returns:
            Counts of the text.

        Raises:
            ValueError: the text is malformed; see `read_documents`.
        """
        number, place = task
        counts: collections.Counter[str] = collections.Counter(num_unreadable_lines=0)
        with contextlib.ExitStack() as stack:

            def output(name: str) -> IO[bytes]:
                path = stack.enter_context(places.stored(f"{self._part(number)}/{name}"))
                return stack.enter_context(path.open("wb"))

            unreadable = output(_UNREADABLE)

            def set_aside(line: int, reason: str) -> None:
                counts["num_unreadable_lines"] += 1
                row = {"file": place, "line": line, "reason": reason}
                unreadable.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

            text = stack.enter_context(places.fetched(place))
            documents = read_documents(
                text,
                text_format=self.text_format,
                set_aside=set_aside if self.skip_unreadable else None,
            )
            outputs = [output(name) for name in _ARRAYS]
            tokenizer = _tokenizer(self.vocabulary, self.lowercase)
            while chunk := list(itertools.islice(documents, _DOCUMENTS_AT_ONCE)):
                rows = tokenizer.tokenize([sentence for document in chunk for sentence in document])
                tokens, lengths = rows.values.numpy(), rows.row_lengths().numpy()
                first = np.cumsum([0, *map(len, chunk)])[:-1]
                sizes = np.add.reduceat(lengths > 0, first, dtype=np.int64)  # sentences with tokens
                arrays = tokens.astype(self._token_type), lengths[lengths > 0], sizes[sizes > 0]
                for file, array in zip(outputs, arrays, strict=True):
                    array.tofile(file)
                counts.update(
                    num_documents=len(sizes),
                    num_empty_documents=int(np.sum(sizes == 0)),
                    num_single_sentence_documents=int(np.sum(sizes == 1)),
                    num_sentences=len(lengths),
                    num_empty_sentences=int(np.sum(lengths == 0)),
                    num_tokens=len(tokens),
                    num_unknown_tokens=int(np.sum(tokens == tokenizer.unknown_token_id)),
                )
        places.write(f"{self._part(number)}/{_COUNTS}", counts)
        return counts

    def join(self, num_files: int) -> None:
        """Joins the parts into one corpus: token ids, and the starts of sentences and documents."""
        parts = [self._part(number) for number in range(num_files)]
        for name in (_TOKENS, _UNREADABLE):
            with places.stored(f"{self._dir}/{name}") as joined, joined.open("wb") as output:
                for part in parts:
                    with places.fetched(f"{part}/{name}") as path, path.open("rb") as file:
                        shutil.copyfileobj(file, output)
        for name in (_SENTENCES, _DOCUMENTS):
            lengths = [np.zeros(1, np.int64)]
            for part in parts:
                with places.fetched(f"{part}/{name}") as path:
                    lengths.append(np.fromfile(path, np.int64))
            with places.stored(f"{self._dir}/{name}") as joined:
                np.cumsum(np.concatenate(lengths)).tofile(joined)
        counts: collections.Counter[str] = collections.Counter()
        for part in parts:
            counts.update(places.read(f"{part}/{_COUNTS}"))
        places.write(f"{self._dir}/{_COUNTS}", counts)
        for part in parts:
            places.remove(part)


@functools.lru_cache(maxsize=1)
def _tokenizer(vocabulary: tuple[str, ...], lowercase: bool) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocabulary, lowercase=lowercase)
