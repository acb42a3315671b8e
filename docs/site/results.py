"""Prints the pages of results from the files in benchmarks/results.

    python docs/site/results.py

`scores/` holds one file per result, which `benchmarks/record.py` writes; `studies/` one file per
table that compares several. A page names what is printed between two comments, such as
`<!-- printed: scores tagging -->` and `<!-- end -->`; the text around them is written by hand. The
table in README.md, the charts of guides and those in docs/images/results come from the same files.
A test holds that files and pages agree.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any, NamedTuple

from charts import BLUE, LOOKS, ORANGE, ROOT, TEXT, Chart, Look, Panel, draw, lines, strips

RESULTS = ROOT / "benchmarks/results"
DOCS = ROOT / "docs"
IMAGES = DOCS / "images/results"
PAGES = [ROOT / "README.md", DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))]
GUIDES = [
    DOCS / f"{name}.md" for name in ("scaling", "exports", "training", "serving", "chat", "gpu")
]
BLOCK = re.compile(r"(<!-- printed: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
TASKS = {  # the page of docs/results -> its title
    "classification": "Text classification",
    "sentence_pairs": "Pairs of sentences",
    "tagging": "Tagging",
    "question_answering": "Question answering",
    "embeddings": "Embeddings and search",
    "translation": "Translation",
    "pronunciation": "Pronunciation",
    "pretraining": "Pretraining",
    "language_models": "Language models",
    "images": "Images",
}
LOWER_IS_BETTER = ("perplexity", "rate", "loss", "bits")
ONE_DIGIT = ("BLEU", "perplexity", "%")
README = [  # the results in README.md
    "classification_sst2_minilm",
    "classification_sst2_distilled_minilm",
    "tagging_conll_minilm_case_markers",
    "classification_conll_multi_label",
    "embeddings_xquad_minilm",
    "pairs_mrpc_minilm",
    "question_answering_xquad_minilm",
    "translation_multi30k_diversified",
    "pronunciation_cmudict_rnn",
    "pretraining_modern_bert",
    "language_model_elmo_large",
    "language_model_shakespeare_gpt",
    "images_digits_vit",
    "classification_rotten_tomatoes_fasttext",
]
Result = dict[str, Any]
# What a chart shows: ours, baselines and published figures.
KINDS = {
    "ours": Look("o", BLUE),
    "baseline": Look("s", TEXT, is_filled=False),
    "published": Look("D", ORANGE, is_filled=False),
}


class Row(NamedTuple):
    """A line of a chart: what was measured, its values, and whose they are."""

    label: str
    values: list[Any]
    kind: str


class Entry(NamedTuple):
    """What was measured on some data: ours, a baseline or a published figure."""

    name: str
    scores: dict[str, float]
    kind: str
    result: Result


def scores() -> dict[str, Result]:
    """Returns name -> result, by task, data and score: the best first."""
    found = {path.stem: _read(path) for path in (RESULTS / "scores").glob("*.json")}
    sizes = Counter((result["task"], result["data"]) for result in found.values())

    def place(name: str) -> tuple[Any, ...]:
        result = found[name]
        metric, value = main_score(result["scores"])
        better = value if is_lower_better(metric) else -value
        task, data = result["task"], result["data"]
        return list(TASKS).index(task), -sizes[task, data], data, metric, better, name

    return {name: found[name] for name in sorted(found, key=place)}


def of_task(task: str) -> dict[str, Result]:
    """Returns the results of a task."""
    return {name: result for name, result in scores().items() if result["task"] == task}


def study(name: str) -> Result:
    """Returns a table of several results."""
    return _read(RESULTS / f"studies/{name}.json")


def studies() -> list[str]:
    """Returns the names of the tables of several results."""
    return sorted(path.stem for path in (RESULTS / "studies").glob("*.json"))


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def main_score(found: dict[str, float]) -> tuple[str, float]:
    """Returns the first metric and its value, which tables and charts show."""
    return next(iter(found.items()))


def is_lower_better(metric: str) -> bool:
    """Whether a lower value is the better one."""
    return any(word in metric for word in LOWER_IS_BETTER)


def number(metric: str, value: float) -> str:
    """Returns a value with the digits of its metric; whole numbers as they are."""
    if isinstance(value, int):
        return f"{value:,}"
    last = Decimal("0.1" if any(word in metric for word in ONE_DIGIT) else "0.001")
    return str(Decimal(str(value)).quantize(last, ROUND_HALF_UP))


def scored(found: dict[str, float], *, name: str = "", only_main: bool = False) -> str:
    """Returns scores as text, such as "F1 0.856, accuracy 0.799"."""
    pairs = list(found.items())[: 1 if only_main else None]
    return f"{name} " * bool(name) + ", ".join(
        f"{metric.removesuffix(', %')} {number(metric, value)}" for metric, value in pairs
    )


def compared(result: Result, entry: Result, *, only_main: bool = False) -> str:
    """Returns a baseline, or a published score: its name, and its values of our metrics."""
    values = [
        number(metric, entry["scores"][metric])
        for metric in list(result["scores"])[: 1 if only_main else None]
        if metric in entry["scores"]
    ]
    return f"{entry['name']} {', '.join(values)}"


def millions(parameters: int | None) -> str:
    """Returns a parameter count as text, in millions."""
    return "" if parameters is None else f"{parameters / 1e6:.1f}\N{NO-BREAK SPACE}M"


def duration(seconds: float | list[float] | None) -> str:
    """Returns a time as text, or a range of times."""
    if seconds is None:
        return ""
    ends = seconds if isinstance(seconds, list) else [seconds]
    if max(ends) < 100:
        return f"{' to '.join(f'{end:.1f}' for end in ends)} seconds"
    return f"{' to '.join(f'{end / 60:.0f}' for end in ends)} minutes"


def table(heads: list[str], rows: Iterable[list[str]], *, right: Iterable[int] = ()) -> list[str]:
    """Returns the lines of a table; the columns of `right` are aligned to the right."""
    marks = ["--:" if place in set(right) else "---" for place in range(len(heads))]
    lines = [heads, *rows]
    written = [f"| {' | '.join(cells)} |" for cells in lines]
    return [written[0], f"|{'|'.join(marks)}|", *written[1:]]


# The blocks of the pages. Each takes the words after its name, and returns lines.


def readme() -> list[str]:
    """Prints the table of README.md."""
    found = scores()
    rows = []
    for name in README:
        result = found[name]
        model = ", ".join(filter(None, [result["model"], millions(result["parameters"])]))
        rows.append(
            [
                f"`{result['recipe']}`",
                model,
                result["data"],
                scored(result["scores"], only_main=True),
                compared(result, result["baselines"][0], only_main=True),
            ]
        )
    return table(["recipe", "model, parameters", "data", "score", "for comparison"], rows)


def overview() -> list[str]:
    """Prints one chart per task, each with a link to its page."""
    lines = ['<div class="charts" markdown>', ""]
    for task, title in TASKS.items():
        picture = f"![{describe(overview_rows(task))}](images/results/{task}_overview.svg)"
        lines += [f"[**{title}** {picture}](results/{task}.md)", ""]
    return [*lines, "</div>"]


def all_scores() -> list[str]:
    """Prints the table of all results, which the site can sort."""
    rows = [
        [
            f"[{TASKS[result['task']].lower()}](results/{result['task']}.md)",
            result["data"],
            result["model"],
            millions(result["parameters"]),
            scored(result["scores"], only_main=True),
            compared(result, result["baselines"][0], only_main=True),
        ]
        for result in scores().values()
    ]
    heads = ["task", "data", "model", "size", "score", "baseline"]
    return ['<div class="sortable" markdown>', "", *table(heads, rows, right=[3]), "", "</div>"]


def scores_of(task: str) -> list[str]:
    """Prints a task's results: a chart and a table."""
    picture = f"![{describe(task_rows(task))}](../images/results/{task}.svg)"
    rows = [
        [
            data,
            f"[{entry.name}](#{anchor(entry.result)})" if entry.kind == "ours" else entry.name,
            scored(entry.scores),
            entry.kind,
        ]
        for (data, _), entries in compared_with(list(of_task(task).values())).items()
        for entry in entries
    ]
    return [picture, "", *table(["data", "model", "score", "source"], rows)]


