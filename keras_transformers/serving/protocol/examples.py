"""Writes the examples of TF Serving's Classify API, without TensorFlow."""

from collections.abc import Mapping


def text_example(texts: Mapping[str, str]) -> bytes:
    r"""Returns a serialized tf.train.Example with one text in each feature.

    >>> text_example({"text": "a"})
    b'\n\x0f\n\r\n\x04text\x12\x05\n\x03\n\x01a'
    """
    # Example.features, Features.feature, and Feature.bytes_list.value have the number 1; an entry
    # of a map has its key at 1 and its value at 2.
    entries = (
        _field(1, name.encode()) + _field(2, _field(1, _field(1, text.encode())))
        for name, text in texts.items()
    )
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _field(number: int, data: bytes) -> bytes:
    """Returns a field of bytes in protocol buffers' wire format."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
