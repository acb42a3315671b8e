"""What the page shows of a pipeline, as JSON values: one function a view."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.private_api import calls, run_through_graph
from keras_transformers.explorer.spellings import spell
from keras_transformers.inspection.attention_maps import attention, attention_layers, watched
from keras_transformers.inspection.explanations import explain
from keras_transformers.layers import (
    LastToken,
    MultiHeadAttention,
    PositionEmbedding,
    RelativePositionBias,
    SinusoidalPositionEmbedding,
    TokenEmbedding,
)
from keras_transformers.layers.scopes import KERNELS, WATCHERS, Attended
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.token_inputs import one_row

_MOST_POSITIONS, _MOST_DIMENSIONS = 128, 128  # drawn
_FARTHEST = 32  # distance drawn, in either direction
_MOST_POINTS = 4_000_000  # probabilities in one answer
_MOST_RESULTS = 10  # of a search
_MOST_READ = 20_000  # tokens, to explain one search
_MOST_VALUES = 64  # of a vector, drawn
_MOST_STEPS = 12  # of a text that is continued
_MOST_ALTERNATIVES = 5


def has_attention(model: keras.Model) -> bool:
    """Returns whether `attention_of` has something to show."""
    return any(True for _ in attention_layers(model))


def attention_of(pipeline: Pipeline, *texts: str | bytes) -> dict[str, Any]:
    """Returns kind -> queries, keys, shape (layers, heads, queries, keys) and probabilities.

    The probabilities are 16-bit shares of 65,535 in base64, little-endian.

    Raises:
        ValueError: they are too many to draw.
    """
    by_kind: dict[str, Any] = {}
    for kind, maps in attention(pipeline, *texts).items():
        if maps.probabilities.size > _MOST_POINTS:
            raise ValueError(f"{len(maps.keys)} tokens are too many to draw; give a shorter text")
        by_kind[kind] = {
            "queries": maps.queries,
            "keys": maps.keys,
            "shape": maps.probabilities.shape,
            "probabilities": _packed(maps.probabilities),
        }
    return by_kind


def has_heads(model: keras.Model) -> bool:
    """Returns whether `qkv` has something to show."""
    return any(isinstance(layer, MultiHeadAttention) for layer, _ in attention_layers(model))


def qkv(
    pipeline: Pipeline,
    *texts: str | bytes,
    kind: str | None = None,
    layer: int | None = None,
    head: int = 0,
) -> dict[str, Any]:
    """Returns what one head computes, from queries, keys and values to their weighted sums.

    Args:
        pipeline: any pipeline whose model has attention with heads.
        *texts: one row of its inputs.
        kind: a kind of `inspection.attention`; the last one by default.
        layer: counted from 0; the last one by default.
        head: counted from 0.

    Returns:
        `kinds`, kind -> its numbers of layers and heads; the `kind`, `layer` and `head` that are
        shown, and `key_head`, the head whose keys and values this one reads; the names of the
        `queries` and `keys`; `dim`, the width of a head; `scale`, the factor on q · k. The numbers
        are the layer's own, float32 in base64, little-endian: `query`, `key`, `value` and `context`
        (positions, dim), `bias`, `scores` and `probabilities` (queries, keys); `bias` is null
        without one, and `scores` are below -1e8 where a query may not attend.

    Raises:
        ValueError: there is no such kind, layer or head, or there are too many tokens to draw.
    """
    seen = watched(pipeline, *texts, keep=lambda attended: attended)
    first = {name: layers[0] for name, (layers, _, _) in seen.items()}
    kinds = {
        name: (len(seen[name].layers), layer.query.shape[1])
        for name, layer in first.items()
        if layer.query is not None  # recurrent decoders have no heads
    }
    kind = kind or list(kinds)[-1]
    num_layers, num_heads = kinds.get(kind, (0, 0))  # type: ignore[call-overload]
    place = num_layers - 1 if layer is None else layer
    if not (0 <= place < num_layers and 0 <= head < num_heads):
        raise ValueError(
            f"kind {kind!r}, layer {place}, head {head}: the model has "
            + ", ".join(f"{n} layers of {m} heads of kind {x!r}" for x, (n, m) in kinds.items())
        )
    layers, queries, keys = seen[kind]  # type: ignore[index]
    attended: Attended = layers[place]
    if len(queries) * len(keys) > _MOST_POINTS:
        raise ValueError(f"{len(keys)} tokens are too many to draw; give a shorter text")
    key_head = head * attended.key.shape[1] // num_heads
    bias = attended.bias
    if bias is not None:
        bias = tf.broadcast_to(bias, attended.scores.shape)[0, head]
    return {
        "kinds": kinds,
        "kind": kind,
        "layer": place,
        "head": head,
        "key_head": key_head,
        "queries": queries,
        "keys": keys,
        "dim": attended.query.shape[-1],
        "scale": attended.scale,
        "query": _floats(attended.query[0, head]),
        "key": _floats(attended.key[0, key_head]),
        "value": _floats(attended.value[0, key_head]),
        "bias": None if bias is None else _floats(bias),
        "scores": _floats(attended.scores[0, head]),
        "probabilities": _floats(attended.probabilities[0, head]),
        "context": _floats(attended.context[0, head]),
    }


def inputs(pipeline: Pipeline, *texts: str | bytes) -> dict[str, Any]:
    """Returns what an encoder or a decoder reads at each position, and the vectors it adds up.

    Returns:
        `tokens`, `ids` and `segments` (null without them) by position, counted from 0; `width` of
        the vectors that the layers add up and how many of their values are `shown`; and `vectors`,
        float32 in base64 (positions, shown): of the `token`, and, where the model has them, of the
        `segment` and the `position`, and their `sum`.
    """
    model, read = pipeline.model, {}
    with KERNELS.use({model: lambda **inputs: read.update(inputs)}):
        tokens = next(iter(pipeline.read(*texts).values()))
    parts = anatomy(model)
    segment_embedding = next(
        (
            layer
            for layer, arguments, _ in calls(model)
            if isinstance(layer, keras.layers.Embedding)
            and any(x is model.input.get("segment_ids") for x in arguments)
        ),
        None,
    )
    vectors: dict[str, Any] = {}

    def watching(layer: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            outputs = layer(*args, **kwargs)
            if layer is parts.token_embedding and "token" not in vectors:
                vectors["token"] = outputs
            elif layer is segment_embedding:
                vectors["segment"] = outputs
            elif isinstance(layer, PositionEmbedding | SinusoidalPositionEmbedding):
                if "position" in vectors:  # the encoder's, where a decoder reads the text too
                    return outputs
                zeros = tf.zeros_like(args[0])
                vectors["position"] = layer(zeros, *args[1:], **kwargs)
                vectors["sum"] = outputs
            return outputs

        return run

    run_through_graph(model, read, watching)
    width = vectors["token"].shape[-1]
    shown = min(width, _MOST_VALUES)
    return {
        "tokens": tokens,
        "ids": _first_row(read["token_ids"]),
        "segments": _first_row(read["segment_ids"]) if "segment_ids" in read else None,
        "width": width,
        "shown": shown,
        # Of several rows, such as a question's choices, the first one.
        "vectors": {
            name: _floats(tf.reshape(vector, (-1, vector.shape[-2], width))[0, :, :shown])
            for name, vector in vectors.items()
        },
    }


def decoding(pipeline: Any, text: str) -> dict[str, Any]:
    """Returns the steps in which a decoder writes a text, the likeliest token each time.

    Returns:
        `source`, the encoder's tokens, or null; `target`, the decoder's inputs, and `predicted`,
        the token chosen in each step, which is the next one's last input; and `steps`, each with
        `alternatives`, the likeliest tokens with their probabilities, and `attention`, kind ->
        float32 in base64 (layers, keys): what the last input attends to, as a mean over the heads.
    """
    watchable = [x for x in attention_layers(pipeline.model) if x[1] != "encoder"]
    latest: dict[int, np.ndarray] = {}  # of each layer
    steps: list[dict[str, Any]] = []
    tokenizer = getattr(pipeline, "target_tokenizer", None) or pipeline.tokenizer
    vocabulary = tokenizer.vocabulary

    def watcher(place: int) -> Any:
        def see(attended: Attended) -> None:
            if attended.probabilities.shape[2]:  # nothing is read before a prompt's only token
                latest[place] = np.asarray(attended.probabilities[0, :, -1]).mean(axis=0)

        return see

    def see(logits: tf.Tensor) -> None:
        probabilities = tf.nn.softmax(tf.cast(logits[0], tf.float32))
        best, ids = tf.math.top_k(probabilities, min(_MOST_ALTERNATIVES, len(probabilities)))
        kinds = dict.fromkeys(watchable[place][1] for place in latest)
        of_kind = {
            kind: [latest[i] for i in sorted(latest) if watchable[i][1] == kind] for kind in kinds
        }
        steps.append(
            {
                "alternatives": [
                    {"token": vocabulary[i], "probability": probability}
                    for i, probability in zip(ids.numpy(), best.numpy().tolist(), strict=True)
                ],
                "attention": {kind: _floats(np.stack(maps)) for kind, maps in of_kind.items()},
            }
        )

    with WATCHERS.use({layer: watcher(place) for place, (layer, _) in enumerate(watchable)}):
        options = {"max_length": _MOST_STEPS} if pipeline.text_names == ("prompt",) else {}
        names = pipeline.watch_greedy(text, see, **options)
    return {
        "source": names.get("source"),
        **{n: names[n] for n in ("target", "predicted")},
        "steps": steps,
    }


def has_embedding(model: keras.Model) -> bool:
    """Returns whether the model reads tokens through a `TokenEmbedding`."""
    return isinstance(anatomy(model).token_embedding, TokenEmbedding)


def shares(pipeline: Any, *texts: str | bytes) -> dict[str, Any]:
    """Returns how much each token has to do with the answer, in two ways: `tokens` and `shares`.

    `gradient`: `keras_transformers.explain`, with the `label` that it explains. `rollout`:
    attention followed through the layers, to the vector that the head reads (Abnar & Zuidema 2020).
    Neither is a proof of what the model does.
    """
    if getattr(pipeline, "reads_windows", False):
        pipeline = pipeline.with_options(long_texts="cut")  # the first window
    why = explain(pipeline, *texts)
    result: dict[str, Any] = {
        "gradient": {"tokens": why.tokens, "shares": why.shares.tolist(), "label": why.label}
    }
    model = pipeline.model
    if has_attention(model) and anatomy(model).encoder is None:
        kinds = attention(pipeline, *texts)
        maps = kinds["encoder"] if "encoder" in kinds else kinds["decoder"]
        rollout = maps.rollout()
        if anatomy(model).pooler is not None:  # the head reads the first token's vector
            rollout = rollout[0]
        elif any(isinstance(layer, LastToken) for layer in model.layers):
            rollout = rollout[-1]
        else:
            rollout = rollout.mean(axis=0)
        result["rollout"] = {"tokens": maps.keys, "shares": rollout.tolist()}
    return result


def search(pipeline: Any, question: str, lines: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the lines that are most similar to a question, the most similar first.

    Each has `line`, its `place` among the lines, and `score`, the cosine of the two vectors; the
    best ones also have `tokens` and `shares`: how much the cosine falls without the token, as far
    as that takes no more than `_MOST_READ` tokens. If the pipeline has prompts for questions and
    texts, the search uses them.

    Raises:
        ValueError: there is no line.
    """
    if not lines:
        raise ValueError("give at least one line to search")
    asking, reading = (
        next((name for name in names if name in pipeline.prompts), None)
        for names in (("query",), ("document", "passage", "corpus"))
    )
    vectors = _unit(np.array([answer.vector for answer in pipeline(lines, prompt_name=reading)]))
    asked = _unit(np.array(pipeline(question, prompt_name=asking).vector))
    scores = vectors @ asked
    results, read = [], 0
    for place in np.argsort(-scores, kind="stable")[:_MOST_RESULTS]:
        result = {"line": lines[place], "place": int(place), "score": float(scores[place])}
        text = one_row("text", lines[place])
        ids = pipeline.tokenize(text, prompt=pipeline.prompts.get(reading))[0][0].numpy().tolist()
        read += len(ids) ** 2
        if ids and read <= _MOST_READ:
            without = tf.ragged.constant(
                [ids[:i] + ids[i + 1 :] for i in range(len(ids))], tf.int32
            )
            others = pipeline.decode(pipeline.pack([without]))["embedding"].numpy()
            vocabulary = pipeline.tokenizer.vocabulary
            result["tokens"] = [vocabulary[i] for i in ids]
            result["shares"] = (scores[place] - _unit(others) @ asked).tolist()
        results.append(result)
    return results


