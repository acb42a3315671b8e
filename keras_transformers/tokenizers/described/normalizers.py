"""Implements the normalizers of the `tokenizers` library, from their JSON, in the graph."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described import unicode_tables
from keras_transformers.tokenizers.described.patterns import one_class
from keras_transformers.tokenizers.described.text import (
    CODES,
    CharacterClass,
    CharacterMap,
    Text,
    before,
    numbered,
    with_deleted,
)
from keras_transformers.tokenizers.tensors import item_numbers, kept, places, searchsorted

Step = Callable[[Text], Text]

_BY_CHARACTER = ("Lowercase", "StripAccents", "Nmt")
_FORMS = {"NFC": ("NFD", True), "NFD": ("NFD", False), "NFKC": ("NFKD", True),
          "NFKD": ("NFKD", False)}  # fmt: skip


def normalizer_steps(description: Mapping[str, Any] | None) -> list[Step]:
    """Returns the steps that a normalizer takes.

    Args:
        description: the `normalizer` of a tokenizer.json.

    Raises:
        ValueError: it cannot be reproduced exactly; the message names it.
    """
    if description is None:
        return []
    kind = description.get("type")
    if kind == "Sequence":
        return [step for part in description["normalizers"] for step in normalizer_steps(part)]
    if kind in _BY_CHARACTER:
        return [_by_character({"type": kind})]
    if kind in _FORMS:
        return _unicode_form(*_FORMS[kind])
    if kind == "BertNormalizer":
        return _bert(description)
    if kind == "Strip":
        return [_strip(description.get("strip_left", True), description.get("strip_right", True))]
    if kind == "Prepend":
        return [_prepend(str(description["prepend"]))]
    if kind == "Replace":
        return [_replace(description)]
    raise ValueError(f"normalizer {kind} ({json.dumps(description):.80}) is not supported here")


def _by_character(description: Mapping[str, Any]) -> Step:
    return CharacterMap(unicode_tables.character_table(json.dumps(description)))


def _bert(description: Mapping[str, Any]) -> list[Step]:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
           "lowercase": False}  # fmt: skip
    lowercase = description.get("lowercase", True)
    strips = description.get("strip_accents")
    steps: list[Step] = []
    for field in ("clean_text", "handle_chinese_chars"):
        if description.get(field, True):
            steps.append(_by_character({"type": "BertNormalizer", **off, field: True}))
    if lowercase if strips is None else strips:
        steps += [*_unicode_form("NFD", False), _by_character({"type": "StripAccents"})]
    if lowercase:
        steps.append(_by_character({"type": "Lowercase"}))
    return steps


def _strip(left: bool, right: bool) -> Step:
    is_space = CharacterClass(unicode_tables.class_of(r"\s"))

    def strip(text: Text) -> Text:
        shown = places(~is_space(text.codes), tf.int32)
        index, count = tf.range(tf.size(text.rows)), tf.size(shown)
        row_of = tf.concat([tf.gather(text.rows, shown), [-1]], 0)
        kept = tf.fill([tf.size(index)], True)
        if left:  # something shown stands before it in its row, or it is shown
            last = searchsorted(shown, index, side="right") - 1
            kept &= tf.gather(row_of, tf.where(last < 0, count, last)) == text.rows
        if right:
            kept &= tf.gather(row_of, searchsorted(shown, index)) == text.rows
        return text.only(kept)

    return strip


def _prepend(prefix: str) -> Step:
    codes = [ord(character) for character in prefix]

    def prepend(text: Text) -> Text:
        return prepended(text, text.begins(), codes)

    return prepend


def prepended(text: Text, places: tf.Tensor, codes: list[int]) -> Text:
    """Inserts characters before the places, bool (characters,); they have no origin in the text."""
    counts = tf.where(places, 1 + len(codes), 1)
    origin = item_numbers(counts)
    firsts = tf.gather(tf.cumsum(counts, exclusive=True), origin)
    number = tf.range(tf.size(origin)) - firsts
    is_new = tf.gather(places, origin) & (number < len(codes))
    new = text.take(origin)
    value = tf.gather(tf.constant([*codes, 0]), tf.minimum(number, len(codes)))
    return new._replace(
        codes=tf.where(is_new, value, new.codes), ends=tf.where(is_new, new.starts, new.ends)
    )


def _replace(description: Mapping[str, Any]) -> Step:
    pattern, content = description["pattern"], tuple(map(ord, str(description["content"])))
    string = pattern.get("String")
    if string is not None:
        if len(string) != 1:
            raise ValueError(
                f"normalizer Replace of {string!r} is not supported here: only of one character"
            )
        return CharacterMap({ord(string): content})
    members, repeated = one_class("normalizer Replace", str(pattern.get("Regex")))
    if not repeated:
        return CharacterMap(dict.fromkeys(np.flatnonzero(members).tolist(), content))
    belongs = CharacterClass(members)

    def replace(text: Text) -> Text:
        matches = belongs(text.codes)
        repeats = matches & before(matches, False) & ~text.begins()
        text = with_deleted(text, ~repeats)  # each run becomes its first character
        matches = kept(matches, ~repeats)
        # A code point that no text has stands for the run.
        marked = text._replace(codes=tf.where(matches, CODES - 1, text.codes))
        return insert(marked)

    insert = CharacterMap({CODES - 1: content})
    return replace


def _unicode_form(table: str, composes: bool) -> list[Step]:
    classes = unicode_tables.combining_classes()
    codes = tf.constant([*sorted(classes), CODES])
    numbers = tf.constant([*(classes[code] for code in sorted(classes)), 0])

    def class_of(text: Text) -> tf.Tensor:
        place = searchsorted(codes, text.codes)
        return tf.where(tf.gather(codes, place) == text.codes, tf.gather(numbers, place), 0)

    def reorder(text: Text) -> Text:
        number = class_of(text)
        group = numbered(text.begins() | (number == 0))
        order = tf.argsort(group * 256 + tf.cast(number, tf.int64), stable=True)
        return text.take(order)

    steps: list[Step] = [_by_character({"type": table}), reorder]
    if composes:
        steps.append(_composition(class_of))
    return steps


def _composition(class_of: Callable[[Text], tf.Tensor]) -> Step:
    pairs = unicode_tables.compositions()
    keys = sorted(pairs)
    firsts = tf.constant([first * CODES + second for first, second in keys], tf.int64)
    whole = tf.constant([pairs[key] for key in keys], tf.int32)

    def once(_: tf.Tensor, passed: tf.Tensor, *parts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Joins each base with the first mark behind it that joins, unless `passed` already."""
        text = Text(*parts)
        size = tf.size(text.codes)
        number = class_of(text)
        index = tf.range(size)
        is_base = number == 0
        begins = text.begins()
        # The base before each character, and the class of the character before it.
        bases = places(is_base, tf.int32)
        place = searchsorted(bases, index) - 1
        base = tf.gather(tf.concat([bases, [0]], 0), tf.maximum(place, 0))
        same = (place >= 0) & (tf.gather(text.rows, base) == text.rows)
        adjacent = ~begins & (before(index, -1) == base)
        free = same & (adjacent | (before(number, 0) < number) & (before(number, 0) > 0))
        pair = tf.cast(tf.gather(text.codes, base), tf.int64) * CODES
        pair += tf.cast(text.codes, tf.int64)
        place_of_pair = tf.minimum(searchsorted(firsts, pair), len(keys) - 1)
        joins = free & ~passed & (tf.gather(firsts, place_of_pair) == pair)
        # Only the first of each base, and no base that may itself join the one before it.
        first = tf.math.unsorted_segment_min(tf.where(joins, index, size), base, size)
        joins &= tf.gather(first, base) == index
        joins &= ~(tf.gather(joins, base) & (base != index))
        target = tf.where(joins, base, size)
        value = tf.math.unsorted_segment_max(
            tf.where(joins, tf.gather(whole, place_of_pair), -1), target, size + 1
        )[:size]
        last = tf.math.unsorted_segment_max(tf.where(joins, index, -1), target, size + 1)[:size]
        end = tf.math.unsorted_segment_max(tf.where(joins, text.ends, 0), target, size + 1)[:size]
        codes = tf.where(value >= 0, value, text.codes)
        passed |= ~is_base & (index < tf.gather(last, base))
        new = text._replace(codes=codes, ends=tf.maximum(text.ends, end)).only(~joins)
        return tf.reduce_any(joins), kept(passed, ~joins), *new

    def compose(text: Text) -> Text:
        flags = tf.zeros_like(text.codes, tf.bool)
        shapes = [tf.TensorShape([None])] * (1 + len(text))
        _, _, *parts = tf.while_loop(
            lambda goes_on, *_: goes_on,
            once,
            (tf.constant(True), flags, *text),
            shape_invariants=(tf.TensorShape([]), *shapes),
        )
        return Text(*parts)

    return compose
