"""Recurrent sequence-to-sequence models, with or without attention.

Sutskever et al. 2014 (the encoder's state starts the decoder), Cho et al. 2014 (it is also an input
at every step), Bahdanau et al. 2014 (additive attention: RNNsearch) and Luong et al. 2015 (dot,
general and location attention, input feeding). Inputs, outputs and decoding match the Transformer.
"""

import functools
from typing import Any

import keras

from keras_transformers.layers import AddBias, PaddingMask, RowDense
from keras_transformers.layers.embeddings import WeightTying, token_embeddings
from keras_transformers.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from keras_transformers.layers.recurrent.attention import AttentionKind, RnnAttention
from keras_transformers.layers.recurrent.cells import CellKind, make_cell
from keras_transformers.layers.recurrent.choices import (
    Bridge,
    Context,
    Readout,
    ReadoutActivation,
)
from keras_transformers.layers.recurrent.encoder import ContextFrom
from keras_transformers.layers.recurrent.teacher_forcing import TeacherForcing, check_ratio
from keras_transformers.models.classes.recurrent_seq2seq import Seq2Seq
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "num_parameters", "seq2seq"]

SIZES: dict[str, dict[str, Any]] = {
    "rnnsearch_50": {
        "cell": "gru",
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "embedding_dim": 620,
        "hidden_dim": 1000,
        "bidirectional": True,
        "context": "input_and_output",
        "attention": "additive",
        "readout_dim": 500,
        "readout_activation": "maxout",
    },
    "luong_global": {
        "cell": "lstm",
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "embedding_dim": 1000,
        "hidden_dim": 1000,
        "bidirectional": False,
        "context": "initial_state",
        "attention": "general",
        "input_feeding": True,
        "readout_dim": 1000,
        "bridge": "copy",
    },
    "seq2seq_multi30k": {
        "cell": "gru",
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "embedding_dim": 256,
        "encoder_hidden_dim": 256,
        "hidden_dim": 512,
        "bidirectional": True,
        "context": "initial_state",
        "attention": "general",
        "readout_dim": 256,
    },
    "seq2seq_multi30k_no_attention": {
        "cell": "gru",
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "embedding_dim": 256,
        "encoder_hidden_dim": 256,
        "hidden_dim": 512,
        "bidirectional": True,
        "context": "input_and_output",
        "attention": None,
        "readout_dim": 256,
    },
}


