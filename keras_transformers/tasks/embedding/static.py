"""Makes static vectors from an encoder: distilled from its tokens, then trained on its vectors."""

import collections
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.families.static.files import bare_tokenizer
from keras_transformers.families.static.model import static_vectors, table_of
from keras_transformers.files.surrogates import check_text
from keras_transformers.tasks.embedding.head import EmbedderParts, embedder, embedder_parts
from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.embedding.searching import vectors
from keras_transformers.tokenizers import BareTokenizer, BareWordPieceTokenizer
from keras_transformers.tokenizers.protocols import Tokenizer

__all__ = ["distil_static", "train_static"]

StaticLoss = Literal["cosine", "mse"]

_UNUSED = re.compile(r"\[unused\d+\]")  # BERT's spare tokens, which no text has
_SPECIAL = (
    *("pad_token_id", "unknown_token_id", "cls_token_id", "sep_token_id", "mask_token_id"),
    *("start_token_id", "end_token_id"),
)
_RIDGE = 1e-4  # share of the mean square that the first fit to the teacher's vectors adds


def distil_static(
    embed: Embedder,
    *,
    dims: int = 256,
    words: Sequence[str] = (),
    sif: float | None = 1e-4,
    normalize: bool = True,
    max_sequence_length: int = 512,
    batch_size: int = 256,
) -> Embedder:
    """Distils an encoder into static vectors, without any texts, as Model2Vec does.

    Each token of the vocabulary goes through the encoder alone, between its special tokens; its
    pooled vectors are reduced by principal components and multiplied by a / (a + p), where p is
    the token's probability by Zipf's law, from its rank in the vocabulary. That is the smooth
    inverse frequency of Arora et al. 2017. Unused, unknown and special tokens get zeros.

    `train_static` makes them better, from texts.

    Args:
        embed: an `Embedder` with an encoder; its prompts are left out.
        dims: width of the vectors, at most the encoder's.
        words: words to add to the vocabulary, as the tokenizer spells them, such as lower-cased;
            only for WordPiece.
        sif: a; smaller values give frequent tokens less weight. None: all tokens the same.
        normalize: whether the vectors of texts are scaled to length 1.
        max_sequence_length: tokens of a text that are read; the pipeline has no other limit.
        batch_size: tokens per call of the encoder.

    Returns:
        An `Embedder` of static vectors, to call, train, save and export as any other.

    Raises:
        ValueError: `dims`, `sif` or a word is out of range; or `embed` has static vectors.

    Example:
        >>> import keras_transformers as kt
        >>> names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!"]
        >>> tokenizer = kt.tokenizers.WordPieceTokenizer(names)
        >>> embed = kt.pipelines.Embedder(kt.bert_tiny(vocabulary_size=9), tokenizer)
        >>> static = distil_static(embed, dims=2)
        >>> static.model.count_params(), len(static("Good films!").vector)
        (18, 2)
    """
    parts = embedder_parts(embed.model)
    if table_of(parts.encoder) is not None:
        raise ValueError(f"model {embed.model.name!r} has static vectors already")
    if sif is not None and not 0 < sif < 1:
        raise ValueError(f"sif={sif}: expected a number between 0 and 1, or None")
    encoder = embedder(
        parts.encoder, pooling=parts.pooling, projections=parts.projections, normalize=False
    )
    width = encoder.output["embedding"].shape[-1]
    tokenizer = _with_words(bare_tokenizer(embed.tokenizer, max_tokens=max_sequence_length), words)
    num_tokens = embed.tokenizer.vocabulary_size
    is_kept = np.array(
        [_UNUSED.fullmatch(token) is None for token in tokenizer.vocabulary[:num_tokens]]
        + [True] * len(words)
    )
    is_kept[_special_ids(embed.tokenizer)] = False
    if not 1 <= dims <= min(width, is_kept.sum() - 1):
        raise ValueError(
            f"dims={dims}: expected 1 to {min(width, is_kept.sum() - 1)}; the encoder's vectors "
            f"have {width} dimensions, and {is_kept.sum()} tokens are in use"
        )
    rows = tf.concat(
        [
            tf.ragged.constant([[i] for i in range(num_tokens)], dtype=tf.int32, ragged_rank=1),
            embed.tokenizer.tokenize(list(words) or [""])[: len(words)],
        ],
        axis=0,
    )
    outputs = _through_encoder(embed, encoder, tf.ragged.boolean_mask(rows, is_kept), batch_size)
    table = np.zeros((tokenizer.vocabulary_size, dims), "float32")
    table[is_kept] = _principal(outputs, dims) * _zipf_weights(len(outputs), sif)[:, None]
    return _pipeline(table, tokenizer, normalize=normalize, length=max_sequence_length)