def commands_of(task: str) -> list[str]:
    """Prints how each result of a task was measured."""
    lines = []
    for name, result in of_task(task).items():
        lines += [f"### {title_of(result)}", ""]
        facts = {
            "model": result["model_details"],
            "parameters": result["parameters"] and f"{result['parameters']:,}",
            "trained on": result["training_data"],
            "measured on": f"{result['data']}: {result['split']}",
            "seeds": ", ".join(map(str, result["seeds"])),
            "by seed": _by_seed(result),
            "commit": ", ".join(result["commits"]),
            "time": ", ".join(filter(None, [duration(result["seconds"]), result["machine"]])),
            "published figures": "; ".join(
                f"{entry['name']}: {entry['source']}" for entry in result["published"]
            ),
        }
        lines += [f"- {title}: {fact}" for title, fact in facts.items() if fact]
        lines += [f"- {note}" for note in result["notes"]]
        place = f"benchmarks/results/scores/{name}.json"
        lines += [f"- [{name}.json](../../{place})", ""]
        for command in result["commands"]:
            lines += [*_folded(command), ""]
    return lines[:-1]


def _by_seed(result: Result) -> str:
    return "; ".join(
        f"{metric.removesuffix(', %')} {', '.join(_exact(value) for value in values)}"
        for metric, values in result["by_seed"].items()
    )


