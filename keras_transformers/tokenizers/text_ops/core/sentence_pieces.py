"""Reads and writes texts as a SentencePiece model does, with TensorFlow's own ops."""

from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from keras_transformers.tokenizers.described.text import byte_lengths, changes, numbered
from keras_transformers.tokenizers.described.vocabularies import utf8_byte
from keras_transformers.tokenizers.tensors import item_numbers, kept, places, row_numbers
from keras_transformers.tokenizers.text_ops.core import utf8
from keras_transformers.tokenizers.text_ops.core.graphs import in_graph
from keras_transformers.tokenizers.text_ops.core.piece_merges import PieceMerges
from keras_transformers.tokenizers.text_ops.core.sentence_text import SPACE_MARK, Normalizer
from keras_transformers.tokenizers.text_ops.core.unigrams import Unigrams

__all__: list[str] = []

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # types of pieces
_UNIGRAM, _BPE, _WORD, _CHAR = range(1, 5)  # types of models


class CoreSentencePieces:
    """See `text_ops.forms.SentencePieces`.

    Args:
        model: the contents of a SentencePiece model.

    Raises:
        ValueError: it is no such model, or has a part that only tensorflow-text's ops have; the
            message names it.
    """

    def __init__(self, model: bytes) -> None:
        proto: Any = sentencepiece_model_pb2  # created at run time, without types
        try:
            model_proto = proto.ModelProto.FromString(model)
            listed = [(piece.piece, piece.score, piece.type) for piece in model_proto.pieces]
        except DecodeError as error:
            raise ValueError("not a SentencePiece model") from error
        if strange := [piece for piece, _, _ in listed if isinstance(piece, bytes)]:
            raise ValueError(f"not a SentencePiece model: the piece {strange[0]!r} is not UTF-8")
        kind = model_proto.trainer_spec.model_type
        _check(model_proto, kind, {type_ for _, _, type_ in listed})
        names = [piece for piece, _, _ in listed]
        types = np.array([type_ for _, _, type_ in listed])
        unknown = np.flatnonzero(types == _UNKNOWN).tolist()
        if len(unknown) != 1:
            raise ValueError(
                f"not a SentencePiece model: {len(unknown)} of its {len(names)} pieces stand for "
                "unknown characters, and one should"
            )
        (self._unknown_id,) = unknown
        in_text = [i for i, type_ in enumerate(types) if type_ in (_NORMAL, _USER_DEFINED)]
        ids = {names[i]: i for i in in_text}
        symbols = [names[i] for i in in_text if types[i] == _USER_DEFINED]
        scores: dict[str, Any] = {names[i]: np.float32(listed[i][1]) for i in in_text}
        self._normalize = Normalizer(model_proto.normalizer_spec, symbols)
        self._split: Any
        if kind == _UNIGRAM:
            normal = [score for piece, score in scores.items() if piece not in set(symbols)]
            # As in C++, where the greatest score is at least the least positive float32.
            greatest = max([np.finfo(np.float32).tiny, *normal])
            bonus = {s: float(np.float32(len(s.encode())) * greatest) - 0.1 for s in symbols}
            self._split = Unigrams(
                {piece: float(score) for piece, score in scores.items()} | bonus,
                ids,
                least=min([np.finfo(np.float32).max, *normal]),
                unknown_id=self._unknown_id,
            )
        else:
            if kind == _CHAR:
                scores = {piece: s for piece, s in scores.items() if len(piece) == 1}
                scores |= {piece: np.float32(0) for piece in symbols}
            self._split = PieceMerges(scores, ids, whole=symbols, unknown_id=self._unknown_id)
        byte_ids = {names[i]: i for i in np.flatnonzero(types == _BYTE)}
        self._byte_ids = None
        if model_proto.trainer_spec.byte_fallback:
            by_byte = [byte_ids.get(f"<0x{b:02X}>", self._unknown_id) for b in range(256)]
            self._byte_ids = tf.constant(by_byte, tf.int32)
        self._names = tf.constant(names)
        self._set_surfaces(names, types, model_proto)

    def _set_surfaces(self, names: list[str], types: np.ndarray, model_proto: Any) -> None:
        """Sets what each piece is in a text, and at the start of one."""
        spec = model_proto.normalizer_spec
        drops_space = spec.add_dummy_prefix or spec.remove_extra_whitespaces
        inside, at_start = [], []
        for name, type_ in zip(names, types, strict=True):
            surface = name.replace(SPACE_MARK, " ").encode()
            if type_ == _CONTROL:
                surface = b""
            elif type_ == _UNKNOWN:
                surface = model_proto.trainer_spec.unk_surface.encode()
            elif type_ == _BYTE:
                surface = bytes([int(name[3:5], 16)])
            is_text = type_ in (_NORMAL, _USER_DEFINED, _UNUSED)
            inside.append(surface)
            at_start.append(surface.removeprefix(b" ") if is_text and drops_space else surface)
        self._inside, self._at_start = tf.constant(inside), tf.constant(at_start)
        self._is_silent = tf.constant([not surface for surface in at_start])
        self._is_byte = tf.constant(types == _BYTE)

    @in_graph
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenize(text)[0]

    @in_graph
    def tokenize_with_offsets(
        self, text: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._tokenize(text)

    def _tokenize(
        self, text: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        normal = self._normalize(text)
        first, last, ids = self._split(normal)
        rows = tf.gather(normal.rows, first)
        starts, ends = tf.gather(normal.starts, first), tf.gather(normal.ends, last)
        is_unknown = ids == self._unknown_id
        if self._byte_ids is None:
            # Unknown neighbours are one token.
            was_unknown = tf.concat([[False], is_unknown], 0)[:-1]
            stays = places(~(is_unknown & was_unknown) | changes(rows))
            at_end = tf.concat([stays[1:], [tf.size(ids, tf.int64)]], 0)[: tf.size(stays)] - 1
            rows, ids, starts = (tf.gather(column, stays) for column in (rows, ids, starts))
            ends = tf.gather(ends, at_end)
        else:
            codes = tf.gather(normal.codes, first)
            number = tf.where(is_unknown, byte_lengths(codes), 1)
            origin = item_numbers(number)
            place = tf.range(tf.size(origin, tf.int64)) - tf.gather(
                tf.cumsum(number, exclusive=True), origin
            )
            is_unknown, codes = tf.gather(is_unknown, origin), tf.gather(codes, origin)
            byte = utf8_byte(codes, tf.gather(number, origin), place)
            byte_ids = tf.gather(self._byte_ids, tf.where(is_unknown, byte, 0))
            ids = tf.where(is_unknown, byte_ids, tf.gather(ids, origin))
            is_last = place == tf.gather(number, origin) - 1
            rows, starts, ends = (tf.gather(column, origin) for column in (rows, starts, ends))
            ends = tf.where(is_last, ends, starts)  # the last byte has the character's span
        ids = tf.RaggedTensor.from_value_rowids(ids, rows, tf.size(text, tf.int64), validate=False)
        starts, ends = tf.cast(starts, tf.int32), tf.cast(ends, tf.int32)
        return ids, ids.with_values(starts), ids.with_values(ends)

    def detokenize(self, token_ids: tf.RaggedTensor | tf.Tensor) -> tf.Tensor:
        if not isinstance(token_ids, tf.RaggedTensor):
            token_ids = tf.RaggedTensor.from_tensor(token_ids)
        return self._detokenize(token_ids)

    @in_graph
    def _detokenize(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        ids, rows = token_ids.values, row_numbers(token_ids)
        # A text starts with the first token that is not silent.
        sounds = tf.cast(~tf.gather(self._is_silent, ids), tf.int64)
        before = tf.cumsum(sounds, exclusive=True)
        begins = changes(rows)
        at_start = before == tf.gather(kept(before, begins), numbered(begins))
        surface = tf.where(at_start, tf.gather(self._at_start, ids), tf.gather(self._inside, ids))
        # Neighbouring bytes are characters together.
        is_byte = tf.gather(self._is_byte, ids)
        was_byte = tf.concat([[False], is_byte], 0)[:-1]
        is_first = begins | ~(is_byte & was_byte)
        count = tf.reduce_sum(tf.cast(is_first, tf.int64))
        parts = tf.strings.unsorted_segment_join(surface, numbered(is_first), count)
        by_row = tf.RaggedTensor.from_value_rowids(
            utf8.repaired(parts), kept(rows, is_first), token_ids.nrows(), validate=False
        )
        return tf.strings.reduce_join(by_row, axis=1)

    def id_to_string(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        return tf.gather(self._names, token_ids)

    @property
    def size(self) -> int:
        """The number of pieces."""
        return int(self._names.shape[0])


def _check(model_proto: Any, kind: int, types: set[int]) -> None:
    """Raises ValueError, if the model has a part that there are no core ops for."""
    trainer, normalizer = model_proto.trainer_spec, model_proto.normalizer_spec
    parts = {
        "model_type WORD": kind == _WORD,
        "unused pieces": _UNUSED in types,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        "escape_whitespaces=false": not normalizer.escape_whitespaces,
        "a denormalizer": bool(model_proto.denormalizer_spec.precompiled_charsmap),
    }
    if unlike := [part for part, is_there in parts.items() if is_there]:
        raise ValueError(
            f"a SentencePiece model with {', '.join(unlike)} needs tensorflow-text's op "
            "SentencepieceTokenizeOp, which has no form in core ops: install tensorflow-text, and "
            "leave out ops='core'"
        )
