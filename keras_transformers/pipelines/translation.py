"""Export of encoder-decoders as translators: text in, text out, the search in the graph."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.decoding import Hypotheses, beam_search
from keras_transformers.saved_model.metadata import of_model, of_vocabulary
from keras_transformers.saved_model.storage import WeightsDtype
from keras_transformers.saved_model.writing import Signature, write

_EXAMPLES = ("Ein Mann fährt Rad .", "Zwei Hunde spielen im Schnee , und ein Kind schaut zu .")


class Translator:
    """Text to text with a model in memory: what an export does, for validation and for tests.

    Sources are cut at the model's positions. A text without tokens (empty, or spaces) translates to
    the empty text with score 0. All methods but `translate_all` run in the graph or eagerly.

    Args:
        model: a `models.transformer.Transformer`, or another with its `start_decoding`.
        tokenizer: a `tokenizers.SentencePieceTokenizer`, of both languages, or another with its
            methods and special tokens.
        target_tokenizer: of the translations, where they have one of their own; its special tokens
            have the same ids.
        max_sequence_length: positions of the model.
        num_beams: 1 is greedy search; the paper takes 4.
        length_penalty: the paper's alpha, see `decoding.beam_search`.
        extra_length: a translation has at most as many tokens as its source and this many more
            (the paper: 50).
        min_length: of a translation in tokens, its end token counted.

    Attributes:
        has_attention: whether `attend` has something to show; recurrent models may have none.

    Raises:
        ValueError: the model is no encoder-decoder, or the tokenizer of the translations has
            another number of tokens than the model.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Any,
        *,
        max_sequence_length: int,
        target_tokenizer: Any = None,
        num_beams: int = 4,
        length_penalty: float = 0.6,
        extra_length: int = 50,
        min_length: int = 0,
    ) -> None:
        check_encoder_decoder(model)
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        _check_vocabularies(model, self.tokenizer, self.target_tokenizer)
        self.has_attention = getattr(model, "has_attention", True)
        self.max_sequence_length = max_sequence_length
        self.num_beams = num_beams
        self.length_penalty = length_penalty
        self.extra_length = extra_length
        self.min_length = min_length
        self._graph = tf.function(
            self.translate, input_signature=[tf.TensorSpec([None], tf.string)]
        )

    def translate_all(self, texts: Sequence[str], *, batch_size: int = 64) -> list[str]:
        """Any number of texts, to lists and back: those of like length share a batch.

        Args:
            texts: in any order.
            batch_size: how many are translated at once.

        Returns:
            Their translations, in the order of the texts.
        """
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = [""] * len(texts)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            translations = self._graph(tf.constant([texts[i] for i in rows]))["translation"]
            for i, translation in zip(rows, translations.numpy(), strict=True):
                found[i] = translation.decode()
        return found

    def translate(self, text: Any) -> dict[str, Any]:
        """The best translations.

        Args:
            text: strings (batch,).

        Returns:
            `translation`, strings (batch,), and `score`, float32 (batch,): the log-probability
            divided by the length penalty.
        """
        found = self._search(text, num_hypotheses=1)
        return {"translation": self._texts(found)[:, 0], "score": found.scores[:, 0]}

    def n_best(self, text: Any) -> dict[str, Any]:
        """All beams, best first.

        Args:
            text: strings (batch,).

        Returns:
            `translations`, strings (batch, num_beams), and `scores`, float32 (batch, num_beams);
            -inf where there are fewer possible texts than beams.
        """
        found = self._search(text, num_hypotheses=self.num_beams)
        return {"translations": self._texts(found), "scores": found.scores}

    def attend(self, text: Any, translation: Any) -> dict[str, Any]:
        """Which source tokens each token of a translation looked at, to be shown.

        Args:
            text: strings (batch,).
            translation: strings (batch,), its translations, from here or from anywhere.

        Returns:
            `source_tokens` strings (batch, source), `target_tokens` strings (batch, target), both
            padded with empty strings, and `attention` float32 (batch, target, source): the
            cross-attention of the last layer, mean of its heads, when the token was predicted.

        Raises:
            ValueError: the model has no attention.
        """
        with tf.device("CPU:0"):
            source = self._source(text)
            ids = self.target_tokenizer.tokenize(translation, add_start=True, add_end=True)
            ids = ids[:, : self.max_sequence_length + 1].to_tensor(self.tokenizer.pad_token_id)
            targets = ids[:, 1:]
        scores = self.model.cross_attention_scores(source, ids[:, :-1])
        attention = tf.reduce_mean(scores[:, -1], axis=1)  # (batch, target, source)
        with tf.device("CPU:0"):
            return {
                "source_tokens": _tokens(self.tokenizer, source),
                "target_tokens": _tokens(self.target_tokenizer, targets),
                "attention": tf.cast(attention, tf.float32),
            }

    def _search(self, text: Any, num_hypotheses: int) -> Hypotheses:
        with tf.device("CPU:0"):
            source = self._source(text)
        num_tokens = tf.reduce_sum(tf.cast(source != self.tokenizer.pad_token_id, tf.int32), axis=1)
        limits = tf.minimum(num_tokens - 1 + self.extra_length, self.max_sequence_length)
        limits = tf.where(num_tokens > 1, limits, 0)  # nothing to translate but the end token
        step, cache = self.model.start_decoding(source)
        return beam_search(
            step,
            tf.fill([tf.shape(source)[0]], self.tokenizer.start_token_id),
            cache,
            end_token_id=self.tokenizer.end_token_id,
            max_length=tf.reduce_max(tf.concat([limits, [0]], axis=0)),
            num_beams=self.num_beams,
            num_hypotheses=num_hypotheses,
            length_penalty=self.length_penalty,
            min_length=self.min_length,
            length_limits=limits,
            pad_token_id=self.tokenizer.pad_token_id,
            growing_axis=2,
        )

    def _source(self, text: Any) -> Any:
        """Token ids (batch, source) with the end token, cut where the model's positions end."""
        tokens = self.tokenizer.tokenize(text)[:, : self.max_sequence_length - 1]
        ends = tf.fill([tokens.nrows(), 1], self.tokenizer.end_token_id)
        return tf.concat([tokens, ends], axis=1).to_tensor(self.tokenizer.pad_token_id)

    def _texts(self, found: Hypotheses) -> Any:
        with tf.device("CPU:0"):
            return self.target_tokenizer.detokenize(found.token_ids)


