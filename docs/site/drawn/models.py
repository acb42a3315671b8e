"""Whole models: the Transformer, its residual connections, and three ways to read a text."""

import keras
import numpy as np
from drawing import WIDTH, Drawing

import keras_transformers as kt
from keras_transformers.layers.norms import norm_layer

Part = tuple[str, str]
_NORM: Part = ("add & norm", "norm")


def transformer() -> Drawing:
    """The encoder and the decoder, from the tokens at the bottom to the probabilities."""
    model = kt.transformer_base(vocabulary_size=37_000)
    drawing = Drawing(
        606, "The Transformer: encoder at the left, decoder at the right, inputs at the bottom"
    )
    left, right = 86, 250
    drawing.words(left, 196, "Encoder", "bold")
    drawing.words(right, 14, "next token", "bold")
    for y, name, color in ((40, "softmax", "norm"), (78, "linear, 512 → 37,000", "plain")):
        drawing.node((right, y), (146, 24), name, color)
        drawing.arrow([(right, y - 12), (right, y - 26 + 8)])
    decoder = [
        ("masked self-attention", "attention"),
        _NORM,
        ("cross-attention", "attention"),
        _NORM,
        ("feed-forward, 2,048", "feed_forward"),
        _NORM,
    ]
    encoder = [("self-attention", "attention"), _NORM, ("feed-forward, 2,048", "feed_forward"), _NORM]
    bottom = 440
    top = _layer(drawing, right, bottom, decoder)
    drawing.arrow([(right, top), (right, 90)])
    end = _layer(drawing, left, bottom, encoder)
    cross = bottom - 30 - 62 - 2 * 23 - 12 - 14
    cross = bottom - _places(decoder)[2]
    drawing.arrow([(left, end), (left, end - 14), (168, end - 14), (168, cross), (right - 68, cross)])
    for x, name, tokens in (
        (left, "source", "“Zwei Hunde spielen.”"),
        (right, "target so far", "“<s> Two dogs”"),
    ):
        drawing.arrow([(x, 472), (x, bottom)])
        drawing.ring((x, 482))
        drawing.words(x + 16, 482, "positions", "faint", "start")
        drawing.arrow([(x, 508), (x, 492)])
        drawing.node((x, 520), (136, 24), "embedding, 512", "embedding")
        drawing.arrow([(x, 550), (x, 533)])
        drawing.words(x, 558, tokens)
        drawing.words(x, 574, name, "faint")
    drawing.words(
        WIDTH / 2, 595, f"Transformer-Base: {model.count_params():,} parameters", "faint"
    )
    return drawing


def _places(parts: list[Part]) -> list[float]:
    """Returns how far the middle of each part lies above the bottom of its frame."""
    places, height = [], 32.0
    for name, color in parts:
        size = 20 if color == "norm" else 26
        places.append(height + size / 2)
        height += size + (4 if color != "norm" else 24)
        del name
    return places


def _layer(drawing: Drawing, x: float, bottom: float, parts: list[Part]) -> float:
    """Draws a layer that repeats, and returns the upper edge of its frame."""
    places = _places(parts)
    top = bottom - places[-1] - 22
    drawing.box(x - 82 + 4, top, 156, bottom - top - 6, "frame")
    drawing.words(x - 74, top - 9, "6 ×", "bold", "start")
    drawing.line([(x, bottom), (x, bottom - places[0] + 12)])
    for i, ((name, color), place) in enumerate(zip(parts, places, strict=True)):
        y = bottom - place
        drawing.node((x + 6, y), (122, 20 if color == "norm" else 26), name, color)
        if color == "norm":
            fork = bottom - places[i - 1] + 22
            drawing.arrow([(x, fork), (x - 68, fork), (x - 68, y), (x - 55, y)])
            if i + 1 < len(parts):
                drawing.line([(x, y - 10), (x, bottom - places[i + 1] + 13)])
            else:
                drawing.line([(x, y - 10), (x, top)])
    return top


