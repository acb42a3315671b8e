"""What batches need of a pipeline: tokenizer, lengths and labels, without a model."""

from keras_transformers.pipelines.token_inputs import TOKEN_INPUTS, TextPipeline


class Reader(TextPipeline):
    """Tokenizes and packs as the pipelines of texts do.

    Args:
        tokenizer: any.
        max_sequence_length: to pack to.
        attributes: of the pipeline, such as labels.
    """

    answer_specs = None

    def __init__(self, tokenizer, *, max_sequence_length, **attributes):
        self.tokenizer = tokenizer
        self.max_sequence_length = max_sequence_length
        self.token_inputs = TOKEN_INPUTS
        self.text_names = ("text", "text_b")
        vars(self).update(attributes)
