r"""Implements the pre-tokenizers of the `tokenizers` library, from their JSON, in the graph.

Each step classifies all characters at once: whether a word starts at a character depends on its
neighbours and on the run of similar characters that it is in.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.byte_pairs.gpt2_words import (
    LETTER,
    NUMBER,
    OTHER,
    SPACE,
    Characters,
    starts_word,
)
from keras_transformers.tokenizers.described import unicode_tables
from keras_transformers.tokenizers.described.normalizers import prepended
from keras_transformers.tokenizers.described.patterns import one_class
from keras_transformers.tokenizers.described.text import (
    CharacterClass,
    Text,
    after,
    before,
    changes,
    numbered,
)
from keras_transformers.tokenizers.tensors import places, searchsorted

# Takes text whose rows are words, and returns it with smaller words.
Step = Callable[[Text], Text]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LIKE_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Pattern -> maximum digits per word.
LLAMA3, QWEN2 = _LIKE_CL100K % "{1,3}", _LIKE_CL100K % ""
_CL100K = {LLAMA3: 3, QWEN2: 1}


def splitter_steps(description: Mapping[str, Any] | None) -> list[Step]:
    """Returns the steps that a pre-tokenizer takes; ByteLevel's change into bytes is not one.

    Args:
        description: the `pre_tokenizer` of a tokenizer.json.

    Raises:
        ValueError: it cannot be reproduced exactly; the message names it.
    """
    if description is None:
        return []
    kind = description.get("type")
    if kind == "Sequence":
        parts = description["pretokenizers"]
        if any(_scheme(part) == "first" for part in _flat(description)[1:]):
            raise ValueError("pre_tokenizer Metaspace after others is not supported here")
        return [step for part in parts for step in splitter_steps(part)]
    if kind == "WhitespaceSplit":
        return [keeping(unicode_tables.kept_by('{"type": "WhitespaceSplit"}'))]
    if kind == "Whitespace":
        spaces = keeping(~unicode_tables.class_of(r"\s"))
        return [spaces, _between(CharacterClass(unicode_tables.word_characters()))]
    if kind == "BertPreTokenizer":
        spaces = keeping(unicode_tables.kept_by('{"type": "WhitespaceSplit"}'))
        return [spaces, isolating(_punctuation(), repeated=False)]
    if kind == "Punctuation":
        return [
            _split(_punctuation(), False, description.get("behavior", "Isolated"), "Punctuation")
        ]
    if kind == "Digits":
        # Rust's digits come from a newer Unicode than the regular expressions' numbers.
        digits = unicode_tables.isolated_by('{"type": "Digits", "individual_digits": true}')
        return [isolating(digits, repeated=not description.get("individual_digits", False))]
    if kind == "ByteLevel":
        steps: list[Step] = [_prefix_space] if description.get("add_prefix_space", True) else []
        return [*steps, _gpt2()] if description.get("use_regex", True) else steps
    if kind == "Split":
        return [_by_pattern(description)]
    if kind == "Metaspace":
        return _metaspace(description)
    raise ValueError(f"pre_tokenizer {kind} ({json.dumps(description):.80}) is not supported here")


def is_byte_level(description: Mapping[str, Any] | None) -> bool:
    """Returns whether a pre-tokenizer ends with ByteLevel, its only one.

    Raises:
        ValueError: other steps follow it, which would see bytes.
    """
    parts = _flat(description)
    places = [i for i, part in enumerate(parts) if part.get("type") == "ByteLevel"]
    if places and places != [len(parts) - 1]:
        raise ValueError("pre_tokenizer ByteLevel before others is not supported here")
    return bool(places)


def _flat(description: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if description is None:
        return []
    if description.get("type") == "Sequence":
        return [step for part in description["pretokenizers"] for step in _flat(part)]
    return [description]


def _punctuation() -> np.ndarray:
    return ~unicode_tables.kept_by('{"type": "Punctuation", "behavior": "removed"}')


def _divided(text: Text, starts: tf.Tensor) -> Text:
    return text._replace(rows=numbered(text.begins() | starts))


def keeping(members: np.ndarray) -> Step:
    """Returns the step that drops characters outside `members`, bool (CODES,); words end there."""
    belongs = CharacterClass(members)

    def step(text: Text) -> Text:
        stays = belongs(text.codes)
        return _divided(text, changes(stays)).only(stays)

    return step


def _between(belongs: CharacterClass) -> Step:
    return lambda text: _divided(text, changes(belongs(text.codes)))


def isolating(members: np.ndarray, *, repeated: bool) -> Step:
    """Returns the step that makes words of `members`, bool (CODES,), or of their runs."""
    belongs = CharacterClass(members)

    def step(text: Text) -> Text:
        matches = belongs(text.codes)
        return _divided(text, changes(matches) if repeated else matches | before(matches, False))

    return step


def _split(members: np.ndarray, repeated: bool, behavior: str, what: str) -> Step:
    """Splits at matches, which are characters or, if `repeated`, runs of them."""
    behavior = behavior.lower()
    if behavior == "removed":
        return keeping(~members)
    if behavior == "isolated":
        return isolating(members, repeated=repeated)
    if behavior == "contiguous":
        return isolating(members, repeated=True)
    belongs = CharacterClass(members)

    def merged(text: Text) -> Text:
        matches, begins = belongs(text.codes), text.begins()
        last = before(matches, False) & ~begins
        if behavior == "mergedwithprevious":
            # A match ends a word; only the first match after other text joins it.
            starts = last if not repeated else last & ~matches
            return _divided(text, starts)
        starts = matches if not repeated else matches & ~last
        return _divided(text, starts)

    if behavior not in ("mergedwithprevious", "mergedwithnext"):
        raise ValueError(f"pre_tokenizer {what} with behavior {behavior!r} is not supported here")
    return merged


def _prefix_space(text: Text) -> Text:
    return prepended(text, text.begins() & (text.codes != ord(" ")), [ord(" ")])


def _scheme(metaspace: Mapping[str, Any]) -> str:
    """Returns where Metaspace puts its prefix; "never" for other pre-tokenizers."""
    if metaspace.get("type") != "Metaspace":
        return "never"
    older = "always" if metaspace.get("add_prefix_space", True) else "never"
    return str(metaspace.get("prepend_scheme", older))


def _metaspace(description: Mapping[str, Any]) -> list[Step]:
    """Returns the steps that replace spaces with another character, and put one before the text."""
    mark, scheme = description.get("replacement"), _scheme(description)
    if not isinstance(mark, str) or len(mark) != 1 or scheme not in ("always", "first", "never"):
        raise ValueError(
            f"pre_tokenizer Metaspace ({json.dumps(description):.80}) is not supported here"
        )
    code = ord(mark)

    def replace(text: Text) -> Text:
        return text._replace(codes=tf.where(text.codes == ord(" "), code, text.codes))

    def prepend(text: Text) -> Text:
        places = text.begins() & (text.codes != code)
        return prepended(text, places & text.leads if scheme == "first" else places, [code])

    steps: list[Step] = [replace] if scheme == "never" else [replace, prepend]
    if description.get("split", True):
        steps.append(lambda text: _divided(text, text.codes == code))
    return steps


def _by_pattern(description: Mapping[str, Any]) -> Step:
    pattern, behavior = description["pattern"], str(description.get("behavior", "Removed"))
    invert = bool(description.get("invert", False))
    string, expression = pattern.get("String"), str(pattern.get("Regex"))
    if string is None and (expression == GPT2 or expression in _CL100K):
        # Every character is in a match.
        if (behavior, invert) not in (("Isolated", False), ("Removed", True)):
            raise ValueError(
                f"pre_tokenizer Split by {expression!r} with behavior {behavior} and invert "
                f"{invert} is not supported here"
            )
        return _gpt2() if expression == GPT2 else _cl100k(_CL100K[expression])
    if string is not None:
        if len(string) != 1:
            raise ValueError(f"pre_tokenizer Split at {string!r} is not supported here")
        string = "".join(c if c.isalnum() else "\\" + c for c in string)
    members, repeated = one_class("pre_tokenizer Split", expression if string is None else string)
    if invert:
        if not repeated or behavior not in ("Removed", "Isolated", "Contiguous"):
            raise ValueError(f"pre_tokenizer Split by {expression!r}, inverted, is not supported")
        members = ~members
    return _split(members, repeated, behavior, "Split")


class _Kinds:
    """Letters, numbers, white space and others, as Oniguruma's classes."""

    def __init__(self) -> None:
        self._letters = CharacterClass(unicode_tables.class_of(r"\p{L}"))
        self._numbers = CharacterClass(unicode_tables.class_of(r"\p{N}"))
        self._spaces = CharacterClass(unicode_tables.class_of(r"\s"))

    def __call__(self, codes: tf.Tensor) -> tf.Tensor:
        kinds = tf.where(self._letters(codes), LETTER, OTHER)
        kinds = tf.where(self._numbers(codes), NUMBER, kinds)
        return tf.where(self._spaces(codes), SPACE, kinds)