def chat(pipeline: Any, messages: Sequence[Any], **options: Any) -> dict[str, Any]:
    """Returns the answer to a conversation: the columns of one row that exports return.

    Raises:
        ValueError: a message or an option is of another form, or the conversation is too long.
    """
    return dataclasses.asdict(pipeline.chat(messages, **options))


def beams(pipeline: Any, text: str) -> dict[str, Any]:
    """Returns the steps of a beam search and the translations that it found.

    Each step has `alive`, the hypotheses by place, with `parent`, their place before, `token` and
    `log_probability`; and `ended`, with `parent` and `score`.
    """
    vocabulary = pipeline.target_tokenizer.vocabulary
    steps: list[dict[str, Any]] = []

    def see(step: Any) -> None:
        alive = zip(*(part[0].numpy().tolist() for part in step[:3]), strict=True)
        ended = zip(*(part[0].numpy().tolist() for part in step[3:5]), strict=True)
        steps.append(
            {
                "alive": [
                    {"parent": parent, "token": vocabulary[token], "log_probability": value}
                    for parent, token, value in alive
                    if np.isfinite(value)
                ],
                "ended": [
                    {"parent": parent, "score": value}
                    for parent, value in ended
                    if np.isfinite(value)
                ],
            }
        )

    outcome = pipeline.watch(text, see)
    texts = pipeline.target_tokenizer.detokenize(outcome.token_ids[0]).numpy()
    results = [
        {"text": text.decode("utf-8", "replace"), "score": score}
        for text, score in zip(texts, outcome.scores[0].numpy().tolist(), strict=True)
        if np.isfinite(score)
    ]
    return {"steps": steps, "results": results}


