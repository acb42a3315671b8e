"""Runs today's exports in older TensorFlows and prints the table of docs/exports.md.

    make test-runtimes                         # all of it: makes the environments in build/runtimes
    python tests/runtimes/matrix.py --python python3.11 --folder build/runtimes

It exports every pipeline at toy size with the TensorFlow of this process, then loads each export,
and the published ones in saved_models/, in every version of `VERSIONS` by both loaders of
TensorFlow. Every signature answers its stored examples and awkward texts, and the answers are
compared with those of today: floats within 1e-5 of the output's largest value, all else exactly.
The exit status is 1 if the audit (`keras-transformers check`) promises an export to a version that
does not run it or answers otherwise, or denies it to one that answers the same.

The versions need Python 3.11, which all of them and this package run on.
"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keras_transformers.quiet  # noqa: F401  before TensorFlow is loaded

import numpy as np

from keras_transformers.saved_model.checks.audit import graph_ops, set_attributes
from keras_transformers.saved_model.checks.check import differences
from keras_transformers.saved_model.checks.core_ops import releases, releases_with
from keras_transformers.saved_model.description import read_metadata
from keras_transformers.saved_model.examples import decode_array, encode_array, stored_examples

ROOT = Path(__file__).parents[2]
# TensorFlow -> what pip installs without its dependencies, and what else it needs.
VERSIONS = {
    "2.12.1": ("tensorflow-text==2.12.1", "numpy<1.24"),
    "2.16.2": ("tensorflow-text==2.16.1", "numpy"),
    "2.19.1": ("tensorflow-text==2.19.0", "numpy"),
}
TEXTS = [
    *(b"", b" ", b"a good film", b"  A   GOOD\tfilm!\n", b"a [MASK] film [MASK]", b"[CLS] [SEP]"),
    *("café naïve İstanbul", "two 犬 東京 dogs", "a\u200bfilm \N{DOG FACE}\ufe0f", "e\u0301\x00a"),
    *(b"bad \xff\xfe bytes", "ein kleiner Hund läuft"),
]
# A generator refuses prompts that leave no room for an answer. The words follow no pattern: parts
# that are alike have equal scores, among which rounding would choose the answer to a question.
WORDS = ("a", "good", "film", "very", "bad", "!", "two", "dogs", "\u72ac", "caf\xe9")
LONG = [" ".join(random.Random(0).choices(WORDS, k=60)).encode(), b"." * 40]
TOLERANCE = 1e-5


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="python3.11", help="for the environments")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/runtimes")
    parser.add_argument("--only", default="", help="part of the names of the kinds to export")
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    exports = make_exports(folder / "exports", options.only)
    requests = folder / "requests.json"
    calls = {str(place): calls_of(place) for places in exports.values() for place in places}
    requests.write_text(json.dumps(calls), "utf-8")
    today = answers(Path(sys.executable), requests, folder / "today.jsonl")
    wrong, table = [], collections.defaultdict(dict)
    for version, packages in VERSIONS.items():
        python = environment(options.python, folder / f"tensorflow-{version}", version, packages)
        found = answers(python, requests, folder / f"{version}.jsonl")
        for kind, places in exports.items():
            faults = {str(p): list(faults_of(str(p), found, today)) for p in places}
            table[kind][version] = sum(not told for told in faults.values())
            for place, told in faults.items():
                for fault in told:
                    print(f"{version}: {place}: {fault[:160]}", flush=True)
                if bool(told) == (promised := knows(Path(place), version)):
                    audit = "promises" if promised else "denies"
                    wrong.append(f"{version}: the audit {audit} {place}, which {told or 'runs'}")
    print("\n".join(rows(exports, table)))
    print(*wrong, sep="\n")
    return bool(wrong)


def make_exports(folder: Path, only: str) -> dict[str, list[Path]]:
    """Returns kind -> the version folders of its exports, made anew; of kinds with this part."""
    sys.path.insert(0, str(ROOT / "tests"))  # for tiny.py and its like
    from toys import all_kinds

    found = {}
    kinds = all_kinds()
    chosen = [kind for kind in kinds if only in kind]
    if not chosen:
        raise SystemExit(
            f"--only {only}: none of the kinds {', '.join(kinds)} has this in its name"
        )
    shutil.rmtree(folder, ignore_errors=True)
    for number, kind in enumerate(chosen):
        exports = kinds[kind]
        found[kind] = [
            Path(export(folder / f"{number}-{name.replace('/', '-')}"))
            for name, export in exports.items()
        ]
        print(f"{kind}: {len(found[kind])} exports", flush=True)
    return found


def calls_of(export: Path) -> list:
    """Returns [signature, inputs]: the stored examples, and awkward texts where it takes texts."""
    metadata = read_metadata(export)
    found = []
    for name, signature in metadata["signatures"].items():
        examples = [example["inputs"] for example in stored_examples(metadata, name)]
        found += [[name, encoded(inputs)] for inputs in examples]
        specs = signature["inputs"]
        texts = [key for key, spec in specs.items() if spec["dtype"] == "string"]
        plain = all(len(specs[key]["shape"]) == 1 for key in specs)
        if texts and plain and not {"inputs", "image_bytes"} & set(texts):
            found += [[name, encoded(awkward(examples[0], given))] for given in (TEXTS, LONG)]
    return found


def awkward(example: dict, given: list) -> dict:
    """Returns these texts, in another order for a second column, and the example's first values."""
    texts = [text.encode() if isinstance(text, str) else text for text in given]
    return {
        key: np.array(texts[number:] + texts[:number], object)
        if value.dtype == object
        else np.repeat(value[:1], len(texts))
        for number, (key, value) in enumerate(example.items())
    }


