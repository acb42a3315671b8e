"""Question answering: a span of a text."""

import keras

from keras_transformers.layers import RowDense
from keras_transformers.layers.choices_and_spans import StartsAndEnds
from keras_transformers.models import encoder_parts

__all__ = ["span_extractor"]


def span_extractor(encoder: keras.Model, *, name: str | None = None) -> keras.Model:
    """Finds where a span starts and ends, such as the answer to a question in its context.

    Devlin et al. 2018, section 4.2; Hugging Face: BertForQuestionAnswering, which does not mask
    padding. As in both, the head has no dropout.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`
            (batch, length, hidden).
        name: the model's name; "<encoder>_span_extractor" by default.

    Returns:
        A functional model with the encoder's inputs and the outputs `start_logits` and
        `end_logits`, each (batch, length) in float32, -1e9 at padding. The encoder's pooler is
        left out.

    Raises:
        ValueError: the encoder lacks that input or output.
    """
    logits = RowDense(
        2, kernel_initializer=encoder_parts.initializer(), dtype="float32", name="span_logits"
    )(encoder_parts.token_vectors(encoder))
    start, end = StartsAndEnds(dtype="float32", name="starts_and_ends")(
        logits, encoder_parts.padding_mask(encoder)
    )
    outputs = {"start_logits": start, "end_logits": end}
    return encoder_parts.model(encoder, encoder.input, outputs, name, "span_extractor")
