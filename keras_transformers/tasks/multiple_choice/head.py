"""Multiple choice: which of several texts fits best."""

import keras

from keras_transformers.layers.choices_and_spans import ChoicesToRows, RowsToChoices
from keras_transformers.models import encoder_parts

__all__ = ["multiple_choice"]


def multiple_choice(
    encoder: keras.Model, *, dropout: float = 0.1, name: str | None = None
) -> keras.Model:
    """Scores several texts: the encoder reads each choice, and its pooled output gets a score.

    Devlin et al. 2018, section 4.4 (SWAG); Hugging Face: BertForMultipleChoice. A choice usually
    consists of the shared text and one possible ending. A row with fewer choices than others is
    padded with choices that are all padding: their logits are -1e9, so neither softmax nor loss
    counts them.

    Args:
        encoder: see `classifier`; its inputs must be named and (batch, length).
        dropout: rate on the pooled outputs.
        name: the model's name; "<encoder>_multiple_choice" by default.

    Returns:
        A functional model. Inputs: those of the encoder, each (batch, choices, length). Output:
        `logits` (batch, choices) in float32.

    Raises:
        ValueError: an encoder with neither `pooled_output` nor `sequence_output`, or without named
            inputs.
    """
    if not isinstance(getattr(encoder, "input", None), dict):
        raise ValueError(
            f"model {encoder.name!r} has no named inputs: "
            "use an encoder such as keras_transformers.bert_base()"
        )
    inputs = {
        key: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=key)
        for key, tensor in encoder.input.items()
    }
    to_rows = ChoicesToRows(name="choices_to_rows")
    # Calling the model itself would nest the encoder and hide its layers; `call` does not.
    outputs = encoder.call({key: to_rows(tensor) for key, tensor in inputs.items()})
    scores = encoder_parts.score(
        encoder_parts.pooled(encoder, outputs), dropout
    )  # (batch * choices, 1)
    logits = RowsToChoices(dtype="float32", name="logits")(
        scores, next(iter(inputs.values())), inputs.get("padding_mask")
    )
    return encoder_parts.model(encoder, inputs, {"logits": logits}, name, "multiple_choice")
