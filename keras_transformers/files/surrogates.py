"""Checks that strings are Unicode text: half of a surrogate pair has no UTF-8.

Python takes such halves from JSON, where they are escapes such as U+D83D's, and from programs that
cut UTF-16 in the middle of a character, as is common in tweets and in the text of PDF files.
"""

from typing import Any

_REPAIR = "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"


def half_of_a_pair(text: str) -> str:
    r"""Returns what is wrong with a text that has half of a surrogate pair, and the remedy; or "".

    >>> half_of_a_pair("a \ud83d").partition(",")[0]
    'half of a surrogate pair'
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return _reason(error)
    return ""


def check_text(place: str, text: str) -> None:
    """Raises ValueError if a text has half of a surrogate pair.

    Args:
        place: what the text is, for the message, such as "row 3: text".
        text: the text.
    """
    if reason := half_of_a_pair(text):
        raise ValueError(f"{place} has {reason}")


def check_json(place: str, value: Any) -> None:
    """Raises ValueError if a string in a JSON value has half of a surrogate pair.

    Args:
        place: where the value is, for the message.
        value: what `json.loads` returned. The message also names the keys on the way.
    """
    left = [(place, value)]
    while left:  # JSON may be nested more deeply than Python recurses
        place, value = left.pop()
        if isinstance(value, str):
            check_text(place, value)
        elif isinstance(value, list):
            left.extend((place, item) for item in reversed(value))
        elif isinstance(value, dict):
            for key in value:
                check_text(f"{place}: the key {key!r:.60}", key)
            left.extend((f"{place}: {key!r:.60}", item) for key, item in value.items())


def as_utf8(place: str, text: str | bytes) -> bytes:
    """Returns a text as UTF-8, and bytes unchanged.

    The code points U+DC80 to U+DCFF stand for bytes that are not UTF-8, as with Python's
    `surrogateescape`.

    Args:
        place: what the text is, for the message.
        text: the text.

    Raises:
        ValueError: the text has any other half of a surrogate pair.
    """
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} has {_reason(error)}") from None


def _reason(error: UnicodeEncodeError) -> str:
    half = error.object[error.start]
    return (
        f"half of a surrogate pair, {half!r}, at character {error.start}: repair the text with "
        f"{_REPAIR}"
    )
