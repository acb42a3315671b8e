"""Names server-sent events, the form of an answer that comes in parts (WHATWG HTML, 9.2)."""

MEDIA_TYPE = "text/event-stream"


def data_of(line: str) -> str | None:
    """Returns the data of an event; None for other lines. Our servers' events have one line each.

    >>> data_of("data: one"), data_of(""), data_of(": a comment")
    ('one', None, None)
    """
    return line.removeprefix("data:").strip() if line.startswith("data:") else None
