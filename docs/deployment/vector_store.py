r"""Search in a vector store: embeds a corpus, fills Qdrant with it, and asks it.

    pip install qdrant-client
    python docs/deployment/vector_store.py faq.jsonl --store http://localhost:6333 \
        --dense minilm/ --sparse splade/ --ask "Can I send it back?"

faq.jsonl has objects with id and text; minilm/ has an embedder, and splade/, which may be
left out, sparse embeddings. Both are added by reciprocal rank fusion (Cormack et al. 2009).
The store may also be a folder, which the client searches itself: for some 20,000 texts.

The command resumes: texts that the store has already, with vectors of this model, are not
embedded again. A corpus of up to a million texts needs no store; see docs/search.md.
"""

import argparse
import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

import keras_transformers as kt
from keras_transformers.pipelines import (
    Corpus,
    CorpusVectors,
    Embedder,
    SparseEmbedder,
    fingerprint_of,
)

BATCH, HITS, CANDIDATES = 256, 5, 50
DENSE, SPARSE = "dense", "sparse"  # the names of the vectors in the store


class Store:
    """A collection of a Qdrant store with the vectors of one model, or of two.

    Args:
        address: URL of a server, or a folder.
        collection: name; made if the store lacks it.
        embed: embeds texts and queries.
        sparse: makes their sparse embeddings, which are searched too.
    """

    def __init__(
        self, address: str, collection: str, embed: Embedder, sparse: SparseEmbedder | None
    ) -> None:
        is_url = "://" in address
        self._client = QdrantClient(url=address) if is_url else QdrantClient(path=address)
        self.collection, self._embed, self._sparse = collection, embed, sparse
        both = (embed, sparse) if sparse else (embed,)
        self._fingerprint = " ".join(map(fingerprint_of, both))
        if not self._client.collection_exists(collection):
            size = embed.model.output["embedding"].shape[-1]
            dense = models.VectorParams(size=size, distance=models.Distance.COSINE)
            terms = {SPARSE: models.SparseVectorParams()} if sparse else None
            self._client.create_collection(
                collection, vectors_config={DENSE: dense}, sparse_vectors_config=terms
            )

    def add(self, corpus: Corpus) -> int:
        """Adds the texts that the store lacks; returns how many.

        Raises:
            ValueError: it has a text with the vectors of other models.
        """
        names = [str(uuid.uuid5(uuid.NAMESPACE_URL, name)) for name in corpus.ids]
        stored = {
            str(point.id): point.payload or {}
            for point in self._client.retrieve(self.collection, names)
        }
        for payload in stored.values():
            if payload["model"] != self._fingerprint:
                raise ValueError(
                    f"{self.collection} has vectors of other models for the text "
                    f"{payload['id']!r}: choose another --collection, or the same models"
                )
        missing = [
            place
            for place, name in enumerate(names)
            if name not in stored or stored[name]["text"] != corpus.texts[place]
        ]
        if not missing:
            return 0
        part = Corpus(
            [corpus.texts[place] for place in missing],
            ids=[corpus.ids[place] for place in missing],
        )
        dense = CorpusVectors.of(self._embed, part).vectors
        sparse = self._sparse(part.texts, side="document") if self._sparse else None
        points = [
            models.PointStruct(
                id=names[place],
                vector=_vectors(dense[row].tolist(), sparse[row] if sparse else None),
                payload={
                    "id": part.ids[row],
                    "text": part.texts[row],
                    "model": self._fingerprint,
                },
            )
            for row, place in enumerate(missing)
        ]
        self._client.upsert(self.collection, points, wait=True)
        return len(points)

    def ask(self, query: str, hits: int = HITS) -> list[dict[str, Any]]:
        """Returns the payloads of the texts that answer a query, the best first."""
        both = {"query", "document"} <= set(self._embed.prompts)
        vector = self._embed(query, prompt_name="query" if both else None).vector
        dense = models.Prefetch(query=list(map(float, vector)), using=DENSE, limit=CANDIDATES)
        prefetch = [dense]
        if self._sparse:
            terms = _sparse_vector(self._sparse(query, side="query"))
            prefetch.append(models.Prefetch(query=terms, using=SPARSE, limit=CANDIDATES))
        fusion = models.FusionQuery(fusion=models.Fusion.RRF)
        answer = self._client.query_points(
            self.collection, prefetch=prefetch, query=fusion, limit=hits
        )
        return [point.payload or {} for point in answer.points]

    def close(self) -> None:
        """Lets another process open the folder."""
        self._client.close()


def _vectors(dense: list[float], sparse: Any) -> dict[str, Any]:
    """Returns the vectors of a text by their names."""
    return {DENSE: dense} | ({} if sparse is None else {SPARSE: _sparse_vector(sparse)})


def _sparse_vector(embedding: Any) -> models.SparseVector:
    """Returns a sparse embedding as the store takes it."""
    return models.SparseVector(
        indices=list(map(int, embedding.indices)), values=list(map(float, embedding.weights))
    )


def parts(path: Path) -> Iterator[Corpus]:
    """Yields the texts of a file, a batch at a time.

    Raises:
        ValueError: a line is not an object with id and text, or two have the same id.
    """
    line_of: dict[str, int] = {}
    with path.open(encoding="utf-8") as lines:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        while batch := list(itertools.islice(numbered, BATCH)):
            texts, ids = [], []
            for number, line in batch:
                try:
                    row = json.loads(line)
                    texts.append(row["text"])
                    ids.append(row["id"])
                except (ValueError, TypeError, KeyError) as error:
                    raise ValueError(
                        f"{path}, line {number}: {line[:80]!r}: expected a JSON object with "
                        "id and text"
                    ) from error
                first = line_of.setdefault(str(row["id"]), number)
                if first != number:
                    raise ValueError(
                        f"{path}, line {number}: the id {row['id']!r} is that of line {first} "
                        "too: each text needs its own"
                    )
            yield Corpus(texts, ids=ids, source=f"{path}, from line {batch[0][0]}")


def loaded(folder: str, kind: type[kt.pipelines.Pipeline]) -> Any:
    """Loads a saved pipeline, or weights for one of this kind."""
    pipeline = kt.load(folder)
    return pipeline if isinstance(pipeline, kind) else kt.load(folder, pipeline=kind.task)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fills a store, and prints what it answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, help="JSON Lines with id and text")
    parser.add_argument("--store", required=True, help="URL of a Qdrant server, or a folder")
    parser.add_argument("--collection", default="texts")
    parser.add_argument("--dense", required=True, help="an embedder's folder")
    parser.add_argument("--sparse", help="the folder of a model for sparse embeddings")
    parser.add_argument("--ask", nargs="*", default=[], help="queries")
    options = parser.parse_args(arguments)
    if not options.texts.is_file():
        parser.error(f"{options.texts} is not a file")
    embed = loaded(options.dense, Embedder)
    sparse = loaded(options.sparse, SparseEmbedder) if options.sparse else None
    read = added = 0
    try:
        store = Store(options.store, options.collection, embed, sparse)
        for corpus in parts(options.texts):
            added += store.add(corpus)
            read += len(corpus)
            print(f"{read:,} texts, {added:,} of them new", flush=True)
        for query in options.ask:
            print(
                query, *(f"  {x['id']}: {x['text'][:80]}" for x in store.ask(query)), sep="\n"
            )
    except UnexpectedResponse:  # a refusal, which says why
        raise
    except ApiException as error:
        raise SystemExit(
            f"{options.store} stopped answering after {read:,} texts ({error}): they are "
            "stored; start it, and run the same command again for the rest"
        ) from error
    store.close()


if __name__ == "__main__":
    main()