def check_encoder_decoder(model: keras.Model) -> None:
    """Raises ValueError unless the model reads a source and decodes a target step by step."""
    if not hasattr(model, "start_decoding") or "source_token_ids" not in model.input:
        raise ValueError(
            f"model {model.name!r} is no encoder-decoder: take a Transformer or a recurrent one, "
            "such as transformer_tiny or seq2seq_multi30k"
        )


def _check_vocabularies(model: keras.Model, source: Any, target: Any) -> None:
    """Raises ValueError unless the model embeds the source's tokens and writes the target's."""
    matrix = {"token_embedding", "source_token_embedding"}  # one for both sides, or the source's
    embedding = next(layer for layer in model.layers if layer.name in matrix)
    for side, tokenizer, size in (
        ("source", source, embedding.vocabulary_size),
        ("target", target, model.output["logits"].shape[-1]),
    ):
        if tokenizer.vocabulary_size != size:
            raise ValueError(
                f"the {side}'s tokenizer has {tokenizer.vocabulary_size} tokens and model "
                f"{model.name!r} {size}: use the vocabulary that the model was trained with"
            )


def translator(
    model: keras.Model,
    tokenizer: Any,
    path: str | os.PathLike[str],
    *,
    max_sequence_length: int,
    target_tokenizer: Any = None,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    extra_length: int = 50,
    min_length: int = 0,
    examples: Sequence[str] | None = None,
    weights_dtype: WeightsDtype = "float32",
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports a translation model as a SavedModel for TF Serving that takes strings.

    Its signatures, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> translation string (batch,), score float32 (batch,).
    - n_best(text) -> translations string (batch, num_beams), scores float32 (batch, num_beams).
    - attend(text, translation string (batch,)) -> source_tokens string (batch, source),
      target_tokens string (batch, target), attention float32 (batch, target, source). A model
      without attention has no such signature.

    Args:
        model: see `Translator`, as the other arguments that are not named here.
        tokenizer: see `Translator`.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        max_sequence_length: see `Translator`.
        target_tokenizer: see `Translator`.
        num_beams: see `Translator`.
        length_penalty: see `Translator`.
        extra_length: see `Translator`.
        min_length: see `Translator`.
        examples: texts to check the export with; they are stored in it with their translations,
            so give none that are secret. Two German sentences by default.
        weights_dtype: "bfloat16" stores matrices in half the space, see `StoredWeights`.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model and tokenizer do not fit each other, or an option is out of its range.
        RuntimeError: the written export does not repeat the model's translations.
    """
    graph = Translator(
        model,
        tokenizer,
        max_sequence_length=max_sequence_length,
        target_tokenizer=target_tokenizer,
        num_beams=num_beams,
        length_penalty=length_penalty,
        extra_length=extra_length,
        min_length=min_length,
    )
    batches = _example_batches(_EXAMPLES if examples is None else examples, max_sequence_length)
    return write(
        path,
        _signatures(graph, batches),
        variables=model.weights,
        trackables=[graph.tokenizer, graph.target_tokenizer],
        metadata={
            "task": "translation",
            **of_model(model),
            **of_vocabulary(graph.target_tokenizer),
            "max_sequence_length": max_sequence_length,
            "num_beams": num_beams,
            "length_penalty": length_penalty,
        },
        # Scores are sums over tens of tokens, and graphs round elsewhere than eager execution.
        tolerance=1e-4,
        weights_dtype=weights_dtype,
        scores=scores,
        check=check,
    )


def _signatures(
    graph: Translator, batches: Sequence[dict[str, np.ndarray]]
) -> dict[str, Signature]:
    """The entry points, to be checked with the batches of `_example_batches`."""
    strings = tf.TensorSpec([None], tf.string)
    rows = tf.TensorSpec([None, None], tf.string)
    found = {
        "serving_default": Signature(
            graph.translate,
            {"text": strings},
            {"translation": strings, "score": tf.TensorSpec([None], tf.float32)},
            batches,
        ),
        "n_best": Signature(
            graph.n_best,
            {"text": strings},
            {
                "translations": tf.TensorSpec([None, graph.num_beams], tf.string),
                "scores": tf.TensorSpec([None, graph.num_beams], tf.float32),
            },
            batches[:1],
        ),
    }
    if not graph.has_attention:
        return found
    # Without the long text, whose attention alone would be half a megabyte of description.
    translated = [
        batch | {"translation": graph.translate(tf.constant(batch["text"]))["translation"].numpy()}
        for batch in (batches[0], {"text": batches[1]["text"][:2]})
    ]
    found["attend"] = Signature(
        graph.attend,
        {"text": strings, "translation": strings},
        {
            "source_tokens": rows,
            "target_tokens": rows,
            "attention": tf.TensorSpec([None, None, None], tf.float32),
        },
        translated,
    )
    return found


def _tokens(tokenizer: Any, token_ids: Any) -> Any:
    """The strings of token ids, empty ones for padding."""
    return tf.where(token_ids == tokenizer.pad_token_id, "", tokenizer.tokens(token_ids))


def _example_batches(
    examples: Sequence[str], max_sequence_length: int
) -> list[dict[str, np.ndarray]]:
    """The examples; awkward texts, one longer than the positions; and an empty batch."""
    awkward = ["", b"\xff\xfe is no UTF-8 \x00", "lang " * max_sequence_length]
    texts: list[list[Any]] = [list(examples), awkward, []]
    return [
        {"text": np.array([t.encode() if isinstance(t, str) else t for t in batch], dtype=object)}
        for batch in texts
    ]
