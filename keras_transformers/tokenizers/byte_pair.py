"""GPT-2's byte-level byte-pair encoding, the same in Python, in tf.data and in a SavedModel.

Core TensorFlow ops on constants: no lookup table, no state, nothing to initialize. keras-nlp's
`BytePairTokenizer` was not taken because version 0.32 cuts words by another rule in Python than in
a graph, and its graph remembers every word that it meets and drops a character from texts.
"""

import functools
import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformers.files import replaced
from keras_transformers.tokenizers import byte_pair_files, packing
from keras_transformers.tokenizers.byte_pair_files import Vocabulary

__all__ = ["BytePairTokenizer"]

_OTHER, _LETTER, _NUMBER, _SPACE, _BORDER = range(5)  # kinds of characters, and none
# Unicode's White_Space, which no later version will change.
_WHITE_SPACE = (
    *(*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)
# Endings that are words of their own behind an apostrophe: GPT-2's 's 't 'm 'd and 're 've 'll.
_SHORT_ENDINGS = ("s", "t", "m", "d")
_LONG_ENDINGS = (("r", "e"), ("v", "e"), ("l", "l"))
_NEVER = np.iinfo(np.int32).max  # the rank of pairs that do not merge


class _Merges(NamedTuple):
    """The merges, sorted by their pairs."""

    pairs: Any  # int64 (merges,), left * vocabulary_size + right
    ranks: Any  # int32 (merges,)
    merged: Any  # int32 (merges,), the token that the pair becomes


class BytePairTokenizer(tf.Module):
    r"""Byte-level byte-pair encoding (Radford et al. 2019, "Language Models are Unsupervised ...").

    A text is cut into words, a space before a word being part of it, and the bytes of each word are
    merged, the earliest merge of the vocabulary first. Every string of bytes has tokens and comes
    back from them as it was: `detokenize(tokenize(text)) == text`. All methods but `train` run in
    the graph. Ids equal those of Hugging Face's `ByteLevelBPETokenizer` but for this:

      - Bytes that are not UTF-8, which cannot stand in a Python string, are tokens too. They count
        as symbols, like "#", where words are cut.
      - What is a letter or a number is what Python's `unicodedata` says: characters that Unicode
        took in of late may be cut otherwise than by a library of another age.
      - "<|endoftext|>" in a text is text like any other. Its id is only what a program puts there.

    GPT-2 has one special token, which starts a document, ends it and fills up rows.

    Args:
        path: a folder with `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`.
        name: of the module.

    Attributes:
        vocabulary: the tokens by id, as their files spell them: "Ġ" is a space.
        vocabulary_size: number of tokens.
        start_token_id: the id of "<|endoftext|>", as the next two.
        end_token_id: see there.
        pad_token_id: see there.

    Raises:
        FileNotFoundError: there is no such folder, or it holds tokens without merges.
        ValueError: the files make no vocabulary; the message says which and, of merges, the line.
    """

    def __init__(self, path: str | os.PathLike[str], *, name: str = "byte_pair_tokenizer") -> None:
        super().__init__(name=name)
        found = byte_pair_files.read(path)
        self.vocabulary_size = len(found.tokens)
        self._contents = byte_pair_files.contents(found)  # bytes: tf.Module would search lists
        self.end_token_id = found.tokens.index(byte_pair_files.END)
        self.start_token_id = self.pad_token_id = self.end_token_id
        symbols = byte_pair_files.byte_symbols()
        ids = {token: i for i, token in enumerate(found.tokens)}
        with tf.device("CPU:0"):
            self._merges = _Merges(*map(tf.constant, _sorted_merges(found, ids)))
            self._byte_ids = tf.constant([ids[symbol] for symbol in symbols])
            self._byte_strings = tf.constant([bytes([byte]) for byte in range(256)])
            self._token_bytes = tf.constant(_token_bytes(found.tokens, symbols))
            self._token_names = tf.constant(found.tokens)
            self._kind_starts, self._kinds = map(tf.constant, _character_kinds())

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        path: str | os.PathLike[str],
        *,
        vocabulary_size: int = 8000,
        min_frequency: int = 2,
    ) -> "BytePairTokenizer":
        """Learns a vocabulary from text and writes its folder, whole or not at all.

        Args:
            texts: documents; line ends are part of them.
            path: the folder to write.
            vocabulary_size: number of tokens, with 256 bytes and "<|endoftext|>".
            min_frequency: how often a pair must occur to be merged.

        Returns:
            The tokenizer of the new folder.

        Raises:
            FileExistsError: `path` exists.
            FileNotFoundError: there is no folder for `path`.
            ValueError: `vocabulary_size` is below 258, or more than there is text for.
        """
        byte_pair_files.check_new(path)
        learned = byte_pair_files.learn(
            texts, vocabulary_size=vocabulary_size, min_frequency=min_frequency
        )
        byte_pair_files.write(learned, path)
        return cls(path)

    def tokenize(self, text: Any) -> tf.RaggedTensor:
        """Texts to token ids, without special tokens.

        Args:
            text: strings (batch,), any bytes.

        Returns:
            int32 (batch, None).
        """
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank != 1:
            raise ValueError(f"text of shape {text.shape}: expected (batch,); put it into a list")
        with tf.device("CPU:0"):
            words, rows = self._words(text)
            words, places = tf.unique(words)
            tokens = tf.gather(self._encode(words), places)  # (words, None)
            num_tokens = tf.math.unsorted_segment_sum(
                tokens.row_lengths(), rows, tf.size(text, tf.int64)
            )
            return tf.RaggedTensor.from_row_lengths(tokens.values, num_tokens, validate=False)

    def detokenize(self, token_ids: Any) -> tf.Tensor:
        """Token ids to texts; "<|endoftext|>" leaves no trace.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).

        Returns:
            Strings (batch,), or (...): bytes, which are UTF-8 where the tokens are those of a text
            and not cut amid a character.

        Raises:
            tf.errors.InvalidArgumentError: an id is not in the vocabulary.
        """
        with tf.device("CPU:0"):
            if isinstance(token_ids, tf.RaggedTensor):
                token_ids = token_ids.to_tensor(self.pad_token_id)
            return tf.strings.reduce_join(tf.gather(self._token_bytes, token_ids), axis=-1)

    def pack(
        self, segments: Sequence[tf.RaggedTensor], *, max_sequence_length: int
    ) -> dict[str, tf.Tensor]:
        """Tokens of texts, or of pairs, to the inputs of `models.gpt.classifier`.

        Start token, text, end token; of a pair the second text and another end token follow. What
        is too long loses its end, of a pair the longer text first.

        Args:
            segments: one or two ragged tensors of `tokenize`, int32 (batch, None).
            max_sequence_length: in tokens, special ones included.

        Returns:
            token_ids and segment_ids int32, padding_mask bool, each (batch, length).
        """
        num_added = self.num_special_tokens(len(segments))
        return packing.pack(
            packing.trim_longest_first(segments, max_sequence_length - num_added),
            special_tokens=self.special_tokens(len(segments)),
            pad_token_id=self.pad_token_id,
        )

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """The ids that `pack` adds before each segment and after the last: start a end b end."""
        return [[self.start_token_id], *[[self.end_token_id]] * num_segments]

    def num_special_tokens(self, num_segments: int) -> int:
        """How many tokens `pack` adds."""
        return sum(map(len, self.special_tokens(num_segments)))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocab.json` and `merges.txt` in a folder, for `load`."""
        for name, content in zip(byte_pair_files.NAMES, self._contents, strict=True):
            with replaced(os.path.join(folder, name)) as scratch:
                scratch.write_bytes(content)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """The tokenizer that `save` and `config` came from."""
        return cls(folder, **config)

    def config(self) -> dict[str, Any]:
        """The arguments that make this tokenizer again, without the vocabulary, as JSON values."""
        return {}

    def tokens(self, token_ids: Any) -> tf.Tensor:
        """The vocabulary's strings of token ids, of any shape."""
        with tf.device("CPU:0"):
            return tf.gather(self._token_names, token_ids)

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id. Not in the graph."""
        return [token.decode() for token in self._token_names.numpy()]

    def _words(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts texts into words: strings (words,), and the text each is of, int64 (words,)."""
        codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8", errors="replace")
        lengths = tf.cast(tf.strings.length(text), tf.int64)  # in bytes
        text_starts = tf.cumsum(lengths, exclusive=True)
        rows = codes.value_rowids()  # (characters,)
        starts = offsets.values + tf.gather(text_starts, rows)
        place = tf.searchsorted(self._kind_starts, codes.values, side="right") - 1
        begins = _begins_word(codes.values, tf.gather(self._kinds, place), rows)
        starts, rows = tf.boolean_mask(starts, begins), tf.boolean_mask(rows, begins)
        # Back to bytes: those of all texts end to end, each with the number of its word.
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
        marks = tf.scatter_nd(
            starts[:, None], tf.ones_like(starts), tf.size(all_bytes, tf.int64)[None]
        )
        words = tf.strings.unsorted_segment_join(
            tf.gather(self._byte_strings, tf.cast(all_bytes, tf.int32)),
            tf.cumsum(marks) - 1,
            tf.size(starts),
        )
        return words, rows

    def _encode(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The tokens of distinct words: strings (words,) to int32 (words, None)."""
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(all_bytes, tf.int32))  # (bytes,)
        numbers = tf.repeat(tf.range(tf.size(words)), tf.strings.length(words))  # (bytes,)
        _, ids, numbers = tf.while_loop(
            lambda goes_on, *_: goes_on,
            lambda _, ids, numbers: self._merge(ids, numbers),
            (tf.constant(True), ids, numbers),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None])),
        )
        return tf.RaggedTensor.from_value_rowids(
            ids, tf.cast(numbers, tf.int64), tf.size(words, tf.int64), validate=False
        )

    def _merge(self, ids: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One merge in each word, at all its places.

        Args:
            ids: int32 (tokens,), those of all words end to end.
            words: int32 (tokens,), the number of each one's word, ascending.

        Returns:
            Whether there was anything to merge, and ids and words after it.
        """
        pairs = tf.cast(ids[:-1], tf.int64) * self.vocabulary_size + tf.cast(ids[1:], tf.int64)
        place = tf.searchsorted(self._merges.pairs, pairs)
        place = tf.minimum(place, self._merges.pairs.shape[0] - 1)
        mergeable = (tf.gather(self._merges.pairs, place) == pairs) & (words[:-1] == words[1:])
        ranks = tf.where(mergeable, tf.gather(self._merges.ranks, place), _NEVER)
        earliest = tf.math.segment_min(ranks, words[:-1])  # (words,)
        merges = mergeable & (ranks == tf.gather(earliest, words[:-1]))
        merges &= _distance_from_start(merges) % 2 == 0  # of "aaa" merge the first two
        ids = tf.concat(
            [tf.where(merges, tf.gather(self._merges.merged, place), ids[:-1]), ids[-1:]], 0
        )
        stays = tf.logical_not(tf.concat([[False], merges], 0)[: tf.size(ids)])
        return (
            tf.reduce_any(mergeable),
            tf.boolean_mask(ids, stays),
            tf.boolean_mask(words, stays),
        )


def _begins_word(codes: tf.Tensor, kinds: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    r"""Which characters begin a word by GPT-2's pattern, bool (characters,).

    The pattern is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
    matched from left to right. Where a word begins hangs on the two characters before it and the
    one behind it, at most on four with an apostrophe: so all places are decided at once, and
    without a lookahead, which TensorFlow's regular expressions do not have.

    Args:
        codes: int32 (characters,), those of all texts end to end.
        kinds: int32 (characters,), what each is.
        rows: (characters,), the text of each, ascending.
    """
    is_first = tf.concat([[True], rows[1:] != rows[:-1]], 0)[: tf.size(rows)]
    is_last = tf.concat([is_first[1:], [True]], 0)[: tf.size(rows)]
    before = tf.where(is_first, _BORDER, _shifted(kinds, 1, _BORDER))
    behind = tf.where(is_last, _BORDER, _shifted(kinds, -1, _BORDER))
    next_code = tf.where(is_last, 0, _shifted(codes, -1, 0))
    code_after_next = tf.where(is_last | _shifted(is_last, -1, True), 0, _shifted(codes, -2, 0))

    # An apostrophe is taken by a space before it, and by symbols.
    behind_space = tf.logical_not(is_first) & (_shifted(codes, 1, 0) == ord(" "))
    may_end = (codes == ord("'")) & (before != _OTHER) & tf.logical_not(behind_space)
    is_short, is_long = tf.zeros_like(may_end), tf.zeros_like(may_end)
    for ending in _SHORT_ENDINGS:
        is_short |= may_end & (next_code == ord(ending))
    for first, second in _LONG_ENDINGS:
        is_long |= may_end & (next_code == ord(first)) & (code_after_next == ord(second))
    in_ending = _shifted(is_short | is_long, 1, False) | _shifted(is_long, 2, False)
    after_ending = _shifted(is_short, 2, False) | _shifted(is_long, 3, False)

    is_space = kinds == _SPACE
    # Of a run of spaces the last one stands apart if anything follows: a word, which takes it.
    space_begins = (before != _SPACE) | tf.logical_not((behind == _SPACE) | (behind == _BORDER))
    text_begins = (before != kinds) & tf.logical_not(behind_space | in_ending)
    return tf.where(is_space, space_begins, text_begins | after_ending)


def _shifted(values: tf.Tensor, by: int, fill: Any) -> tf.Tensor:
    """Each place's neighbour `by` places before it (behind it, where negative)."""
    size = tf.size(values)
    filling = tf.fill([tf.minimum(abs(by), size)], tf.cast(fill, values.dtype))
    if by > 0:
        return tf.concat([filling, values], 0)[:size]
    return tf.concat([values[-by:], filling], 0)


def _distance_from_start(flags: tf.Tensor) -> tf.Tensor:
    """How far each True is from the first of its run of them, int32; elsewhere it means nothing."""
    starts = flags & tf.logical_not(_shifted(flags, 1, False))
    places = tf.concat([tf.cast(tf.where(starts)[:, 0], tf.int32), [0]], 0)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    return tf.range(tf.size(flags)) - tf.gather(places, run)


def _sorted_merges(
    vocabulary: Vocabulary, ids: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `_Merges` holds."""
    found = [(ids[left], ids[right], ids[left + right]) for left, right in vocabulary.merges]
    lefts, rights, merged = np.array(found, np.int64).T
    pairs = lefts * len(ids) + rights
    order = np.argsort(pairs)
    return pairs[order], order.astype(np.int32), merged[order].astype(np.int32)


def _token_bytes(tokens: Sequence[str], symbols: Sequence[str]) -> list[bytes]:
    """The bytes that tokens stand for; none for special ones."""
    byte_of = {symbol: byte for byte, symbol in enumerate(symbols)}
    return [
        b"" if token == byte_pair_files.END else bytes(byte_of[symbol] for symbol in token)
        for token in tokens
    ]


@functools.cache
def _character_kinds() -> tuple[np.ndarray, np.ndarray]:
    """Runs of characters of a kind: the first code of each, ascending, and the kind, int32."""
    initials = {"L": _LETTER, "N": _NUMBER}
    kinds = np.array(
        [initials.get(unicodedata.category(chr(code))[0], _OTHER) for code in range(0x110000)],
        np.int32,
    )
    kinds[list(_WHITE_SPACE)] = _SPACE
    starts = np.flatnonzero(np.diff(kinds, prepend=-1))
    return starts.astype(np.int32), kinds[starts]
