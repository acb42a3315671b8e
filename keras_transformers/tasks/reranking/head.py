"""Scores documents by a language model's answers, and lists of documents to train rerankers."""

import keras

from keras_transformers.layers import ChoicesToRows, LastToken, RowsToChoices, TokenEmbedding
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.as_encoder import as_encoder

__all__ = ["answer_scorer"]


def answer_scorer(
    model: keras.Model, positive: int, negative: int, *, name: str | None = None
) -> keras.Model:
    """Scores texts by how much more likely one token is after them than another.

    The score is the difference of two logits, so its sigmoid is the probability of the first token
    among the two. Nogueira et al. 2020, arXiv:2003.06713; Zhang et al. 2025, arXiv:2506.05176
    (Qwen3-Reranker); sentence-transformers' LogitScore.

    Args:
        model: a causal language model, such as one from `models.llama`.
        positive: the token of texts with a high score, such as "yes".
        negative: the token of texts with a low score, such as "no".
        name: the model's name; "<model>_answer_scorer" by default.

    Returns:
        A functional model. Inputs: those of `model`, and `padding_mask` bool (batch, length), True
        at real tokens. Output: `score` (batch,) in float32.

    Raises:
        ValueError: the model does not predict tokens, or lacks one of the two.

    Example:
        >>> from keras_transformers.families.llama.model import llama
        >>> model = llama(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8,
        ...               intermediate_dim=8)
        >>> answer_scorer(model, 7, 8).output["score"].shape
        (None,)
    """
    encoder, projection = as_encoder(model), anatomy(model, "projection").projection
    last = LastToken(name="last_token")(
        encoder.output["sequence_output"], encoder.input["padding_mask"]
    )[:, None]  # (batch, 1, hidden)
    tied = isinstance(projection, TokenEmbedding)
    logits = projection(last, reverse=True) if tied else projection(last)
    size = logits.shape[-1]
    for token in (positive, negative):
        if not 0 <= token < size:
            raise ValueError(
                f"token {token} for model {model.name!r}, which predicts {size} tokens"
            )
    score = keras.layers.Subtract(dtype="float32", name="score")(
        [logits[:, 0, positive], logits[:, 0, negative]]
    )
    return keras.Model(encoder.input, {"score": score}, name=name or f"{model.name}_answer_scorer")


def grouped_scorer(model: keras.Model) -> keras.Model:
    """Returns a model with the same layers that scores several documents per query, for training.

    Args:
        model: a model with the output `score` (batch,), such as one from `heads.regressor`.

    Returns:
        A functional model with the inputs of `model`, each (batch, documents, length), and the
        output `score` (batch, documents), -1e9 where a document is all padding.

    Example:
        >>> import keras_transformers as kt
        >>> model = grouped_scorer(kt.heads.regressor(kt.bert_tiny(vocabulary_size=11)))
        >>> model.output["score"].shape
        (None, None)
    """
    inputs = {
        name: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=name)
        for name, tensor in model.input.items()
    }
    rows = {name: ChoicesToRows(name=f"{name}_rows")(tensor) for name, tensor in inputs.items()}
    score = RowsToChoices(dtype="float32", name="score")(
        model(rows)["score"], inputs["token_ids"], inputs.get("padding_mask")
    )
    return keras.Model(inputs, {"score": score}, name=f"{model.name}_grouped")