def train_static(
    static: Embedder,
    teacher: Embedder | np.ndarray,
    texts: Sequence[str],
    *,
    loss: StaticLoss = "cosine",
    epochs: int = 10,
    batch_size: int = 256,
    learning_rate: float = 3e-3,
    validation_share: float = 0.05,
    sif: float | None = None,
    seed: int = 0,
    verbose: int | str = "auto",
) -> Mapping[str, float]:
    """Trains static vectors to give a teacher's vectors of texts (Tokenlearn's recipe).

    The teacher's vectors are turned to their principal directions, as many as the static vectors
    have dimensions; a linear map, fitted by least squares, turns the table to them too, so that
    tokens that no text has stay near the others. Then Adam trains the table, and the best epoch
    on the texts held out is kept. The more texts, and the more like those to come, the better.

    Args:
        static: an `Embedder` of static vectors, such as from `distil_static`; trained in place.
        teacher: the `Embedder` whose vectors are learned, without a prompt; or its vectors of the
            texts, (texts, width).
        texts: real texts, such as sentences and paragraphs; no labels.
        loss: "cosine" of the two vectors, or "mse", their mean squared difference.
        epochs: passes over the texts.
        batch_size: texts per step, and per call of the teacher.
        learning_rate: Adam's, which falls linearly to 0.
        validation_share: share of the texts to select the best epoch by.
        sif: if set, a of the weights a / (a + p) by which the trained vectors are multiplied,
            where p is a token's share of the texts' tokens.
        seed: seed of the split and the order of texts.
        verbose: as for `keras.Model.fit`.

    Returns:
        The mean cosine of the static vectors and the teacher's for the texts held out:
        `val_cosine`, and `val_cosine_before` training, after the linear map.

    Raises:
        ValueError: `static` has other layers than a table; the teacher's vectors are not one per
            text, are not finite or narrower than the static ones; too few texts have tokens; or an
            option is out of range.

    Example:
        kt.fitting.train_static(static, embed, sentences)
        kt.export(static, "saved_models/static")
    """
    parts = embedder_parts(static.model)
    table = _checked_table(static, parts)
    _check_options(loss, epochs, batch_size, learning_rate, validation_share, sif)
    texts = list(texts)
    for number, text in enumerate(texts):
        check_text(f"texts[{number}]", text)
    ids = tf.ragged.stack(_ids(static.tokenizer, texts), axis=0)
    has_tokens = ids.row_lengths().numpy() > 0
    targets = _targets(teacher, texts, batch_size)
    targets = _leading(targets[has_tokens], table.shape[1])
    ids = tf.ragged.boolean_mask(ids, has_tokens)
    num_texts, num_held_out = len(targets), int(len(targets) * validation_share)
    if num_held_out < 1 or num_texts - num_held_out < 2:
        raise ValueError(
            f"{num_texts} texts with known tokens, {num_held_out} of them held out: pass more texts"
        )
    order = np.random.default_rng(seed).permutation(num_texts)
    held_out, trained = np.sort(order[:num_held_out]), np.sort(order[num_held_out:])
    ids_of = {"train": tf.gather(ids, trained), "val": tf.gather(ids, held_out)}
    means = _means(table, ids_of["train"])
    square = means.T @ means
    ridge = _RIDGE * np.trace(square) / len(square) * np.eye(len(square))
    table = table @ np.linalg.solve(square + ridge, means.T @ targets[trained])
    before = _cosine(_means(table, ids_of["val"]), targets[held_out])
    table = _train(
        table.astype("float32"),
        (ids_of["train"], targets[trained]),
        (ids_of["val"], targets[held_out]),
        loss=loss,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        verbose=verbose,
    )
    if sif is not None:
        counts = np.bincount(ids_of["train"].values.numpy(), minlength=len(table))
        table *= (sif / (sif + counts / counts.sum()))[:, None]
    _set_table(parts.encoder, table)
    return {
        "val_cosine_before": before,
        "val_cosine": _cosine(_means(table, ids_of["val"]), targets[held_out]),
    }


