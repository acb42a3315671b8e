"""Lets the Massive Text Embedding Benchmark, `mteb`, measure an embedder."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.dependencies.extras import optional
from keras_transformers.tasks.embedding.pipeline import Embedder
from keras_transformers.tasks.embedding.searching import unit, vectors

__all__ = ["MtebEncoder"]


class MtebEncoder:
    """An embedder as `mteb` version 2 asks for one: its `EncoderProtocol`.

    The prompts "query" and "document" are used for queries and documents, if the embedder has both.

    Args:
        embed: a pipeline for embedding.
        name: what mteb's results are named after, "organization/model".

    Example:
        mteb.evaluate(MtebEncoder(kt.load("minilm/")), mteb.get_tasks(["STS12"]))
    """

    def __init__(self, embed: Embedder, name: str = "keras_transformers/embedder") -> None:
        self._embed, self._name = embed, name

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        prompt_type: Any = None,
        batch_size: int = 32,
        **_: Any,
    ) -> np.ndarray:
        """Embeds batches of texts.

        Args:
            inputs: batches, each with a list of texts as "text".
            prompt_type: "query", "document" or None.
            batch_size: texts in one call of the graph.
            **_: what mteb says of the task; not used.

        Returns:
            Float32 (texts, width).
        """
        texts = [text for batch in inputs for text in batch["text"]]
        side = None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
        both = {"query", "document"} <= set(self._embed.prompts)
        return vectors(self._embed, texts, side if both else None, batch_size=batch_size)

    def similarity(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> np.ndarray:
        """Computes the cosines of all pairs: (texts, other texts)."""
        one, other = (unit(np.atleast_2d(np.asarray(x))) for x in (embeddings1, embeddings2))
        cosines: np.ndarray = one @ other.T
        return cosines

    def similarity_pairwise(self, embeddings1: ArrayLike, embeddings2: ArrayLike) -> np.ndarray:
        """Computes the cosines of vectors in the same rows: (texts,)."""
        one, other = (unit(np.atleast_2d(np.asarray(x))) for x in (embeddings1, embeddings2))
        cosines: np.ndarray = np.sum(one * other, axis=1)
        return cosines

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb's results say of the model.

        Raises:
            MissingExtraError: mteb is not installed.
        """
        described = optional("mteb.models.model_meta", extra="reference").ModelMeta
        width = self._embed.model.output["embedding"].shape[-1]
        return described.create_empty(
            {
                "name": self._name,
                "revision": "1",
                "n_parameters": self._embed.model.count_params(),
                "max_tokens": self._embed.max_sequence_length,
                "embed_dim": width,
            }
        )
