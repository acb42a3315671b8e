"""Export of masked language models: text with [MASK] in it, the likeliest tokens out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as texts
from keras_transformers.saved_model.writing import Signature, write
from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.vocabulary import MASK

_EXAMPLES = ("A sentence to [MASK] the model with.", "[MASK] another one, which is [MASK] longer!")
_MODEL_INPUTS = (*texts.TOKEN_INPUTS, "mask_positions")


def fill_mask(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    top_k: int = 5,
    max_sequence_length: int | None = None,
    examples: Sequence[str] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a masked language model as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> tokens string (batch, masks, top_k), probabilities
      float32 (batch, masks, top_k), num_masks int32 (batch,). `masks` is the largest of
      `num_masks`, 0 where no text of the batch has any; beyond a row's `num_masks` tokens are ""
      and probabilities 0. Best first; the probabilities are among the whole vocabulary. A token
      that continues a word begins with "##".
    - tokens(token_ids, segment_ids int32, padding_mask bool (batch, length)) -> the same; the
      masks are the ids of [MASK]. Ids beyond the vocabulary and lengths beyond the model's
      positions are refused.

    Each literal "[MASK]" in a text, in capitals, is a mask wherever it stands ("un[MASK]able"), as
    in Hugging Face's tokenizers. The other special tokens are text, unlike there. Masks in the end
    of a text that trimming cuts off are not answered and not in `num_masks`.

    Args:
        model: functional, inputs token_ids, segment_ids, padding_mask, mask_positions, output
            mask_logits (batch, masks, vocabulary), as `models.heads.masked_lm` makes it; of a
            `pretrainer` that part is exported.
        tokenizer: turns texts into the model's inputs, a `tokenizers.WordPieceTokenizer`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        top_k: number of tokens for each mask.
        max_sequence_length: of the packed tokens; longer texts lose their end. The model's number
            of positions by default.
        examples: texts to check the export with; they are stored in it with their answers, so
            give none that are secret. Two plain sentences by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, tokenizer, `top_k`, length or examples do not fit each other.
        RuntimeError: the written export does not repeat the model's outputs. Of a bfloat16 model,
            whose graph rounds elsewhere, tokens of nearly the same probability may change places.
    """
    model = texts.part(model, tokenizer, "mask_logits", inputs=_MODEL_INPUTS)
    if not 1 <= top_k <= tokenizer.vocabulary_size:
        raise ValueError(
            f"top_k={top_k}: give from 1 to {tokenizer.vocabulary_size}, the size of the vocabulary"
        )
    length = texts.checked_length(model, max_sequence_length, pair=False)
    batches = _example_batches(examples, length)
    graph = _Graph(model, tokenizer, tokenizer.vocabulary, top_k, length)
    answer = {
        "tokens": tf.TensorSpec([None, None, top_k], tf.string),
        "probabilities": tf.TensorSpec([None, None, top_k], tf.float32),
        "num_masks": tf.TensorSpec([None], tf.int32),
    }
    tokens = [
        {name: t.numpy() for name, t in tokenize(tokenizer, batch["text"], length).items()}
        for batch in batches
    ]
    strings = {"text": tf.TensorSpec([None], tf.string)}
    return write(
        path,
        {
            "serving_default": Signature(graph.from_text, strings, answer, batches),
            "tokens": Signature(graph.from_tokens, texts.token_specs(), answer, tokens),
        },
        variables=model.weights,
        trackables=[tokenizer],
        metadata={"task": "fill_mask", "top_k": top_k} | texts.metadata(model, tokenizer, length),
        tolerance=texts.tolerance(model),
        scores=scores,
        check=check,
    )


def tokenize(tokenizer: Any, text: Any, max_sequence_length: int) -> dict[str, Any]:
    """Texts to tokens (batch, length), each "[MASK]" in them one token.

    The tokenizer alone would take it for text like any other. Runs in the graph or eagerly.

    Args:
        tokenizer: a `tokenizers.WordPieceTokenizer`.
        text: strings (batch,).
        max_sequence_length: in tokens, [CLS] and [SEP] included; what is beyond is cut off.

    Returns:
        token_ids and segment_ids int32, padding_mask bool, each (batch, length).
    """
    with tf.device("CPU:0"):  # where alone strings can be
        pieces = tf.strings.split(tf.convert_to_tensor(text, tf.string), MASK)  # (batch, None)
        tokens = tokenizer.tokenize(pieces.values)  # (pieces, None)
        masks = tf.fill([tokens.nrows(), 1], tokenizer.mask_token_id)
        # A mask behind each piece, but for the last of each text.
        rows = pieces.with_values(tf.concat([tokens, masks], axis=1)).merge_dims(1, 2)[:, :-1]
        packed = packing.pack(
            [packing.trim(rows, max_sequence_length - 2)],
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        return texts.widened(packed)


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures. Strings stay on the CPU, where alone they can be."""

    model: keras.Model
    tokenizer: Any
    vocabulary: list[str]
    top_k: int
    max_sequence_length: int

    def from_text(self, text: Any) -> dict[str, Any]:
        return self._answer(tokenize(self.tokenizer, text, self.max_sequence_length))

    def from_tokens(self, **tokens: Any) -> dict[str, Any]:
        return self._answer(texts.checked_tokens(self.model, tokens))

    def _answer(self, tokens: dict[str, Any]) -> dict[str, Any]:
        is_mask = tokens["padding_mask"] & (tokens["token_ids"] == self.tokenizer.mask_token_id)
        positions = _positions(is_mask)
        mask_positions = positions.to_tensor()  # (batch, masks)
        outputs = self.model({**tokens, "mask_positions": mask_positions}, training=False)
        probabilities = tf.nn.softmax(tf.cast(outputs["mask_logits"], tf.float32))
        probabilities, token_ids = tf.math.top_k(probabilities, self.top_k)  # (batch, masks, top_k)
        num_masks = tf.cast(positions.row_lengths(), tf.int32)
        answered = tf.sequence_mask(num_masks, tf.shape(mask_positions)[1])[..., None]
        with tf.device("CPU:0"):
            found = tf.gather(tf.constant(self.vocabulary), token_ids)
            found = tf.where(answered, found, "")
        return {
            "tokens": found,
            "probabilities": tf.where(answered, probabilities, 0.0),
            "num_masks": num_masks,
        }


def _positions(chosen: Any) -> Any:
    """Where booleans (batch, length) are True: int32 (batch, None), ragged."""
    places = tf.where(chosen)  # (chosen, 2), row by row
    return tf.RaggedTensor.from_value_rowids(
        tf.cast(places[:, 1], tf.int32),
        places[:, 0],
        nrows=tf.shape(chosen, tf.int64)[0],
        validate=False,
    )


def _example_batches(examples: Sequence[str] | None, length: int) -> list[dict[str, np.ndarray]]:
    """As for any text, and one batch with masks at awkward places, one of them trimmed away."""
    awkward = [MASK, MASK * 3, f"{'long ' * length}{MASK}", f"{MASK.lower()} [MASK", ""]
    batches = texts.example_batches(_EXAMPLES if examples is None else examples, length, pair=False)
    return [*batches, *texts.example_batches(awkward, length, pair=False)[:1]]
