"""Converts text to ids as fastText does: dictionary words, and n-grams hashed into buckets."""

import collections
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import read_lines, write_lines
from keras_transformers.files.surrogates import check_text
from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.tensors import (
    Texts,
    item_numbers,
    kept,
    places,
    row_numbers,
    searchsorted,
    texts_of,
)

__all__ = ["NgramTokenizer"]

END_OF_TEXT = "</s>"
_BLANK = re.compile("[ \t\n\v\f\r\0]+")
# Bounds the hashing loop. No real word is longer.
_MAX_BYTES_PER_WORD = 1000
# 32-bit FNV-1a, and the factor of fastText's recurrence from word to word.
_BASIS, _PRIME, _LOW_32_BITS = 2166136261, 16777619, 0xFFFFFFFF
_NEXT_WORD = 116049371

WORDS_FILE = "words.txt"
BUCKETS_FILE = "buckets.txt"


class NgramTokenizer(tf.Module):
    r"""Converts texts to fastText's bags of ids: words, character n-grams and word n-grams.

    Joulin et al. 2016, arXiv:1607.01759, section 2.2; Bojanowski et al. 2017, arXiv:1607.04606,
    section 3.2. A word's id is its index in the dictionary. Ids from `num_words` are buckets of
    n-grams. Character n-grams come from `<word>`, including the marks "<" and ">" but not a mark by
    itself; FNV-1a hashes their UTF-8 bytes as signed numbers. Word n-grams combine the word hashes
    with fastText's recurrence. A word outside the dictionary has only its n-grams. Every text ends
    with the word "</s>".

    The ids equal those of the fasttext package. All of it runs in the graph with core TensorFlow
    ops. Unusual text:
      - Words end only at spaces, tabs, line ends, vertical tabs, form feeds and NUL, as in
        fastText's files, not at no-break spaces or punctuation. Case is kept. Lower-case the text
        and separate punctuation beforehand if needed, as fastText's examples do.
      - Bytes need not be UTF-8.
      - fastText stops reading at the word "</s>"; this does not. fastText treats words that start
        with "__label__" as labels; here they are ordinary words.
      - Only the first 1,000 bytes of a word count.
      - An empty or blank text is just "</s>": a bag of one id, or of none if the dictionary lacks
        "</s>" (for example, if `min_count` is above the number of texts).

    Args:
        words: a file with one word per line, or the words, in the order of their ids.
        num_buckets: buckets for n-grams (fastText: bucket). Ignored if there are no n-grams.
        word_ngrams: longest word n-grams; 1 for only words (fastText: wordNgrams).
        min_characters: shortest character n-grams (fastText: minn).
        max_characters: longest character n-grams; 0 for none (fastText: maxn).
        kept_buckets: a file with one bucket per line, or the buckets that have an id, in the order
            of their ids; n-grams in other buckets are left out, as after fastText's
            quantize(cutoff=...). By default, every bucket has an id.
        name: name of the module.

    Attributes:
        num_words: number of words in the dictionary.
        num_buckets: number of buckets; 0 if there are no n-grams.
        kept_buckets: the buckets that have an id, in order; None if all have one.
        vocabulary_size: number of ids, words plus buckets with an id.
        pad_token_id: 0, which is also a word's id: use `padding_mask`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are no words; a word is empty, repeated, too long or contains a blank;
            there are n-grams but no buckets; the shortest n-grams are longer than the longest; or
            `kept_buckets` has one twice or one beyond `num_buckets`.

    Example:
        >>> tokenizer = NgramTokenizer(["</s>", "good", "film"], num_buckets=100, word_ngrams=2)
        >>> tokenizer(tf.constant(["good film", ""]), max_sequence_length=16)["token_ids"].numpy()
        array([[ 1,  2,  0, 78, 69],
               [ 0,  0,  0,  0,  0]], dtype=int32)
    """

    pad_token_id = 0
    pad_is_word = True  # the mask alone tells padding
    fills_model = True  # the number of rows decides which n-gram has which

    def __init__(
        self,
        words: str | os.PathLike[str] | Sequence[str],
        *,
        num_buckets: int = 2_000_000,
        word_ngrams: int = 1,
        min_characters: int = 0,
        max_characters: int = 0,
        kept_buckets: str | os.PathLike[str] | Sequence[int] | None = None,
        name: str = "ngram_tokenizer",
    ) -> None:
        super().__init__(name=name)
        where: str | None = None
        if isinstance(words, str | os.PathLike):
            where, words = os.fspath(words), list(read_lines(os.fspath(words)))
        _check_words(words, where)
        _check_ngrams(len(words), num_buckets, word_ngrams, min_characters, max_characters)
        self.num_words = len(words)
        self.num_buckets = num_buckets if word_ngrams > 1 or max_characters else 0
        self.kept_buckets = _kept(kept_buckets, self.num_buckets)
        num_kept = self.num_buckets if self.kept_buckets is None else len(self.kept_buckets)
        self.vocabulary_size = self.num_words + num_kept
        self.word_ngrams = word_ngrams
        self.min_characters = min_characters
        self.max_characters = max_characters
        with tf.device("CPU:0"):  # where strings live
            self._words = tf.constant(words, tf.string)
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    self._words, tf.range(self.num_words, dtype=tf.int64)
                ),
                default_value=-1,
            )
            self._rows = None if self.kept_buckets is None else _table(self.kept_buckets)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        min_count: int = 1,
        num_buckets: int = 2_000_000,
        word_ngrams: int = 1,
        min_characters: int = 0,
        max_characters: int = 0,
    ) -> "NgramTokenizer":
        """Builds a tokenizer from the words of the texts, from frequent to rare.

        Equally frequent words keep the order in which they first occur; in fastText their order is
        arbitrary. "</s>" counts once per text.

        Args:
            texts: training texts.
            min_count: words that occur less often are left out (fastText: minCount).
            num_buckets: see `NgramTokenizer`.
            word_ngrams: see `NgramTokenizer`.
            min_characters: see `NgramTokenizer`.
            max_characters: see `NgramTokenizer`.

        Raises:
            ValueError: no word occurs `min_count` times; or see `NgramTokenizer`.
        """
        counts: collections.Counter[str] = collections.Counter()
        for number, text in enumerate(texts):
            check_text(f"text {number}", text)
            counts.update(word for word in _BLANK.split(text) if word)
            counts[END_OF_TEXT] += 1
        words = [
            word
            for word, count in counts.most_common()  # equal counts in order of occurrence
            if count >= min_count and len(word.encode()) <= _MAX_BYTES_PER_WORD
        ]
        if not words:
            raise ValueError(
                f"none of {len(counts)} words occurs {min_count} times: lower min_count"
            )
        return cls(
            words,
            num_buckets=num_buckets,
            word_ngrams=word_ngrams,
            min_characters=min_characters,
            max_characters=max_characters,
        )

    def __call__(
        self,
        text: Texts,
        text_b: Texts | None = None,
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Converts texts to the inputs of `models.fasttext`.

        Args:
            text: strings (batch,).
            text_b: must be None; it exists so that all tokenizers have the same interface.
            max_sequence_length: maximum ids in a bag. Larger bags lose word n-grams first, then
                words; `lengths` helps to count them.
            pad_to_max_length: pad to that length instead of the longest row of the batch.

        Returns:
            token_ids int32 and padding_mask bool (True = real), each (batch, length), where length
            is at least 1.

        Raises:
            ValueError: `text_b` is given, or `max_sequence_length` is below 1.
        """
        _check_single(text_b)
        return self.pack(
            [self.tokenize(text)],
            max_sequence_length=max_sequence_length,
            pad_to_max_length=pad_to_max_length,
        )

    def pack(
        self,
        segments: Sequence[tf.RaggedTensor],
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Packs the ids of texts into the inputs of `models.fasttext`; see `__call__`.

        Args:
            segments: one ragged tensor from `tokenize`, int32 (batch, None).
            max_sequence_length: maximum ids in a bag.
            pad_to_max_length: pad to that length instead of the longest row of the batch.
        """
        _check_single(segments[1:] or None)
        if max_sequence_length < 1:
            raise ValueError(f"max_sequence_length={max_sequence_length}: must be at least 1")
        rows = packing.trim(segments[0], max_sequence_length)
        length = max_sequence_length if pad_to_max_length else None
        token_ids = rows.to_tensor(self.pad_token_id, shape=[None, length])
        token_ids = tf.pad(token_ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(token_ids)[1])]])
        padding_mask = tf.sequence_mask(rows.row_lengths(), tf.shape(token_ids)[1])
        return {"token_ids": token_ids, "padding_mask": padding_mask}

    def lengths(self, text: Texts, text_b: Texts | None = None) -> tf.Tensor:
        """Returns how many ids each text (batch,) has before truncation: int32 (batch,).

        Nothing is hashed unless some buckets have no id, so this is fast enough for a whole data
        set in one call.
        """
        _check_single(text_b)
        if self._rows is not None:
            return tf.cast(self.tokenize(text).row_lengths(), tf.int32)
        words = self._split(text)
        counts = tf.cast(self._ids.lookup(words.values) >= 0, tf.int32)
        if self.max_characters:
            marked = tf.strings.length(words.values, unit="UTF8_CHAR") + 2
            marked = tf.where(words.values == END_OF_TEXT, 0, marked)
            for n in range(max(1, self.min_characters), self.max_characters + 1):
                counts += tf.maximum(0, marked - (2 if n == 1 else n - 1))
        lengths = tf.reduce_sum(words.with_values(counts), axis=1)
        num_words = tf.cast(words.row_lengths(), tf.int32)
        for n in range(2, self.word_ngrams + 1):
            lengths += tf.maximum(0, num_words - (n - 1))
        return lengths

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to ids, int32 (batch, None).

        Ids are in fastText's order: each word and its character n-grams, then the word n-grams.
        """
        words = self._split(text)
        bags = self._words_and_characters(words.values)  # (words, ids)
        bags = words.with_values(bags).merge_dims(1, 2)  # (batch, ids)
        if self.word_ngrams > 1:
            bags = tf.concat([bags, self._ngrams_of_words(words)[0]], axis=1)
        return tf.cast(bags, tf.int32)

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to ids, and finds the words of the text that each comes from.

        A character n-gram has the span of its word, a word n-gram that of its words. The word
        "</s>" is at the end of the text, and empty.

        Args:
            text: strings (batch,).

        Returns:
            The ids of `tokenize`, starts and ends (exclusive) in bytes, each int32 (batch, None).
        """
        text = texts_of(text)
        words = self._split(text)
        bags = self._words_and_characters(words.values)  # (words, ids)
        word = row_numbers(bags)
        columns = [(bags.values, word, word)]  # ids, the numbers of their first and last words
        rows = [words.with_values(bags).merge_dims(1, 2)]
        if self.word_ngrams > 1:
            ids, first, last = self._ngrams_of_words(words)
            columns.append((ids.values, first.values, last.values))
            rows.append(ids)
        starts, ends = _word_spans(text)
        joined = []
        for side, bounds in enumerate((None, starts, ends)):
            values = [column[side] for column in columns]
            if bounds is not None:
                values = [tf.gather(bounds, numbers) for numbers in values]
            parts = [row.with_values(x) for row, x in zip(rows, values, strict=True)]
            joined.append(tf.cast(tf.concat(parts, axis=1), tf.int32))
        ids, starts, ends = joined
        return ids, starts, ends

    def num_special_tokens(self, num_segments: int) -> int:
        """Returns 0: `pack` adds no ids."""
        return 0

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `words.txt` and, if some buckets have no id, `buckets.txt`, for `load`."""
        write_lines(os.path.join(folder, WORDS_FILE), self.vocabulary)
        if self.kept_buckets is not None:
            write_lines(os.path.join(folder, BUCKETS_FILE), map(str, self.kept_buckets))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from the files of `save` and the result of `config`."""
        buckets = os.path.join(folder, BUCKETS_FILE)
        if os.path.exists(buckets):
            config = {**config, "kept_buckets": buckets}
        return cls(os.path.join(folder, WORDS_FILE), **config)

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {
            "num_buckets": self.num_buckets,
            "word_ngrams": self.word_ngrams,
            "min_characters": self.min_characters,
            "max_characters": self.max_characters,
        }

    @property
    def vocabulary(self) -> list[str]:
        """The words, in the order of their ids; cannot run in a graph."""
        return [word.decode() for word in self._words.numpy()]

    def _split(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) into words (batch, None); each row ends with "</s>"."""
        words = tf.strings.split(tf.strings.regex_replace(texts_of(text), r"\x00", " "))
        words = words.with_values(tf.strings.substr(words.values, 0, _MAX_BYTES_PER_WORD))
        return tf.concat([words, tf.fill([words.nrows(), 1], END_OF_TEXT)], axis=1)

    def _words_and_characters(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Converts words (words,) to int64 (words, None): a word's id, then its n-grams' ids."""
        ids = self._ids.lookup(words)
        is_known = ids >= 0
        word_ids = tf.RaggedTensor.from_row_lengths(
            kept(ids, is_known), tf.cast(is_known, tf.int64), validate=False
        )
        if not self.max_characters:
            return word_ids
        return tf.concat([word_ids, self._ngrams_of_characters(words)], axis=1)

    def _ngrams_of_characters(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Converts words (words,) to ids int64 (words, None), by first character, then length."""
        marked = tf.where(words == END_OF_TEXT, "", tf.strings.join(["<", words, ">"]))
        codes, _, num_bytes = _bytes(marked)
        # A character is a byte and the continuation bytes after it, even in invalid UTF-8.
        starts = places(codes & 0xC0 != 0x80)  # (characters,)
        lengths = tf.concat([starts[1:], tf.size(codes, tf.int64)[None]], 0) - starts
        word = tf.gather(item_numbers(num_bytes), starts)
        here, remaining = _places(word, tf.size(words))
        hashes = tf.fill(tf.shape(starts), tf.constant(_BASIS, tf.int64))
        ids, exist = [], []
        for n in range(1, self.max_characters + 1):
            fits = remaining >= n
            last = tf.where(fits, tf.range(tf.size(starts)) + n - 1, 0)
            num_more = tf.where(fits, tf.gather(lengths, last), 0)
            hashes = _fnv1a(hashes, codes, tf.gather(starts, last), num_more)
            if n >= self.min_characters:
                is_ngram = fits if n > 1 else (here > 0) & (remaining > 1)
                id_, has_id = self._ids_of(hashes % self.num_buckets)
                ids.append(id_)
                exist.append(is_ngram & has_id)
        return _ragged(ids, exist, word, tf.size(words))

    def _ngrams_of_words(self, words: tf.RaggedTensor) -> list[tf.RaggedTensor]:
        """Converts words (batch, None) to ids int64 (batch, None), by first word, then length.

        Returns:
            The ids, and the numbers of the first and the last word of each, among all words.
        """
        distinct, places = tf.unique(words.values)  # most words of a data set are repeated
        codes, starts, num_bytes = _bytes(distinct)
        hashes = tf.fill(tf.shape(starts), tf.constant(_BASIS, tf.int64))
        hashes = tf.gather(_fnv1a(hashes, codes, starts, num_bytes), places)
        # fastText stores signed 32-bit numbers but computes with unsigned 64-bit ones.
        hashes = tf.bitcast(tf.cast(tf.cast(hashes, tf.int32), tf.int64), tf.uint64)
        text = tf.cast(row_numbers(words), tf.int32)
        num_texts = tf.cast(words.nrows(), tf.int32)
        _, remaining = _places(text, num_texts)
        number = tf.range(tf.size(text))
        joined, ids, ends, exist = hashes, [], [], []
        for n in range(2, self.word_ngrams + 1):
            fits = remaining >= n
            last = tf.where(fits, number + n - 1, 0)
            joined = joined * _NEXT_WORD + tf.gather(hashes, last)
            id_, has_id = self._ids_of(tf.cast(joined % self.num_buckets, tf.int64))
            ids.append(id_)
            ends.append(last)
            exist.append(fits & has_id)
        columns = (ids, [number] * len(ids), ends)
        return [_ragged(column, exist, text, num_texts) for column in columns]

    def _ids_of(self, buckets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of buckets, int64, and whether each has one."""
        if self._rows is None:
            return self.num_words + buckets, tf.ones_like(buckets, tf.bool)
        rows = self._rows.lookup(buckets)
        return self.num_words + rows, rows >= 0


def _word_spans(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where each word of texts begins and ends in its text, in bytes: int64 (words,).

    The last word of each text is "</s>", at its end.
    """
    lengths = tf.cast(tf.strings.length(text), tf.int64)
    # All texts end to end, with a blank after each for its last word.
    codes = tf.io.decode_raw(tf.strings.reduce_join(text + " "), tf.uint8)
    is_blank = (codes == 32) | ((codes >= 9) & (codes <= 13)) | (codes == 0)
    before = tf.concat([[True], is_blank], axis=0)[: tf.size(codes)]
    firsts = tf.cumsum(lengths + 1, exclusive=True)  # where each text begins
    text_ends = firsts + lengths
    starts = tf.sort(tf.concat([places(~is_blank & before), text_ends], axis=0))
    ends = tf.sort(tf.concat([places(is_blank & ~before), text_ends], axis=0))
    shift = tf.gather(firsts, searchsorted(firsts, starts, side="right") - 1)
    return starts - shift, ends - shift


def _bytes(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the bytes of strings (n,) for FNV, with the start and length of each string.

    fastText's bytes are signed, so 0x80 and above have ones in the 24 bits before them.

    Returns:
        int64: (all bytes,), (n,), (n,).
    """
    num_bytes = tf.cast(tf.strings.length(strings), tf.int64)
    codes = tf.io.decode_raw(tf.strings.reduce_join(strings), tf.int8)
    codes = tf.cast(codes, tf.int64) & _LOW_32_BITS
    return codes, tf.cumsum(num_bytes, exclusive=True), num_bytes


def _fnv1a(hashes: tf.Tensor, codes: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Continues each hash with the `lengths` codes at its `starts`; all (n,)."""

    def step(offset: tf.Tensor, hashes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        code = tf.gather(codes, tf.minimum(starts + offset, tf.size(codes, tf.int64) - 1))
        longer = ((hashes ^ code) * _PRIME) & _LOW_32_BITS
        return offset + 1, tf.where(offset < lengths, longer, hashes)

    longest = tf.reduce_max(lengths)  # negative if there are none
    first = tf.constant(0, tf.int64)
    return tf.while_loop(lambda offset, _: offset < longest, step, (first, hashes))[1]


def _places(row: tf.Tensor, num_rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Counts the items of the same row before each item, and the rest, for ascending rows.

    Returns:
        int32 (items,) each; the second includes the item itself.
    """
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(row), row, num_rows)
    here = tf.range(tf.size(row)) - tf.gather(tf.cumsum(sizes, exclusive=True), row)
    return here, tf.gather(sizes, row) - here


def _ragged(
    ids: Sequence[tf.Tensor], exist: Sequence[tf.Tensor], row: tf.Tensor, num_rows: tf.Tensor
) -> tf.RaggedTensor:
    """Collects the ids that exist in each row, item by item: (rows, None).

    Args:
        ids: one tensor per n-gram length, (items,) each.
        exist: which of the ids exist, bool (items,) each.
        row: the row of each item, ascending.
        num_rows: number of rows.
    """
    exists = tf.stack(exist, axis=1)  # (items, lengths)
    counts = tf.reduce_sum(tf.cast(exists, tf.int64), axis=1)
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(tf.stack(ids, axis=1), exists),
        tf.math.unsorted_segment_sum(counts, row, num_rows),
        validate=False,
    )


def _table(numbers: Sequence[int]) -> tf.lookup.StaticHashTable:
    """Returns a table from the buckets that have an id to their rows, -1 for others."""
    buckets = tf.constant(numbers, tf.int64, shape=[len(numbers)])
    rows = tf.range(len(numbers), dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(buckets, rows), -1)


def _kept(
    source: str | os.PathLike[str] | Sequence[int] | None, num_buckets: int
) -> list[int] | None:
    """Returns the buckets that have an id, in order; None if all have one, or without buckets."""
    if source is None or not num_buckets:
        return None
    if isinstance(source, str | os.PathLike):
        lines = list(read_lines(os.fspath(source)))
        if not all(line.isascii() and line.isdigit() and len(line) < 20 for line in lines):
            raise ValueError(f"{os.fspath(source)}: expected one number per line")
        buckets = [int(line) for line in lines]
    else:
        buckets = [int(bucket) for bucket in source]
    wrong = [bucket for bucket in buckets if not 0 <= bucket < num_buckets]
    if wrong or len(set(buckets)) < len(buckets):
        what = f"bucket {wrong[0]}" if wrong else "a bucket twice"
        where = f"{os.fspath(source)}: " if isinstance(source, str | os.PathLike) else ""
        raise ValueError(
            f"{where}kept_buckets has {what}; expected different ones below "
            f"num_buckets={num_buckets}"
        )
    return buckets


def _check_words(words: Sequence[str], where: str | None) -> None:
    seen: set[str] = set()
    for index, word in enumerate(words):
        wrong = (
            "is empty"
            if not word
            else "contains a blank"
            if _BLANK.search(word)
            else f"has more than {_MAX_BYTES_PER_WORD} bytes"
            if len(word.encode()) > _MAX_BYTES_PER_WORD
            else "is repeated"
            if word in seen
            else ""
        )
        if wrong:
            place = f"words[{index}]" if where is None else f"{where}:{index + 1}"
            raise ValueError(f"{place}: {word!r:.100} {wrong}; list each word once, without blanks")
        seen.add(word)
    if not seen:
        raise ValueError(f"{where or 'words'}: no words; a dictionary needs at least one")


def _check_ngrams(
    num_words: int, num_buckets: int, word_ngrams: int, min_characters: int, max_characters: int
) -> None:
    if word_ngrams < 1:
        raise ValueError(f"word_ngrams={word_ngrams}: must be 1 (only words) or more")
    if not 0 <= min_characters <= max_characters:
        raise ValueError(
            f"min_characters={min_characters}, max_characters={max_characters}: the first must be "
            "between 0 and the second; set both to 0 for no character n-grams"
        )
    has_ngrams = word_ngrams > 1 or max_characters > 0
    if not has_ngrams <= num_buckets < 2**31 - num_words:
        raise ValueError(
            f"num_buckets={num_buckets}: n-grams need at least one, and there can be at most "
            "2^31 - 1 words and buckets; for no n-grams set word_ngrams=1 and max_characters=0"
        )


def _check_single(text_b: Texts | None) -> None:
    if text_b is not None:
        raise ValueError("a bag has no second text: join the texts of a pair, or use an encoder")