def encoded(inputs: dict) -> dict:
    return {key: encode_array(np.asarray(value)) for key, value in inputs.items()}


def environment(python: str, folder: Path, version: str, packages: tuple[str, str]) -> Path:
    """Returns the Python of an environment with this TensorFlow; made once and kept."""
    if not (folder / "complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/pip"), "install", "--quiet"]
        text, numpy = packages
        subprocess.run([*pip, f"tensorflow=={version}", numpy], check=True)
        # Its op libraries are enough. They do not load in tensorflow-cpu 2.19.
        subprocess.run([*pip, "--no-deps", text], check=True)
        (folder / "complete").touch()
    return folder / "bin/python"


def answers(python: Path, requests: Path, file: Path) -> dict[tuple[str, str], dict]:
    """Returns (export, loader) -> its line of `answers.py`, run by this Python."""
    file.unlink(missing_ok=True)
    kept = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    program = [str(python), str(Path(__file__).with_name("answers.py")), str(requests), str(file)]
    done = subprocess.run(program, env=os.environ | kept, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{python}: status {done.returncode}\n{done.stderr[-3000:]}", flush=True)
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {(line["folder"], line["loader"]): line for line in map(json.loads, lines)}


def faults_of(place: str, found: dict, today: dict) -> Iterator[str]:
    """Yields what an export does otherwise than today, by either loader."""
    for (folder, loader), expected in today.items():
        if folder != place:
            continue
        if "error" in expected:
            yield f"{loader}: fails today: {expected['error']}"
            continue
        got = found.get((folder, loader), {"error": "the process ended before it"})
        if "error" in got:
            yield f"{loader}: {got['error']}"
            continue
        for number, pair in enumerate(zip(got["outputs"], expected["outputs"], strict=True)):
            arrays = [{key: decode_array(value) for key, value in side.items()} for side in pair]
            for difference in differences(*arrays, TOLERANCE):
                yield f"{loader}: call {number} differs: {difference}"


def knows(export: Path, version: str) -> bool:
    """Returns whether the table of core ops says that this TensorFlow has all ops of an export."""
    release = ".".join(version.split(".")[:2])
    attributes = set_attributes(export)
    return (
        all(
            release in releases_with(op, attributes.get(op, ()))
            for op in graph_ops(export)
            if releases_with(op)  # not tensorflow-text's
        )
        and release in releases()
    )


def rows(exports: dict, table: dict) -> Iterator[str]:
    yield f"| exports | number | {' | '.join(f'TensorFlow {v}' for v in VERSIONS)} |"
    yield f"|---|--:|{'--:|' * len(VERSIONS)}"
    for kind, places in exports.items():
        cells = [
            "all" if count == len(places) else str(count or "none")
            for count in (table[kind][version] for version in VERSIONS)
        ]
        yield f"| {kind} | {len(places)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
