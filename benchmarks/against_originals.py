"""Compares our outputs with those of the software that wrote a file, by container and family.

    python benchmarks/against_originals.py > benchmarks/results/against_originals.txt

Without KERAS_TRANSFORMERS_LEFT_BEHIND it reads the small archives in tests/golden/left_behind; the
variable names a folder with all of them. Beside each model is NAME.npz, the inputs and outputs of
the original. The difference is the largest one of any output at real tokens, in units of the
output's magnitude; "-" marks models whose outputs cannot be compared like this. bert_softmax stores
probabilities as its logits, and bert_bf16 and gpt2_bf16 computed in bfloat16. Models that are not
loaded have no tokenizer beside them or need an option. tests/convert compares all of these too.
"""

import argparse
import collections
import logging
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import keras_transformers as kt
from keras_transformers.convert.formats.weights import find_weights

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from left_behind import GOLDEN, VARIABLE, difference  # noqa: E402


def models(folder: Path) -> list[Path]:
    """Returns the folders and files that have the original's outputs beside them."""
    found = []
    for file in sorted(folder.rglob("*.npz")):
        with np.load(file) as arrays:
            compared = any(name.startswith("out_") for name in arrays.files)
        if compared and file.with_suffix("").exists():
            found.append(file.with_suffix(""))
    return found


def weights_file(path: Path) -> str:
    """Returns the name of the file that holds the weights, or the format if it has its own."""
    found = kt.convert.look(path)
    if found.weights and found.weights[0].is_file():
        return found.weights[0].name
    return "a checkpoint" if found.weights else path.suffix or "its own"


def row(path: Path) -> tuple[str, str, float] | str:
    """Returns a model's format, pipeline and difference, or the reason why there is none."""
    try:
        loaded = kt.load(path)
    except (ValueError, FileNotFoundError) as error:
        return re.sub(r"\s+", " ", str(error))[:160]
    try:
        found = difference(loaded.model, path.with_suffix(".npz"))
    except (AssertionError, KeyError, ValueError, AttributeError):
        found = float("nan")
    return find_weights(path).heads or "-", type(loaded).__name__, found


def main() -> None:
    """Prints a row for each model, and the largest difference of each archive."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    logging.disable(logging.WARNING)
    source = os.environ.get(VARIABLE, "")
    archives = sorted(Path(source or GOLDEN).glob("*.tar.*z"))
    print(f"{'files':34}{'container':26}{'class there':38}{'pipeline':24}difference")
    worst: dict[str, list[float]] = collections.defaultdict(list)
    refused = []
    for archive in archives:
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(archive) as opened:
                opened.extractall(scratch, filter="data")
            for path in models(Path(scratch)):
                name = str(path.relative_to(scratch))
                found = row(path)
                if isinstance(found, str):
                    refused.append(f"{name}: {found.replace(scratch, '')}")
                    continue
                kind, pipeline, value = found
                container = weights_file(path)
                worst[archive.name.partition(".")[0]].append(value)
                shown = "-" if np.isnan(value) else f"{value:.1e}"
                print(f"{name:34}{container:26}{kind:38}{pipeline:24}{shown:>10}", flush=True)
    for archive, values in worst.items():
        compared = [value for value in values if not np.isnan(value)]
        largest = f"at most {max(compared):.1e}" if compared else "answers only"
        print(f"{archive}: {len(compared)} of {len(values)} compared, {largest}")
    print("\nnot loaded by kt.load(path) alone:", *refused, sep="\n")


if __name__ == "__main__":
    main()
