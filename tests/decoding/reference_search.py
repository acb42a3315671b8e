"""Reference searches: one sentence at a time, in plain Python and float64."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LogProbs = Callable[[tuple[int, ...]], np.ndarray]


class Hypothesis(NamedTuple):
    token_ids: tuple[int, ...]
    score: float
    finished: bool


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def in_order(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Sorts finished ones first, each kind by descending score."""
    return sorted(hypotheses, key=lambda each: (not each.finished, -each.score))


def exhaustive_search(
    log_probs: LogProbs,
    *,
    vocabulary_size: int,
    end: int,
    max_length: int,
    alpha: float = 0.0,
    min_length: int = 0,
) -> list[Hypothesis]:
    """All possible texts: those that end, and those of maximum length that do not."""
    words = [token_id for token_id in range(vocabulary_size) if token_id != end]
    found = []
    for length in range(1, max_length + 1):
        for prefix in itertools.product(words, repeat=length - 1):
            log_prob = sum(log_probs(prefix[:i])[token_id] for i, token_id in enumerate(prefix))
            last = log_probs(prefix)
            if length >= min_length:
                score = (log_prob + last[end]) / penalty(length, alpha)
                found.append(Hypothesis((*prefix, end), score, True))
            if length == max_length:
                for word in words:
                    score = (log_prob + last[word]) / penalty(length, alpha)
                    found.append(Hypothesis((*prefix, word), score, False))
    return in_order(found)


def beam_search(
    log_probs: LogProbs,
    *,
    end: int,
    max_length: int,
    num_beams: int,
    num_hypotheses: int,
    alpha: float,
    min_length: int = 0,
) -> list[Hypothesis]:
    """Two pools, 2 * num_beams candidates per step, and no early stop before max_length."""
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for length in range(1, max_length + 1):
        candidates = [
            ((*prefix, token_id), log_prob + float(extra))
            for prefix, log_prob in alive
            for token_id, extra in enumerate(log_probs(prefix))
        ]
        candidates = sorted(candidates, key=lambda each: -each[1])[: 2 * num_beams]
        finished += [
            Hypothesis(text, log_prob / penalty(length, alpha), True)
            for text, log_prob in candidates
            if text[-1] == end and length >= min_length
        ]
        finished = in_order(finished)[:num_hypotheses]
        alive = [each for each in candidates if each[0][-1] != end][:num_beams]
    cut = [Hypothesis(text, lp / penalty(max_length, alpha), False) for text, lp in alive]
    return (finished + in_order(cut))[:num_hypotheses]


def transformers_search(
    log_probs: LogProbs,
    *,
    end: int,
    max_length: int,
    num_beams: int,
    alpha: float,
    min_length: int = 0,
    early_stopping: bool | str = False,
) -> list[Hypothesis]:
    """The search of transformers' `generate`: it may stop too soon, and cut texts compete."""
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    for length in range(1, max_length + 1):
        candidates = [
            ((*prefix, token_id), log_prob + float(extra))
            for prefix, log_prob in alive
            for token_id, extra in enumerate(log_probs(prefix))
            if token_id != end or length >= min_length
        ]
        candidates = sorted(candidates, key=lambda each: -each[1])[: 2 * num_beams]
        finished += [
            Hypothesis(text, log_prob / length**alpha, text[-1] == end)
            for text, log_prob in candidates[:num_beams]
            if text[-1] == end or length == max_length
        ]
        finished = sorted(finished, key=lambda each: -each.score)[:num_beams]
        alive = [each for each in candidates if each[0][-1] != end][:num_beams]
        longest = max_length if early_stopping == "never" else length
        if len(finished) == num_beams and (
            early_stopping is True or finished[-1].score >= alive[0][1] / longest**alpha
        ):
            break
    return finished


def greedy_search(
    log_probs: LogProbs, *, end: int, max_length: int, min_length: int = 0
) -> Hypothesis:
    text: tuple[int, ...] = ()
    score = 0.0
    while len(text) < max_length:
        options = log_probs(text).copy()
        if len(text) + 1 < min_length:
            options[end] = -np.inf
        text = (*text, int(options.argmax()))
        score += options.max()
        if text[-1] == end:
            return Hypothesis(text, score, True)
    return Hypothesis(text, score, False)
