"""Combining marks in every order, as the `tokenizers` library orders them."""

import unicodedata

import pytest
import tensorflow as tf
from tokenizers import normalizers

from keras_transformers.tokenizers.described import text as texts
from keras_transformers.tokenizers.described.normalizers import normalizer_steps

MARKS = [chr(code) for code in range(0x32400) if unicodedata.category(chr(code)).startswith("M")]
OTHERS = "\u0345\u0301\u0316\u05b0"  # of the classes 240, 230, 220 and 10


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_two_marks_come_in_the_order_of_the_library(form):
    lines = [f"x{first}{second}" for mark in MARKS for other in OTHERS
             for first, second in ((mark, other), (other, mark))]  # fmt: skip
    text = texts.decode(tf.constant(lines))
    for step in normalizer_steps({"type": form}):
        text = step(text)
    found = texts.encode(text, text.rows, tf.constant(len(lines), tf.int64)).numpy()
    normalize = getattr(normalizers, form)().normalize_str
    different = [
        line for line, one in zip(lines, found, strict=True) if one.decode() != normalize(line)
    ]
    assert different == []
