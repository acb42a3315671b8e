"""fastText: Joulin et al. 2016, "Bag of Tricks for Efficient Text Classification".

A linear layer classifies the mean of the vectors of a text's words and n-grams (Bojanowski et al.
2017 for character n-grams). It is the baseline for slower classifiers to beat.
`tokenizers.NgramTokenizer` makes the ids: one per word of a dictionary, and one per bucket that
n-grams are hashed into.

    tokenizer = NgramTokenizer.train(texts, word_ngrams=2)
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size)
    model = heads.classifier(encoder, num_classes, dropout=0.0)
    model.compile(keras.optimizers.SGD(1.6), loss={"logits": TokenCrossentropy()})

Train it as fastText does, with `keras.optimizers.SGD` without momentum and a learning rate that
falls linearly to 0. This updates only the rows that a batch uses; an optimizer with moments updates
all of them. fastText updates after every text, so multiply its learning rates by the batch size.
"""

import functools
from collections.abc import Sequence

import keras

from keras_transformers.layers import HierarchicalSoftmax, MeanOfTokens, RowEmbedding
from keras_transformers.models import encoder_parts
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "fasttext", "hierarchical_classifier", "num_parameters"]

_PAPER = "Joulin et al. 2016, https://arxiv.org/abs/1607.01759"

# Each vocabulary is 100,000 words plus the buckets. The fasttext program's defaults are 2,000,000
# buckets and 100 dimensions; the paper has 10,000,000 (for pairs of words) and 10 dimensions.
SIZES: dict[str, dict[str, int]] = {
    "fasttext_base": {"vocabulary_size": 2_100_000, "embedding_dim": 100},
    "fasttext_10": {"vocabulary_size": 10_100_000, "embedding_dim": 10},
}


def fasttext(
    *,
    vocabulary_size: int,
    embedding_dim: int = 100,
    name: str = "fasttext",
) -> keras.Model:
    """Builds the encoder: a table of vectors, and their mean.

    `heads.classifier(encoder, num_classes, dropout=0.0)` adds the linear layer, with biases and
    small random weights (fastText has no biases and starts at zero). `hierarchical_classifier` adds
    a hierarchical softmax instead. With V words, B buckets, H dimensions and C classes, they have
    (V + B) H + H C + C and (V + B) H + H (C - 1) parameters.

    Args:
        vocabulary_size: words and buckets together, V + B.
        embedding_dim: width of the vectors, H (the paper: h; fastText: dim).
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 (batch, length) of any length, in any order;
        `padding_mask` bool (batch, length), True at real ids. Output: `pooled_output` (batch, H),
        zeros for a row without real ids.

    Raises:
        ValueError: `vocabulary_size` or `embedding_dim` is below 1.

    Example:
        >>> fasttext(vocabulary_size=30, embedding_dim=4).count_params()
        120
    """
    if vocabulary_size < 1 or embedding_dim < 1:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}, embedding_dim={embedding_dim}: expected at least 1"
        )
    # Always in float32: otherwise each step would cast millions of rows to read a few hundred.
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    vectors = RowEmbedding(
        vocabulary_size,
        embedding_dim,
        embeddings_initializer=keras.initializers.RandomUniform(
            -1 / embedding_dim, 1 / embedding_dim
        ),
        dtype="float32",
        name="token_embedding",
    )(token_ids)
    pooled = MeanOfTokens(dtype="float32", name="mean_of_tokens")(vectors, padding_mask)
    return keras.Model(
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"pooled_output": pooled},
        name=name,
    )


def hierarchical_classifier(
    encoder: keras.Model, class_counts: Sequence[int], *, name: str | None = None
) -> keras.Model:
    """Classifies with a Huffman tree of the classes, fastText's `loss="hs"`.

    Args:
        encoder: a model with the output `pooled_output` (batch, hidden).
        class_counts: how often each class occurs in training, in the order of the logits.
        name: the model's name; "<encoder>_hierarchical_classifier" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits` (batch, classes) in
        float32. They are log-probabilities; see `HierarchicalSoftmax`.

    Raises:
        ValueError: fewer than two classes, a negative count, or an encoder without the output.
    """
    pooled = encoder_parts.named_output(encoder, "pooled_output")
    logits = HierarchicalSoftmax(class_counts, dtype="float32", name="logits")(pooled)
    return keras.Model(
        encoder.input, {"logits": logits}, name=name or f"{encoder.name}_hierarchical_classifier"
    )


def num_parameters(*, vocabulary_size: int, embedding_dim: int) -> int:
    """Computes the parameter count of `fasttext` with these arguments, without building it."""
    return vocabulary_size * embedding_dim


_NUM_PARAMETERS = {"fasttext_base": 210_000_000, "fasttext_10": 101_000_000}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            fasttext,
            name,
            size,
            summary=f"fastText's table of {size['vocabulary_size']:,} vectors of "
            f"{size['embedding_dim']} numbers, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        symbols={"V": size["vocabulary_size"], "H": size["embedding_dim"]},
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
