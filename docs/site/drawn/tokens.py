"""Tokens: merges of letters, and the choice of the next word."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from drawing import WIDTH, Drawing

from keras_transformers import decoding
from keras_transformers.decoding import BeamStep
from keras_transformers.decoding.sampling import keep_nucleus, tempered
from keras_transformers.tokenizers import BytePairTokenizer

_TEXT = "low lower newest widest"
_WORDS = ("cat", "dog", "bird", "car", "the")
_SHARES = (0.4, 0.3, 0.15, 0.1, 0.05)
# The chances of the next word after each word.
_AFTER = {
    "[START]": {"a": 0.5, "the": 0.4, "one": 0.1},
    "a": {"dog": 0.4, "cat": 0.35, "bird": 0.25},
    "the": {"dog": 0.9, "cat": 0.1},
    "dog": {"[END]": 0.55, "runs": 0.45},
    "runs": {"[END]": 1.0},
}


class Candidate(NamedTuple):
    """An extension of a hypothesis: its parent's place, its word, and its text's probability."""

    parent: int
    word: str
    chance: float
    is_kept: bool


def merges() -> Drawing:
    """Byte-pair encoding's merges, in order, until the best pair occurs once."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = BytePairTokenizer.train([_TEXT], Path(folder) / "bpe")
    rules = tokenizer.merges
    words = [list(("Ġ" if place else "") + word) for place, word in enumerate(_TEXT.split())]
    stages = [("letters", [list(word) for word in words])]
    for left, right in rules:
        words = [_merged(word, left, right) for word in words]
        stages.append((f"{left} + {right} → {left + right}", [list(word) for word in words]))
    block = 64
    drawing = Drawing(
        len(stages) * block + 24, f"Byte-pair encoding on “{_TEXT}”: the merges, one by one"
    )
    for i, (caption, split) in enumerate(stages):
        top = i * block
        drawing.words(8, top + 12, f"{i}. {caption}" if i else caption, "bold", "start")
        x = 8.0
        for word in split:
            for token in word:
                width = 6.0 + 8 * len(token) if len(token) > 1 else 13.0
                new = i and token == "".join(rules[i - 1])
                drawing.node(
                    (x + width / 2, top + 38), (width, 22), token, "attention" if new else "plain"
                )
                x += width
            x += 4
    drawing.words(
        WIDTH / 2, len(stages) * block + 8, "Ġ: a space. No other pair occurs twice.", "faint"
    )
    return drawing


def _merged(word: list[str], left: str, right: str) -> list[str]:
    """Returns the tokens of a word with one pair merged."""
    result: list[str] = []
    for token in word:
        if result and (result[-1], token) == (left, right):
            result[-1] += token
        else:
            result.append(token)
    return result


