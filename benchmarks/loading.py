"""Measures the time and memory of loading weights, and of the first answer, in fresh processes.

    python benchmarks/loading.py [--model bert_large] [--rounds 3] [--transformers [PYTHON]]
        [--before TREE] [--container safetensors --container tf_model.h5 ...]
        > benchmarks/results/loading.txt

For each container, a folder with a random BERT in float32 is written and read once, so that it is
in the page cache; `--model` is one of `list_models()`, or the folder of a BERT, which is measured
as it is. Processes take turns; each first imports everything, loads a tiny BERT and answers with
it. Time is CPU time on one thread. `loaded` is the memory of the weights; the peak is the highest
resident memory while loading. Both are relative to the process before loading. The answer is the
first one of the loaded model, for one short text, and includes tracing.

transformers loads the model and its tokenizer, as kt.load does; it maps files and reads a weight
at its first use, so each is used once. PYTHON is an interpreter that has it; this one by default.
--before takes another checkout of this repository for comparison.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bert_containers import NOT_OF_TRANSFORMERS, OF_TENSORFLOW, WRITERS, Tensors

ROOT = Path(__file__).resolve().parents[1]
TEXT = "A warm and funny film."
WAYS = {
    "kt.load": f"""
import keras_transformers as kt
def load(folder): return kt.load(folder)
def answer(pipeline): return pipeline({TEXT!r})
""",
    "load_encoder": """
import keras_transformers as kt
def load(folder): return kt.convert.load_encoder(weights=folder)
answer = None
""",
    "transformers": f"""
import torch, transformers
torch.set_num_threads(1)
def load(folder):
    model = transformers.BertModel.from_pretrained(folder)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    return model, tokenizer, sum(float(values.sum()) for values in model.parameters())
def answer(loaded):
    with torch.inference_mode():
        return loaded[0](**loaded[1]({TEXT!r}, return_tensors="pt"))
""",
}
PROGRAM = """
import json, resource, sys, time
{way}
kept = load({tiny!r})
if answer is not None:
    answer(kept)
def resident():  # bytes
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before, started, cpu = resident(), time.perf_counter(), time.process_time()
kept = load({folder!r})
cpu, wall = time.process_time() - cpu, time.perf_counter() - started
status = open("/proc/self/status").read()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
loaded, first = resident() - before, time.process_time()
if answer is not None:
    answer(kept)
first = time.process_time() - first
print(json.dumps([cpu, wall, first, loaded / 1e6, (peak - before) / 1e6]))
"""


def make_folder(model: str, folder: Path, container: str) -> int:
    """Writes a random BERT as the container's original software does; returns its bytes."""
    import numpy as np

    import keras_transformers as kt
    from keras_transformers.dependencies.private_api import without_values

    with without_values():
        encoder = getattr(kt, model)()
    family, random = kt.families.bert.FAMILY, np.random.default_rng(0)
    folder.mkdir()
    tensors: Tensors = {
        tensor.name: random.normal(0, 0.02, tensor.shape).astype("float32")
        for tensor in family.names.tensors(encoder)
    }
    family.save_config(encoder, folder / "config.json")
    if container in OF_TENSORFLOW:  # they have Google's configuration
        (folder / "config.json").rename(folder / "bert_config.json")
    WRITERS[container](folder, tensors)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*tokens, *(f"w{number}" for number in range(len(tokens), 30522))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    for file in folder.iterdir():
        file.read_bytes()
    return sum(tensor.nbytes for tensor in tensors.values())


def measure(python: str, tree: Path, way: str, tiny: Path, folder: Path) -> list[float]:
    """Returns CPU seconds, seconds, CPU seconds of the answer, and MB loaded and at the peak."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        **dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"), "1"),
    }
    program = PROGRAM.format(way=WAYS[way], tiny=str(tiny), folder=str(folder))
    done = subprocess.run(
        [python, "-c", program], cwd=tree, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Prints a row of medians for each way to load each container."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert_large", help="of list_models(), or a folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--transformers", nargs="?", const=sys.executable, help="an interpreter that has it"
    )
    parser.add_argument("--before", type=Path, help="another checkout of this repository")
    parser.add_argument("--container", action="append", choices=WRITERS, dest="containers")
    options = parser.parse_args()
    trees = {"now": ROOT, **({"before": options.before.resolve()} if options.before else {})}
    with tempfile.TemporaryDirectory() as scratch:
        folders: dict[str, tuple[Path, Path]] = {}  # container -> the tiny folder, and the folder
        for container in options.containers or ["safetensors"]:
            tiny, folder = Path(scratch, f"tiny {container}"), Path(options.model).resolve()
            make_folder("bert_tiny", tiny, container)
            if not folder.is_dir():
                folder = Path(scratch, container)
                size = make_folder(options.model, folder, container)
                print(f"{options.model}, {container}: {size / 1e6:,.0f} MB of float32", flush=True)
            folders[container] = tiny, folder
        ways = [
            (way, tree, sys.executable) for way in ("kt.load", "load_encoder") for tree in trees
        ]
        if options.transformers:
            ways.append(("transformers", "now", options.transformers))
        figures: dict[tuple[str, str, str], list[list[float]]] = {}
        for _ in range(options.rounds):
            for container, places in folders.items():
                for way, tree, python in ways:
                    if way != "transformers" or container not in NOT_OF_TRANSFORMERS:
                        row = measure(python, trees[tree], way, *places)
                        figures.setdefault((container, way, tree), []).append(row)
    print_medians(figures)


def print_medians(figures: dict[tuple[str, str, str], list[list[float]]]) -> None:
    """Prints the medians of each way, and its CPU time as a multiple of transformers'."""
    columns = "load, CPU s", "of transf.", "clock, s", "answer, CPU s", "loaded, MB", "peak, MB"
    print(f"{'container':18} {'':12} {'':7}" + "".join(f"{name:>15}" for name in columns))
    medians = {
        key: [statistics.median(column) for column in zip(*rows, strict=True)]
        for key, rows in figures.items()
    }
    for (container, way, tree), (cpu, wall, first, loaded, peak) in medians.items():
        theirs = medians.get((container, "transformers", "now"))
        cells = (
            f"{cpu:.2f}",
            f"{cpu / theirs[0]:.2f}" if theirs else "",
            f"{wall:.2f}",
            f"{first:.2f}" if way != "load_encoder" else "",
            f"{loaded:,.0f}",
            f"{peak:,.0f}",
        )
        name = "" if way == "transformers" else tree
        print(f"{container:18} {way:12} {name:7}" + "".join(f"{cell:>15}" for cell in cells))


if __name__ == "__main__":
    main()
