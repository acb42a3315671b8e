"""Lists the contents of a folder at any depth, without following links."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

__all__ = ["check_plain", "entries", "may_be_name"]

_DEEPEST_FOLDER = 100  # Python recurses when it removes folders


_LONGEST_NAME = 255  # bytes


def may_be_name(name: str) -> bool:
    """Returns whether a string, perhaps from a damaged file, can be the name of a file.

    >>> may_be_name("vocab.txt"), may_be_name("a" * 256), may_be_name("")
    (True, False, False)
    """
    return 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME and not {"\0", "/"} & set(name)


def entries(folder: Path) -> Iterator[tuple[Path, Literal["file", "folder", "link", "other"]]]:
    """Yields the contents of a folder and of the folders inside it, sorted, following no links.

    Yields:
        A path that starts with `folder`, and whether it is a plain file, a folder, a link (to a
        file, a folder or nothing) or something else, such as a pipe, that might block its reader.
        A folder comes before its contents.

    Raises:
        OSError: a folder cannot be read.
        ValueError: folders are nested more than 100 deep.
    """
    folders = [(folder, 0)]
    while folders:
        parent, depth = folders.pop()
        if depth > _DEEPEST_FOLDER:
            raise ValueError(
                f"{folder}: folders nested more than {_DEEPEST_FOLDER} deep: remove them"
            )
        with os.scandir(parent) as listing:
            children = sorted(listing, key=lambda child: child.name)
        for child in children:
            path = Path(child.path)
            if child.is_symlink():
                yield path, "link"
            elif child.is_dir():
                yield path, "folder"
                folders.append((path, depth + 1))
            else:
                yield path, "file" if child.is_file() else "other"


def check_plain(folder: Path) -> None:
    """Checks that a folder contains only plain files and folders.

    Raises:
        ValueError: it contains a link, a pipe or similar, or is nested too deeply.
    """
    for path, kind in entries(folder):
        if kind == "link":
            raise ValueError(
                f"{path} is a link to {os.readlink(path)}: put the file or folder itself there"
            )
        if kind == "other":
            raise ValueError(f"{path} is neither a file nor a folder: remove it")
