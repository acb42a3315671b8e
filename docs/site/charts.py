"""Draws the pictures of the page of results from the files in benchmarks/results.

    python docs/site/charts.py

The colours are readable on light and on dark pages. Each picture holds its figures as a
description, which a test compares with the files.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
IMAGES = ROOT / "docs/images"
GREY, BLUE, LINES = "#7d8590", "#3a7bd5", ["#3a7bd5", "#d0672f", "#2f9e62", "#9b59b6", "#b8901e"]
STYLE = {
    "svg.hashsalt": "keras_transformers",  # the same file for the same figures
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Chart(NamedTuple):
    """A picture, and the figures that it shows."""

    figure: Figure
    values: Any


def speed() -> Chart:
    """Our time as a share of the best peer's, for every row of the suite."""
    rows: list[tuple[str, float]] = []
    for table in ("encoders", "int8", "training", "generation", "translation"):
        found = json.loads((RESULTS / f"suite/{table}.json").read_text())["rows"]
        for title, times in found.items():
            if "forward pass" in title:
                continue
            ours = times["ours, int8" if table == "int8" else "ours"]["median"]
            peers = [each["median"] for name, each in times.items() if not name.startswith("ours")]
            before = "translation, " if table == "translation" else ""
            after = ", int8" if table == "int8" else ""
            rows.append((f"{before}{title}{after}", ours / min(peers)))
    rows.reverse()
    figure = Figure(figsize=(8, 0.28 * len(rows) + 0.9))
    axes = figure.subplots()
    places = range(len(rows))
    axes.axvline(1, color=GREY, linewidth=1)
    axes.hlines(places, 1, [ratio for _, ratio in rows], color=GREY, linewidth=1)
    colours = [BLUE if ratio <= 1 else LINES[1] for _, ratio in rows]
    axes.scatter([ratio for _, ratio in rows], places, c=colours, s=36, zorder=3)
    axes.set_yticks(places, [title for title, _ in rows], fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.5, 0.7, 1, 1.4], ["0.5", "0.7", "1", "1.4"])
    axes.set_xlabel("our CPU time / the best peer's (left of 1: ahead)")
    return Chart(figure, [[title, round(ratio, 3)] for title, ratio in reversed(rows)])


def curves() -> Chart:
    """Validation loss by epoch of the Transformer's ablations."""
    found = json.loads((RESULTS / "ablations.json").read_text())
    figure = Figure(figsize=(8, 4))
    axes = figure.subplots()
    values = {}
    chosen = ["base", "dropout 0.3", "post-norm", "positions: learned", "positions: relative"]
    for name, colour in zip(chosen, LINES, strict=True):
        losses = [epoch["val_perplexity"] for epoch in found[name]["epochs"]]
        values[name] = [round(loss, 2) for loss in losses]
        axes.plot(range(1, len(losses) + 1), losses, color=colour, marker="o", label=name)
    axes.set_yscale("log")
    axes.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.set_xlabel("epoch of 120 updates")
    axes.set_ylabel("validation perplexity")
    axes.legend(frameon=False, labelcolor=GREY)
    return Chart(figure, values)


def bleu() -> Chart:
    """BLEU on the validation set by epoch, greedy, of the base of the ablations."""
    epochs = json.loads((RESULTS / "bleu_over_time.json").read_text())["epochs"]
    figure = Figure(figsize=(8, 3.4))
    axes = figure.subplots()
    scores = [epoch["val_bleu"] for epoch in epochs]
    axes.plot(range(1, len(scores) + 1), scores, color=BLUE, marker="o")
    axes.set_ylim(0)
    axes.set_xlabel("epoch of 120 updates")
    axes.set_ylabel("BLEU on val, greedy")
    return Chart(figure, [round(score, 2) for score in scores])


CHARTS: dict[str, Callable[[], Chart]] = {"speed": speed, "curves": curves, "bleu": bleu}


def draw(make: Callable[[], Chart], target: Any) -> None:
    """Writes a chart as SVG to a path or a file."""
    with mpl.rc_context(STYLE):
        chart = make()
        chart.figure.savefig(
            target,
            format="svg",
            transparent=True,
            bbox_inches="tight",
            metadata={"Date": None, "Creator": None, "Description": json.dumps(chart.values)},
        )


def main(names: list[str]) -> None:
    """Draws the charts of these names, by default all."""
    for name in names or list(CHARTS):
        draw(CHARTS[name], IMAGES / f"{name}.svg")
        print(f"written: {IMAGES / name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
