"""Draws the pictures of results and performance from the files in benchmarks/results.

    python docs/site/charts.py

All charts of the site have the style and the two layouts of this file, `strips` and `lines`. They
are as wide as a phone, so that their text stays legible there. Markers tell the series apart
without colour. Each picture has the colours of light and of dark pages, and holds its figures as a
description, which a test compares with the files.
"""

import io
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
IMAGES = ROOT / "docs/images"
TEXT, GUIDE = "#47505a", "#c3cad1"
BLUE, ORANGE, GREEN, PURPLE, GOLD = "#2457a6", "#b3470f", "#1a7a48", "#84409d", "#7d6000"
DARK = {  # the colour of a light page -> that of a dark one
    TEXT: "#c3ccd6",
    GUIDE: "#454c58",
    BLUE: "#7aa5f5",
    ORANGE: "#f2935b",
    GREEN: "#58c98b",
    PURPLE: "#cc9fe3",
    GOLD: "#dcb847",
}
WIDTH = 4.4  # inches
_LINE, _CHARACTER = 0.17, 0.08  # inches: of a line of text, of a character
STYLE = {
    "svg.hashsalt": "keras_transformers",  # the same file for the same figures
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 10,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.markersize": 6.5,
    "lines.markeredgewidth": 1.5,
}


class Chart(NamedTuple):
    """A picture, and the figures that it shows."""

    figure: Figure
    values: Any


class Look(NamedTuple):
    """How a series is drawn."""

    marker: str
    colour: str
    is_filled: bool = True
    line: str = "-"


LOOKS = [
    Look("o", BLUE),
    Look("s", ORANGE, is_filled=False, line="--"),
    Look("D", GREEN, is_filled=False, line="-."),
    Look("^", PURPLE, is_filled=False, line=":"),
    Look("v", GOLD, is_filled=False, line=(0, (5, 1, 1, 1, 1, 1))),  # type: ignore[arg-type]
    Look("X", TEXT, line=(0, (1, 3))),  # type: ignore[arg-type]
]