def _gpt2() -> Step:
    kinds = _Kinds()
    return lambda text: _divided(
        text, starts_word(Characters(text.codes, kinds(text.codes), text.starts, text.rows))
    )


def _cl100k(most_digits: int) -> Step:
    r"""Returns the step for the patterns of cl100k (Llama 3, Qwen 2), matched left to right.

    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*`
    `|\s*[\r\n]+|\s+(?!\S)|\s+`: a run of letters takes one space or symbol before it, a run of
    symbols the space before it and the line ends after it; other white space ends at its last line
    end, and before its last character if a word follows.
    """
    kinds_of = _Kinds()
    s_like, t_like = _codes("sS\u017ftTmMdD"), _codes("rRvV")
    e_like, l_like = _codes("eE"), _codes("lL")

    def step(text: Text) -> Text:
        kinds, codes, begins = kinds_of(text.codes), text.codes, text.begins()
        index = tf.range(tf.size(codes))
        is_letter, is_number = kinds == LETTER, kinds == NUMBER
        is_space, is_other = kinds == SPACE, kinds == OTHER
        line_end = (codes == ord("\n")) | (codes == ord("\r"))
        was = tf.where(begins, -1, before(kinds, -1))
        ends = after(begins, True)
        comes = tf.where(ends, -1, after(kinds, -1))
        was_blank = ~begins & before(codes == ord(" "), False)
        next_code = tf.where(ends, 0, after(codes, 0))
        second = tf.where(ends | after(ends, True), 0, after(after(codes, 0), 0))
        # A single symbol that no space joins can join the letters after it; an apostrophe can start
        # an ending such as 's or 'll.
        free = is_other & (was != OTHER) & ~was_blank
        quote = free & (codes == ord("'"))
        short = quote & _any(next_code, s_like)
        long = quote & _any(next_code, t_like) & _any(second, e_like)
        long |= quote & _any(next_code, l_like) & _any(second, l_like)
        inside = before(short | long, False) | before(before(long, False), False)
        behind = before(before(short, False), False)
        behind |= before(before(before(long, False), False), False)
        # Line ends right after symbols.
        group_first = places(begins | changes(line_end), tf.int32)
        first = tf.gather(group_first, searchsorted(group_first, index, side="right") - 1)
        taken = line_end & (tf.gather(was, first) == OTHER)
        # White space: `rest` is what follows the last line end of a run.
        space_ends = places(is_space & (comes != SPACE), tf.int32)
        line_ends = places(line_end, tf.int32)
        run_end = tf.gather(tf.concat([space_ends, [0]], 0), searchsorted(space_ends, index))
        next_line = tf.gather(
            tf.concat([line_ends, [tf.size(codes)]], 0), searchsorted(line_ends, index)
        )
        rest = is_space & (next_line > run_end)
        was_taken = ~begins & before(taken, False)
        starts = is_space & ~taken & ((was != SPACE) | was_taken)
        starts |= rest & ~before(rest, False)
        starts |= rest & (comes != SPACE) & (comes != -1)
        joined = (was == SPACE) & before(rest, False)  # to the white space before it
        starts |= is_letter & ~inside & (was != LETTER) & ~joined & ~before(free, False)
        starts |= is_letter & behind & (was == LETTER)
        starts |= is_other & (was != OTHER) & ~was_blank
        number_starts = places(is_number & (was != NUMBER), tf.int32)
        place = index - tf.gather(
            tf.concat([number_starts, [0]], 0),
            tf.maximum(searchsorted(number_starts, index, side="right") - 1, 0),
        )
        starts |= is_number & (place % most_digits == 0)
        return _divided(text, starts)

    return step


def _codes(characters: str) -> tuple[int, ...]:
    return tuple(map(ord, characters))


def _any(codes: tf.Tensor, values: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_any([codes == code for code in values], axis=0)