def next_tokens(
    pipeline: Any, *, prompt: str = "", added: list[int] | None = None, count: int = 12
) -> dict[str, Any]:
    """Returns what may follow a prompt and the tokens chosen after it.

    Args:
        pipeline: a `TextGenerator`.
        prompt: the text, as people typed it.
        added: ids of the tokens chosen so far.
        count: how many alternatives to return.

    Returns:
        `text`, the prompt with the chosen tokens; `alternatives`, the likeliest next tokens, with
        `id`, `token` and `probability`; `is_full`, whether the model has no more positions.
    """
    tokenizer, added = pipeline.tokenizer, list(added or [])
    token_ids = tf.concat([pipeline.prompt_ids(prompt), tf.constant([added], tf.int32)], axis=1)
    is_full = token_ids.shape[1] > pipeline.max_sequence_length
    alternatives = []
    if not is_full:
        inputs = dict.fromkeys(pipeline.model.input, tf.zeros_like(token_ids))
        logits = pipeline.run_model(inputs | {"token_ids": token_ids})["logits"][0, -1]
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        best, ids = tf.math.top_k(probabilities, min(count, len(probabilities)))
        alternatives = [
            {"id": i, "token": _written(tokenizer, [i]), "probability": probability}
            for i, probability in zip(ids.numpy().tolist(), best.numpy().tolist(), strict=True)
        ]
    return {
        "text": prompt + _written(tokenizer, added),
        "alternatives": alternatives,
        "end": tokenizer.end_token_id,
        "is_full": is_full,
    }


