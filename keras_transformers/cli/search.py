"""Defines the command that finds the texts nearest to a query: `search`."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction

from keras_transformers.cli.arguments import (
    Command,
    OptionalFile,
    PipelinePath,
    argument,
    batched,
    stdin_lines,
)
from keras_transformers.ranges import PositiveInt

# Takes texts; returns their vectors (texts, width).
Embed = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, kw_only=True)
class Search(Command):
    """Find the texts nearest to a query; print JSON lines, the best first.

    The search compares the query with every text: exact, and fast enough for a million. An embedder
    with prompts named query and document uses them.

    Examples:
        keras-transformers search minilm/ --texts faq.txt --query "How do I pay?" --top 3
        keras-transformers search saved_models/minilm --texts faq.txt --vectors vectors/faq.jsonl
    """

    path: PipelinePath
    texts: Annotated[
        Path, argument("FILE", "the texts to search, one per line, plain or compressed")
    ]
    # their vectors from `predict --input FILE --output FOLDER`; default: computed
    vectors: OptionalFile = None
    query: Annotated[
        UseAppendAction[tuple[str, ...]], argument("TEXT", "default: the lines of stdin")
    ] = ()
    top: PositiveInt = 5  # texts per query

    def run(self) -> int:
        """Prints one JSON object per query and text: query, rank, score, line and text."""
        import numpy as np

        from keras_transformers.files import read_lines
        from keras_transformers.files.surrogates import as_utf8

        texts = list(read_lines(self.texts))
        if not texts:
            raise ValueError(f"{self.texts}: no texts")
        of_queries, of_texts = _embedders(self.path)
        vectors = _read_vectors(Path(self.vectors)) if self.vectors else of_texts(texts)
        if len(vectors) != len(texts):
            raise ValueError(
                f"{self.vectors} has {len(vectors)} vectors for the {len(texts)} texts of "
                f"{self.texts}: compute them from this file, with `predict --input {self.texts}`"
            )
        units = _unit(vectors)
        for queries in [self.query] if self.query else batched(stdin_lines()):
            vectors = _unit(of_queries(queries))
            if vectors.shape[1] != units.shape[1]:
                raise ValueError(
                    f"{self.vectors} has vectors of {units.shape[1]} numbers, {self.path} makes "
                    f"{vectors.shape[1]}: compute both with the same model"
                )
            scores = vectors @ units.T  # (queries, texts)
            best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top]
            for query, row, places in zip(queries, scores, best, strict=True):
                for rank, place in enumerate(places.tolist(), start=1):
                    found_text = {
                        # A query from the shell may hold bytes that are not UTF-8.
                        "query": as_utf8("query", query).decode("utf-8", "replace"),
                        "rank": rank,
                        "score": round(float(row[place]), 6),
                    }
                    found_text |= {"line": place + 1, "text": texts[place]}
                    print(json.dumps(found_text, ensure_ascii=False), flush=True)
        return 0


def _embedders(path: str) -> tuple[Embed, Embed]:
    """Returns the function that embeds queries, and the one that embeds texts.

    Raises:
        FileNotFoundError: the path has neither an export nor weights.
        ValueError: the model does not embed texts.
    """
    import numpy as np

    from keras_transformers.convert.formats.weights import has_weights
    from keras_transformers.saved_model import Predictor
    from keras_transformers.tasks.embedding.pipeline import Embedder
    from keras_transformers.tasks.weights import loading

    if has_weights(path):
        pipeline: Any = loading.load(path)
        if not isinstance(pipeline, Embedder):
            pipeline = loading.load(path, pipeline=Embedder.task)
        prompted = {"query", "document"} <= set(pipeline.prompts)

        def by_pipeline(prompt: str) -> Embed:
            name = prompt if prompted else None
            return lambda texts: np.array(
                [answer.vector for answer in pipeline(list(texts), prompt_name=name)], np.float32
            )

        return by_pipeline("query"), by_pipeline("document")
    default = Predictor(path)
    both = {"query", "document"} <= set(default.signature_names)

    def by_export(signature: str) -> Embed:
        predictor = Predictor(path, signature=signature) if both else default

        def embed(texts: Sequence[str]) -> Any:
            rows = [row for batch in batched(iter(texts)) for row in predictor({"text": batch})]
            if not rows or "embedding" not in rows[0]:
                answers = ", ".join(rows[0]) if rows else "nothing"
                raise ValueError(f"{path} answers {answers}, not an embedding: use an embedder")
            return np.array([row["embedding"] for row in rows], np.float32)

        return embed

    return by_export("query"), by_export("document")


def _read_vectors(path: Path) -> Any:
    """Returns the vectors in a file of answers, (texts, width), float32.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is empty, or a line has no vector of finite numbers, or one of a different
            length.
    """
    import numpy as np

    from keras_transformers.files import read_lines
    from keras_transformers.files.errors import short_repr
    from keras_transformers.files.reading import parse_json

    remedy = "pass a file from `predict --output`"

    def rows() -> Iterator[Any]:
        width = None
        for number, line in enumerate(read_lines(path), start=1):
            place = f"{path}:{number}"
            answer = parse_json(line, place, remedy=remedy)
            row = answer.get("embedding") if isinstance(answer, dict) else None
            if not isinstance(row, list) or not row or not set(map(type, row)) <= {int, float}:
                raise ValueError(
                    f"{place}: no embedding, a list of numbers, but {short_repr(row)}: {remedy}"
                )
            try:
                vector = np.array(row, np.float64)
            except OverflowError:  # an integer beyond all floats
                vector = np.array([np.inf])
            most = np.abs(vector).max()
            if not most <= np.finfo(np.float32).max:  # also NaN
                raise ValueError(
                    f"{place}: the embedding has {most}, not a finite float32 number: {remedy}"
                )
            width = width or len(row)
            if len(row) != width:
                raise ValueError(f"{place}: {len(row)} numbers, the first row has {width}")
            yield vector.astype(np.float32)

    vectors = list(rows())
    if not vectors:
        raise ValueError(f"{path}: no vectors: {remedy}")
    return np.stack(vectors)


def _unit(rows: Any) -> Any:
    import numpy as np

    # First by the largest number, whose square may be no float32.
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-30)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
