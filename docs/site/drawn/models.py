"""Whole models: the Transformer, its residual connections, and three ways to read a text."""

import keras
import numpy as np
from drawing import WIDTH, Drawing

import keras_transformers as kt
from keras_transformers.layers.norms import norm_layer

Part = tuple[str, str]


def transformer() -> Drawing:
    """The encoder and the decoder, from the tokens at the bottom to the probabilities."""
    vocabulary_size = 37_000
    model = kt.transformer_base(vocabulary_size=vocabulary_size)
    drawing = Drawing(
        586, "The Transformer: encoder at the left, decoder at the right, inputs at the bottom"
    )
    left, right, bottom = 85, 255, 424
    self_attention, feed_forward = ("self-attention", "attention"), ("feed-forward", "feed_forward")
    masked, cross = ("masked\nself-attention", "attention"), ("cross-attention", "attention")
    memory = _layer(drawing, "Encoder, 6 ×", left, bottom, [self_attention, feed_forward])[0]
    top, place = _layer(drawing, "Decoder, 6 ×", right, bottom, [masked, cross, feed_forward])
    drawing.arrow([(left, memory), (left, top - 8), (170, top - 8), (170, place), (200, place)])
    for y, name, color in ((60, "softmax", "norm"), (98, f"linear, 512 → {vocabulary_size:,}", "plain")):
        drawing.node((right, y), (150, 24), name, color)
        drawing.arrow([(right, y - 12), (right, y - 26)])
    drawing.words(right, 14, "probabilities of\nthe next token", "bold")
    drawing.arrow([(right, top), (right, 110)])
    for x, name, tokens in (
        (left, "source", "“Zwei Hunde spielen.”"),
        (right, "target so far", "“<s> Two dogs”"),
    ):
        drawing.arrow([(x, 447), (x, bottom)])
        drawing.ring((x, 456))
        drawing.words(x + 16, 456, "positions", "faint", "start")
        drawing.arrow([(x, 480), (x, 466)])
        drawing.node((x, 492), (140, 24), "embedding, 512", "embedding")
        drawing.arrow([(x, 520), (x, 505)])
        drawing.words(x, 536, f"{tokens}\n{name}")
    drawing.words(
        WIDTH / 2, 574, f"Transformer-Base: {model.count_params():,} parameters", "faint"
    )
    return drawing


def _layer(
    drawing: Drawing, name: str, x: float, bottom: float, sublayers: list[Part]
) -> tuple[float, float]:
    """Draws a layer, upwards, and returns its upper edge and the middle of the second sublayer."""
    heights = [40 if "\n" in words else 26 for words, _ in sublayers]
    top = bottom - sum(height + 60 for height in heights) - 8
    drawing.box(x - 81, top, 162, bottom - top, "frame")
    drawing.words(x - 77, top - 11, name, "bold", "start")
    y, middles = bottom, []
    for (words, color), height in zip(sublayers, heights, strict=True):
        fork, middle, norm = y - 8, y - 18 - height / 2, y - height - 38
        drawing.line([(x, y), (x, norm)])
        drawing.arrow([(x, fork), (x - 71, fork), (x - 71, norm), (x - 55, norm)])
        drawing.node((x + 6, middle), (120, height), words, color)
        drawing.node((x + 6, norm), (120, 22), "add & norm", "norm")
        middles.append(middle)
        y -= height + 60
        drawing.line([(x, norm - 11), (x, y)])
    drawing.line([(x, y), (x, top)])
    return top, middles[1]


def residual() -> Drawing:
    """The residual connection with the norm after it, and with the norm before the sublayer."""
    vector = np.array([[1.0, 2.0, 3.0, 6.0]])
    normed = np.asarray(norm_layer("layer", 1e-6)(keras.ops.convert_to_tensor(vector)))[0]
    drawing = Drawing(
        320, "A sublayer with its residual connection: layer norm after the sum, or before it"
    )
    columns = [
        (86, "Post-norm (2017)", "norm(x + f(x))", ("f", "+", "norm")),
        (254, "Pre-norm (GPT-2, Llama)", "x + f(norm(x))", ("norm", "f", "+")),
    ]
    kinds = {"f": ("attention or\nfeed-forward", "attention"), "norm": ("layer norm", "norm")}
    for x, name, formula, order in columns:
        drawing.words(x, 14, name, "bold")
        drawing.words(x, 34, formula, "faint")
        y = 190.0
        drawing.words(x, 208, "x")
        drawing.arrow([(x, 200), (x, y - 12)])
        fork = 193.0
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
    drawing.words(WIDTH / 2, 240, "Layer norm: mean 0, standard deviation 1", "bold")
    for y, numbers, name in ((268, vector[0], "before"), (300, normed, "after")):
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