def _with_words(tokenizer: BareTokenizer, words: Sequence[str]) -> BareTokenizer:
    """Returns the tokenizer with words at the end of its vocabulary; ValueError if it cannot."""
    if isinstance(words, str):
        raise ValueError(f"words={words!r:.60}: expected a list of words")
    if not words:
        return tokenizer
    inner: Any = tokenizer.tokenizer
    if not isinstance(inner, BareWordPieceTokenizer) or (inner.parts and inner.parts.added):
        raise ValueError(
            f"words: only a WordPiece vocabulary takes more words, not {type(inner).__name__}'s: "
            "leave them out"
        )
    counts = collections.Counter([*inner.vocabulary, *words])
    doubles = [word for word in words if counts[word] > 1]
    if doubles:
        raise ValueError(f"words: {doubles[0]!r:.60} occurs twice, or is a token already")
    larger = BareWordPieceTokenizer([*inner.vocabulary, *words], **inner.config())
    first = len(inner.vocabulary)
    for number, ids in enumerate(larger.tokenize(list(words)).to_list()):
        if ids != [first + number]:
            raise ValueError(
                f"words: the tokenizer does not find {words[number]!r:.60} as one word in a text; "
                "spell it as the tokenizer does, such as lower-cased, without spaces"
            )
    return bare_tokenizer(larger, max_tokens=tokenizer.max_tokens)


def _special_ids(tokenizer: Any) -> list[int]:
    ids = [getattr(tokenizer, name, None) for name in _SPECIAL]
    around = [number for side in tokenizer.special_tokens(1) for number in side]
    return [number for number in {*ids, *around} if number is not None]


def _through_encoder(
    embed: Embedder, encoder: keras.Model, rows: tf.RaggedTensor, batch_size: int
) -> np.ndarray:
    """Returns the encoder's vectors of rows of tokens: float64 (rows, width)."""
    run = tf.function(
        lambda inputs: encoder(inputs, training=False)["embedding"], reduce_retracing=True
    )
    outputs = []
    for start in range(0, int(rows.nrows()), batch_size):
        packed = embed.tokenizer.pack(
            [rows[start : start + batch_size]], max_sequence_length=embed.max_sequence_length
        )
        outputs.append(run({name: packed[name] for name in encoder.input}).numpy())
    return np.concatenate(outputs).astype("float64")


def _principal(rows: np.ndarray, dims: int) -> np.ndarray:
    """Returns rows (rows, width) by their principal components, (rows, dims)."""
    centred = rows - rows.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)  # ascending
    scores: np.ndarray = centred @ directions[:, ::-1][:, :dims]
    largest = np.abs(scores).argmax(axis=0)  # a direction's sign is arbitrary
    return scores * np.sign(scores[largest, np.arange(dims)])


def _zipf_weights(count: int, sif: float | None) -> np.ndarray:
    """Returns the weight of each of `count` tokens, from frequent to rare."""
    if sif is None:
        return np.ones(count)
    inverse = 1 / np.arange(2, count + 2)
    return sif / (sif + inverse / inverse.sum())


def _pipeline(
    table: np.ndarray, tokenizer: BareTokenizer, *, normalize: bool, length: int
) -> Embedder:
    model = static_vectors(vocabulary_size=len(table), embedding_dim=table.shape[1])
    _set_table(model, table)
    return Embedder(model, tokenizer, normalize=normalize, max_sequence_length=length)


def _set_table(encoder: keras.Model, table: np.ndarray) -> None:
    """Makes these the vectors of a table, whose weights, if it has any, become 1."""
    for layer in encoder.layers:
        if layer.weights:
            value = table if layer.embeddings.shape[1] == table.shape[1] else 1.0
            layer.embeddings.assign(np.broadcast_to(value, layer.embeddings.shape))


def _checked_table(static: Embedder, parts: EmbedderParts) -> np.ndarray:
    table = table_of(parts.encoder)
    if table is None or parts.pooling != ("mean",) or parts.projections or parts.truncate_dim:
        raise ValueError(
            f"model {static.model.name!r} is not the mean of static vectors: pass the result of "
            "distil_static, or load a folder of Model2Vec"
        )
    return table


