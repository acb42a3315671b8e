"""Says how much each token of a text adds to a pipeline's answer, in words and as a picture."""

import base64
import dataclasses
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, overload

import numpy as np
from rich.cells import cell_len

from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.inspection.svg import Picture, between, printable

__all__ = ["Explanation", "explain"]

_NUM_NAMED = 5  # tokens in a line
_NUM_SHADES = 8  # for or against
_CELL = 7.85  # pixels of a character; Chinese ones take two
_WIDTH, _LINE, _MARGIN = 760, 26, 16
_LONGEST = 400  # characters without a token in between


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """How much each token of a text adds to a score of a pipeline's answer.

    The shares are integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365): they add up to
    `score` - `baseline_score`, apart from `gap`. They say what this model reads, not what is true.

    Attributes:
        texts: the texts, such as one, or a question and its context.
        tokens: each token's part of its text.
        text_index: which of `texts` each token is from, int32 (tokens,).
        starts: where each token begins in its text, in characters, int32 (tokens,).
        ends: where it ends, exclusive.
        shares: what each token adds to the score, float32 (tokens,); below 0 it speaks against it.
        label: what is explained: a label; "score"; "answer", "start" or "end"; "similarity".
        score: the score of the texts: a label's log-odds, log(p / (1 - p)), a regression's score,
            the logits of an answer, or the cosine of two texts.
        baseline_score: the score with the vector of padding in each token's place, or zeros where
            padding has none; in a search, the mean of the scores with one text so.

    Example:
        why = kt.explain(classify, "A warm and funny film.")
        print(why)
        why.to_frame().nlargest(3, "share")
    """

    texts: tuple[str, ...]
    tokens: list[str]
    text_index: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    shares: np.ndarray
    label: str
    score: float
    baseline_score: float

    @classmethod
    def of(cls, texts: Sequence[str | bytes], row: Mapping[str, Any]) -> Self:
        """Makes an explanation of what an export's signature `explain` answers to a row.

        Args:
            texts: the texts of the row, in the order of the signature's inputs.
            row: output -> value, such as `serving.Client.rows` returns.

        Example:
            (row,) = client.rows([text], model="sentiment", signature_name="explain")
            kt.inspection.Explanation.of([text], row)
        """
        integers = {
            name: np.asarray(row[name], np.int32) for name in ("text_index", "starts", "ends")
        }
        return cls(
            texts=tuple(
                text.decode("utf-8", "replace") if isinstance(text, bytes) else text
                for text in texts
            ),
            tokens=list(row["tokens"]),
            **integers,
            shares=np.asarray(row["shares"], np.float32),
            label=row["label"],
            score=float(row["score"]),
            baseline_score=float(row["baseline_score"]),
        )

    @property
    def gap(self) -> float:
        """How far the shares' sum is from `score` - `baseline_score`, in the score's unit."""
        return float(self.shares.sum(dtype=np.float64)) - (self.score - self.baseline_score)

    def most_important(self, count: int = 3) -> np.ndarray:
        """Returns the indices of the tokens that add most, the largest share first: int (count,).

        Args:
            count: how many; fewer if there are fewer tokens.
        """
        return np.argsort(-self.shares, kind="stable")[:count]

    def __str__(self) -> str:
        """Returns a line: the score, and the tokens with the largest shares, for or against it."""
        order = np.argsort(-np.abs(self.shares), kind="stable")[:_NUM_NAMED]
        named = ", ".join(f"{_shown(self.tokens[i]) or 'end'} {self.shares[i]:+.2f}" for i in order)
        score = f"{_shown(self.label)}: {self.score:.2f}, {self.baseline_score:.2f} without the"
        return f"{score} tokens; {named or 'no tokens'}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the picture for a notebook."""
        picture = base64.b64encode(self.svg().encode()).decode()
        # In an image, so that the styles of the picture do not reach the page.
        return f'<img alt="{html.escape(str(self))}" src="data:image/svg+xml;base64,{picture}">'

    def svg(self) -> str:
        """Returns a picture as an SVG file's text, for light and dark pages.

        The texts are written out; the more a part speaks for the score, the bluer it is, and the
        more it speaks against it, the redder.
        """
        return str(_drawn(self))

    def to_frame(self) -> Any:
        """Returns a row per token as a pandas DataFrame: token, share, text, start, end.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            remedy = "to_frame needs pandas: pip install pandas, or use to_dict"
            raise MissingExtraError(remedy, name="pandas") from error
        return pandas.DataFrame(
            {
                "token": self.tokens,
                "share": self.shares,
                "text": self.text_index,
                "start": self.starts,
                "end": self.ends,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, and `gap`, as JSON values."""
        fields = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
        }
        return {**plain, "texts": list(self.texts), "gap": self.gap}

    def to_json(self) -> str:
        """Returns `to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


@overload
def explain(pipeline: Any, *texts: str | bytes, label: str | None = None) -> Explanation: ...
@overload
def explain(
    pipeline: Any, *texts: Iterable[str | bytes], label: str | None = None
) -> list[Explanation]: ...
def explain(pipeline: Any, *texts: Any, label: str | None = None) -> Any:
    """Says how much each token of a text adds to a pipeline's answer.

    By integrated gradients, which need a score and tokens with vectors: of pipelines for
    classification, several labels, regression, questions, next sentences, search and reranking, on
    any encoder. An answer takes 18 passes through the model and back. docs/see_inside.md says what
    a share means; `export(..., explain=True)` makes an export that answers the same.

    Args:
        pipeline: a pipeline from `load`.
        *texts: what the pipeline takes: a text, both texts of a pair, or a question and its
            context. For search and reranking, a query and one document. Each is a string; or each
            is a list of as many.
        label: what to explain: a label, instead of the answer's own (of several labels, the
            likeliest); for questions "start" or "end", instead of both.

    Returns:
        An `inspection.Explanation` for one row; a list for lists.

    Raises:
        ValueError: the pipeline has no explanations, there are other texts, there is no such label,
            or Keras does not run on TensorFlow.

    Example:
        why = kt.explain(classify, "A warm and funny film.")
        print(why)  # positive: 5.31, 0.42 without the tokens; funny +2.10, warm +1.77, ...
    """
    if not hasattr(pipeline, "explain_rows"):
        raise ValueError(
            f"pipeline is a {type(pipeline).__name__}: pass a pipeline, such as one from load"
        )
    names = pipeline.explained_inputs
    is_one = bool(texts) and isinstance(texts[0], str | bytes)
    columns = [[text] for text in texts] if is_one else list(texts)
    if pipeline.explained and len(columns) != len(names):
        raise ValueError(
            f"explanations of {type(pipeline).__name__} take {', '.join(names)}, not "
            f"{len(columns)} arguments: pass one string or a list of strings for each"
        )
    rows = pipeline.explain_rows(dict(zip(names, columns, strict=False)), label=label)
    explanations = [
        Explanation.of(row, answer)
        for row, answer in zip(zip(*columns, strict=True), rows, strict=True)
    ]
    return explanations[0] if is_one else explanations


class _Text(Picture):
    """A picture with boxes that speak for something, from "for0" to "for8", or against it."""

    # The strongest ones still show the text on them, on light pages and on dark ones.
    colors: ClassVar[Mapping[str, tuple[str, str]]] = {
        **Picture.colors,
        **{
            f"{name}{i}": (
                between("#ffffff", light, i / _NUM_SHADES),
                between("#16181d", dark, i / _NUM_SHADES),
            )
            for name, light, dark in (
                ("for", "#79aee6", "#2b6aa8"),
                ("against", "#ee9a8c", "#a04436"),
            )
            for i in range(_NUM_SHADES + 1)
        },
    }

    def rules(self, scheme: int) -> list[str]:
        """Returns the rules of the style sheet: no borders, and words of a known width."""
        words = ".words { font: 13px monospace; white-space: pre; }"
        return [*super().rules(scheme), "rect { stroke: none; }", words]


def _drawn(explanation: Explanation) -> Picture:
    """Draws the texts with their tokens' shares."""
    pieces = [_pieces(explanation, index) for index in range(len(explanation.texts))]
    largest = max((abs(share) for text in pieces for _, share in text), default=0) or 1.0
    lines: list[list[tuple[str, float, float, float]]] = []  # words, share, x, width
    for text in pieces:
        lines.append([])
        x = float(_MARGIN)
        for words, share in text:
            width = _CELL * cell_len(words)
            if x + width > _WIDTH - _MARGIN and lines[-1]:
                lines.append([])
                x = float(_MARGIN)
            if not lines[-1] and not words.strip():
                continue
            lines[-1].append((words, share, x, width))
            x += width
    picture = _Text(_WIDTH, 66 + _LINE * len(lines), title=str(explanation))
    picture.text(_MARGIN, 24, _shown(explanation.label), style="bold")
    picture.text(
        _MARGIN,
        44,
        f"score {explanation.score:.3f}, {explanation.baseline_score:.3f} without the tokens; "
        "blue speaks for it, red against it",
        style="faint",
    )
    for number, line in enumerate(lines):
        top = 58 + _LINE * number
        for words, share, x, width in line:
            shade = round(abs(share) / largest * _NUM_SHADES)
            if shade:
                kind = "for" if share > 0 else "against"
                picture.box(x, top, width, _LINE - 4, f"{kind}{shade}", radius=3)
            picture.text(x, top + 15, words, style="words")
    return picture


