"""Text generation: GPT-2's search in the graph against keras_hub and Hugging Face's GPT-2.

    pip install -e '.[benchmark]'
    python benchmarks/suite/generation.py

GPT-2 small (12 layers, 768 wide, V = 50,257), each with random weights of its own; 16 prompt
tokens, 32 new ones by greedy search, token ids in and out, one thread. All in float32, and ours in
int8 as well, as exports with `weights_dtype="int8"` compute. Hugging Face's takes part if
transformers and torch are installed; PyTorch's float32 products are slow on AMD processors.
"""

import argparse
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import contest  # first: it sets the number of threads
import keras
import keras_hub
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.decoding import greedy_search
from keras_transformers.pipelines.exported.int8 import Int8Form

PROMPT, NEW = 16, 32
Engine = Callable[[np.ndarray], np.ndarray]  # prompt ids (batch, PROMPT) -> new ids (batch, NEW)


def ours(*, in_int8: bool = False) -> tuple[Engine, int]:
    """Returns our engine, and how many parameters it has."""
    model = kt.gpt2_small()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def generate(prompt: Any) -> Any:
        step, last_token_ids, cache = model.start_decoding(prompt)
        found = greedy_search(
            step, last_token_ids, cache, end_token_id=None, max_length=NEW, growing_axis=2
        )
        return found.token_ids[:, 0]

    with Int8Form(model).in_place() if in_int8 else contextlib.nullcontext():
        generate.get_concrete_function()  # traces it
    return lambda prompt: generate(tf.constant(prompt)).numpy(), model.count_params()


def keras_hubs() -> tuple[Engine, int]:
    """Returns keras_hub's engine, and how many parameters it has."""
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=50257,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        max_sequence_length=1024,
    )
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy")

    def generate(prompt: np.ndarray) -> np.ndarray:
        token_ids = np.pad(prompt, [[0, 0], [0, NEW]])
        padding_mask = np.pad(np.ones_like(prompt, bool), [[0, 0], [0, NEW]])
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        return np.asarray(model.generate(inputs, stop_token_ids=None)["token_ids"])[:, PROMPT:]

    return generate, backbone.count_params()


def hugging_faces() -> tuple[Engine, int]:
    """Returns transformers' engine, and how many parameters it has."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config()).eval()

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

    return generate, model.num_parameters()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for each row")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    engines = {}
    for name, make in {
        "ours": ours,
        "ours, int8": functools.partial(ours, in_int8=True),
        "keras_hub": keras_hubs,
        "Hugging Face": hugging_faces,
    }.items():
        try:
            engines[name], num_parameters = make()
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        assert num_parameters == 124_439_808, f"{name} has {num_parameters} parameters"
    prompts = np.random.default_rng(0).integers(0, 50257, (8, PROMPT), np.int32)
    rows = {}
    for batch in (1, 8):
        title, prompt = f"GPT-2 small, {batch} x {NEW}", prompts[:batch]
        for name, engine in engines.items():
            assert engine(prompt).shape == (batch, NEW), f"{name} does not give {NEW} tokens"
        jobs = {name: functools.partial(engine, prompt) for name, engine in engines.items()}
        rows[title] = contest.take_turns(jobs, seconds=arguments.seconds)
        print(contest.line(title, rows[title]), flush=True)
    contest.write("generation", "python benchmarks/suite/generation.py", rows)


if __name__ == "__main__":
    main()
