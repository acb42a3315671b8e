"""Implements the decoders of the `tokenizers` library for byte pairs, from their JSON."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.tokenizers.described.vocabularies import SPACE_MARK

__all__: list[str] = []

_REPLACE = {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_JOINING = [_REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}]


def drops_space(description: Mapping[str, Any] | None, *, byte_level: bool) -> bool:
    """Returns whether a decoder drops a space at the start of the text.

    All decoders join the bytes of tokens, so nothing else differs.

    Args:
        description: the `decoder` of a tokenizer.json; None joins bytes too.
        byte_level: whether tokens are written as bytes.

    Raises:
        ValueError: it does something else to tokens; the message names it.
    """
    if description is None:
        return False
    kind = description.get("type")
    if byte_level and kind == "ByteLevel":
        return False
    if not byte_level and kind == "Sequence":
        steps = description.get("decoders")
        if steps == [*_JOINING, _STRIP]:
            return True
        if steps == _JOINING:
            return False
        kind = f"Sequence ({steps!r:.200})"
    raise ValueError(
        f"decoder {kind} is not supported here with a vocabulary of "
        f"{'bytes' if byte_level else 'characters and bytes'}"
    )


def default(*, byte_level: bool, prefix: bool) -> dict[str, Any]:
    """Returns the decoder of a vocabulary; it drops the space of texts with a prefix."""
    if byte_level:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                "use_regex": True}  # fmt: skip
    return {"type": "Sequence", "decoders": [*_JOINING, _STRIP] if prefix else _JOINING}