def _exact(value: float) -> str:
    """Returns a value of a share with four digits, as recipes print it."""
    return f"{value:.4f}" if value < 1 else str(value)


def title_of(result: Result) -> str:
    """Returns the title of a result on its page."""
    return f"{result['model']} on {result['data']}"


def anchor(result: Result) -> str:
    """Returns the anchor that a title gets, on the site as on GitHub."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title_of(result).lower())).strip("-")


def _folded(command: str) -> list[str]:
    """Returns a command as a block of code, its options in lines that fit a page."""
    lines, line = [], ""
    options = re.split(r" (?=--)", command)
    for part in [part for one in options for part in (one.split(" ") if len(one) > 70 else [one])]:
        if line and len(line) + len(part) > 76:
            lines.append(line)
            line = "   "
        line = f"{line} {part}" if line else part
    return ["```", *" \\\n".join([*lines, line]).split("\n"), "```"]


def study_of(name: str) -> list[str]:
    """Prints a table of several results, with its chart."""
    found = study(name)
    columns = found["columns"]
    rows = [[cell(column, value) for column, value in zip(columns, row, strict=True)]
            for row in found["rows"]]  # fmt: skip
    right = [
        place
        for place in range(len(columns))
        if all(isinstance(row[place], int | float | None) for row in found["rows"])
    ]
    lines = table([column["name"] for column in columns], rows, right=right)
    if found["chart"]:
        described = describe([("", study_rows(found))])
        lines = [f"![{found['title']}. {described}](../images/results/{name}.svg)", "", *lines]
    return lines


def chart_of(name: str) -> list[str]:
    """Prints the chart of a study, for a page whose own table has the figures."""
    found = study(name)
    described = describe([("", study_rows(found))])
    return [f"![{found['title']}. {described}](images/results/{name}.svg)"]


def cell(column: dict[str, str], value: Any) -> str:
    """Returns a cell of a study: text, a number, or several numbers."""
    if value is None:
        return "-"
    form = column.get("format", "{:,}")
    if isinstance(value, str):
        return value
    values = [Decimal(str(each)) for each in (value if isinstance(value, list) else [value])]
    with localcontext() as context:
        context.rounding = ROUND_HALF_UP
        if form.count("{") == len(values):
            return form.format(*values)
        return ", ".join(form.format(each) for each in values)


def encoders() -> list[str]:
    """Prints MiniLM beside MPNet-base, of the tasks that both were measured on."""
    found = list(scores().values())
    small = {(one["data"], one["recipe"]): one for one in found if one["model"] == "MiniLM-L6"}
    rows = []
    for result in found:
        ours = small.get((result["data"], result["recipe"]))
        if result["model"] != "MPNet-base, bfloat16" or ours is None:
            continue
        for metric in result["scores"]:
            cells = [number(metric, one["scores"][metric]) for one in (result, ours)]
            rows.append([result["data"], metric.removesuffix(", %"), *cells])
            rows[-1].append(number(metric, result["baselines"][0]["scores"][metric]))
    heads = ["data", "metric", "MPNet-base", "MiniLM-L6", "bag of words, or a rule"]
    return table(heads, rows, right=[2, 3, 4])


PRINTERS: dict[str, Callable[..., list[str]]] = {
    "readme": readme,
    "overview": overview,
    "all scores": all_scores,
    "scores": scores_of,
    "commands": commands_of,
    "study": study_of,
    "chart": chart_of,
    "encoders": encoders,
}


def printed(text: str) -> str:
    """Returns a page with its printed blocks updated."""

    def block(match: re.Match) -> str:
        words = match[2]
        if words in PRINTERS:
            lines = PRINTERS[words]()
        else:
            name, _, argument = words.partition(" ")
            lines = PRINTERS[name](argument)
        space = [] if words == "readme" else [""]  # Python-Markdown wants them, README has no room
        return "\n".join([match[1].rstrip("\n"), *space, *lines, *space, match[3]])

    return BLOCK.sub(block, text)


# The charts.


def compared_with(results: list[Result]) -> dict[tuple[str, str], list[Entry]]:
    """Returns (data, metric) -> ours, the best first, then baselines, then published figures."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for result in results:
        metric, _ = main_score(result["scores"])
        entry = Entry(result["model"], result["scores"], "ours", result)
        groups.setdefault((result["data"], metric), []).append(entry)
    for kind, field in (("baseline", "baselines"), ("published", "published")):
        for result in results:
            metric, _ = main_score(result["scores"])
            entries = groups[result["data"], metric]
            ours = {entry.scores[metric] for entry in entries if entry.kind == "ours"}
            known = {entry.name for entry in entries}
            for one in result[field]:
                value = one["scores"].get(metric)
                if value is not None and value not in ours and one["name"] not in known:
                    known.add(one["name"])
                    entries.append(Entry(one["name"], one["scores"], kind, result))
    return groups