PEERS = {
    "ONNX Runtime": LOOKS[1],
    "OpenVINO": LOOKS[2],
    "CTranslate2": LOOKS[2],
    "keras_hub": LOOKS[3],
    "Marian": LOOKS[3],
    "Hugging Face": LOOKS[4],
    "llama.cpp": LOOKS[1],
}


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Returns a look per contestant: ours is blue, and a peer always looks the same."""
    ours = iter([LOOKS[0], Look("x", BLUE, is_filled=False), Look("+", BLUE, is_filled=False)])
    return {
        name: next(ours) if name.startswith("ours") else PEERS[name.partition(",")[0]]
        for name in names
    }


class Panel(NamedTuple):
    """Series that share an axis: each has a list of values in every row, which may be empty."""

    rows: Sequence[tuple[str, Mapping[str, Sequence[float]]]]
    axis: str = ""
    heading: str = ""
    is_log: bool = False
    from_zero: bool = False
    one: bool = False  # a line at 1
    shown: Callable[[float], str] | None = None  # writes each value beside its marker, without axis


def strips(panels: Sequence[Panel], looks: Mapping[str, Look]) -> Figure:
    """Draws a line per row with a marker per value, the panels one below the other."""
    wrapped = [[_wrapped(label, 22) for label, _ in panel.rows] for panel in panels]
    longest = max(len(line) for labels in wrapped for label in labels for line in label.split("\n"))
    left = longest * _CHARACTER + 0.12
    heads = [_wrapped(panel.heading, 52) if panel.heading else "" for panel in panels]
    parts = []  # the height of each panel: heading, rows, axis
    for panel, labels, head in zip(panels, wrapped, heads, strict=True):
        rows = [_LINE * (label.count("\n") + 1) + 0.06 for label in labels]
        foot = 0.1 if panel.shown else 0.27 + (_LINE + 0.02) * len(_axis_lines(panel, left))
        parts.append((_LINE * (head.count("\n") + 1) + 0.05 if head else 0.05, rows, foot))
    legend = _legend_height(looks)
    height = legend + sum(head + sum(rows) + foot for head, rows, foot in parts)
    figure = Figure(figsize=(WIDTH, height))
    _legend(figure, looks)
    top = height - legend
    for panel, labels, head, (head_height, rows, foot) in zip(
        panels, wrapped, heads, parts, strict=True
    ):
        if head:
            place = {"x": 0.005, "y": top / height, "va": "top", "fontweight": "bold"}
            figure.text(s=head, **place)
        top -= head_height + sum(rows)
        box = (left / WIDTH, top / height, 0.97 - left / WIDTH, sum(rows) / height)
        axes = figure.add_axes(box)
        axes.set_ylim(0, sum(rows))
        _strip(axes, panel, looks, rows, labels)
        axes.set_xlabel("\n".join(_axis_lines(panel, left)))
        top -= foot
    return figure


def _strip(
    axes: Axes, panel: Panel, looks: Mapping[str, Look], heights: list[float], labels: list[str]
) -> None:
    places = [sum(heights[at + 1 :]) + heights[at] / 2 for at in range(len(heights))]
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    values = [one for _, row in panel.rows for found in row.values() for one in found]
    low, high = _span(panel, values)
    ends = [
        max(one for found in row.values() for one in found) if panel.shown else high
        for _, row in panel.rows
    ]
    axes.hlines(places, low, ends, color=GUIDE, linewidth=0.8)
    if panel.one:
        axes.axvline(1, color=TEXT, linewidth=1)
    for place, (_, row) in zip(places, panel.rows, strict=True):
        for name, found in row.items():  # what is hollow on top of what is filled
            _plot(axes, found, [place] * len(found), looks[name], linestyle="none")
            if panel.shown:
                for value in found:
                    spot = (value, place)
                    text, there = panel.shown(value), {"textcoords": "offset points"}
                    axes.annotate(text, spot, (7, -0.5), va="center", **there)
    if panel.is_log:
        axes.set_xscale("log")
        _name_ticks(axes, "x", low, high)
    elif panel.shown:
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.set_xlim(low, high)


def lines(
    panels: Sequence[Panel],
    looks: Mapping[str, Look],
    *,
    x_axis: str,
    columns: int = 1,
    x_is_log: bool = False,
) -> Figure:
    """Draws a line per series over the panel's rows, whose labels are numbers or names."""
    legend, each = _legend_height(looks), 2.2 if columns == 1 else 1.6
    height = legend + each * -(-len(panels) // columns) + (0.2 if columns == 1 else 0.35)
    figure = Figure(figsize=(WIDTH, height))
    _legend(figure, looks)
    left, room = 0.65, WIDTH / columns
    for at, panel in enumerate(panels):
        x, y = (at % columns) * room, height - legend - (at // columns + 1) * each
        foot, head = (0.25 if columns == 1 else 0.1), 0.32
        box = (x + left, y + foot, room - left - 0.12, each - foot - head)
        axes = figure.add_axes((box[0] / WIDTH, box[1] / height, box[2] / WIDTH, box[3] / height))
        labels = [label for label, _ in panel.rows]
        numbers = [float(label.replace(",", "")) if x_is_log else place
                   for place, label in enumerate(labels)]  # fmt: skip
        for name, look in looks.items():
            points = [
                (number, found[0])
                for number, (_, row) in zip(numbers, panel.rows, strict=True)
                if (found := row.get(name))
            ]
            if points:
                across, values = zip(*points, strict=True)
                _plot(axes, across, values, look, linestyle=look.line)
        values = [one for _, row in panel.rows for found in row.values() for one in found]
        low, high = _span(panel, values)
        if x_is_log:
            axes.set_xscale("log")
        if panel.is_log:
            axes.set_yscale("log")
            _name_ticks(axes, "y", low, high)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        shown = [(number, label) for number, label in zip(numbers, labels, strict=True) if label]
        axes.set_xticks([number for number, _ in shown], [label for _, label in shown], minor=False)
        axes.minorticks_off()
        axes.set_ylim(low, high)
        axes.grid(axis="y", color=GUIDE, linewidth=0.8)
        axes.set_axisbelow(True)
        title = panel.heading or panel.axis
        axes.set_title(title, loc="left", x=0.03 - left / box[2], fontsize=10, fontweight="bold")
        if at + columns >= len(panels) and columns == 1:
            axes.set_xlabel(x_axis)
    if columns > 1:
        figure.text(0.5, 0.005, f"{x_axis}; vertical: {panels[0].axis}", ha="center", va="bottom")
    return figure


def _plot(axes: Axes, x: Sequence[float], y: Sequence[float], look: Look, **style: Any) -> None:
    face = look.colour if look.is_filled else "none"
    axes.plot(
        x, y, marker=look.marker, color=look.colour, markerfacecolor=face, clip_on=False, **style
    )


def _span(panel: Panel, values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis; those of an axis of ratios show at least 0.5 to 2."""
    low, high = min(values), max(values)
    if panel.one:
        low, high = min(low, 0.5), max(high, 2)
    if panel.is_log:
        room = (high / low) ** 0.06
        return low / room, high * room
    if panel.from_zero:
        low = 0
    room = (high - low) or abs(high) or 1
    last = high + (0.26 if panel.shown else 0.06) * room
    return (0 if panel.from_zero else low - 0.08 * room), last


def _name_ticks(axes: Axes, side: str, low: float, high: float) -> None:
    """Puts a few round numbers on a logarithmic axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            break
    axes.minorticks_off()
    names = [f"{tick:,g}" for tick in ticks]
    axes.set_xticks(ticks, names) if side == "x" else axes.set_yticks(ticks, names)


def _wrapped(text: str, width: int) -> str:
    """Returns the text in lines, which break neither a shape such as 8 x 128 nor a name."""
    whole = text.replace(" x ", "\u00a0x\u00a0")
    return "\n".join(textwrap.wrap(whole, width, break_on_hyphens=False)) or text


def _axis_lines(panel: Panel, left: float) -> list[str]:
    if panel.shown or not panel.axis:
        return []
    return textwrap.wrap(panel.axis, int((WIDTH - left) / _CHARACTER))


def _legend_columns(looks: Mapping[str, Look]) -> int:
    widest = max(len(name) for name in looks) * _CHARACTER + 0.42
    return max(1, min(len(looks), int(WIDTH / widest)))


def _legend_height(looks: Mapping[str, Look]) -> float:
    if len(looks) < 2:
        return 0.02
    return 0.19 * -(-len(looks) // _legend_columns(looks)) + 0.06


def _legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    if len(looks) < 2:
        return
    handles = [
        Line2D([], [], marker=look.marker, color=look.colour, linestyle="none", label=name,
               markerfacecolor=look.colour if look.is_filled else "none")
        for name, look in looks.items()
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(0, 1),
        ncols=_legend_columns(looks),
        borderaxespad=0,
        borderpad=0.1,
        handletextpad=0.1,
        columnspacing=0.8,
        labelspacing=0.35,
    )


# The charts of performance.md, and some of the pages of results.


def _suite(name: str) -> Any:
    return json.loads((RESULTS / f"suite/{name}.json").read_text("utf-8"))


def _ratios(table: str) -> list[tuple[str, dict[str, float]]]:
    """Returns title -> contestant -> its time as a share of the best peer's, of a table's rows."""
    rows = []
    for title, times in _suite(table)["rows"].items():
        medians = {name: found["median"] for name, found in times.items()}
        best = min(time for name, time in medians.items() if not name.startswith("ours"))
        rows.append((title, {name: round(time / best, 3) for name, time in medians.items()}))
    return rows


CONTESTS = {
    "encoders": "Encoders",
    "int8": "Encoders in int8",
    "training": "Training steps",
    "generation": "Text generation",
    "llama": "Llama",
    "translation": "Translation",
}


def speed() -> Chart:
    """Our time as a share of the best peer's: a marker for every row of the suite."""
    rows = []
    for table, title in CONTESTS.items():
        ours = "ours, int8" if table == "int8" else "ours"
        found = [(row, ratios[ours]) for row, ratios in _ratios(table) if "forward" not in row]
        rows.append((title, found))
    looks = {"faster": Look("o", BLUE), "slower": Look("s", ORANGE, is_filled=False)}
    marks = [
        (
            title,
            {
                "faster": [ratio for _, ratio in found if ratio <= 1],
                "slower": [ratio for _, ratio in found if ratio > 1],
            },
        )
        for title, found in rows
    ]
    panel = Panel(marks, axis="our CPU time / the best peer's", is_log=True, one=True)
    return Chart(strips([panel], looks), [[title, dict(found)] for title, found in rows])


def contest(table: str) -> Chart:
    """All contestants' times as shares of the best peer's."""
    rows = _ratios(table)
    looks = looks_of(dict.fromkeys(name for _, ratios in rows for name in ratios))
    marks = [(title, {name: [one] for name, one in ratios.items()}) for title, ratios in rows]
    panel = Panel(marks, axis="CPU time / the best peer's", is_log=True, one=True)
    return Chart(strips([panel], looks), [[title, ratios] for title, ratios in rows])


def loading() -> Chart:
    """CPU time and memory that loading an encoder takes."""
    measured = {"load": "CPU ms to load", "memory": "more memory, MB"}
    found = _suite("encoders")["loading"]
    return _by_engine([
        (axis, {name: costs[key] for name, costs in found.items()})
        for key, axis in measured.items()
    ])  # fmt: skip


def llama_memory() -> Chart:
    """Peak memory of a process that generates."""
    return _by_engine([("peak memory of the process, MB", _suite("llama")["memory"])])


def _by_engine(found: Sequence[tuple[str, Mapping[str, float]]]) -> Chart:
    """Draws figures named "model, engine": a row per model, a marker per engine."""
    panels: list[Panel] = []
    for axis, figures in found:
        rows: dict[str, dict[str, list[float]]] = {}
        for name, value in figures.items():
            model, _, engine = name.partition(", ")
            rows.setdefault(model, {})[engine] = [value]
        panels.append(Panel(list(rows.items()), axis=axis, from_zero=True))
    looks = looks_of(dict.fromkeys(name for _, row in panels[0].rows for name in row))
    return Chart(strips(panels, looks), [[axis, dict(figures)] for axis, figures in found])


def serving() -> Chart:
    """Requests per second by the number of clients, one by one and batched."""
    models: dict[str, list[tuple[str, dict[str, list[float]]]]] = {}
    values = []
    for title, kinds in _suite("serving")["rows"].items():
        model, _, clients = title.rpartition(", ")
        row = {kind: [round(found["requests a second"], 1)] for kind, found in kinds.items()}
        models.setdefault(model, []).append((clients.split()[0], row))
        values.append([title, row])
    panels = [
        Panel(rows, axis="requests per second", heading=model, from_zero=True)
        for model, rows in models.items()
    ]
    looks = dict(zip(panels[0].rows[0][1], LOOKS, strict=False))
    return Chart(lines(panels, looks, x_axis="clients", columns=2), values)


def curves() -> Chart:
    """Validation perplexity by epoch of the Transformer's ablations."""
    found = json.loads((RESULTS / "ablations.json").read_text())
    chosen = ["base", "dropout 0.3", "post-norm", "positions: learned", "positions: relative"]
    values = {
        name: [round(epoch["val_perplexity"], 2) for epoch in found[name]["epochs"]]
        for name in chosen
    }
    rows = _by_epoch(values)
    panel = Panel(rows, axis="validation perplexity", is_log=True)
    looks = dict(zip(chosen, LOOKS, strict=False))
    return Chart(lines([panel], looks, x_axis="epoch of 120 updates"), values)


def bleu() -> Chart:
    """BLEU on the validation set by epoch, greedy, of the base of the ablations."""
    epochs = json.loads((RESULTS / "bleu_over_time.json").read_text())["epochs"]
    scores = [round(epoch["val_bleu"], 2) for epoch in epochs]
    panel = Panel(_by_epoch({"BLEU": scores}), axis="BLEU on val, greedy", from_zero=True)
    return Chart(lines([panel], {"BLEU": LOOKS[0]}, x_axis="epoch of 120 updates"), scores)


def _by_epoch(values: Mapping[str, Sequence[float]]) -> list[tuple[str, dict[str, list[float]]]]:
    count = max(len(found) for found in values.values())
    return [
        (str(epoch + 1), {name: found[epoch : epoch + 1] for name, found in values.items()})
        for epoch in range(count)
    ]


CHARTS: dict[str, Callable[[], Chart]] = {
    "speed": speed,
    "curves": curves,
    "bleu": bleu,
    **{f"performance/{table}": lambda table=table: contest(table) for table in CONTESTS},
    "performance/encoders_loading": loading,
    "performance/llama_memory": llama_memory,
    "performance/serving": serving,
}


def draw(make: Callable[[], Chart], target: Path) -> None:
    """Writes a chart as SVG to a path."""
    with mpl.rc_context(STYLE):
        chart, text = make(), io.StringIO()
        described = {"Date": None, "Creator": None, "Description": json.dumps(chart.values)}
        chart.figure.savefig(text, format="svg", transparent=True, metadata=described)
    svg = text.getvalue().replace("<defs>", f"<style>{_dark_style()}</style>\n <defs>", 1)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(re.sub(r" +$", "", svg, flags=re.MULTILINE), "utf-8")


def _dark_style() -> str:
    rules = [
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }"


def main(names: list[str]) -> None:
    """Draws the charts of these names, by default all."""
    for name in names or list(CHARTS):
        draw(CHARTS[name], IMAGES / f"{name}.svg")
        print(f"written: docs/images/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
