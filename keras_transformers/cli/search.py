"""Defines the command that finds the texts nearest to a query: `search`."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from keras_transformers.tasks.pipeline import Pipeline

# Takes texts; returns their vectors (texts, width).
Embed = Callable[[Sequence[str]], Any]
# A text that was found: its line or its id, its score, and the text.
Hit = tuple[dict[str, Any], float, str]
Find = Callable[[Sequence[str]], Iterable[list[Hit]]]


@dataclass(frozen=True, kw_only=True)
class Search(Command):
    """Find the texts nearest to a query; print JSON lines, the best first.

    The search compares the query with every text: exact, and fast enough for a million. An embedder
    with prompts named query and document uses them. An export that holds a corpus needs no texts.

    Examples:
        keras-transformers search minilm/ --texts faq.txt --query "How do I pay?" --top 3
        keras-transformers search minilm/ --texts faq.txt --words --rerank reranker/
        keras-transformers search saved_models/minilm --texts faq.txt --vectors vectors/faq.jsonl
        keras-transformers search saved_models/faq --query "How do I pay?"
    """

    path: PipelinePath
    # the texts to search, one per line, plain or compressed; default: those that the export holds
    texts: OptionalFile = None
    # their vectors from `predict --input FILE --output FOLDER`; default: computed
    vectors: OptionalFile = None
    query: Annotated[
        UseAppendAction[tuple[str, ...]], argument("TEXT", "default: the lines of stdin")
    ] = ()
    top: PositiveInt = 5  # texts per query
    words: bool = False  # add the scores of the words that query and text share, BM25
    # a model for reranking, which reads the best texts again with the query
    rerank: Annotated[str | None, argument("PATH")] = None

    def run(self) -> int:
        """Prints one JSON object per query and text: query, rank, score, line or id, and text."""
        from keras_transformers.files.surrogates import as_utf8

        find = self._finder()
        for queries in [self.query] if self.query else batched(stdin_lines()):
            for query, hits in zip(queries, find(queries), strict=True):
                for rank, (place, score, text) in enumerate(hits, start=1):
                    found_text = {
                        # A query from the shell may hold bytes that are not UTF-8.
                        "query": as_utf8("query", query).decode("utf-8", "replace"),
                        "rank": rank,
                        "score": round(score, 6),
                    }
                    found_text |= {**place, "text": text}
                    print(json.dumps(found_text, ensure_ascii=False), flush=True)
        return 0

    def _finder(self) -> Find:
        """Returns what finds the best texts for queries."""
        from keras_transformers.files import read_lines

        if self.texts is None:
            if self.vectors or self.words or self.rerank:
                raise ValueError("--vectors, --words and --rerank are for --texts: pass them too")
            return _of_export(self.path, self.top)
        texts = list(read_lines(self.texts))
        if not texts:
            raise ValueError(f"{self.texts}: no texts")
        if not self.words and self.rerank is None:
            return self._by_vectors(texts)
        if self.vectors is not None:
            raise ValueError("--vectors with --words or --rerank: leave out --vectors")
        return self._by_searcher(texts)

    def _by_vectors(self, texts: Sequence[str]) -> Find:
        """Returns a search by cosines, with the vectors of weights, an export or a file."""
        import numpy as np

        of_queries, of_texts = _embedders(self.path)
        vectors = _read_vectors(Path(self.vectors)) if self.vectors else of_texts(texts)
        if len(vectors) != len(texts):
            raise ValueError(
                f"{self.vectors} has {len(vectors)} vectors for the {len(texts)} texts of "
                f"{self.texts}: compute them from this file, with `predict --input {self.texts}`"
            )
        units = _unit(vectors)

        def find(queries: Sequence[str]) -> Iterator[list[Hit]]:
            vectors = _unit(of_queries(queries))
            if vectors.shape[1] != units.shape[1]:
                raise ValueError(
                    f"{self.vectors} has vectors of {units.shape[1]} numbers, {self.path} makes "
                    f"{vectors.shape[1]}: compute both with the same model"
                )
            scores = vectors @ units.T  # (queries, texts)
            best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top]
            for row, places in zip(scores, best, strict=True):
                yield [({"line": i + 1}, float(row[i]), texts[i]) for i in places.tolist()]

        return find

    def _by_searcher(self, texts: Sequence[str]) -> Find:
        """Returns a search by several kinds of scores, of models that are weights."""
        from keras_transformers.tasks.embedding.pipeline import Embedder
        from keras_transformers.tasks.reranking.pipeline import Reranker
        from keras_transformers.tasks.search.corpus import Corpus
        from keras_transformers.tasks.search.pipeline import Searcher
        from keras_transformers.tasks.sparse_embedding.pipeline import SparseEmbedder

        filled = [line for line, text in enumerate(texts, start=1) if text]
        corpus = Corpus([texts[i - 1] for i in filled], ids=filled, source=str(self.texts))
        embed = _loaded(self.path, Embedder, SparseEmbedder)
        ranks = _loaded(self.rerank, Reranker) if self.rerank else None
        search = Searcher.of(
            *(embed, corpus), words=self.words, rerank=ranks, top_k=min(self.top, len(corpus))
        )

        def find(queries: Sequence[str]) -> Iterator[list[Hit]]:
            for hits in search(list(queries)):
                rows = zip(hits.ids, hits.scores, hits.texts, strict=True)
                yield [({"line": int(line)}, score, text) for line, score, text in rows]

        return find


def _of_export(path: str, top: int) -> Find:
    """Returns a search in the corpus of an export.

    Raises:
        ValueError: it has none.
    """
    from keras_transformers.convert.formats.weights import has_weights
    from keras_transformers.saved_model import Predictor, describe

    facts = {} if has_weights(path) else describe(path)
    if "num_texts" not in facts:
        raise ValueError(f"{path} holds no texts: pass --texts, the file to search")
    count = min(top, facts["num_texts"])
    search = Predictor(path, signature="search")

    def find(queries: Sequence[str]) -> Iterator[list[Hit]]:
        for row in search({"query": list(queries), "k": [count] * len(queries)}):
            hits = zip(row["ids"], row["scores"], row["texts"], strict=True)
            yield [({"id": name}, score, text) for name, score, text in hits]

    return find


def _loaded(path: str, kind: "type[Pipeline]", *others: "type[Pipeline]") -> Any:
    """Loads a pipeline of one of the kinds, or of the first, if the weights can serve it."""
    from keras_transformers.tasks.weights import loading

    pipeline = loading.load(path)
    return (
        pipeline
        if isinstance(pipeline, (kind, *others))
        else loading.load(path, pipeline=kind.task)
    )


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

    if has_weights(path):
        pipeline = _loaded(path, Embedder)
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