def _check_options(
    loss: str,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    validation_share: float,
    sif: float | None,
) -> None:
    if loss not in get_args(StaticLoss):
        raise ValueError(f"loss={loss!r}: use {' or '.join(map(repr, get_args(StaticLoss)))}")
    if epochs < 1 or batch_size < 1 or not learning_rate > 0:
        raise ValueError(
            f"epochs={epochs}, batch_size={batch_size}, learning_rate={learning_rate}: expected "
            "numbers above 0"
        )
    for name, share in (("validation_share", validation_share), ("sif", sif)):
        if share is not None and not 0 < share < 1:
            raise ValueError(f"{name}={share}: expected a number between 0 and 1")


def _ids(tokenizer: Tokenizer, texts: Sequence[str], size: int = 4096) -> list[Any]:
    """Returns the ids of each text's tokens."""
    starts = range(0, len(texts), size)
    return [row for start in starts for row in tokenizer.tokenize(texts[start : start + size])]


def _targets(teacher: Embedder | np.ndarray, texts: Sequence[str], batch_size: int) -> np.ndarray:
    if isinstance(teacher, Embedder):
        return vectors(teacher, texts, batch_size=batch_size).astype("float64")
    targets = np.asarray(teacher, "float64")
    if targets.ndim != 2 or len(targets) != len(texts):
        raise ValueError(
            f"teacher: vectors of shape {targets.shape} for {len(texts)} texts; expected "
            f"({len(texts)}, width)"
        )
    if not np.isfinite(targets).all():
        row = int(np.flatnonzero(~np.isfinite(targets).all(axis=1))[0])
        raise ValueError(f"teacher: the vector of text {row} has NaN or infinity: leave it out")
    return targets


def _leading(targets: np.ndarray, dims: int) -> np.ndarray:
    """Returns vectors by their leading directions, which keep their dot products best."""
    if targets.shape[1] < dims:
        raise ValueError(
            f"the teacher's vectors have {targets.shape[1]} dimensions, the static ones {dims}: "
            "distil them with fewer dims"
        )
    _, directions = np.linalg.eigh(targets.T @ targets)  # ascending
    turned: np.ndarray = targets @ directions[:, ::-1][:, :dims]
    return turned


def _means(table: np.ndarray, ids: tf.RaggedTensor, size: int = 4096) -> np.ndarray:
    """Returns the mean vector of each row of ids: (rows, dims)."""
    sums = []
    for start in range(0, int(ids.nrows()), size):
        rows = ids[start : start + size]
        sums.append(np.add.reduceat(table[rows.values.numpy()], rows.row_starts().numpy(), axis=0))
    means: np.ndarray = np.concatenate(sums) / ids.row_lengths().numpy()[:, None]
    return means


def _cosine(ours: np.ndarray, targets: np.ndarray) -> float:
    """Returns the mean cosine of pairs of rows."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(targets, axis=1)
    return float(np.mean(np.sum(ours * targets, axis=1) / np.maximum(norms, 1e-12)))


def _train(
    table: np.ndarray,
    train: tuple[tf.RaggedTensor, np.ndarray],
    held_out: tuple[tf.RaggedTensor, np.ndarray],
    *,
    loss: StaticLoss,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    verbose: int | str,
) -> np.ndarray:
    """Returns the table of the epoch with the lowest loss on the texts held out."""
    encoder = static_vectors(vocabulary_size=len(table), embedding_dim=table.shape[1])
    _set_table(encoder, table)
    model = embedder(encoder, normalize=False)

    def inputs(ids: tf.RaggedTensor, target: tf.Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
        token_ids = ids.to_tensor()
        mask = tf.sequence_mask(ids.row_lengths(), tf.shape(token_ids)[1])
        return {"token_ids": token_ids, "padding_mask": mask}, {"embedding": target}

    def batches(ids: tf.RaggedTensor, targets: np.ndarray) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((ids, targets.astype("float32")))

    num_texts = len(train[1])
    dataset = batches(*train).shuffle(num_texts, seed=seed).batch(batch_size).map(inputs)
    steps = epochs * -(-num_texts // batch_size)
    rate = keras.optimizers.schedules.PolynomialDecay(learning_rate, steps, 0.0)
    losses = {"cosine": keras.losses.CosineSimilarity(), "mse": keras.losses.MeanSquaredError()}
    model.compile(keras.optimizers.Adam(rate), {"embedding": losses[loss]}, jit_compile=False)
    model.fit(
        dataset,
        validation_data=batches(*held_out).batch(batch_size).map(inputs),
        epochs=epochs,
        callbacks=[
            keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
        ],
        shuffle=False,
        verbose=verbose,
    )
    trained = table_of(encoder)
    assert trained is not None
    return trained