def task_rows(task: str) -> list[tuple[str, list[Row]]]:
    """Returns the groups of a task's chart: data and metric, and what was measured on it."""
    return _rows(compared_with(list(of_task(task).values())))


def overview_rows(task: str) -> list[tuple[str, list[Row]]]:
    """Returns the same with our best, its first baseline and its first published figure."""
    best: dict[tuple[str, str], Result] = {}
    for result in of_task(task).values():  # the best first
        first = {name: result[name][:1] for name in ("baselines", "published")}
        best.setdefault((result["data"], main_score(result["scores"])[0]), {**result, **first})
    return _rows(compared_with(list(best.values())))


def _rows(groups: dict[tuple[str, str], list[Entry]]) -> list[tuple[str, list[Row]]]:
    return [
        (
            _heading(data, metric),
            [Row(one.name, [one.scores[metric]], one.kind) for one in entries],
        )
        for (data, metric), entries in groups.items()
    ]


def _heading(data: str, metric: str) -> str:
    return f"{data}: {metric}" + " (lower is better)" * is_lower_better(metric)


def study_rows(found: Result) -> list[Row]:
    """Returns the rows of a study's chart; a row has one value per column that is shown."""
    chart = found["chart"]
    names = [column["name"] for column in found["columns"]]
    labels = chart.get("names")
    if labels is None:
        place = names.index(chart["label"])
        labels = [str(row[place]).replace("`", "") for row in found["rows"]]
    rows = []
    for label, row in zip(labels, found["rows"], strict=True):
        columns = [name for part in panels_of(chart) for name in part["values"]]
        values = [row[names.index(name)] for name in columns]
        if label is not None:
            rows.append(Row(label, values, "ours"))
    return rows