def spelling(pipeline: Pipeline, text: str) -> dict[str, Any]:
    """Returns how the pipeline's first tokenizer arrives at a text's tokens."""
    return spell(next(iter(pipeline.tokenizers.values())), text)


def parameters(model: keras.Model) -> dict[str, Any]:
    """Returns a tree: `name`, `parameters`, and `parts`, or the `shape` of a matrix."""
    root: dict[str, Any] = {"name": model.name, "parameters": 0, "parts": []}
    seen: set[int] = set()
    for layer in model.layers:
        for weight in layer.weights:
            if id(weight) in seen:
                continue
            seen.add(id(weight))
            inner = weight.path.split(f"{layer.name}/", 1)[-1].split("/")
            _add(root, [layer.name, *inner], weight)
    return root


def positions(model: keras.Model) -> dict[str, Any] | None:
    """Returns the first encoding of positions: `kind`, `rows`, `columns`, and values in bytes.

    Rows are positions and columns dimensions; of a relative bias, heads and distances. A value v is
    written as round(127.5 + 127.5 * v / largest).
    """
    parts = anatomy(model)
    for layer in (*(parts.encoder.positions if parts.encoder else ()), *parts.positions):
        if isinstance(layer, SinusoidalPositionEmbedding):
            length = min(_MOST_POSITIONS, layer.max_sequence_length)
            width = layer.output.shape[-1]
            table = layer(keras.ops.zeros((1, length, width)))[0]
            return _picture("sinusoidal", keras.ops.convert_to_numpy(table))
        if isinstance(layer, PositionEmbedding):
            table = keras.ops.convert_to_numpy(layer.embeddings)[layer.first_position :]
            return _picture("learned", table)
        if isinstance(layer, RelativePositionBias):
            biases = layer(keras.ops.zeros((1, 2 * _FARTHEST + 1, 1)))[0, :, _FARTHEST]
            return _picture("relative", keras.ops.convert_to_numpy(biases))
    return None