def seq2seq(
    *,
    encoder: RecurrentEncoder,
    decoder: RecurrentDecoder,
    vocabulary_size: int,
    target_vocabulary_size: int | None = None,
    embedding_dim: int,
    weight_tying: WeightTying = "none",
    use_output_bias: bool = True,
    teacher_forcing: float = 1.0,
    dropout: float = 0.2,
    pad_token_id: int = 0,
    name: str = "seq2seq",
) -> Seq2Seq:
    """Builds a recurrent sequence-to-sequence model.

    The factories of named models make the encoder and the decoder themselves, from the arguments of
    `encoder_of` and `decoder_of`.

    Args:
        encoder: reads the source; with attention, without `join_states`.
        decoder: writes the target. `RecurrentDecoder` shows three decoders made of its choices.
        vocabulary_size: number of source tokens, V.
        target_vocabulary_size: number of target tokens; `vocabulary_size` by default.
        embedding_dim: width of the token embeddings (Bahdanau: m).
        weight_tying: see `transformer`. Tied logits need a readout as wide as the embeddings.
        use_output_bias: whether the logits have a bias.
        teacher_forcing: probability that a training step is fed the target's token, not the model's
            likeliest one (scheduled sampling, Bengio et al. 2015). 1, always the target's, is
            fastest. Below 1, training runs token by token, and callbacks can change the ratio, the
            variable `model.teacher_forcing`, even to 1.
        dropout: rate on embeddings and on the readout.
        pad_token_id: id of the padding token of sources; padding does not change the results.
        name: the model's name.

    Returns:
        A functional model. Inputs: `source_token_ids` int32 (batch, source) and
        `target_token_ids` int32 (batch, target), the targets shifted right. Output: `logits`
        float32 (batch, target, target vocabulary), position i for the token after input i.

    Raises:
        ValueError: an unknown choice, choices that cannot be combined, or a ratio outside [0, 1].

    Example:
        >>> from keras_transformers.layers import GRUCell, RnnAttention
        >>> model = seq2seq(
        ...     encoder=RecurrentEncoder("gru", 8, bidirectional=True),
        ...     decoder=RecurrentDecoder([GRUCell(16)], attention=RnnAttention("general")),
        ...     vocabulary_size=50,
        ...     embedding_dim=8,
        ... )
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    target_vocabulary_size = target_vocabulary_size or vocabulary_size
    check_ratio(teacher_forcing)
    feed_tokens = decoder.feed_tokens
    if teacher_forcing < 1 and not feed_tokens:
        raise ValueError(
            f"teacher_forcing={teacher_forcing} with feed_tokens=False: no token is fed, so leave "
            "it at 1"
        )
    if decoder.attention and decoder.bridge == "zeros" and encoder.starts_from_context:
        raise ValueError(
            "the encoder has a context_dim or the context_from='mean', but with attention and "
            "bridge='zeros' nothing reads this vector: use bridge='dense' or leave them out"
        )
    source_embedding, target_embedding = token_embeddings(
        weight_tying, vocabulary_size, target_vocabulary_size, embedding_dim
    )

    source_token_ids = keras.Input((None,), dtype="int32", name="source_token_ids")
    target_token_ids = keras.Input((None,), dtype="int32", name="target_token_ids")
    mask = PaddingMask(pad_token_id, name="source_padding_mask")(source_token_ids)
    hidden = source_embedding(source_token_ids)
    hidden = keras.layers.Dropout(dropout, name="source_embeddings_dropout")(hidden)
    encoded = encoder(hidden, padding_mask=mask)

    hidden = target_token_ids  # without feed_tokens, only their number counts
    if teacher_forcing < 1:
        hidden = TeacherForcing(teacher_forcing, name="teacher_forcing")(target_token_ids)
    if feed_tokens:
        hidden = target_embedding(hidden)
        hidden = keras.layers.Dropout(dropout, name="target_embeddings_dropout")(hidden)
    hidden = decoder(hidden, encoded, padding_mask=mask)
    hidden = keras.layers.Dropout(dropout, name="readout_dropout")(hidden)
    if weight_tying == "none":
        logits = RowDense(
            target_vocabulary_size,
            use_bias=use_output_bias,
            dtype="float32",
            name="output_projection",
        )(hidden)
    elif hidden.shape[-1] != embedding_dim:
        raise ValueError(
            f"weight_tying={weight_tying!r} needs a readout as wide as the embeddings, "
            f"{embedding_dim}, not {hidden.shape[-1]}: set readout_dim={embedding_dim}"
        )
    else:
        logits = target_embedding(hidden, reverse=True)
        if use_output_bias:
            logits = AddBias(dtype="float32", name="logits")(logits)
    return Seq2Seq(
        inputs={"source_token_ids": source_token_ids, "target_token_ids": target_token_ids},
        outputs={"logits": logits},
        name=name,
    )


def encoder_of(
    *,
    cell: CellKind,
    num_encoder_layers: int,
    hidden_dim: int,
    encoder_hidden_dim: int | None = None,
    bidirectional: bool = True,
    attention: AttentionKind | None = "general",
    context_from: ContextFrom = "last",
    context_dim: int | None = None,
    dropout: float = 0.2,
) -> RecurrentEncoder:
    """Makes the encoder of a named model.

    Args:
        cell: "lstm", "gru" or "rnn", a plain network with tanh.
        num_encoder_layers: number of layers.
        hidden_dim: width of the decoder's layers.
        encoder_hidden_dim: width of the layers in each direction; `hidden_dim` by default.
        bidirectional: whether it reads from both ends.
        attention: the decoder's attention; without it, the states of both directions are joined.
        context_from: "last" or "mean": whether the source's vector is the last state or the mean of
            all. The decoder starts from it and, without attention, also reads it.
        context_dim: width of a dense layer with tanh on that vector; none by default. See
            `RecurrentEncoder`.
        dropout: rate between layers.
    """
    return RecurrentEncoder(
        cell,
        encoder_hidden_dim or hidden_dim,
        num_layers=num_encoder_layers,
        bidirectional=bidirectional,
        join_states=attention is None,
        context_from=context_from,
        context_dim=context_dim,
        dropout=dropout,
        name="encoder",
    )


def decoder_of(
    *,
    cell: CellKind,
    num_decoder_layers: int,
    hidden_dim: int,
    attention: AttentionKind | None = "general",
    attention_dim: int | None = None,
    readout_dim: int | None = None,
    readout_activation: ReadoutActivation = "tanh",
    context: Context = "initial_state",
    bridge: Bridge = "dense",
    input_feeding: bool = False,
    feed_tokens: bool = True,
    max_sequence_length: int = 1024,
    dropout: float = 0.2,
) -> RecurrentDecoder:
    """Makes the decoder of a named model, with its parts; see `RecurrentDecoder`.

    Args:
        cell: as in `encoder_of`.
        num_decoder_layers: number of layers.
        hidden_dim: width of the layers (Bahdanau: n).
        attention: "dot", "general", "additive", "location", or None.
        attention_dim: inner width of "additive" attention; `hidden_dim` by default.
        readout_dim: width of the vectors projected to logits; by default their parts are only
            concatenated.
        readout_activation: "tanh" or "maxout".
        context: where the decoder uses the source.
        bridge: how the encoder's states become the decoder's: "copy", "dense", or "zeros" for not
            at all.
        input_feeding: whether each step gets the previous readout (Luong).
        feed_tokens: whether a step sees the previous token. If not, the logits depend only on the
            number of target tokens, and teacher forcing has no effect.
        max_sequence_length: the longest source for attention="location"; otherwise unused.
        dropout: rate between layers.
    """
    return RecurrentDecoder(
        [
            make_cell(cell, hidden_dim, has_inputs=feed_tokens or index > 0)
            for index in range(num_decoder_layers)
        ],
        attention=RnnAttention(
            attention, attention_dim=attention_dim, max_sequence_length=max_sequence_length
        )
        if attention
        else None,
        readout=Readout(readout_dim, readout_activation) if readout_dim else None,
        context=context,
        bridge=bridge,
        input_feeding=input_feeding,
        dropout=dropout,
        name="decoder",
    )


def num_parameters(
    *,
    vocabulary_size: int = 30000,
    target_vocabulary_size: int | None = None,
    cell: CellKind,
    num_encoder_layers: int,
    num_decoder_layers: int,
    embedding_dim: int,
    hidden_dim: int,
    encoder_hidden_dim: int | None = None,
    bidirectional: bool = True,
    context: Context = "initial_state",
    attention: AttentionKind | None = "general",
    attention_dim: int | None = None,
    input_feeding: bool = False,
    readout_dim: int | None = None,
    readout_activation: ReadoutActivation = "tanh",
    bridge: Bridge = "dense",
    feed_tokens: bool = True,
    context_from: ContextFrom = "last",
    context_dim: int | None = None,
    weight_tying: WeightTying = "none",
    use_output_bias: bool = True,
    teacher_forcing: float = 1.0,
    max_sequence_length: int = 1024,
) -> int:
    """Computes the parameter count of `seq2seq` with these arguments, without building it."""
    e, n = embedding_dim, hidden_dim
    sources, targets = vocabulary_size, target_vocabulary_size or vocabulary_size
    h = encoder_hidden_dim or n
    gates, directions = {"lstm": 4, "gru": 3, "rnn": 1}[cell], 2 if bidirectional else 1
    m = directions * h  # width of the encoder's outputs
    c = context_dim or m  # width of the source as one vector
    context_width = m if attention else c
    fed_dim = e if feed_tokens else 0
    encoder = sum(
        directions * gates * ((m if index else e) * h + h * h + h)
        for index in range(num_encoder_layers)
    ) + (m * c + c if context_dim else 0)
    decoder = sum(
        gates * ((n if index else fed_dim) * n + n * n + n) for index in range(num_decoder_layers)
    )
    in_readout = context == "input_and_output" or bool(attention and context == "initial_state")
    parts = n + in_readout * context_width + (context == "input_and_output") * fed_dim
    readout = parts * (readout_dim or 0) * (2 if readout_activation == "maxout" else 1)
    fed = (readout_dim or parts) if input_feeding else (context != "initial_state") * context_width
    a = attention_dim or n
    attended = {
        None: 0,
        "dot": 0,
        "general": m * n,
        "additive": n * a + m * a + a,
        "location": n * max_sequence_length,
    }[attention]
    states = 2 if cell == "lstm" else 1
    bridged = c if context_dim or context_from == "mean" else m if attention is None else h
    bridges = num_decoder_layers * states * (bridged * n + n) if bridge == "dense" else 0
    fed_targets = targets if feed_tokens else 0
    rows = {"all": sources, "decoder": sources + targets, "none": sources + fed_targets}
    output = targets * use_output_bias
    if weight_tying == "none":
        output += targets * (readout_dim or parts)
    return (
        rows[weight_tying] * e
        + encoder
        + decoder
        + gates * n * fed
        + attended
        + readout
        + bridges
        + output
        + (teacher_forcing < 1)  # the ratio, which callbacks change
    )


_VOCABULARY_SIZES = {
    "rnnsearch_50": 30_000,
    "luong_global": 50_000,
    "seq2seq_multi30k": 4_000,
    "seq2seq_multi30k_no_attention": 4_000,
}


# Exact counts with the vocabularies above; sources and targets have separate matrices.
_NUM_PARAMETERS = {
    # 40,000 of them are biases: gates 9,000 (3 GRUs of 3 gates), first state 1,000, logits 30,000.
    "rnnsearch_50": 80_441_000,
    # Biases: gates 32,000 (8 LSTMs of 4 gates), logits 50,000. Attention (1,000,000), readout
    # (2,000,000) and input feeding (4,000,000) have none.
    "luong_global": 221_082_000,
    "seq2seq_multi30k": 5_701_024,
    "seq2seq_multi30k_no_attention": 6_421_920,
}
_BAHDANAU = "Bahdanau et al. 2014, https://arxiv.org/abs/1409.0473"
_LUONG = "Luong et al. 2015, https://arxiv.org/abs/1508.04025"
_CHO = "Cho et al. 2014, https://arxiv.org/abs/1406.1078"
_PAPERS = {
    "rnnsearch_50": _BAHDANAU,
    "luong_global": _LUONG,
    "seq2seq_multi30k": _LUONG,
    "seq2seq_multi30k_no_attention": _CHO,
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            seq2seq,
            name,
            {**size, "vocabulary_size": _VOCABULARY_SIZES[name]},
            summary=f"A sequence-to-sequence model with {size['num_encoder_layers']} + "
            f"{size['num_decoder_layers']} layers of {size['cell'].upper()}, width "
            f"{size['hidden_dim']} and attention {size['attention']}, with random weights.",
            parts={"encoder": encoder_of, "decoder": decoder_of},
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPERS[name],
        symbols={
            "V": _VOCABULARY_SIZES[name],
            "E": size["embedding_dim"],
            "H": size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters, **{"vocabulary_size": _VOCABULARY_SIZES[name], **size}
        ),
    )
    for name, size in SIZES.items()
}
