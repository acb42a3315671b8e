"""Reads sentence pairs from parallel files, tab-separated files and Multi30k.

Sentences are returned unchanged, including empty ones, so that pairs match line numbers.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_transformers.data.bad_rows import reject
from keras_transformers.data.faults import Content, content, plain
from keras_transformers.data.tables.reading import numbered_lines
from keras_transformers.files import read_lines
from keras_transformers.files.compression import compressed_names

__all__ = ["Pair", "multi30k_files", "read_multi30k", "read_parallel", "read_tsv"]

Pair = tuple[str, str]  # (source, target)


def read_parallel(source_path: str | Path, target_path: str | Path) -> Iterator[Pair]:
    """Yields the pairs of two files with one sentence per line, as in WMT, IWSLT and OPUS.

    Args:
        source_path: UTF-8 text, plain or compressed.
        target_path: its translation, line by line.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the files differ in their number of lines, which shows at the end of the shorter
            one, or a line is not UTF-8. The message gives both counts, or file and line.
    """
    sources, targets = read_lines(source_path), read_lines(target_path)
    for count, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in (targets if source is None else sources))
            longer = count + rest
            lines = (count, longer) if source is None else (longer, count)
            raise ValueError(
                f"{source_path} has {lines[0]} lines, {target_path} has {lines[1]}: the files must "
                "match line by line"
            )
        yield source, target


def read_tsv(path: str | Path, *, source_column: int = 0, target_column: int = 1) -> Iterator[Pair]:
    """Yields the pairs of a tab-separated file without header or quoting.

    Args:
        path: UTF-8 text, plain or compressed.
        source_column: index of the source, from 0.
        target_column: index of the target, from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has another number of columns than the first, lacks one of the two, or is
            not UTF-8; the message names file and line.
    """
    width = None
    for number, line in numbered_lines(path):
        cells = line.split("\t")
        width = len(cells) if width is None else width
        if len(cells) != width:
            reject(
                f"{path}:{number}",
                f"{len(cells)} columns, the first line has {width}; replace tabs within sentences "
                "by spaces",
            )
            continue
        if not 0 <= min(source_column, target_column) <= max(source_column, target_column) < width:
            raise ValueError(
                f"{path}:{number}: {width} columns; there is no source_column={source_column} or "
                f"no target_column={target_column}, which count from 0"
            )
        yield cells[source_column], cells[target_column]


def contents_of_pairs(pairs: Iterable[Pair]) -> Iterator[Content]:
    """Yields the contents of pairs: a text, which may have several targets."""
    for source, target in pairs:
        yield content(source, target, key=plain(source))


def multi30k_files(
    directory: str | Path, split: str, *, languages: tuple[str, str] = ("de", "en")
) -> tuple[Path, Path]:
    """Finds the two files of a split, named as in Multi30k, task 1 (Elliott et al. 2016).

    Args:
        directory: folder with `train.de.gz`, `train.en.gz`, `val.de.gz`, ..., compressed or plain.
        split: "train" (29,000 pairs), "val" (1,014), "test_2016_flickr" (1,000), ...
        languages: source and target language, as in the file names.

    Returns:
        The source file and the target file; the compressed ones if both kinds exist.

    Raises:
        FileNotFoundError: a file does not exist, neither compressed nor plain.
    """
    source, target = (
        _plain_or_compressed(Path(directory) / f"{split}.{name}") for name in languages
    )
    return source, target


def _plain_or_compressed(plain: Path) -> Path:
    packed = compressed_names(plain)
    path = next(filter(Path.is_file, [*packed, plain]), None)
    if path is None:
        raise FileNotFoundError(
            f"neither {packed[0]} nor {plain} exists, nor another compression; check the folder"
        )
    return path


def read_multi30k(
    directory: str | Path, split: str, *, languages: tuple[str, str] = ("de", "en")
) -> Iterator[Pair]:
    """Yields the pairs of a split; see `multi30k_files` and `read_parallel`."""
    return read_parallel(*multi30k_files(directory, split, languages=languages))
