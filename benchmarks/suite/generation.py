"""Compares text generation with GPT-2: our search in the graph, keras_hub and transformers.

    pip install -e '.[benchmark]'
    python benchmarks/suite/generation.py

Each library runs GPT-2 small (12 layers, 768 wide, V = 50,257) with its own random weights: 16
prompt tokens, 32 new ones by greedy search, token ids in and out, one thread. All run in float32,
ours also in int8, as in exports with `weights_dtype="int8"`. Hugging Face's is included if
transformers and torch are installed; PyTorch's float32 products are slow on AMD processors.
"""

import argparse
import functools

import contest  # first: it sets the number of threads
import greedy
import keras
import keras_hub
import numpy as np
from greedy import NEW, PROMPT, Engine

import keras_transformers as kt


def ours(*, in_int8: bool = False) -> tuple[Engine, int]:
    """Returns our engine, and how many parameters it has."""
    model = kt.gpt2_small()
    return greedy.ours(model, in_int8=in_int8), model.count_params()


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
    return greedy.keras_hubs(model), backbone.count_params()


def hugging_faces() -> tuple[Engine, int]:
    """Returns transformers' engine, and how many parameters it has."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).eval()
    return greedy.hugging_faces(model), model.num_parameters()


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
