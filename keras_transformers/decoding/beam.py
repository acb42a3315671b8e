"""Searches beams with pools of alive and finished hypotheses and a length penalty.

This is tensor2tensor's search, as used in "Attention Is All You Need" (section 6.1). The length
penalty is from Wu et al. 2016, "Google's Neural Machine Translation System", section 7. Weights
from elsewhere may need the rules of transformers or OpenNMT-tf, with which they were tuned.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import tensorflow as tf

from keras_transformers.decoding.constraints import Constraints, as_constraints
from keras_transformers.decoding.greedy import greedy_search
from keras_transformers.decoding.largest_logits import (
    Continuations,
    best_continuations,
    in_blocks,
    log_normalizer,
)
from keras_transformers.decoding.opennmt import search_as_opennmt
from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    LengthBounds,
    StepFunction,
    as_max_length,
    as_start_token_ids,
    check_logits,
    dynamic_length,
    length_bounds,
    loop_shapes,
    repeat_rows,
)

__all__ = ["BeamStep", "beam_search"]

Rules = Literal["gnmt", "transformers", "opennmt"]
EarlyStopping = bool | Literal["never"]

DEFAULT_PENALTIES: dict[Rules, float] = {"gnmt": 0.6, "transformers": 1.0, "opennmt": 0.0}
_IMPOSSIBLE = -float("inf")


class _Alive(NamedTuple):
    """Holds hypotheses without an end token, best first; log-probability -inf is an empty slot."""

    token_ids: tf.Tensor  # int32 (batch, num_beams, max_length)
    last_token_ids: tf.Tensor  # int32 (batch, num_beams)
    log_probs: tf.Tensor  # float32 (batch, num_beams)


class _Finished(NamedTuple):
    """Holds hypotheses with their end token, best first; score -inf marks an empty slot."""

    token_ids: tf.Tensor  # int32 (batch, num_finished, max_length)
    lengths: tf.Tensor  # int32 (batch, num_finished)
    scores: tf.Tensor  # float32 (batch, num_finished)


class BeamStep(NamedTuple):
    """Describes one step of a search, for `on_step`.

    Attributes:
        parents: int32 (batch, num_beams), the place before the step of each alive hypothesis.
        token_ids: int32 (batch, num_beams), its new token.
        log_probs: float32 (batch, num_beams), -inf at empty places.
        end_parents: int32 (batch, 2 * num_beams), the place of each candidate before the step.
        end_scores: float32 (batch, 2 * num_beams), its score if it ended here, else -inf.
        closed: bool (batch,), whether the sentence is now complete.
    """

    parents: tf.Tensor
    token_ids: tf.Tensor
    log_probs: tf.Tensor
    end_parents: tf.Tensor
    end_scores: tf.Tensor
    closed: tf.Tensor


class _Pools(NamedTuple):
    """Holds the state of every sentence; `closed` sentences are complete and no longer change."""

    index: tf.Tensor  # int32 scalar
    alive: _Alive
    finished: _Finished
    closed: tf.Tensor  # bool (batch,)


def beam_search(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: int | tf.Tensor,
    num_beams: int = 4,
    num_hypotheses: int | tf.Tensor | None = None,
    length_penalty: float | None = None,
    rules: Rules = "gnmt",
    min_length: int = 0,
    length_limits: tf.Tensor | None = None,
    first_token_ids: int | tf.Tensor | Sequence[int] | None = None,
    force_end: bool = False,
    no_repeat_ngram_size: int = 0,
    early_stopping: EarlyStopping = False,
    pad_token_id: int = 0,
    growing_axis: int | None = None,
    on_step: Callable[[BeamStep], None] | None = None,
) -> Hypotheses:
    """Finds the texts with the best length-normalized log-probability.

    Each step considers the `2 * num_beams` best one-token extensions of a sentence's alive
    hypotheses. Those that end move to the finished pool, which keeps the `num_hypotheses` best; a
    finished score never changes. The `num_beams` best of the others stay alive. A sentence is
    closed when no alive hypothesis can still enter its finished pool: log-probabilities only fall,
    so log_prob / penalty(longest allowed) bounds every future score. Stopping early therefore
    never changes the result.

    A hypothesis that reaches its maximum length without an end token is cut off there. Such
    hypotheses only fill places that finished ones leave free, best first. With one beam this is
    greedy search. Ties are broken by beam, then by token id.

    `rules="transformers"` gives the results of `generate` in transformers: only the `num_beams`
    best extensions may finish; a sentence is closed when the best alive hypothesis, at its current
    length, scores less than all of `num_beams` finished ones, so better texts may be missed; and
    cut hypotheses compete with finished ones. `early_stopping` closes sentences sooner or later.

    `rules="opennmt"` gives the results of OpenNMT-tf: finished hypotheses stay among the
    `num_beams` until all of these have ended, so better texts may be missed. `length_limits` only
    matter for empty texts.

    Args:
        step: the model, see `StepFunction`; it gets batch * num_beams rows.
        start_token_ids: see `greedy_search`.
        cache: see `greedy_search`; the search repeats its leaves (batch, ...) for the beams.
        end_token_id: see `greedy_search`.
        max_length: see `greedy_search`.
        num_beams: alive hypotheses per sentence (Hugging Face: num_beams; the paper: beam size).
        num_hypotheses: how many to return, 1 to `num_beams` (the default). With fewer, the search
            can stop sooner, with the same best ones. With an int32 scalar tensor, `num_beams` are
            returned, and those beyond its value may not be the best ones.
        length_penalty: the paper's alpha, 0 or more: a hypothesis of n tokens, including its end
            token, scores its log-probability / ((5 + n) / 6)^alpha, or / n^alpha with the rules of
            transformers. Larger values favour longer texts. By default 0.6; 1 with the rules of
            transformers and 0 with those of OpenNMT-tf.
        rules: which hypotheses finish, when to stop and how to score: "gnmt", "transformers" or
            "opennmt".
        min_length: see `greedy_search`.
        length_limits: see `greedy_search`.
        first_token_ids: see `greedy_search`.
        force_end: see `greedy_search`.
        no_repeat_ngram_size: see `greedy_search`; not for the rules of OpenNMT-tf.
        early_stopping: for the rules of transformers: True closes a sentence as soon as it has
            `num_beams` finished hypotheses; "never", when no alive one could score more at its
            maximum length; False (the default) is in between, see above.
        pad_token_id: see `greedy_search`.
        growing_axis: see `greedy_search`.
        on_step: called after each step, to show the search. It is not called for one beam; in a
            graph it is called once, with symbolic tensors.

    Returns:
        Distinct hypotheses, finished ones first, each kind sorted by descending score; with the
        rules of transformers, both kinds together.

    Raises:
        ValueError: an argument is out of range, or the step's logits have no static width.

    Example:
        >>> def coin(token_ids, index, cache):  # 0 pad, 1 start, 2 end, 3 heads, 4 tails
        ...     probabilities = tf.constant([0.0, 0.0, 0.5, 0.3, 0.2])
        ...     return tf.tile(tf.math.log(probabilities)[None], [len(token_ids), 1]), cache
        >>> best = beam_search(
        ...     coin, [1], end_token_id=2, max_length=3, num_beams=3, length_penalty=0.0
        ... )
        >>> best.token_ids[0].numpy()
        array([[2, 0, 0],
               [3, 2, 0],
               [4, 2, 0]], dtype=int32)
        >>> [round(score, 3) for score in tf.exp(best.scores[0]).numpy().tolist()]
        [0.5, 0.15, 0.1]
    """
    num_hypotheses = num_beams if num_hypotheses is None else num_hypotheses
    length_penalty = check_beams(num_beams, length_penalty, rules, early_stopping)
    num_wanted = num_hypotheses
    if tf.is_tensor(num_wanted):
        num_hypotheses = num_beams
    elif not 1 <= num_hypotheses <= num_beams:
        raise ValueError(
            f"num_hypotheses={num_hypotheses} must be between 1 and num_beams={num_beams}"
        )
    if num_beams == 1:
        # With two candidates per step, a second-best end token would finish a text. Greedy search
        # would not end there, and neither should a single beam.
        greedy = greedy_search(
            step,
            start_token_ids,
            cache,
            end_token_id=end_token_id,
            max_length=max_length,
            min_length=min_length,
            length_limits=length_limits,
            first_token_ids=first_token_ids,
            force_end=force_end,
            no_repeat_ngram_size=no_repeat_ngram_size,
            pad_token_id=pad_token_id,
            growing_axis=growing_axis,
        )
        penalties = _penalty(greedy.lengths, length_penalty, rules)
        return greedy._replace(scores=greedy.scores / penalties)

    start_token_ids = as_start_token_ids(start_token_ids)
    max_length = as_max_length(max_length)
    bounds = length_bounds(step, start_token_ids, max_length, min_length, length_limits)
    constraints = as_constraints(
        start_token_ids,
        first_token_ids=first_token_ids,
        force_end=force_end,
        end_token_id=end_token_id,
        no_repeat_ngram_size=no_repeat_ngram_size,
        num_beams=num_beams,
    )
    if rules == "opennmt":
        if no_repeat_ngram_size:
            raise ValueError(
                f"no_repeat_ngram_size={no_repeat_ngram_size}: the rules of OpenNMT-tf have no "
                "such option; use those of transformers or 'gnmt'"
            )
        if end_token_id is None:
            raise ValueError("end_token_id=None: the rules of OpenNMT-tf need an end token")
        return search_as_opennmt(
            step,
            start_token_ids,
            cache,
            end_token_id=end_token_id,
            max_length=max_length,
            num_beams=num_beams,
            length_penalty=length_penalty,
            min_length=min_length,
            bounds=bounds,
            pad_token_id=pad_token_id,
            constraints=constraints,
            growing_axis=growing_axis,
            on_step=None if on_step is None else functools.partial(_tell, on_step),
        )
    search = _BeamSearch(
        step=step,
        end_token_id=end_token_id,
        pad_token_id=pad_token_id,
        num_beams=num_beams,
        num_hypotheses=num_hypotheses,
        num_finished=num_hypotheses if rules == "gnmt" else num_beams,
        num_enough=num_wanted if rules == "gnmt" else num_beams,
        length_penalty=length_penalty,
        rules=rules,
        max_length=max_length,
        bounds=bounds,
        constraints=constraints,
        early_stopping=early_stopping,
        on_step=on_step,
    )
    return search.run(start_token_ids, cache, growing_axis)


def check_beams(
    num_beams: int,
    length_penalty: float | None,
    rules: Rules = "gnmt",
    early_stopping: EarlyStopping = False,
) -> float:
    """Returns the length penalty, by default that of the rules.

    Raises:
        ValueError: an argument is out of range.
    """
    if rules not in get_args(Rules):
        raise ValueError(f"rules={rules!r}: use {' or '.join(map(repr, get_args(Rules)))}")
    if num_beams < 1:
        raise ValueError(f"num_beams={num_beams}: must be at least 1")
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise ValueError(f"early_stopping={early_stopping!r}: use False, True or 'never'")
    if early_stopping is not False and rules != "transformers":
        raise ValueError(
            f"early_stopping={early_stopping!r}, but rules={rules!r} have one way to stop: leave "
            "it at False, or use rules='transformers'"
        )
    if length_penalty is None:
        return DEFAULT_PENALTIES[rules]
    if not 0 <= length_penalty < math.inf:
        raise ValueError(
            f"length_penalty={length_penalty}: must be 0 (none) or more; with a negative one, the "
            "search could not know when to stop"
        )
    return length_penalty


def _penalty(length: tf.Tensor, alpha: float, rules: Rules) -> tf.Tensor:
    length = tf.cast(length, tf.float32)
    # An empty text scores 0 for any divisor.
    return (tf.maximum(length, 1.0) if rules == "transformers" else (5.0 + length) / 6.0) ** alpha


def _tell(
    on_step: Callable[[BeamStep], None],
    parents: tf.Tensor,
    token_ids: tf.Tensor,
    log_probs: tf.Tensor,
    ended: tf.Tensor,
    scores: tf.Tensor,
) -> None:
    """Passes a step of OpenNMT-tf's search to `on_step`."""
    end_scores = tf.where(ended, scores, _IMPOSSIBLE)
    both = tf.concat([parents, parents], axis=1)
    end_scores = tf.concat([end_scores, tf.fill(tf.shape(end_scores), _IMPOSSIBLE)], axis=1)
    closed = tf.reduce_all(ended, axis=1)
    on_step(BeamStep(parents, token_ids, log_probs, both, end_scores, closed))


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    """Runs a search with its options; its parts are methods."""

    step: StepFunction
    end_token_id: int | None
    pad_token_id: int
    num_beams: int
    num_hypotheses: int
    num_finished: int
    num_enough: int | tf.Tensor  # the number of finished hypotheses that can close a sentence
    length_penalty: float
    rules: Rules
    max_length: int | tf.Tensor
    bounds: LengthBounds
    constraints: Constraints
    early_stopping: EarlyStopping
    on_step: Callable[[BeamStep], None] | None

    def run(self, start_token_ids: tf.Tensor, cache: Cache, growing_axis: int | None) -> Hypotheses:
        state = self.start(start_token_ids), repeat_rows(cache, self.num_beams)
        shapes = loop_shapes(*state, growing_axis)

        def goes_on(pools: _Pools, cache: Cache) -> tf.Tensor:
            return tf.logical_not(tf.reduce_all(pools.closed))

        def extend(pools: _Pools, cache: Cache) -> tuple[_Pools, Cache]:
            return tf.nest.map_structure(tf.ensure_shape, self.extend(pools, cache), shapes)

        pools, _ = tf.while_loop(goes_on, extend, state, shape_invariants=shapes)
        return self.result(pools)

    def start(self, start_token_ids: tf.Tensor) -> _Pools:
        """Returns the state before the first step: one empty alive hypothesis, none finished."""
        batch = dynamic_length(start_token_ids)
        alive = (batch, self.num_beams)
        finished = (batch, self.num_finished)
        only_first = tf.where(tf.range(self.num_beams) == 0, 0.0, _IMPOSSIBLE)
        return _Pools(
            index=tf.constant(0),
            alive=_Alive(
                token_ids=tf.fill((*alive, self.max_length), self.pad_token_id),
                last_token_ids=tf.repeat(start_token_ids[:, None], self.num_beams, axis=1),
                log_probs=tf.tile(only_first[None], (batch, 1)),
            ),
            finished=_Finished(
                token_ids=tf.fill((*finished, self.max_length), self.pad_token_id),
                lengths=tf.zeros(finished, tf.int32),
                scores=tf.fill(finished, _IMPOSSIBLE),
            ),
            closed=self.bounds.longest <= 0,
        )

    def extend(self, pools: _Pools, cache: Cache) -> tuple[_Pools, Cache]:
        """Appends one token to the alive hypotheses of all sentences that are not closed."""
        logits, cache = self.step(tf.reshape(pools.alive.last_token_ids, [-1]), pools.index, cache)
        logits = check_logits(
            logits, end_token_id=self.end_token_id, pad_token_id=self.pad_token_id
        )
        length = pools.index + 1
        is_last = length >= self.bounds.longest
        logits = self.constraints.force(logits, pools.index, is_last)
        blocks = in_blocks(logits)
        normalizers = tf.reshape(log_normalizer(blocks), (-1, self.num_beams))
        if self.constraints.no_repeat_ngram_size:
            so_far = tf.reshape(pools.alive.token_ids[:, :, : pools.index], (-1, pools.index))
            blocks = in_blocks(self.constraints.forbid(logits, so_far, pools.index, is_last))
        # Twice the beams, because each beam may end in one candidate, and enough must stay alive.
        candidates = best_continuations(
            pools.alive.log_probs - normalizers, blocks, 2 * self.num_beams
        )
        ends = tf.zeros_like(candidates.token_ids, tf.bool)
        if self.end_token_id is not None:
            ends = candidates.token_ids == self.end_token_id
        complete = self.finishing(candidates, ends, is_last)
        finished = self.finish(pools, candidates, complete)
        alive, beams = self.stay_alive(pools, candidates, ends)
        first_row = tf.range(tf.shape(beams)[0])[:, None] * self.num_beams  # (batch, 1)
        rows = tf.reshape(first_row + beams, [-1])
        cache = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), cache)
        closed = pools.closed | self.is_enough(alive, finished, length) | is_last
        if self.on_step:
            scores = tf.where(complete, candidates.scores / self.penalty(length), _IMPOSSIBLE)
            last = alive.last_token_ids
            self.on_step(BeamStep(beams, last, alive.log_probs, candidates.beams, scores, closed))
        return _Pools(length, alive, finished, closed), cache

    def is_enough(self, alive: _Alive, finished: _Finished, length: tf.Tensor) -> tf.Tensor:
        """Returns whether each sentence (batch,) has finished hypotheses that close it."""
        worst = finished.scores[:, self.num_enough - 1]
        if self.early_stopping is True:
            return worst > _IMPOSSIBLE
        # Log-probabilities only fall and the penalty only grows, so nothing alive can score more.
        is_exact = self.rules == "gnmt" or self.early_stopping == "never"
        best_length = self.bounds.longest if is_exact else length
        return worst >= alive.log_probs[:, 0] / self.penalty(best_length)

    def penalty(self, length: tf.Tensor) -> tf.Tensor:
        """Returns the divisors for the log-probabilities of texts of these lengths."""
        return _penalty(length, self.length_penalty, self.rules)

    def finishing(
        self, candidates: Continuations, ends: tf.Tensor, is_last: tf.Tensor
    ) -> tf.Tensor:
        """Returns which candidates (batch, count) are complete texts."""
        if self.rules == "gnmt":
            return ends
        ranks = tf.range(tf.shape(ends)[1])
        return (ends | is_last[:, None]) & (ranks < self.num_beams)

    def finish(self, pools: _Pools, candidates: Continuations, complete: tf.Tensor) -> _Finished:
        """Returns the finished pool with the candidates (batch, count) that are complete."""
        length = pools.index + 1
        enters = complete & (length >= self.bounds.shortest)[:, None] & ~pools.closed[:, None]
        scores = candidates.scores / self.penalty(length)
        scores = tf.concat(
            [pools.finished.scores, tf.where(enters, scores, _IMPOSSIBLE)], axis=1
        )  # (batch, num_finished + count)
        scores, chosen = tf.math.top_k(scores, self.num_finished)
        is_new = chosen >= self.num_finished
        # Where each one's tokens are: indices into the finished pool followed by the alive pool.
        old = tf.zeros_like(candidates.beams[:, :1]) + tf.range(self.num_finished)
        sources = tf.concat([old, self.num_finished + candidates.beams], axis=1)
        sources = tf.gather(sources, chosen, batch_dims=1)
        token_ids = tf.concat([pools.finished.token_ids, pools.alive.token_ids], axis=1)
        token_ids = tf.gather(token_ids, sources, batch_dims=1)
        last_token_ids = tf.concat([old, candidates.token_ids], axis=1)
        last_token_ids = tf.gather(last_token_ids, chosen, batch_dims=1)
        here = tf.range(self.max_length) == pools.index
        token_ids = tf.where(is_new[:, :, None] & here, last_token_ids[:, :, None], token_ids)
        lengths = tf.gather(
            pools.finished.lengths, tf.minimum(chosen, self.num_finished - 1), batch_dims=1
        )
        return _Finished(token_ids, tf.where(is_new, length, lengths), scores)

    def stay_alive(
        self, pools: _Pools, candidates: Continuations, ends: tf.Tensor
    ) -> tuple[_Alive, tf.Tensor]:
        """Returns the alive pool after this step, and the beams (batch, num_beams) it came from."""
        log_probs = tf.where(ends, _IMPOSSIBLE, candidates.scores)
        log_probs, chosen = tf.math.top_k(log_probs, self.num_beams)
        beams = tf.gather(candidates.beams, chosen, batch_dims=1)
        last_token_ids = tf.gather(candidates.token_ids, chosen, batch_dims=1)
        closed = pools.closed[:, None]
        log_probs = tf.where(closed, pools.alive.log_probs, log_probs)
        beams = tf.where(closed, tf.range(self.num_beams), beams)
        # An empty slot has no token, but the step needs one.
        is_empty = log_probs == _IMPOSSIBLE
        last_token_ids = tf.where(closed | is_empty, self.pad_token_id, last_token_ids)
        token_ids = tf.gather(pools.alive.token_ids, beams, batch_dims=1)
        here = tf.range(self.max_length) == pools.index
        token_ids = tf.where(here, last_token_ids[:, :, None], token_ids)
        return _Alive(token_ids, last_token_ids, log_probs), beams

    def result(self, pools: _Pools) -> Hypotheses:
        """Returns the finished hypotheses, followed by as many cut ones as fit."""
        alive, finished = pools.alive, pools.finished
        # Unless a sentence has enough finished hypotheses, its alive ones were cut at this length.
        cut_lengths = tf.zeros_like(alive.last_token_ids) + self.bounds.longest[:, None]
        cut_scores = alive.log_probs / self.penalty(cut_lengths)
        slots = tf.range(self.num_hypotheses)
        is_finished = finished.scores[:, : self.num_hypotheses] > _IMPOSSIBLE
        num_finished = tf.reduce_sum(tf.cast(is_finished, tf.int32), axis=1, keepdims=True)
        sources = tf.where(is_finished, slots, self.num_finished + slots - num_finished)

        def fill(finished: tf.Tensor, cut: tf.Tensor) -> tf.Tensor:
            return tf.gather(tf.concat([finished, cut], axis=1), sources, batch_dims=1)

        scores = fill(finished.scores, cut_scores)
        is_empty = scores == _IMPOSSIBLE
        token_ids = fill(finished.token_ids, alive.token_ids)
        lengths = tf.where(is_empty, 0, fill(finished.lengths, cut_lengths))
        return Hypotheses(
            token_ids=tf.where(is_empty[:, :, None], self.pad_token_id, token_ids),
            lengths=lengths,
            scores=scores,
            finished=is_finished & self.have_end(token_ids, lengths),
        )

    def have_end(self, token_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Returns whether texts (batch, count, max_length) have the end token."""
        if self.end_token_id is None:
            return tf.zeros_like(lengths, tf.bool)
        is_text = tf.range(self.max_length) < lengths[:, :, None]
        return tf.reduce_any(is_text & (token_ids == self.end_token_id), axis=-1)