def _picture(kind: str, table: np.ndarray) -> dict[str, Any]:
    table = table[:_MOST_POSITIONS, :_MOST_DIMENSIONS].astype(np.float32)
    largest = float(np.abs(table).max()) or 1.0
    levels = np.rint(127.5 + 127.5 * table / largest).astype(np.uint8)
    return {
        "kind": kind,
        "rows": table.shape[0],
        "columns": table.shape[1],
        "largest": largest,
        "values": base64.b64encode(levels.tobytes()).decode(),
    }


def _packed(probabilities: np.ndarray) -> str:
    shares = np.rint(np.clip(probabilities, 0, 1) * 65535).astype("<u2")
    return base64.b64encode(shares.tobytes()).decode()


def _floats(values: Any) -> str:
    return base64.b64encode(np.asarray(values).astype("<f4").tobytes()).decode()


def _first_row(ids: tf.Tensor) -> list[int]:
    return tf.reshape(ids, (-1, ids.shape[-1]))[0].numpy().tolist()


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def _written(tokenizer: Any, token_ids: list[int]) -> str:
    if not token_ids:
        return ""
    text = tokenizer.detokenize(tf.ragged.constant([token_ids], tf.int32))[0].numpy()
    return text.decode("utf-8", "replace") or tokenizer.vocabulary[token_ids[0]]


def _add(tree: dict[str, Any], path: list[str], weight: Any) -> None:
    """Adds a matrix at its place in the tree, and its size to all parts that contain it."""
    size = int(np.prod(weight.shape, dtype=np.int64))
    for name in path:
        tree["parameters"] += size
        parts: list[dict[str, Any]] = tree["parts"]
        part: Mapping[str, Any] | None = next((p for p in parts if p["name"] == name), None)
        if part is None:
            parts.append({"name": name, "parameters": 0, "parts": []})
        tree = next(p for p in parts if p["name"] == name)
    tree["parameters"] += size
    tree["shape"] = list(weight.shape)
