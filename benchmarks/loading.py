"""Measures the time and memory of loading weights, each in a separate process.

    python benchmarks/loading.py [--model bert_large] [--rounds 3] [--transformers] [--before TREE]
        [--container safetensors --container tf_model.h5 ...] > benchmarks/results/loading.txt

For each container, a folder with a random BERT in float32 is written and read once, so that it is
in the page cache. Processes take turns; each first imports everything and loads a tiny BERT.
`loaded` is the memory of the weights; the peak is the highest resident memory while loading. Both
are relative to the process before loading, and time is CPU time on one thread. transformers maps
files and reads a weight at its first use, so each is used once.

--before takes another checkout of this repository for comparison.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bert_containers import NOT_OF_TRANSFORMERS, OF_TENSORFLOW, WRITERS, Tensors

ROOT = Path(__file__).resolve().parents[1]
WAYS = {
    "kt.load": "import keras_transformers as kt\ndef load(folder): return kt.load(folder)",
    "load_encoder": "import keras_transformers as kt\n"
    "def load(folder): return kt.convert.load_encoder(weights=folder)",
    "transformers": "import transformers\n"
    "def load(folder):\n"
    "    model = transformers.BertModel.from_pretrained(folder)\n"
    "    return model, sum(float(values.sum()) for values in model.parameters())",
}
PROGRAM = """
import json, resource, sys, time
{way}
kept = load({tiny!r})
def resident():  # bytes
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before, started, cpu = resident(), time.perf_counter(), time.process_time()
kept = load({folder!r})
cpu, wall = time.process_time() - cpu, time.perf_counter() - started
status = open("/proc/self/status").read()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([cpu, wall, (resident() - before) / 1e6, (peak - before) / 1e6]))
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


def measure(tree: Path, way: str, tiny: Path, folder: Path) -> list[float]:
    """Returns CPU seconds, wall-clock seconds, and MB after loading and at the peak."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        **dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"), "1"),
    }
    program = PROGRAM.format(way=WAYS[way], tiny=str(tiny), folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tree, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Prints a row for each process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert_large", help="a BERT of list_models()")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transformers", action="store_true", help="compare with its BertModel")
    parser.add_argument("--before", type=Path, help="another checkout of this repository")
    parser.add_argument("--container", action="append", choices=WRITERS, dest="containers")
    options = parser.parse_args()
    containers = options.containers or ["safetensors"]
    trees = {"now": ROOT, **({"before": options.before.resolve()} if options.before else {})}
    with tempfile.TemporaryDirectory() as scratch:
        for container in containers:
            folder = Path(scratch, container.replace(" ", "-"))
            make_folder("bert_tiny", folder.with_name(f"{folder.name}-tiny"), container)
            size = make_folder(options.model, folder, container)
        print(f"{options.model}, {size / 1e6:,.0f} MB of float32")
        header = f"{'CPU, s':>8} {'clock, s':>9} {'loaded, MB':>11} {'peak, MB':>9}"
        print(f"{'container':18} {'':8} {'':14} {header}")
        for _ in range(options.rounds):
            for container in containers:
                folder = Path(scratch, container.replace(" ", "-"))
                ways = ["kt.load", "load_encoder"]
                if options.transformers and container not in NOT_OF_TRANSFORMERS:
                    ways.append("transformers")
                for way in ways:
                    for name, tree in trees.items():
                        if way == "transformers" and name != "now":
                            continue
                        tiny = folder.with_name(f"{folder.name}-tiny")
                        cpu, wall, loaded, peak = measure(tree, way, tiny, folder)
                        who = "" if way == "transformers" else name
                        row = f"{cpu:8.2f} {wall:9.2f} {loaded:11,.0f} {peak:9,.0f}"
                        print(f"{container:18} {who:8} {way:14} {row}", flush=True)


if __name__ == "__main__":
    main()