def describe(groups: list[tuple[str, list[Row]]]) -> str:
    """Returns the text for those who do not see a chart."""
    said = []
    for heading, rows in groups:
        told = [f"{row.label} {', '.join(_plain(row.values))}" for row in rows]
        said.append(f"{heading}: {'; '.join(told)}" if heading else "; ".join(told))
    return ". ".join(said).replace("[", "").replace("]", "")


def _plain(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield "/".join(f"{each:g}" for each in value)
        elif value is not None:
            yield f"{value:g}"


def task_chart(groups: list[tuple[str, list[Row]]]) -> Chart:
    """Draws groups of rows: a marker per figure, which also stands beside it."""
    panels = [
        Panel(
            [(row.label, {row.kind: row.values}) for row in rows],
            heading=heading,
            from_zero=True,
            shown=lambda value, heading=heading: _shown(heading, value),
        )
        for heading, rows in groups
    ]
    kinds = {row.kind for _, rows in groups for row in rows}
    figure = strips(panels, {kind: look for kind, look in KINDS.items() if kind in kinds})
    return Chart(figure, [[heading, [list(row) for row in rows]] for heading, rows in groups])


def _shown(heading: str, value: float) -> str:
    metric = heading.rpartition(": ")[2].removesuffix(" (lower is better)")
    return number(metric, value)


def study_chart(found: Result) -> Chart:
    """Draws the columns of a study that its file names, a marker or a line per column.

    A chart of several panels has as many axes, each with its columns; `series` then names the
    columns in the legend.
    """
    chart, rows = found["chart"], study_rows(found)
    is_lines = chart.get("kind") == "lines"
    panels, first = [], 0
    for part in panels_of(chart):
        names = part.get("series", part["values"])
        places = range(first, first + len(names))
        first += len(names)
        marks = [
            (
                row.label,
                {
                    name: _many(row.values[at])[: 1 if is_lines else None]
                    for at, name in zip(places, names, strict=True)
                    if row.values[at] is not None
                },
            )
            for row in rows
        ]
        is_log = part.get("log", False)
        from_zero = part.get("zero", is_lines and not is_log)
        panels.append(Panel(marks, axis=part["axis"], is_log=is_log, from_zero=from_zero))
    names = list(dict.fromkeys(name for panel in panels for _, row in panel.rows for name in row))
    looks = dict(zip(names, LOOKS, strict=False))
    if is_lines:
        x_is_log = chart.get("x_log", False)
        figure = lines(panels, looks, x_axis=chart["label"], x_is_log=x_is_log)
    else:
        figure = strips(panels, looks)
    return Chart(figure, [list(row) for row in rows])


def panels_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the parts of a study's chart that have their own axis."""
    return chart.get("panels", [chart])


def _many(value: Any) -> list[float]:
    return value if isinstance(value, list) else [value]


def charts() -> dict[str, Callable[[], Chart]]:
    """Returns name -> what draws the chart."""
    found: dict[str, Callable[[], Chart]] = {}
    for task in TASKS:
        found[f"{task}_overview"] = lambda task=task: task_chart(overview_rows(task))
        found[task] = lambda task=task: task_chart(task_rows(task))
    for name in studies():
        if study(name)["chart"]:
            found[name] = lambda name=name: study_chart(study(name))
    return found


def main() -> None:
    """Prints all pages and draws all charts."""
    for page in [*PAGES, *GUIDES]:
        page.write_text(printed(page.read_text("utf-8")), "utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    found = charts()
    for name, make in found.items():
        draw(make, IMAGES / f"{name}.svg")
    for path in IMAGES.glob("*.svg"):
        if path.stem not in found:
            path.unlink()
    print(f"printed: {len(PAGES) + len(GUIDES)} pages, {len(found)} charts")


if __name__ == "__main__":
    main()
