"""Recurrent translation: contexts, decoders, and the alignment that attention learns."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from drawing import WIDTH, Drawing

ROOT = Path(__file__).parents[3]
STUDY = ROOT / "benchmarks/results/studies/decoders.json"
EXPORT = ROOT / "saved_models/translate_de_en/1"
GERMAN = "Im Park spielt ein Mann Gitarre."


def rnn_contexts() -> Drawing:
    """Three ways from an encoder's states to one vector."""
    block = 132
    drawing = Drawing(
        3 * block + 4, "The context: the last state, a function of it, or a function of all states"
    )
    kinds = [
        ("c = h₄: the last state", (3,), "c"),
        ("c = q(h₄): a layer on the last state", (3,), "q"),
        ("c = q(h₁, …, h₄): all states, such as their mean", (0, 1, 2, 3), "q"),
    ]
    xs = [40, 108, 176, 244]
    for i, (caption, sources, name) in enumerate(kinds):
        top = i * block
        drawing.words(8, top + 12, caption, "bold", "start")
        state, word = top + 74, top + 114
        for j, x in enumerate(xs):
            drawing.node((x, state), (40, 24), f"h{'₁₂₃₄'[j]}", "feed_forward")
            drawing.words(x, word, f"x{'₁₂₃₄'[j]}")
            drawing.arrow([(x, word - 9), (x, state + 12)])
            if j:
                drawing.arrow([(xs[j - 1] + 20, state), (x - 20, state)])
        high = top + 40
        if name == "c":
            drawing.arrow([(264, state), (294, state)])
            drawing.node((312, state), (34, 24), "c", "attention")
            continue
        for j in sources:
            drawing.line([(xs[j], state - 12), (xs[j], high)])
        drawing.arrow([(xs[sources[0]], high), (294, high)])
        drawing.node((312, high), (34, 24), "q", "norm")
        drawing.arrow([(312, high + 12), (312, state - 12)])
        drawing.node((312, state), (34, 24), "c", "attention")
    return drawing


def rnn_decoders() -> Drawing:
    """Three decoders that use one context, and one with attention, with measured error rates."""
    study = json.loads(STUDY.read_text("utf-8"))
    columns = [column["name"] for column in study["columns"]]
    errors = {row[0]: row[columns.index("test, words")] for row in study["rows"]}
    kinds = [
        ("1. The context is the first state", "state"),
        ("2. Every step reads the context", "c, state"),
        ("3. … and the previous word", "c, token, state"),
        ("4. Attention: a context per step", "attention: c, token, state"),
    ]
    block = 144
    drawing = Drawing(
        4 * block + 22,
        "Decoders: the context as first state, at every step, with the previous word, and attention",
    )
    xs = [104, 190, 276]
    for i, (caption, name) in enumerate(kinds):
        top = i * block
        drawing.words(8, top + 12, caption, "bold", "start")
        drawing.words(332, top + 12, f"{errors[name]:.0%} wrong", "", "end")
        output, state, low = top + 36, top + 74, top + 116
        for j, x in enumerate(xs):
            sign = "₁₂₃"[j]
            drawing.node((x, state), (40, 24), f"s{sign}", "feed_forward")
            drawing.words(x, output, f"y{sign}")
            drawing.arrow([(x, state - 12), (x, output + 9)])
            if j:
                drawing.arrow([(xs[j - 1] + 20, state), (x - 20, state)])
                if i >= 2:
                    drawing.arrow(
                        [(xs[j - 1] + 10, output), (x - 38, output), (x - 26, state - 9), (x - 20, state - 6)]
                    )
            if i == 3:
                drawing.node((x, low), (40, 24), f"c{sign}", "attention")
                drawing.arrow([(x, low - 12), (x, state + 12)])
        if i == 0:
            drawing.node((30, state), (34, 24), "c", "attention")
            drawing.arrow([(47, state), (84, state)])
        elif i < 3:
            drawing.node((30, low), (34, 24), "c", "attention")
            drawing.line([(47, low), (xs[-1], low)])
            for x in xs:
                drawing.arrow([(x, low), (x, state + 12)])
        else:
            drawing.node((30, low), (34, 24), "h", "feed_forward")
            drawing.arrow([(47, low), (84, low)])
            drawing.line([(47, low), (60, low + 18), (xs[-1], low + 18)])
            for x in xs[1:]:
                drawing.arrow([(x, low + 18), (x, low + 12)])
    drawing.words(
        WIDTH / 2, 4 * block + 10, "wrong: words of CMUdict, by small models", "faint"
    )
    return drawing


def alignment() -> Drawing:
    """Where a small translator looks for each word that it writes."""
    attend = tf.saved_model.load(str(EXPORT)).signatures
    english = attend["serving_default"](text=tf.constant([GERMAN]))["translation"]
    found = attend["attend"](text=tf.constant([GERMAN]), translation=english)
    attention = found["attention"].numpy()[0]
    sources, targets = (
        [token.decode() for token in found[key].numpy()[0] if token]
        for key in ("source_tokens", "target_tokens")
    )
    sources, targets = ([word.strip("▁") for word in words] for words in (sources, targets))
    shares = attention[: len(targets) - 1, : len(sources)]  # (target, source), without the end
    cell = 30
    drawing = Drawing(
        cell * len(shares) + 118, "Which German words a translator reads for each English word"
    )
    left = 82
    for j, word in enumerate(sources):
        drawing.turned(left + (j + 0.5) * cell, 72, "end" if word == "</s>" else word)
    words = [[f"{share:.1f}"[1:] if 0.15 < share < 0.95 else "" for share in row] for row in shares]
    drawing.table(left, 80, shares, (cell, cell), words=words, rows=targets[:-1])
    drawing.words(WIDTH / 2, 80 + cell * len(shares) + 24, "rows: written in this order", "faint")
    return drawing


PICTURES = (rnn_contexts, rnn_decoders, alignment)
