"""Defines recipe options for language-model text, and reads and splits the text."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from keras_transformers.files import read_lines
from keras_transformers.ranges import Fraction

__all__ = ["TextFiles", "TextFormat", "read_texts", "split_tail"]

TextFormat = Literal["text", "wikitext"]

# The title of a document, not of a section such as " = = Early life = = ".
_WIKITEXT_TITLE = re.compile(r" = (?!=).* = ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Text options; a base class for recipe configurations."""

    data: tuple[Path, ...]  # text files, plain or compressed
    held_out: tuple[Path, ...] = ()  # files to measure on; (): the end of the data
    held_out_fraction: Fraction = 0.1  # share of the data's characters, if `held_out` is ()
    dev_fraction: Fraction = 0.05  # share of the rest, from its end, that chooses the best epoch
    text_format: TextFormat = "text"  # "wikitext": each article is a document

    def read(self) -> dict[str, list[str]]:
        """Reads the documents of each split: train, dev, held_out.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: see `read_texts` and `split_tail`.
        """
        texts = read_texts(self.data, text_format=self.text_format)
        if self.held_out:
            held_out = read_texts(self.held_out, text_format=self.text_format)
        else:
            texts, held_out = split_tail(texts, held_out_fraction=self.held_out_fraction)
        train, dev = split_tail(texts, held_out_fraction=self.dev_fraction)
        return {"train": train, "dev": dev, "held_out": held_out}


def read_texts(files: Sequence[str | Path], *, text_format: TextFormat = "text") -> list[str]:
    r"""Reads documents from text files; their lines end with "\n".

    Args:
        files: UTF-8 text files, plain or compressed.
        text_format: "text": each file is a document; "wikitext": each article is a document, from
            its title " = Title = " to the next title.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the format is unknown, a line is not UTF-8 (the message names file and line),
            or there is no text.
    """
    if text_format not in ("text", "wikitext"):
        raise ValueError(f"text_format={text_format!r}: must be 'text' or 'wikitext'")
    texts: list[str] = []
    for file in files:
        lines: list[str] = []
        for line in read_lines(file):
            if (
                text_format == "wikitext"
                and _WIKITEXT_TITLE.fullmatch(line)
                and any(earlier.strip() for earlier in lines)
            ):
                texts.append("".join(lines))
                lines = []
            lines.append(f"{line}\n")
        texts.append("".join(lines))
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError(f"{', '.join(map(str, files)) or 'no files'}: no text")
    return texts


def split_tail(texts: Sequence[str], *, held_out_fraction: float) -> tuple[list[str], list[str]]:
    """Splits off the end of a text, at the start of a line.

    Args:
        texts: documents; the one at the border is cut in two.
        held_out_fraction: share of all characters, above 0 and below 1.

    Returns:
        The training documents and the held-out ones.

    Raises:
        ValueError: the fraction is out of range, or a part is empty.
    """
    if not 0 < held_out_fraction < 1:
        raise ValueError(f"held_out_fraction is {held_out_fraction}, must be above 0 and below 1")
    room = round((1 - held_out_fraction) * sum(map(len, texts)))
    kept, held_out = [], []
    for text in texts:
        border = len(text) if len(text) <= room else text.find("\n", max(room, 0)) + 1 or len(text)
        border = 0 if room <= 0 else border
        kept.append(text[:border])
        held_out.append(text[border:])
        room -= len(text)
    parts = [[text for text in part if text.strip()] for part in (kept, held_out)]
    if not all(parts):
        raise ValueError(
            f"held_out_fraction={held_out_fraction:g} leaves {len(parts[0])} documents to train on "
            f"and {len(parts[1])} held out: use more text, or another fraction"
        )
    return parts[0], parts[1]
