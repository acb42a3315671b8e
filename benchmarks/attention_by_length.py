"""Compares runs by BLEU per source length, such as with and without attention.

    python benchmarks/attention_by_length.py runs/attention runs/none --output by_length.png

Reads metrics.json from runs of recipes/translation.py, such as one with --model seq2seq_multi30k
and one with --model seq2seq_multi30k_no_attention. Prints a table, with each run's difference from
the first in brackets, and draws one curve per run (Bahdanau et al. 2014, figure 2).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]  # see `evaluation.bleu_by_length`


def read(folder: Path) -> tuple[str, Rows]:
    """Returns the name of a run's scores, and the scores by class of length.

    Raises:
        FileNotFoundError: the run does not exist or is not finished.
        ValueError: its figures have no BLEU by length.
    """
    path = folder / "metrics.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give the folders of finished runs")
    for name, value in json.loads(path.read_text("utf-8")).items():
        if name.endswith("BLEU by source words"):
            return name, value
    raise ValueError(f"{path}: no BLEU by source words; run recipes/translation.py again")


def check_same_sentences(runs: dict[str, tuple[str, Rows]]) -> None:
    """Raises ValueError unless all runs measured the same classes of the same sentences."""
    classes = {
        name: (title, [(row["words"], row["sentences"]) for row in rows])
        for name, (title, rows) in runs.items()
    }
    first, *others = classes
    for other in others:
        if classes[other] != classes[first]:
            raise ValueError(
                f"{other} measured {classes[other]}, {first} measured {classes[first]}: compare "
                "runs on one test set"
            )


def table(runs: dict[str, Rows]) -> str:
    """Returns a table with one row per class of length and one column per run."""
    first, *others = runs
    width = max(15, *map(len, runs))
    lines = ["words  sentences  " + "  ".join(name.rjust(width) for name in runs)]
    for index, row in enumerate(runs[first]):
        cells = [f"{row['bleu']:.2f}".rjust(width)]
        for name in others:
            bleu = runs[name][index]["bleu"]
            cells.append(f"{bleu:.2f} ({bleu - row['bleu']:+.2f})".rjust(width))
        lines.append(f"{row['words']:>5}  {row['sentences']:>9}  {'  '.join(cells)}")
    return "\n".join(lines)


def draw(title: str, runs: dict[str, Rows], path: Path) -> None:
    """Draws the curves to a picture, in the format of the file's suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, rows in runs.items():
        places = [row["mean_words"] for row in rows]
        axes.plot(places, [row["bleu"] for row in rows], marker="o", label=name)
    axes.set_xlabel("words of the source, mean of the class")
    axes.set_ylabel("BLEU")
    axes.set_title(title)
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    """Reads, prints, draws."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "runs", nargs="+", type=Path, help="folders of runs, such as runs/attention"
    )
    parser.add_argument("--output", type=Path, help="picture to write, such as by_length.png")
    options = parser.parse_args()
    try:
        found = {str(folder): read(folder) for folder in options.runs}
        check_same_sentences(found)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    curves = {name: rows for name, (_, rows) in found.items()}
    title = next(iter(found.values()))[0]
    print(f"{title}\n{table(curves)}")
    if options.output:
        draw(title, curves, options.output)
        print(f"written: {options.output}")


if __name__ == "__main__":
    main()
