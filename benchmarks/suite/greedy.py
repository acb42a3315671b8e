"""Runs greedy search with each library, for the tables of text generation."""

from collections.abc import Callable
from typing import Any

import numpy as np

PROMPT, NEW = 16, 32
Engine = Callable[[np.ndarray], np.ndarray]  # prompt ids (batch, PROMPT) -> new ids (batch, NEW)


def ours(model: Any, *, in_int8: bool = False) -> Engine:
    """Returns our search in the graph, as exports compute it."""
    import tensorflow as tf

    from keras_transformers.decoding import greedy_search
    from keras_transformers.layers.scopes import KERNELS
    from keras_transformers.saved_model.forms.int8 import Int8Form
    from keras_transformers.saved_model.forms.panels import DecodingForm

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def generate(prompt: Any) -> Any:
        step, last_token_ids, cache = model.start_decoding(prompt)
        found = greedy_search(
            step, last_token_ids, cache, end_token_id=None, max_length=NEW, growing_axis=2
        )
        return found.token_ids[:, 0]

    form = (Int8Form if in_int8 else DecodingForm)(model)
    with KERNELS.use(form.kernels):
        generate.get_concrete_function()  # traces it
    return lambda prompt: generate(tf.constant(prompt)).numpy()


def keras_hubs(model: Any) -> Engine:
    """Returns the search of a keras_hub CausalLM without a preprocessor."""
    model.compile(sampler="greedy")

    def generate(prompt: np.ndarray) -> np.ndarray:
        token_ids = np.pad(prompt, [[0, 0], [0, NEW]])
        padding_mask = np.pad(np.ones_like(prompt, bool), [[0, 0], [0, NEW]])
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        return np.asarray(model.generate(inputs, stop_token_ids=None)["token_ids"])[:, PROMPT:]

    return generate


def hugging_faces(model: Any) -> Engine:
    """Returns the search of a causal model of transformers on one thread."""
    import torch

    torch.set_num_threads(1)

    def generate(prompt: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found = model.generate(
                torch.tensor(prompt.astype(np.int64)),
                attention_mask=torch.ones(prompt.shape, dtype=torch.int64),
                min_new_tokens=NEW,
                max_new_tokens=NEW,
                do_sample=False,
                pad_token_id=0,
            )
        return found[:, PROMPT:].numpy()

    return generate
