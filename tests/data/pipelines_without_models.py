"""A pipeline without a model, for batches: tokenizer, lengths and labels."""

from keras_transformers.tasks.token_inputs import TOKEN_INPUTS, TextPipeline


class Reader(TextPipeline):
    """Tokenizes and packs like the text pipelines.

    Args:
        tokenizer: any tokenizer.
        max_sequence_length: length to pack to.
        attributes: attributes of the pipeline, such as labels.
    """

    answer_specs = None

    def __init__(self, tokenizer, *, max_sequence_length, **attributes):
        self.tokenizer = tokenizer
        self.max_sequence_length = max_sequence_length
        self.token_inputs = TOKEN_INPUTS
        self.text_names = ("text", "text_b")
        vars(self).update(attributes)