def _pieces(explanation: Explanation, index: int) -> list[tuple[str, float]]:
    """Cuts a text into pieces of a line's length or less, with their shares.

    Where tokens overlap, as the n-grams of fastText, the share of the longer one is divided among
    those inside it.
    """
    text = explanation.texts[index]
    mine = np.flatnonzero(explanation.text_index == index)
    spans: dict[tuple[int, int], float] = {}
    for i in mine.tolist():
        span = int(explanation.starts[i]), int(explanation.ends[i])
        spans[span] = spans.get(span, 0.0) + float(explanation.shares[i])
    whole = sorted(spans)
    inner = [
        (start, end)
        for start, end in whole
        if start < end
        and not any(start <= s and e <= end and s < e and (s, e) != (start, end) for s, e in whole)
    ]
    shares = dict.fromkeys(inner, 0.0)
    for (start, end), share in spans.items():
        inside = [span for span in inner if start <= span[0] and span[1] <= end]
        for span in inside:
            shares[span] += share / len(inside)
    pieces: list[tuple[str, float]] = []
    at = 0
    for (start, end), share in shares.items():
        if start > at:
            pieces += _blank(text[at:start])
        if end > max(at, start):
            pieces.append((_shown(text[max(at, start) : end]), share))
        at = max(at, end)
    return [*pieces, *_blank(text[at:])]


def _blank(text: str) -> list[tuple[str, float]]:
    """Cuts a text without tokens, such as white space, where a line can end."""
    shown = _shown(text)
    if len(shown) > _LONGEST:  # what the model has not read
        shown = f"{shown[: _LONGEST - 1]}…"
    *words, last = shown.split(" ")
    return [(word, 0.0) for word in (*(f"{word} " for word in words), last) if word]


def _shown(text: str) -> str:
    """Returns a text on one line, printable."""
    return printable("".join(" " if char.isspace() else char for char in text))
