"""fastText's way from text to ids: a dictionary of words, n-grams hashed into buckets."""

import collections
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import read_lines, write_lines
from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["NgramTokenizer"]

END_OF_TEXT = "</s>"
_BLANK = re.compile("[ \t\n\v\f\r\0]+")
# Bounds the steps of hashing. What is longer is no word of a language.
_MAX_BYTES_PER_WORD = 1000
# FNV-1a with 32 bits, and the factor by which fastText continues from one word to the next.
_BASIS, _PRIME, _LOW_32_BITS = 2166136261, 16777619, 0xFFFFFFFF
_NEXT_WORD = 116049371


WORDS_FILE = "words.txt"


class NgramTokenizer(tf.Module):
    r"""Texts to bags of ids: words, and n-grams of characters and of words, fastText's own.

    Joulin et al. 2016, arXiv:1607.01759, section 2.2; Bojanowski et al. 2017, arXiv:1607.04606,
    section 3.2. A word of the dictionary has its place there for an id. N-grams, and they alone,
    have the ids from `num_words` on, one for each bucket: those of characters (of `<word>`, with
    its marks, which alone are no n-grams) by FNV-1a of their UTF-8 bytes, taken as signed, those of
    words by fastText's recurrence over their hashes. A word that is not in the dictionary has its
    n-grams only. Every text ends with the word "</s>".

    The ids equal those of the fasttext package, in the graph, by core TensorFlow ops. What becomes
    of odd text:
      - Words end at spaces, tabs, line ends, vertical tabs, form feeds and NUL, as in fastText's
        files, and nowhere else: not at a no-break space, not at punctuation. Case is kept. Lower
        case, and marks apart from words, are the caller's to make, as fastText's examples do.
      - Any bytes are read as they are, UTF-8 or not.
      - Where a text has the word "</s>" itself, fastText stops reading; here it goes on. Words
        that start with "__label__" are labels to fastText; here they are words like any other.
      - Of a word of more than 1,000 bytes the first 1,000 are read.
      - An empty text, or one of blanks only, is "</s>" alone: a bag of one id, or of none if the
        dictionary lacks "</s>", as it does with a `min_count` above the number of texts.

    Args:
        words: file of one word a line, or the words, in the order of their ids.
        num_buckets: that n-grams are hashed into (fastText: bucket). Of no use, and 0, where no
            n-grams are asked for.
        word_ngrams: the longest n-grams of words; 1 for words alone (fastText: wordNgrams).
        min_characters: the shortest n-grams of characters (fastText: minn).
        max_characters: the longest; 0 for none (fastText: maxn).
        name: of the module.

    Attributes:
        num_words: in the dictionary.
        num_buckets: as given, or 0.
        vocabulary_size: number of ids, words and buckets together.
        pad_token_id: 0, which is a word's id too: go by `padding_mask`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no words; one is empty, repeated, too long, or holds a blank; n-grams without
            buckets, or shortest ones that are longer than the longest.

    Example:
        >>> tokenizer = NgramTokenizer(["</s>", "good", "film"], num_buckets=100, word_ngrams=2)
        >>> tokenizer(tf.constant(["good film", ""]), max_sequence_length=16)["token_ids"].numpy()
        array([[ 1,  2,  0, 78, 69],
               [ 0,  0,  0,  0,  0]], dtype=int32)
    """

    pad_token_id = 0

    def __init__(
        self,
        words: str | os.PathLike[str] | Sequence[str],
        *,
        num_buckets: int = 2_000_000,
        word_ngrams: int = 1,
        min_characters: int = 0,
        max_characters: int = 0,
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
        self.vocabulary_size = self.num_words + self.num_buckets
        self.word_ngrams = word_ngrams
        self.min_characters = min_characters
        self.max_characters = max_characters
        with tf.device("CPU:0"):  # where strings are
            self._words = tf.constant(words, tf.string)
            self._ids = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    self._words, tf.range(self.num_words, dtype=tf.int64)
                ),
                default_value=-1,
            )

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
        """A tokenizer with the words of these texts for its dictionary, from frequent to rare.

        Words that are equally frequent stand in the order in which they occur; fastText leaves
        theirs to chance. "</s>" counts once a text.

        Args:
            texts: of training.
            min_count: words that occur less often are left out (fastText: minCount).
            num_buckets: as for the tokenizer; so are the following.
            word_ngrams: the longest n-grams of words.
            min_characters: the shortest n-grams of characters.
            max_characters: the longest.

        Raises:
            ValueError: no word occurs `min_count` times, or as for the tokenizer.
        """
        counts: collections.Counter[str] = collections.Counter()
        for text in texts:
            counts.update(word for word in _BLANK.split(text) if word)
            counts[END_OF_TEXT] += 1
        words = [
            word
            for word, count in counts.most_common()  # equal counts in the order of occurrence
            if count >= min_count and len(word.encode()) <= _MAX_BYTES_PER_WORD
        ]
        if not words:
            raise ValueError(
                f"none of {len(counts)} words occurs {min_count} times: take a lower min_count"
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
        text: Any,
        text_b: Any = None,
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Bags of texts as inputs of `models.fasttext`.

        Args:
            text: strings (batch,).
            text_b: None; for the interface of the other tokenizers.
            max_sequence_length: most ids of a bag. What is beyond loses its end: n-grams of words,
                then words; `lengths` tells how many are.
            pad_to_max_length: pad to that length, not to the longest of the batch.

        Returns:
            token_ids int32 and padding_mask bool (True = real), each (batch, length); the length
            is 1 at least.

        Raises:
            ValueError: second texts, or a `max_sequence_length` below 1.
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
        """Ids of texts to the inputs of `models.fasttext`; see a call.

        Args:
            segments: one ragged tensor of `tokenize`, int32 (batch, None).
            max_sequence_length: most ids of a bag.
            pad_to_max_length: pad to that length, not to the longest of the batch.
        """
        _check_single(segments[1:] or None)
        if max_sequence_length < 1:
            raise ValueError(f"max_sequence_length={max_sequence_length}: give 1 at least")
        rows = packing.trim(segments[0], max_sequence_length)
        length = max_sequence_length if pad_to_max_length else None
        token_ids = rows.to_tensor(self.pad_token_id, shape=[None, length])
        token_ids = tf.pad(token_ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(token_ids)[1])]])
        padding_mask = tf.sequence_mask(rows.row_lengths(), tf.shape(token_ids)[1])
        return {"token_ids": token_ids, "padding_mask": padding_mask}

    def lengths(self, text: Any, text_b: Any = None) -> tf.Tensor:
        """How many ids the bags of texts (batch,) have before any is trimmed: int32 (batch,).

        Hashes nothing, so that whole data sets can be measured at once.
        """
        _check_single(text_b)
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

    def tokenize(self, text: Any) -> tf.RaggedTensor:
        """Texts to ids: strings (batch,) to int32 (batch, None).

        In fastText's order: each word with its n-grams of characters, then the n-grams of words.
        """
        words = self._split(text)
        bags = self._words_and_characters(words.values)  # (words, ids)
        bags = words.with_values(bags).merge_dims(1, 2)  # (batch, ids)
        if self.word_ngrams > 1:
            bags = tf.concat([bags, self._ngrams_of_words(words)], axis=1)
        return tf.cast(bags, tf.int32)

    def num_special_tokens(self, num_segments: int) -> int:
        """How many ids `pack` adds: none."""
        return 0

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary to `words.txt` in a folder, for `load`."""
        write_lines(os.path.join(folder, WORDS_FILE), self.vocabulary)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """The tokenizer that `save` and `config` came from."""
        return cls(os.path.join(folder, WORDS_FILE), **config)

    def config(self) -> dict[str, Any]:
        """The arguments that make this tokenizer again, without the vocabulary, as JSON values."""
        return {
            "num_buckets": self.num_buckets,
            "word_ngrams": self.word_ngrams,
            "min_characters": self.min_characters,
            "max_characters": self.max_characters,
        }

    @property
    def vocabulary(self) -> list[str]:
        """The words, in the order of their ids. Not in the graph."""
        return [word.decode() for word in self._words.numpy()]

    def _split(self, text: Any) -> tf.RaggedTensor:
        """Strings (batch,) to words (batch, None), each row's last one "</s>"."""
        words = tf.strings.split(tf.strings.regex_replace(texts_of(text), r"\x00", " "))
        words = words.with_values(tf.strings.substr(words.values, 0, _MAX_BYTES_PER_WORD))
        return tf.concat([words, tf.fill([words.nrows(), 1], END_OF_TEXT)], axis=1)

    def _words_and_characters(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Words (words,) to ids int64 (words, None): its own, then those of its characters."""
        ids = self._ids.lookup(words)
        is_known = ids >= 0
        own = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(ids, is_known), tf.cast(is_known, tf.int64), validate=False
        )
        if not self.max_characters:
            return own
        return tf.concat([own, self._ngrams_of_characters(words)], axis=1)

    def _ngrams_of_characters(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Words (words,) to ids int64 (words, None), by first character, then by length."""
        marked = tf.where(words == END_OF_TEXT, "", tf.strings.join(["<", words, ">"]))
        codes, _, num_bytes = _bytes(marked)
        # A character is a byte and those behind it that continue it: all bytes, valid or not.
        starts = tf.where(codes & 0xC0 != 0x80)[:, 0]  # (characters,)
        lengths = tf.concat([starts[1:], tf.size(codes, tf.int64)[None]], 0) - starts
        word = tf.gather(tf.repeat(tf.range(tf.size(words)), num_bytes), starts)
        here, remaining = _places(word, tf.size(words))
        hashes = tf.fill(tf.shape(starts), tf.constant(_BASIS, tf.int64))
        ids, exist = [], []
        for n in range(1, self.max_characters + 1):
            fits = remaining >= n
            last = tf.where(fits, tf.range(tf.size(starts)) + n - 1, 0)
            num_more = tf.where(fits, tf.gather(lengths, last), 0)
            hashes = _fnv1a(hashes, codes, tf.gather(starts, last), num_more)
            if n >= self.min_characters:
                ids.append(self.num_words + hashes % self.num_buckets)
                exist.append(fits if n > 1 else (here > 0) & (remaining > 1))
        return _ragged(ids, exist, word, tf.size(words))

    def _ngrams_of_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Words (batch, None) to ids int64 (batch, None), by first word, then by length."""
        codes, starts, num_bytes = _bytes(words.values)
        hashes = tf.fill(tf.shape(starts), tf.constant(_BASIS, tf.int64))
        hashes = _fnv1a(hashes, codes, starts, num_bytes)
        # fastText keeps them as signed numbers of 32 bits, and reckons on with unsigned ones of 64.
        hashes = tf.bitcast(tf.cast(tf.cast(hashes, tf.int32), tf.int64), tf.uint64)
        text = tf.cast(words.value_rowids(), tf.int32)
        num_texts = tf.cast(words.nrows(), tf.int32)
        _, remaining = _places(text, num_texts)
        joined, ids, exist = hashes, [], []
        for n in range(2, self.word_ngrams + 1):
            fits = remaining >= n
            last = tf.where(fits, tf.range(tf.size(text)) + n - 1, 0)
            joined = joined * _NEXT_WORD + tf.gather(hashes, last)
            ids.append(self.num_words + tf.cast(joined % self.num_buckets, tf.int64))
            exist.append(fits)
        return _ragged(ids, exist, text, num_texts)


def _bytes(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The bytes of strings (n,), as FNV takes them, with where each string starts and its length.

    fastText's bytes are signed: 0x80 and above have ones in the 24 bits before them.

    Returns:
        int64: (all bytes,), (n,), (n,).
    """
    num_bytes = tf.cast(tf.strings.length(strings), tf.int64)
    codes = tf.io.decode_raw(tf.strings.reduce_join(strings), tf.int8)
    codes = tf.cast(codes, tf.int64) & _LOW_32_BITS
    return codes, tf.cumsum(num_bytes, exclusive=True), num_bytes


def _fnv1a(hashes: tf.Tensor, codes: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Goes on hashing, each hash with its own `lengths` of `codes` from `starts` on; all (n,)."""

    def step(offset: tf.Tensor, hashes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        code = tf.gather(codes, tf.minimum(starts + offset, tf.size(codes, tf.int64) - 1))
        longer = ((hashes ^ code) * _PRIME) & _LOW_32_BITS
        return offset + 1, tf.where(offset < lengths, longer, hashes)

    longest = tf.reduce_max(lengths)  # below 0 where there are none
    first = tf.constant(0, tf.int64)
    return tf.while_loop(lambda offset, _: offset < longest, step, (first, hashes))[1]


def _places(row: tf.Tensor, num_rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of items whose rows (items,) are given in order: how many of its row are before and left.

    Returns:
        int32 (items,) each, the second one counting the item itself.
    """
    sizes = tf.math.unsorted_segment_sum(tf.ones_like(row), row, num_rows)
    here = tf.range(tf.size(row)) - tf.gather(tf.cumsum(sizes, exclusive=True), row)
    return here, tf.gather(sizes, row) - here


def _ragged(
    ids: Sequence[tf.Tensor], exist: Sequence[tf.Tensor], row: tf.Tensor, num_rows: tf.Tensor
) -> tf.RaggedTensor:
    """The ids that exist, item by item, of each row: (rows, None).

    Args:
        ids: one tensor a length of n-grams, (items,) each.
        exist: which of them there are, bool.
        row: of each item, in order.
        num_rows: how many rows there are.
    """
    exists = tf.stack(exist, axis=1)  # (items, lengths)
    counts = tf.reduce_sum(tf.cast(exists, tf.int64), axis=1)
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(tf.stack(ids, axis=1), exists),
        tf.math.unsorted_segment_sum(counts, row, num_rows),
        validate=False,
    )


def _check_words(words: Sequence[str], where: str | None) -> None:
    seen: set[str] = set()
    for index, word in enumerate(words):
        wrong = (
            "is empty"
            if not word
            else "has a blank in it"
            if _BLANK.search(word)
            else f"has more than {_MAX_BYTES_PER_WORD} bytes"
            if len(word.encode()) > _MAX_BYTES_PER_WORD
            else "is there already"
            if word in seen
            else ""
        )
        if wrong:
            place = f"words[{index}]" if where is None else f"{where}:{index + 1}"
            raise ValueError(
                f"{place}: {word!r:.100} {wrong}; a dictionary has a word once, as texts do "
                "between blanks"
            )
        seen.add(word)
    if not seen:
        raise ValueError(f"{where or 'words'}: no words: a dictionary needs one at least")


def _check_ngrams(
    num_words: int, num_buckets: int, word_ngrams: int, min_characters: int, max_characters: int
) -> None:
    if word_ngrams < 1:
        raise ValueError(f"word_ngrams={word_ngrams}: give 1 for words alone, or more")
    if not 0 <= min_characters <= max_characters:
        raise ValueError(
            f"min_characters={min_characters}, max_characters={max_characters}: the shortest "
            "n-grams may not be longer than the longest, nor below 0; give 0 and 0 for none"
        )
    has_ngrams = word_ngrams > 1 or max_characters > 0
    if not has_ngrams <= num_buckets < 2**31 - num_words:
        raise ValueError(
            f"num_buckets={num_buckets}: n-grams need one at least, and words and buckets together "
            "may be 2^31 - 1; give word_ngrams=1, max_characters=0 to do without n-grams"
        )


def _check_single(text_b: Any) -> None:
    if text_b is not None:
        raise ValueError("a bag has no second text: join the texts of a pair, or take an encoder")
