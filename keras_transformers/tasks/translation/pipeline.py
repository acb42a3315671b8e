"""Translates text: text in, text out, with beam search in the graph."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.decoding.beam import (
    BeamStep,
    EarlyStopping,
    Rules,
    beam_search,
    check_beams,
)
from keras_transformers.decoding.step import Hypotheses, telling, within_vocabulary
from keras_transformers.layers.scopes import WATCHERS
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks.pipeline import Pipeline, Signature, shared
from keras_transformers.tasks.token_inputs import (
    check_rows,
    one_row,
    text_batches,
    token_names,
    widened,
)
from keras_transformers.tokenizers.packing import ends_of_sources, join
from keras_transformers.tokenizers.protocols import SpanTokenizer, TargetTokenizer, Tokenizer

__all__ = ["Translator"]

_EXAMPLES = ("Ein Mann fährt Rad .", "Zwei Hunde spielen im Schnee , und ein Kind schaut zu .")
_STRINGS = tf.TensorSpec([None], tf.string)


class Translator(Pipeline):
    """Translates texts.

    Sources longer than `max_sequence_length` are truncated. A text without tokens (empty, or only
    spaces) translates to the empty text with score 0.

    Signatures of the export, where `batch` may be 0 and a text may be empty or any bytes:

    - serving_default(text string (batch,)) -> translation string (batch,), score float32 (batch,).
    - n_best(text) -> translations string (batch, num_beams), scores float32 (batch, num_beams).
    - attend(text, translation string (batch,)) -> source_tokens string (batch, source),
      target_tokens string (batch, target), attention float32 (batch, target, source). Only for
      models with attention.
    - between(text, source_language string (batch,), target_language string (batch,)) ->
      translation, score. Only for tokenizers with languages: each text has its own.

    Args:
        model: an encoder-decoder from `models.encoder_decoders`, or another model with their
            `start_decoding`.
        tokenizer: for both languages, such as a `tokenizers.SentencePieceTokenizer`; or for the
            sources only, such as a pretrained encoder's, which adds its special tokens.
        target_tokenizer: for the translations, if they have their own.
        max_sequence_length: maximum tokens in a source or a translation, end token included.
            Defaults to the model's number of positions; required if it has none.
        num_beams: 1 is greedy search; the paper uses 4.
        length_penalty: the paper's alpha; see `decoding.beam_search`.
        rules: the rules of the search, "gnmt", "transformers" or "opennmt"; see there too.
        force_end: whether a translation at its maximum length gets the end token as its last, at
            any probability (Hugging Face: forced_eos_token_id), instead of being cut off.
        max_length: maximum tokens in a translation, end token included, if it differs from
            `max_sequence_length`.
        extra_length: how many tokens longer than its source a translation may be (50 in the paper);
            None for no limit.
        min_length: minimum tokens in a translation, end token included.
        first_token_id: the first token of every translation, at any probability (Hugging Face:
            forced_bos_token_id); None for any.
        no_repeat_ngram_size: no translation has the same n-gram of this many tokens twice; 0 for no
            such limit.
        early_stopping: False, True or "never", for the rules of transformers; see
            `decoding.beam_search`.
        source_language: for models that translate between many languages, the code of the sources',
            such as "deu_Latn" (Hugging Face: src_lang); by default that of the tokenizer.
        target_language: the code of the translations' language (Hugging Face: tgt_lang); it decides
            about their first token, whatever `first_token_id` says.

    Attributes:
        has_attention: whether the model has the attention that `attend` shows.

    Raises:
        ValueError: the model is not an encoder-decoder; model, tokenizers and length do not match;
            an option is out of range; or a language is unknown, or missing where the tokenizer has
            languages.
    """

    task = "translation"
    text_names = ("text",)

    def __init__(
        self,
        model: keras.Model,
        tokenizer: TargetTokenizer | SpanTokenizer,
        target_tokenizer: TargetTokenizer | None = None,
        *,
        max_sequence_length: int | None = None,
        num_beams: int = 4,
        length_penalty: float | None = None,
        rules: Rules = "gnmt",
        force_end: bool = False,
        max_length: int | None = None,
        extra_length: int | None = 50,
        min_length: int = 0,
        first_token_id: int | None = None,
        no_repeat_ngram_size: int = 0,
        early_stopping: EarlyStopping = False,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        check_encoder_decoder(model)
        self.length_penalty = check_beams(num_beams, length_penalty, rules, early_stopping)
        for name, value in (
            ("extra_length", extra_length),
            ("min_length", min_length),
            ("no_repeat_ngram_size", no_repeat_ngram_size),
        ):
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}: expected a number of tokens, 0 or more")
        target_tokenizer = target_tokenizer or cast(TargetTokenizer, tokenizer)
        if hasattr(tokenizer, "languages") or source_language or target_language:
            named: Any = _between(tokenizer, source_language, target_language)
            tokenizer = target_tokenizer = named
            _, *first = named.target_start()
            first_token_id = first[0] if first else first_token_id
        self.source_language = getattr(tokenizer, "source_language", None)
        self.target_language = getattr(tokenizer, "target_language", None)
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer
        self._num_ends = sum(map(len, ends_of_sources(tokenizer)))
        _check_vocabularies(model, self.tokenizer, self.target_tokenizer)
        self.has_attention = getattr(model, "has_attention", True)
        self.max_sequence_length = _checked_length(model, max_sequence_length)
        self.max_length = self.max_sequence_length
        if max_length is not None:
            self.max_length = _checked_length(model, max_length, name="max_length")
        self.num_beams = num_beams
        self.rules = rules
        self.force_end = force_end
        self.extra_length = extra_length
        self.min_length = min_length
        if first_token_id is not None:
            num_tokens = _num_tokens(self.target_tokenizer)
            if not 0 <= first_token_id < num_tokens:
                raise ValueError(
                    f"first_token_id={first_token_id}: expected one of the {num_tokens} tokens of "
                    "the target's tokenizer"
                )
        self.first_token_id = first_token_id
        self.no_repeat_ngram_size = no_repeat_ngram_size
        self.early_stopping = early_stopping

    def translate_all(self, texts: Sequence[str], *, batch_size: int = 64) -> list[str]:
        """Returns translations as plain strings, for metrics such as BLEU."""
        return [row["translation"] for row in self.rows({"text": texts}, batch_size=batch_size)]

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best translation of each text, in the graph.

        Args:
            **texts: `text`, strings (batch,).

        Returns:
            `translation`, strings (batch,), and `score`, float32 (batch,): the log-probability
            divided by the length penalty.
        """
        best = self._search(text=texts["text"], num_wanted=tf.constant(1))
        return {
            "translation": best["translations"][:, 0],
            "score": best["scores"][:, 0],
        }

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None,)."""
        return {"translation": _STRINGS, "score": tf.TensorSpec([None], tf.float32)}

    def read_tokens(self, **texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the tokens of each source, int32 (batch, None); see `Pipeline`."""
        with tf.device("CPU:0"):  # string ops run only on the CPU
            source = self._source(texts["text"])
            return tf.ragged.boolean_mask(source, source != self.tokenizer.pad_token_id)

    def n_best(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the translations of all beams, best first, in the graph.

        Args:
            text: strings (batch,).

        Returns:
            `translations`, strings (batch, num_beams), and `scores`, float32 (batch, num_beams),
            -inf where fewer translations than beams are possible.
        """
        return self._search(text=text, num_wanted=tf.constant(self.num_beams))

    def between(
        self, text: tf.Tensor, source_language: tf.Tensor, target_language: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Finds the best translation of each text between its own languages, in the graph.

        Args:
            text: strings (batch,).
            source_language: codes of the texts' languages, strings (batch,).
            target_language: codes of the translations' languages, strings (batch,).

        Returns:
            What `answer` returns.

        Raises:
            ValueError: the tokenizer has no languages.
            tf.errors.InvalidArgumentError: a language is unknown.
        """
        tokenizer = cast(Any, _between(self.tokenizer, None, None))
        languages = map(tokenizer.language_ids, (source_language, target_language))
        hypotheses = self._hypotheses(text, tf.constant(1), languages=tuple(languages))
        with tf.device("CPU:0"):  # string ops run only on the CPU
            return {
                "translation": self.target_tokenizer.detokenize(hypotheses.token_ids[:, 0]),
                "score": hypotheses.scores[:, 0],
            }

    def attend(self, text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns how each token of a translation attends to the source, in the graph.

        Args:
            text: strings (batch,).
            translation: strings (batch,), their translations, by this model or not.

        Returns:
            `source_tokens` strings (batch, source), `target_tokens` strings (batch, target), both
            padded with empty strings, and `attention` float32 (batch, target, source): the last
            layer's cross-attention when predicting each token, averaged over heads.

        Raises:
            ValueError: the model has no attention.
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            source = self._source(text)
            ids = self.target_tokenizer.tokenize(translation, add_start=True, add_end=True)
            ids = ids[:, : self.max_length + 1].to_tensor(self.target_tokenizer.pad_token_id)
            targets = ids[:, 1:]
        scores = self.model.cross_attention_scores(source, ids[:, :-1])
        attention = tf.reduce_mean(scores[:, -1], axis=1)  # (batch, target, source)
        with tf.device("CPU:0"):
            return {
                "source_tokens": _tokens(self.tokenizer, source),
                "target_tokens": _tokens(self.target_tokenizer, targets),
                "attention": tf.cast(attention, tf.float32),
            }

    def watch(self, text: str | bytes, on_step: Callable[[BeamStep], None]) -> Hypotheses:
        """Translates one text and calls `on_step` after each step of the beam search."""
        return self._hypotheses(one_row("text", text), tf.constant(self.num_beams), on_step)

    def watch_greedy(
        self, text: str | bytes, on_logits: Callable[[tf.Tensor], None]
    ) -> dict[str, list[str]]:
        """Translates one text with the likeliest token each time, whatever `num_beams` says.

        Args:
            text: one text.
            on_logits: called after each step with the logits (1, vocabulary) of the next token.

        Returns:
            The tokens, under the names of `Pipeline.read`: one in `predicted` for each step.
        """
        row = one_row("text", text)
        source = self._source(row)
        greedy = self.with_options(num_beams=1)
        search = greedy._hypotheses(row, tf.constant(1), on_logits=on_logits)
        predicted = search.token_ids[:, 0, : search.lengths[0, 0]]
        read = tf.concat([[[self.target_tokenizer.start_token_id]], predicted], axis=1)
        return {
            "source": token_names(self.tokenizer, source),
            "target": token_names(self.target_tokenizer, read[:, :-1]),
            "predicted": token_names(self.target_tokenizer, predicted),
        }

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on a text and a translation, the model's own by default.

        See `Pipeline.read`.
        """
        with WATCHERS.use({}):  # of the search nothing is shown, and it may trace a graph
            pair = texts if len(texts) > 1 else (*texts, self(*texts).text)
        text, translation = map(one_row, ("text", "translation"), pair)
        source = self._source(text)
        ids = self.target_tokenizer.tokenize(translation, add_start=True, add_end=True)
        ids = ids[:, : self.max_length + 1].to_tensor()
        self.model.cross_attention_scores(source, ids[:, :-1])
        return {
            "source": token_names(self.tokenizer, source),
            "target": token_names(self.target_tokenizer, ids[:, :-1]),
            "predicted": token_names(self.target_tokenizer, ids[:, 1:]),
        }

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (one too long) and an empty batch."""
        examples = _EXAMPLES if examples is None else examples
        return text_batches(examples, self.text_names, long=self.max_sequence_length)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `n_best`, and `attend` for a model with attention."""
        n_best = {
            "translations": tf.TensorSpec([None, self.num_beams], tf.string),
            "scores": tf.TensorSpec([None, self.num_beams], tf.float32),
        }
        signatures = {"n_best": Signature(self.n_best, {"text": _STRINGS}, n_best, batches[:1])}
        if self.source_language is not None:
            inputs = dict.fromkeys(("text", "source_language", "target_language"), _STRINGS)
            signatures["between"] = Signature(
                self.between, inputs, self.answer_specs(), [self._other_way(batches[0]["text"])]
            )
        if not self.has_attention:
            return signatures
        # Without the long text, whose attention alone would add half a megabyte to the metadata.
        translated = [
            {
                "text": text,
                "translation": self.answer(text=tf.constant(text))["translation"].numpy(),
            }
            for text in (batches[0]["text"], batches[1]["text"][:2])
        ]
        tokens = tf.TensorSpec([None, None], tf.string)
        attended = {
            "source_tokens": tokens,
            "target_tokens": tokens,
            "attention": tf.TensorSpec([None, None, None], tf.float32),
        }
        inputs = {"text": _STRINGS, "translation": _STRINGS}
        return signatures | {"attend": Signature(self.attend, inputs, attended, translated)}

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {
            **self.metadata(),
            "rules": self.rules,
            "force_end": self.force_end,
            "max_length": self.max_length,
            "extra_length": self.extra_length,
            "min_length": self.min_length,
            "first_token_id": self.first_token_id,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
            "early_stopping": self.early_stopping,
            "source_language": self.source_language,
            "target_language": self.target_language,
        }

    def metadata(self) -> dict[str, Any]:
        """Returns what an export records besides the model and the vocabulary."""
        return {
            "max_sequence_length": self.max_sequence_length,
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
        }

    def _other_way(self, texts: np.ndarray) -> dict[str, np.ndarray]:
        """Returns texts with the pipeline's two languages in turn, as examples."""
        codes = [str(code).encode() for code in (self.source_language, self.target_language)]
        turns = [codes[:: 1 if number % 2 else -1] for number in range(len(texts))]
        source, target = np.array(turns, object).reshape(-1, 2).T
        return {"text": texts, "source_language": source, "target_language": target}

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizers, keyed by the names of their arguments; read only."""
        tokenizers = {"tokenizer": self.tokenizer}
        if self.target_tokenizer is not self.tokenizer:
            tokenizers["target_tokenizer"] = self.target_tokenizer
        return MappingProxyType(tokenizers)

    @shared
    def _search(self, text: tf.Tensor, num_wanted: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the translations of all beams, of which the first `num_wanted` are the best."""
        hypotheses = self._hypotheses(text, num_wanted)
        with tf.device("CPU:0"):
            translations = self.target_tokenizer.detokenize(hypotheses.token_ids)
        return {"translations": translations, "scores": hypotheses.scores}

    def _hypotheses(
        self,
        text: tf.Tensor,
        num_wanted: tf.Tensor,
        on_step: Callable[[BeamStep], None] | None = None,
        on_logits: Callable[[tf.Tensor], None] | None = None,
        languages: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> Hypotheses:
        """Searches; `languages` are the ids of each text's own, of both sides, int32 (batch,)."""
        with tf.device("CPU:0"):
            source = self._source(text)
        rows = tf.shape(source)[:1]
        start_token_ids = tf.fill(rows, self.target_tokenizer.start_token_id)
        first_token_ids: Any = self.first_token_id
        if languages is not None:
            of_sources, of_targets = languages
            tokenizer = cast(Any, self.tokenizer)
            # The code's token occurs nowhere else.
            is_code = source == tokenizer.languages[self.source_language]
            source = tf.where(is_code, of_sources[:, None], source)
            start, *first = tokenizer.target_start(of_targets)
            start_token_ids = tf.broadcast_to(start, rows)
            first_token_ids = first[0] if first else first_token_ids
        is_token = source != self.tokenizer.pad_token_id
        num_tokens = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1) - self._num_ends
        limits = tf.fill(tf.shape(num_tokens), self.max_length)
        if self.extra_length is not None:
            limits = tf.minimum(num_tokens + self.extra_length, limits)
        limits = tf.where(num_tokens > 0, limits, 0)  # nothing to translate
        step, cache = self.model.start_decoding(source)
        step = within_vocabulary(step, _num_tokens(self.target_tokenizer))
        if on_logits is not None:
            step = telling(step, on_logits)
        return beam_search(
            step,
            start_token_ids,
            cache,
            end_token_id=self.target_tokenizer.end_token_id,
            max_length=tf.reduce_max(tf.concat([limits, [0]], axis=0)),
            num_beams=self.num_beams,
            num_hypotheses=num_wanted,
            length_penalty=self.length_penalty,
            rules=self.rules,
            min_length=self.min_length,
            length_limits=limits,
            first_token_ids=first_token_ids,
            force_end=self.force_end,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            early_stopping=self.early_stopping,
            pad_token_id=self.target_tokenizer.pad_token_id,
            growing_axis=2,
            on_step=on_step,
        )

    def _source(self, text: tf.Tensor) -> tf.Tensor:
        """Returns ids (batch, source) with special tokens, truncated to the maximum length."""
        tokens = self.tokenizer.tokenize(text)[:, : self.max_sequence_length - self._num_ends]
        ends = ends_of_sources(self.tokenizer)
        source = join([tokens], ends).to_tensor(self.tokenizer.pad_token_id)
        # Only an empty batch is narrower than the special tokens of a pretrained encoder.
        return widened({"token_ids": source})["token_ids"] if self._num_ends > 1 else source


def _between(tokenizer: Any, source_language: str | None, target_language: str | None) -> Any:
    """Returns the tokenizer for these languages; None stands for those that it has.

    Raises:
        ValueError: it has no languages, one is unknown, or one is missing.
    """
    if not hasattr(tokenizer, "languages"):
        raise ValueError(
            f"source_language={source_language!r} and target_language={target_language!r}, but "
            f"{type(tokenizer).__name__} has no languages: leave them out"
        )
    tokenizer = tokenizer.between(source_language, target_language)
    for check in (tokenizer.target_start, lambda: tokenizer.special_tokens(1)):
        check()  # ValueError unless the language is set
    return tokenizer


def _num_tokens(tokenizer: Tokenizer) -> int:
    """Returns the number of tokens, without those that only pad a model's matrices."""
    return getattr(tokenizer, "num_tokens", tokenizer.vocabulary_size)


def check_encoder_decoder(model: keras.Model) -> None:
    """Raises ValueError unless the model encodes a source and decodes a target step by step."""
    if not hasattr(model, "start_decoding") or "source_token_ids" not in model.input:
        raise ValueError(
            f"model {model.name!r} is not an encoder-decoder: use a Transformer or a recurrent "
            "one, such as transformer_tiny or seq2seq_multi30k"
        )


def _check_vocabularies(model: keras.Model, source: Tokenizer, target: Tokenizer) -> None:
    """Raises ValueError unless the model fits the source's and the target's tokens."""
    encoder = anatomy(model, "encoder").encoder
    for side, tokenizer, size in (
        ("source", source, encoder.token_embedding.input_dim),
        ("target", target, model.output["logits"].shape[-1]),
    ):
        check_rows(model, size, tokenizer, f"the {side}'s tokenizer")
    if encoder.padding is not None and encoder.padding.pad_token_id != source.pad_token_id:
        raise ValueError(
            f"model {model.name!r} pads with token {encoder.padding.pad_token_id}, the tokenizer "
            f"with {source.pad_token_id}: build the model with "
            f"pad_token_id={source.pad_token_id}"
        )


def _checked_length(
    model: keras.Model, length: int | None, *, name: str = "max_sequence_length"
) -> int:
    """Returns the maximum length, the model's by default; ValueError if it does not fit."""
    parts = anatomy(model, "encoder")
    sides = parts.encoder.max_sequence_length, parts.max_sequence_length
    positions = min((side for side in sides if side is not None), default=None)
    length = positions if length is None else length
    if length is None:
        raise ValueError(
            f"model {model.name!r} has no positions and takes sources of any length: pass "
            "max_sequence_length"
        )
    if not 2 <= length <= (length if positions is None else positions):
        most = f" and at most {positions}, its positions" if positions else ""
        raise ValueError(
            f"{name}={length} for model {model.name!r}: expected at least 2, for a token and the "
            f"end token{most}"
        )
    return length


def _tokens(tokenizer: TargetTokenizer | SpanTokenizer, token_ids: tf.Tensor) -> tf.Tensor:
    """Returns the strings of token ids, empty for padding."""
    return tf.where(token_ids == tokenizer.pad_token_id, "", tokenizer.tokens(token_ids))
