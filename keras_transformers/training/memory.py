"""How the C library manages the memory of a training."""

import ctypes

__all__ = ["keep_freed_memory"]

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> bool:
    """Lets glibc keep the memory of freed tensors for the next ones; elsewhere does nothing.

    By default glibc maps each large tensor anew and gives it back to the kernel when it is freed.
    The kernel then clears every page again in every update, which took a quarter of a training
    step's time on a CPU (`benchmarks/training/allocation.py`). What a process uses at its peak it
    now keeps until it ends.

    Call it before TensorFlow's first operation, whose threads would otherwise have heaps of their
    own that still map large tensors.

    Returns:
        Whether the C library understood: glibc does, musl and macOS do not.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 64 << 20, _ARENA_MAX: 1}
    understood = [mallopt(option, value) == 1 for option, value in options.items()]
    return all(understood)
