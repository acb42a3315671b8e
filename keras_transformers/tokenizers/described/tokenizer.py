"""Runs the tokenizer of a language model, as described by its tokenizer.json, in the graph."""

import copy
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf

from keras_transformers.files import read_json, replaced
from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.described import decoders, templates, unicode_tables
from keras_transformers.tokenizers.described.normalizers import normalizer_steps
from keras_transformers.tokenizers.described.parts import Parts
from keras_transformers.tokenizers.described.splitters import Step, is_byte_level
from keras_transformers.tokenizers.described.text import CharacterClass, decode, encode
from keras_transformers.tokenizers.described.vocabularies import BytePairs, spelling
from keras_transformers.tokenizers.packing import Packing
from keras_transformers.tokenizers.tensors import Texts, texts_of

__all__ = ["DescribedTokenizer"]

FILE = "tokenizer.json"
_SPACES = r"[\s\pZ]*"


class DescribedTokenizer(Packing, tf.Module):
    """Byte pairs with the normalization, splitting and special tokens of a tokenizer.json.

    It supports the language models since GPT-2: byte-level byte pairs with GPT-2's, Llama 3's,
    Qwen's or SmolLM2's way of splitting texts into words, and SentencePiece's byte pairs with byte
    fallback (Llama 2, Mistral). Ids equal those of the `tokenizers` library for the same file. All
    methods run in the graph, with core TensorFlow ops on constants.

    The names of added tokens in a text, such as "<|im_start|>", become these tokens, as in
    transformers. For untrusted text, `match_special_tokens=False` treats the names of special
    tokens as ordinary text (transformers: `split_special_tokens=True`).

    Invalid UTF-8, which no Python string contains, counts as U+FFFD.

    Args:
        description: the contents of a tokenizer.json whose model is BPE.
        start_token: the token that starts a text (Hugging Face: bos_token), if there is one.
        end_token: the token that ends a text (eos_token).
        pad_token: the token that pads rows (pad_token); by default the end or unknown token.
        unknown_token: the token for text outside the vocabulary (unk_token); by default the
            model's.
        mask_token: the token that stands for a missing one (mask_token), in encoders.
        vocabulary_size: number of tokens of the model that uses this tokenizer; the last ones,
            without text, only pad its matrices. By default there are none.
        name: name of the module.

    Attributes:
        vocabulary_size: the number of tokens.
        num_tokens: the number of those with text.
        start_token_id: id of `start_token`, or None. `special_tokens` decides whether it goes
            before texts.
        end_token_id: id of `end_token`, or None.
        pad_token_id: id of `pad_token`.
        unknown_token_id: id of `unknown_token`, or None.
        mask_token: as given; there is no such attribute without one.
        mask_token_id: its id.

    Raises:
        ValueError: the description is damaged, or a part cannot be reproduced exactly, such as
            another regular expression; the message names it.

    Example:
        >>> tokens = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
        >>> tokenizer = DescribedTokenizer(
        ...     {
        ...         "model": {
        ...             "type": "BPE",
        ...             "vocab": {token: i for i, token in enumerate(tokens)},
        ...             "merges": [["▁", "a"]],
        ...             "byte_fallback": True,
        ...         },
        ...         "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": False},
        ...         "added_tokens": [{"id": 0, "content": "<s>", "special": True}],
        ...     },
        ...     start_token="<s>",
        ... )
        >>> tokenizer.tokenize(["a a!", "<s>"]).to_list()
        [[259, 259, 34], [0]]
        >>> tokenizer.detokenize([[259, 259, 34]]).numpy()
        array([b' a a!'], dtype=object)
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        *,
        start_token: str | None = None,
        end_token: str | None = None,
        pad_token: str | None = None,
        unknown_token: str | None = None,
        mask_token: str | None = None,
        vocabulary_size: int | None = None,
        name: str = "described_tokenizer",
    ) -> None:
        super().__init__(name=name)
        self._json = json.dumps(description)  # a string: tf.Module wraps and searches mappings
        self._names = (start_token, end_token, pad_token, unknown_token, mask_token)
        parts = _parts(description)
        byte_level = is_byte_level(parts["pre_tokenizer"])
        with tf.device("CPU:0"):
            self._model = BytePairs(description["model"], byte_level=byte_level)
            self._make_parts = functools.partial(
                Parts,
                num_tokens=len(self._model.tokens),
                byte_level=byte_level,
                more_steps=self._model.steps,
            )
            self._parts = self._make_parts(parts)
            self._plain_parts = self._make_parts(parts, match_special_tokens=False)
            self._is_space = CharacterClass(unicode_tables.class_of(r"\s"))
        names = (*self._model.tokens, *self._parts.added)
        self._set_sizes(names, vocabulary_size)
        self._set_special_tokens(names, description["model"].get("unk_token"))
        self._special = tuple(
            templates.ids_around(description.get("post_processor"), count) for count in (1, 2)
        )
        _check_ids(self._special, self.num_tokens)
        self._drops_space = decoders.drops_space(description.get("decoder"), byte_level=byte_level)
        spelled = [spelling(name, byte_level=byte_level) for name in names]
        is_special = [False] * len(names)
        for token in parts["added_tokens"]:
            is_special[token["id"]] = bool(token.get("special"))
            if byte_level:
                spelled[token["id"]] = token["content"].encode()
        fill = self.vocabulary_size - len(names)
        with tf.device("CPU:0"):
            self._token_bytes = tf.constant([*spelled, *[b""] * fill])
            self._is_special = tf.constant([*is_special, *[True] * fill])
            self._token_names = tf.constant(
                [*names, *(f"<unused_{len(names) + number}>" for number in range(fill))]
            )

    def _set_sizes(self, names: Sequence[str], vocabulary_size: int | None) -> None:
        self.num_tokens = len(names)
        self.vocabulary_size = len(names) if vocabulary_size is None else vocabulary_size
        if self.vocabulary_size < len(names):
            raise ValueError(
                f"{len(names)} tokens, but the model has {vocabulary_size}: use the tokenizer that "
                "belongs to it"
            )

    def _set_special_tokens(self, names: Sequence[str], unknown_token: str | None) -> None:
        ids = {name: number for number, name in enumerate(names)}
        start, end, pad, unknown, mask = self._names
        for token in self._names:
            if token is not None and token not in ids:
                raise ValueError(f"the special token {token!r:.100} is not in the vocabulary")
        self.start_token_id = None if start is None else ids[start]
        self.end_token_id = None if end is None else ids[end]
        fill = next((token for token in (end, unknown_token, start) if token in ids), None)
        if pad == fill:  # as without a name for it
            self._names = (start, end, None, unknown, mask)
        self.pad_token_id = ids.get(pad or fill or "", 0)
        unknown = unknown or unknown_token
        self.unknown_token_id = None if unknown is None else ids.get(unknown)
        if mask is not None:  # without one, there is no such attribute, as in other tokenizers
            self.mask_token, self.mask_token_id = mask, ids[mask]

    def tokenize(self, text: Texts, *, match_special_tokens: bool = True) -> tf.RaggedTensor:
        """Converts texts to token ids, without those that `special_tokens` adds around them.

        Args:
            text: strings (batch,).
            match_special_tokens: whether the names of special tokens in a text are these tokens.

        Returns:
            int32 (batch, None).
        """
        parts = self._parts if match_special_tokens else self._plain_parts
        return parts.tokenize(texts_of(text), self._model.encode)[0]

    def spelled_otherwise(self, contents: Mapping[str, str]) -> Callable[[Texts], tf.RaggedTensor]:
        """Returns a `tokenize` that finds some added tokens by other strings in texts.

        Args:
            contents: an added token -> the exact string for it in texts. The token's own name is
                then ordinary text.
        """
        description = self.description
        tokens = [
            {**token, "content": contents[token["content"]], "normalized": False}
            if token["content"] in contents
            else token
            for token in description.get("added_tokens") or []
        ]
        with tf.device("CPU:0"):
            parts = self._make_parts({**_parts(description), "added_tokens": tokens})
        return lambda text: parts.tokenize(texts_of(text), self._model.encode)[0]

    def showing(self, names: Collection[str]) -> Self:
        """Returns a tokenizer that writes some special tokens in texts instead of leaving them out.

        Args:
            names: the tokens. If none of them is special, the tokenizer itself is returned.
        """
        with tf.device("CPU:0"):
            is_shown = self._is_special & tf.reduce_any(
                self._token_names[:, None] == tf.constant([*names], tf.string), axis=1
            )
            if not tf.reduce_any(is_shown):
                return self
            other = copy.copy(self)
            other._is_special = self._is_special & ~is_shown
        return other

    def folded(self, text: Texts) -> tf.Tensor:
        """Returns strings (batch,) with the characters that the normalizer makes of theirs.

        Texts that differ only in what it folds, such as case or a Unicode form, become equal. The
        steps that only add or remove something at the ends of a text are left out.
        """
        with tf.device("CPU:0"):
            text = tf.convert_to_tensor(text, tf.string)
            if not self._folds:
                return text
            characters = decode(text)
            for step in self._folds:
                characters = step(characters)
            return encode(characters, characters.rows, tf.size(text, tf.int64))

    @functools.cached_property
    def _folds(self) -> list[Step]:
        with tf.device("CPU:0"):
            return normalizer_steps(_without_ends(self.description.get("normalizer")))

    def tokenize_with_offsets(
        self, text: Texts, *, match_special_tokens: bool = True
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids, and finds the span of each token in its text.

        The ids are those of `tokenize`. A span is the bytes of a token's characters without the
        white space before them; a token of only white space has an empty span.

        Args:
            text: strings (batch,).
            match_special_tokens: as for `tokenize`.

        Returns:
            Token ids, starts and ends (exclusive), each int32 (batch, None).
        """
        text = texts_of(text)
        parts = self._parts if match_special_tokens else self._plain_parts
        with tf.device("CPU:0"):
            ids, starts, ends = parts.tokenize(text, self._model.encode)
            characters = decode(text)
            starts, ends = offsets.without_white_space(
                text,
                starts.values,
                ends.values,
                ids.value_rowids(),
                character_starts=characters.starts,
                is_white_space=self._is_space(characters.codes),
            )
            return ids, ids.with_values(starts), ids.with_values(ends)

    def detokenize(
        self, token_ids: tf.Tensor | tf.RaggedTensor, *, skip_special_tokens: bool = True
    ) -> tf.Tensor:
        """Converts token ids to texts.

        The bytes of all tokens are joined, so part of a text's tokens may not be valid UTF-8.

        Args:
            token_ids: int32 (batch, length), ragged or padded; or (..., length).
            skip_special_tokens: whether to leave out special tokens instead of writing their names.

        Returns:
            Strings (batch,), or (...).

        Raises:
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        with tf.device("CPU:0"):
            if isinstance(token_ids, tf.RaggedTensor):
                parts = token_ids.with_values(self._spelled(token_ids.values, skip_special_tokens))
                return self._without_prefix(tf.strings.reduce_join(parts, axis=-1))
            parts = self._spelled(tf.cast(token_ids, tf.int32), skip_special_tokens)
            return self._without_prefix(tf.strings.reduce_join(parts, axis=-1))

    def _spelled(self, token_ids: tf.Tensor | tf.RaggedTensor, skips_special: bool) -> tf.Tensor:
        special = "" if skips_special else tf.gather(self._token_names, token_ids)
        return tf.where(
            tf.gather(self._is_special, token_ids), special, tf.gather(self._token_bytes, token_ids)
        )

    def _without_prefix(self, text: tf.Tensor) -> tf.Tensor:
        return tf.strings.regex_replace(text, r"\A ", "") if self._drops_space else text

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Cuts strings (batch,) at every `mask_token`: (batch, None).

        The mask includes the white space beside it, if the file says so (lstrip, rstrip).
        """
        mask = self.mask_token
        flags = {token["content"]: token for token in self.description.get("added_tokens") or []}
        before, after = (flags.get(mask, {}).get(flag) for flag in ("lstrip", "rstrip"))
        if before or after:
            pattern = rf"{_SPACES * bool(before)}{re.escape(mask)}{_SPACES * bool(after)}"
            text = tf.strings.regex_replace(text, pattern, mask.replace("\\", r"\\"))
        return tf.strings.split(text, mask)

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids before each of one or two texts, and after the last."""
        return [list(ids) for ids in self._special[num_segments - 1]]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json` to a folder, for `load` and for other libraries."""
        with replaced(Path(folder, FILE)) as scratch:
            scratch.write_text(self._json, "utf-8")

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **config: Any) -> Self:
        """Restores a tokenizer from a folder with `tokenizer.json` and the result of `config`.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it is damaged, or describes something that cannot be reproduced exactly.
        """
        file = Path(folder, FILE)
        description = read_json(file)
        try:
            return cls(description, **config)
        except Exception as error:  # any error that a damaged part causes
            raise ValueError(f"{file}: {error}") from error

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the file, as JSON values."""
        fields = ("start_token", "end_token", "pad_token", "unknown_token", "mask_token")
        names = zip(fields, self._names, strict=True)
        fills = self.vocabulary_size > self.num_tokens
        return {
            **{field: token for field, token in names if token is not None},
            **({"vocabulary_size": self.vocabulary_size} if fills else {}),
        }

    @property
    def description(self) -> dict[str, Any]:
        """The contents of the tokenizer.json."""
        contents: dict[str, Any] = json.loads(self._json)
        return contents

    def tokens(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Returns the tokens, as in the vocabulary, for ids of any shape."""
        with tf.device("CPU:0"):
            return tf.gather(self._token_names, token_ids)

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id; cannot run in a graph."""
        return [token.decode() for token in self._token_names.numpy()]


def _parts(description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts around the model, checked."""
    if not isinstance(description.get("model"), Mapping):
        raise ValueError("it has no model: download it again")
    parts = {field: description.get(field) for field in ("normalizer", "pre_tokenizer")}
    for field, part in parts.items():
        if part is not None and not isinstance(part, Mapping):
            raise ValueError(f"{field}={part!r:.100}; expected a JSON object")
    tokens = description.get("added_tokens") or []
    if not isinstance(tokens, Sequence):
        raise ValueError(f"added_tokens={tokens!r:.100}; expected a list")
    vocabulary = description["model"].get("vocab")
    ids = vocabulary if isinstance(vocabulary, Mapping) else {}
    by_id = {number: token for token, number in ids.items()}
    for token in tokens:
        content = token.get("content") if isinstance(token, Mapping) else None
        number = token.get("id") if isinstance(token, Mapping) else None
        if not isinstance(content, str) or not content or type(number) is not int or number < 0:
            raise ValueError(f"an added token needs content and an id, not {token!r:.100}")
        if ids.get(content, number) != number or by_id.get(number, content) != content:
            raise ValueError(
                f"the added token {content!r:.100} has the id {number}, but the vocabulary gives "
                f"{content!r:.100} the id {ids.get(content)} and the id {number} to "
                f"{by_id.get(number)!r:.100}"
            )
    return {**parts, "added_tokens": list(tokens)}


def _without_ends(normalizer: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns a normalizer without the steps at the ends of texts."""
    if normalizer is None or normalizer.get("type") in ("Prepend", "Strip"):
        return None
    if normalizer.get("type") != "Sequence":
        return normalizer
    parts = [part for part in map(_without_ends, normalizer["normalizers"]) if part is not None]
    return {**normalizer, "normalizers": parts}


def _check_ids(special: Sequence[Sequence[Sequence[int]]], num_tokens: int) -> None:
    largest = max((i for around in special for ids in around for i in ids), default=0)
    if largest >= num_tokens:
        raise ValueError(f"post_processor with the id {largest}, but there are {num_tokens} tokens")