def residual() -> Drawing:
    """The residual connection with the norm after it, and with the norm before the sublayer."""
    vector = np.array([[1.0, 2.0, 3.0, 6.0]])
    normed = np.asarray(norm_layer("layer", 1e-6)(keras.ops.convert_to_tensor(vector)))[0]
    drawing = Drawing(
        372, "A sublayer with its residual connection: layer norm after the sum, or before it"
    )
    columns = [
        (86, "Post-norm (2017)", "norm(x + f(x))", ("f", "+", "norm")),
        (254, "Pre-norm (GPT-2, Llama)", "x + f(norm(x))", ("norm", "f", "+")),
    ]
    kinds = {"f": ("attention or\nfeed-forward", "attention"), "norm": ("layer norm", "norm")}
    for x, name, formula, order in columns:
        drawing.words(x, 14, name, "bold")
        drawing.words(x, 34, formula, "faint")
        y = 240.0
        drawing.words(x, 258, "x")
        drawing.arrow([(x, 250), (x, y - 12)])
        fork = 243.0
        for part in order:
            if part == "+":
                drawing.ring((x, y - 22))
                drawing.arrow([(x, fork), (x - 62, fork), (x - 62, y - 22), (x - 10, y - 22)])
                y -= 34
            else:
                words, color = kinds[part]
                size = 36 if part == "f" else 24
                drawing.node((x, y - 12 - size / 2), (96, size), words, color)
                y -= size + 14
            drawing.arrow([(x, y + 2), (x, y - 10)])
    drawing.words(WIDTH / 2, 290, "Layer norm: mean 0, standard deviation 1", "bold")
    for y, numbers, name in ((316, vector[0], "before"), (348, normed, "after")):
        drawing.table(
            100, y - 11, [[0, 0, 0, 0]], (56, 22), words=[[f"{n:.2f}" for n in numbers]], rows=[name]
        )
    return drawing


def gpt_elmo_bert() -> Drawing:
    """What each position reads in GPT, ELMo and BERT."""
    block, words = 178, ("my", "dog", "is", "cute")
    drawing = Drawing(
        3 * block + 4,
        "GPT reads from the left, ELMo from both sides apart, BERT from both sides in every layer",
    )
    captions = [
        ("GPT: a Transformer from left to right", "each word sees the words before it"),
        ("ELMo: two LSTMs, joined at the end", "neither sees the words of the other side"),
        ("BERT: a Transformer in both directions", "each word sees all words, in every layer"),
    ]
    for i, (caption, note) in enumerate(captions):
        top = i * block
        drawing.words(8, top + 12, caption, "bold", "start")
        drawing.words(8, top + 28, note, "faint", "start")
        xs = [52 + 79 * j for j in range(len(words))]
        levels = [top + 150, top + 102, top + 54]
        for j, x in enumerate(xs):
            if i == 1:
                for shift, source in ((-14, j - 1), (14, j + 1)):
                    drawing.arrow([(x + shift / 2, levels[0] - 11), (x + shift, levels[1] + 12)])
                    drawing.arrow([(x + shift, levels[1] - 12), (x + shift / 2, levels[2] + 11)])
                    if 0 <= source < len(words):
                        way = 1 if shift < 0 else -1
                        height = levels[1] - 5 if shift < 0 else levels[1] + 5
                        drawing.arrow(
                            [(xs[source] + shift + 11 * way, height), (x + shift - 12 * way, height)]
                        )
            else:
                for low, high in ((0, 1), (1, 2)):
                    for source in range(len(words)):
                        if i == 2 or source <= j:
                            drawing.line(
                                [(xs[source], levels[low] - 11), (x, levels[high] + 11)]
                            )
        for j, x in enumerate(xs):
            drawing.node((x, levels[0]), (54, 22), words[j], "embedding")
            if i == 1:
                drawing.node((x - 14, levels[1]), (22, 24), "→", "feed_forward")
                drawing.node((x + 14, levels[1]), (22, 24), "←", "attention")
            else:
                drawing.node((x, levels[1]), (54, 22), "layer", "attention")
            drawing.node((x, levels[2]), (54, 22), f"T{j + 1}", "end")
    return drawing


PICTURES = (transformer, residual, gpt_elmo_bert)