def next_word() -> Drawing:
    """One table of probabilities under greedy search, temperatures, top-k and top-p."""
    log_probs = tf.math.log(tf.constant([_SHARES]))

    def kept(weights: np.ndarray) -> np.ndarray:
        return weights / weights.sum()

    table = np.array(_SHARES)
    kinds = [
        ("the model", table),
        ("greedy: the likeliest", np.eye(len(table))[table.argmax()]),
        ("temperature 0.5", tempered(log_probs, 0.5).numpy()[0]),
        ("temperature 2", tempered(log_probs, 2.0).numpy()[0]),
        ("top-k, k = 2", kept(np.where(table >= np.sort(table)[-2], table, 0))),
        ("top-p, p = 0.8", kept(keep_nucleus(tf.constant([_SHARES]), 0.8).numpy()[0])),
    ]
    block = 122
    drawing = Drawing(
        3 * block + 4, "One table of probabilities under greedy search, temperature, top-k and top-p"
    )
    for i, (name, shares) in enumerate(kinds):
        x, top = 8 + 168 * (i % 2), block * (i // 2)
        drawing.words(x, top + 12, name, "bold", "start")
        drawing.bars(
            x + 38, top + 24, shares, _WORDS, width=86, color="orange" if i == 0 else "blue"
        )
    return drawing


def _searched(num_beams: int) -> tuple[list[list[Candidate]], list[tuple[str, float]]]:
    """Returns the candidates of each step of a search, and its results."""
    words = (word for row in _AFTER.values() for word in row)
    names = list(dict.fromkeys(["[PAD]", "[START]", "[END]", *words]))
    table = np.zeros((len(names), len(names)), "float32")
    for word, others in _AFTER.items():
        for other, share in others.items():
            table[names.index(word), names.index(other)] = share
    log_table = tf.math.log(tf.constant(table))

    def step(token_ids: tf.Tensor, index: tf.Tensor, cache: tuple) -> tuple[tf.Tensor, tuple]:
        del index
        return tf.gather(log_table, token_ids), cache

    steps: list[BeamStep] = []
    found = decoding.beam_search(
        step,
        [names.index("[START]")],
        end_token_id=names.index("[END]"),
        max_length=5,
        num_beams=num_beams,
        length_penalty=0.0,
        on_step=steps.append,
    )
    alive, levels = [("[START]", 1.0)], []
    for each in steps:
        kept = {
            (int(parent), names[int(token)])
            for parent, token, log_prob in zip(
                each.parents[0], each.token_ids[0], each.log_probs[0], strict=True
            )
            if log_prob > -np.inf
        }
        level = [
            Candidate(place, word, share * chance, (place, word) in kept)
            for place, (last, chance) in enumerate(alive)
            for word, share in _AFTER[last].items()
        ]
        levels.append(level)
        alive = [
            (names[int(token)], float(np.exp(log_prob)))
            for token, log_prob in zip(each.token_ids[0], each.log_probs[0], strict=True)
            if log_prob > -np.inf
        ]
    results = [
        (" ".join(names[i] for i in ids if i > 2), float(np.exp(score)))
        for ids, score in zip(found.token_ids[0].numpy(), found.scores[0].numpy(), strict=True)
    ]
    return levels, results


def beam_search() -> Drawing:
    """A search with two beams: its candidates, those that stay, and those that end."""
    levels, results = _searched(2)
    (greedy, greedy_chance), *_ = _searched(1)[1]
    block = 92
    drawing = Drawing(
        len(levels) * block + 128, "Beam search with two beams: candidates of each step, with chances"
    )
    parents = [(WIDTH / 2, 36.0)]
    drawing.node((WIDTH / 2, 24), (70, 24), "[START]", "embedding")
    for number, level in enumerate(levels):
        y = (number + 1) * block
        gap = min(66.0, 324 / len(level))
        start = WIDTH / 2 - gap * (len(level) - 1) / 2
        order = sorted((each for each in level if each.is_kept), key=lambda each: -each.chance)
        places: dict[Candidate, tuple[float, float]] = {}
        for i, each in enumerate(level):
            x = round(start + gap * i, 1)
            color = "norm" if each.word == "[END]" else "attention" if each.is_kept else "end"
            drawing.line([parents[each.parent], (x, y - 19)], "dashed" if color == "end" else "")
            drawing.node((x, y), (gap - 6, 38), f"{each.word}\n{each.chance:.3f}", color)
            places[each] = (x, y + 19)
        parents = [places[each] for each in order]
    y = len(levels) * block + 40
    for x, name, color in ((20, "kept", "attention"), (110, "ended", "norm"), (206, "dropped", "end")):
        drawing.box(x, y - 8, 16, 16, color)
        drawing.words(x + 22, y, name, "", "start")
    for i, (text, chance) in enumerate(results):
        drawing.words(20, y + 30 + 18 * i, f"{i + 1}. “{text}”: {chance:.3f}", "bold" if not i else "", "start")
    drawing.words(20, y + 70, f"Greedy search: “{greedy}”, {greedy_chance:.3f}", "faint", "start")
    return drawing


PICTURES = (merges, next_word, beam_search)
