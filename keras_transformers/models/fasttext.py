"""fastText: Joulin et al. 2016, "Bag of Tricks for Efficient Text Classification".

A text is the mean of the vectors of its words and n-grams (Bojanowski et al. 2017 for those of
characters), and a linear layer classifies it: what every slower classifier has to beat.
`tokenizers.NgramTokenizer` makes the ids, one for each word of a dictionary, and one for each
bucket that n-grams are hashed into.

    tokenizer = NgramTokenizer.train(texts, word_ngrams=2)
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size)
    model = heads.classifier(encoder, num_classes, dropout=0.0)
    model.compile(keras.optimizers.SGD(1.6), loss={"logits": TokenCrossentropy()})

Train it with `keras.optimizers.SGD` without momentum, as fastText does, its learning rate falling
linearly to 0: that moves the rows of a batch alone, where an optimizer with moments goes through
millions that no text of the batch has. fastText steps after every text, so its learning rate is
that of batches of one: multiply it by the batch size.
"""

import functools
from collections.abc import Sequence

import keras

from keras_transformers.layers import HierarchicalSoftmax, MeanOfTokens, RowEmbedding
from keras_transformers.models.entry import ModelCard
from keras_transformers.models.heads import encoder_parts as head_parts

_PAPER = "Joulin et al. 2016, https://arxiv.org/abs/1607.01759"

# The vocabulary is 100,000 words, and the buckets: 2,000,000 and 100 dimensions are the fasttext
# program's defaults, 10,000,000 (for pairs of words) and 10 dimensions the paper's.
SIZES: dict[str, dict[str, int]] = {
    "fasttext": {"vocabulary_size": 2_100_000, "embedding_dim": 100},
    "fasttext_10": {"vocabulary_size": 10_100_000, "embedding_dim": 10},
}


def fasttext(
    *,
    vocabulary_size: int = 2_100_000,
    embedding_dim: int = 100,
    name: str = "fasttext",
) -> keras.Model:
    """Builds the part below the classifier: a table of vectors, and their mean.

    `heads.classifier(encoder, num_classes, dropout=0.0)` puts the linear layer on top, with biases
    and small random weights where fastText has no biases and zeros; `hierarchical_classifier` the
    hierarchical one. With V words, B buckets, H dimensions and C classes they have

        (V + B) H + H C + C        and        (V + B) H + H (C - 1)

    parameters.

    Args:
        vocabulary_size: words and buckets together, V + B.
        embedding_dim: width of the vectors, H (the paper: h; fastText: dim).
        name: of the model.

    Returns:
        A functional model. Inputs: `token_ids` int32 (batch, length), `padding_mask` bool
        (batch, length), True at real ids; their order does not matter, and there may be any number
        of them. Output: `pooled_output` (batch, H), zeros for a row without real ids.

    Raises:
        ValueError: no ids, or no dimensions.

    Example:
        >>> fasttext(vocabulary_size=30, embedding_dim=4).count_params()
        120
    """
    if vocabulary_size < 1 or embedding_dim < 1:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}, embedding_dim={embedding_dim}: give 1 at least"
        )
    # In float32 whatever the policy: each step would cast millions of rows to read some hundreds.
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


def fasttext_10(
    *,
    vocabulary_size: int = 10_100_000,
    embedding_dim: int = 10,
    name: str = "fasttext_10",
) -> keras.Model:
    """`fasttext` in the paper's size: 10 dimensions, 10,000,000 buckets for pairs of words."""
    return fasttext(vocabulary_size=vocabulary_size, embedding_dim=embedding_dim, name=name)


def hierarchical_classifier(
    encoder: keras.Model, class_counts: Sequence[int], *, name: str | None = None
) -> keras.Model:
    """Classification by a Huffman tree of the classes, `loss="hs"` of fastText.

    Args:
        encoder: a model with the output `pooled_output` (batch, hidden).
        class_counts: how often each class occurs in training, in the order of the logits.
        name: of the model, "<encoder>_hierarchical_classifier" by default.

    Returns:
        A functional model with the encoder's inputs and the output `logits` (batch, classes) in
        float32, which are log-probabilities, see `HierarchicalSoftmax`.

    Raises:
        ValueError: fewer than two classes, a count below 0, or an encoder without that output.
    """
    pooled = head_parts.named_output(encoder, "pooled_output")
    logits = HierarchicalSoftmax(class_counts, dtype="float32", name="logits")(pooled)
    return keras.Model(
        encoder.input, {"logits": logits}, name=name or f"{encoder.name}_hierarchical_classifier"
    )


def num_parameters(*, vocabulary_size: int, embedding_dim: int) -> int:
    """The count of `fasttext` with these arguments by arithmetic, without building it."""
    return vocabulary_size * embedding_dim


MODELS = {
    name: ModelCard(
        name=name,
        factory=factory,
        num_parameters=count,
        paper=_PAPER,
        symbols={"V": SIZES[name]["vocabulary_size"], "H": SIZES[name]["embedding_dim"]},
        count=functools.partial(num_parameters, **SIZES[name]),
    )
    for name, factory, count in (
        ("fasttext", fasttext, 210_000_000),
        ("fasttext_10", fasttext_10, 101_000_000),
    )
}
