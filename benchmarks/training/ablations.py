"""Measures the effect of each choice in the Transformer on BLEU, with a small budget.

    python benchmarks/training/ablations.py DATA/multi30k --runs-dir runs/ablations

Every run is `recipes/translation.py` with `transformer_tiny` on Multi30k De-En and the options in
`BUDGET`: 720 updates, 10 to 15 minutes each on one thread. You can stop the command and repeat it:
finished runs are not run again, and stopped ones continue. The table has the scores of the last
weights and of their average, over the last five epochs unless a row says otherwise, by beam search.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import variants

RECIPE = Path(__file__).parents[2] / "recipes/translation.py"
EPOCHS = Path(__file__).parents[1] / "results/ablations.json"
BUDGET = {
    "epochs": "6",
    "bleu-every": "6",
    "warmup-steps": "240",
    "decay": "cosine",
    "learning-rate": "0.005",
    "dropout": "0.1",
    "seed": "0",
}
POST_NORM = "norm_position post"
# Name -> the options that differ from BUDGET.
VARIANTS: dict[str, dict[str, str]] = {
    "base": {},
    "label smoothing 0": {"label-smoothing": "0"},
    "dropout 0": {"dropout": "0"},
    "dropout 0.3": {"dropout": "0.3"},
    "post-norm": {"model-options": POST_NORM},
    # noam(hidden_dim=128): 128 ** -0.5 * 4000 ** -0.5 after 4,000 updates.
    "post-norm, the paper's schedule": {
        "model-options": POST_NORM,
        "decay": "inverse_sqrt",
        "learning-rate": "0.0013975",
        "warmup-steps": "4000",
    },
    "average of 20, 6 updates apart": {"average": "20", "average-every": "6"},
    "tying: decoder's two": {"model-options": "weight_tying decoder"},
    "tying: none": {"model-options": "weight_tying none"},
    "heads: 1": {"model-options": "num_heads 1"},
    "heads: 8": {"model-options": "num_heads 8"},
    "positions: learned": {"model-options": "positions learned"},
    "positions: relative": {"model-options": "positions relative"},
    "positions: rotary": {"model-options": "positions rotary"},
}


def main() -> None:
    """Runs the unfinished variants, and prints the table after each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", default=["0"])
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for name in arguments.variants:
            run(name, seed, arguments.data, arguments.runs_dir)
            print(*table(arguments.runs_dir), sep="\n", flush=True)
    write_epochs(arguments.runs_dir)


def run(name: str, seed: str, data: Path, runs_dir: Path) -> None:
    """Trains one variant."""
    options = {"data": str(data)} | BUDGET | VARIANTS[name] | {"seed": seed}
    variants.train(RECIPE, runs_dir / variants.folder_name(name, seed), options)


def table(runs_dir: Path) -> Iterator[str]:
    """Yields the lines of a Markdown table of the finished runs."""
    columns = ["parameters", "val, last", "test, last", "test, average"]
    yield f"| what differs | seed | {' | '.join(columns)} |"
    yield f"|---|--:|{'--:|' * len(columns)}"
    for name, seed, found in variants.finished(runs_dir, VARIANTS):
        average = f"average of {VARIANTS[name].get('average', 5)}"
        measured = (("val", "last"), ("test_2016_flickr", "last"), ("test_2016_flickr", average))
        figures = [found[f"{split} BLEU, {weights}, beam"] for split, weights in measured]
        cells = " | ".join(f"{figure:.1f}" for figure in figures)
        yield f"| {name} | {seed} | {found['parameters']:,} | {cells} |"


def write_epochs(runs_dir: Path) -> None:
    """Adds the metrics of each epoch of each run, for the charts of the results."""
    found = json.loads(EPOCHS.read_text())  # of runs in other folders
    for name, seed, metrics in variants.finished(runs_dir, VARIANTS):
        if seed == "0":
            found[name] = {"epochs": metrics["epochs"]}
    EPOCHS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
