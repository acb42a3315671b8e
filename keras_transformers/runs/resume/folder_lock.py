"""Prevents two processes from writing to one folder and replacing each other's files.

The operating system holds the lock, on a file `.lock` in the folder, and releases it when the
process ends, for whatever reason. So a killed process leaves no lock, only the file, which the next
process reuses.
"""

import contextlib
import datetime
import fcntl
import logging
import os
import socket
import weakref
from pathlib import Path

__all__ = ["FolderInUseError", "FolderLock", "lock_folder"]

LOCK = ".lock"

logger = logging.getLogger(__name__)


class FolderInUseError(OSError):
    """Another process is writing to the folder."""


class FolderLock:
    """Holds this process's lock on a folder, from `lock_folder`, until nothing refers to it."""

    def __init__(self, descriptor: int) -> None:
        self.close = weakref.finalize(self, os.close, descriptor)


_held: "weakref.WeakValueDictionary[Path, FolderLock]" = weakref.WeakValueDictionary()


def lock_folder(folder: str | os.PathLike[str]) -> FolderLock:
    """Returns the lock on a folder, which all of this process shares.

    Args:
        folder: an existing folder.

    Raises:
        FolderInUseError: another process has it; the message says which.
        OSError: the lock's file cannot be written.
    """
    folder = Path(folder).resolve()
    lock = _held.get(folder)
    if lock is None:
        lock = _held[folder] = FolderLock(_locked(folder))
    return lock


def _locked(folder: Path) -> int:
    """Returns the descriptor of the folder's file, locked and with this process's name in it."""
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 1000).decode("utf-8", "replace").strip() or "another process"
        os.close(descriptor)
        raise FolderInUseError(
            f"{folder}: in use by {owner}; wait for it or stop it, or choose another folder. If it "
            f"and its machine are gone, remove {path}"
        ) from error
    except OSError as error:  # some network file systems have no locks
        logger.warning("%s: cannot be locked (%s): run only one process there", folder, error)
    with contextlib.suppress(OSError):  # only the message for other processes would say less
        started = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        os.ftruncate(descriptor, 0)
        owner = f"process {os.getpid()} on {socket.gethostname()} since {started}"
        os.write(descriptor, f"{owner}\n".encode())
    return descriptor


def _forget_all() -> None:
    """Closes the locks in a forked process, which would keep them when its parent is gone."""
    for lock in list(_held.values()):
        lock.close()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)
