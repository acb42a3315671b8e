r"""Records a run of a recipe as a result, from its metrics.json.

    python benchmarks/record.py runs/seed_0 runs/seed_1 runs/seed_2 --name tagging_conll_minilm \
        --task tagging --data CoNLL-2003 --split 'eng.testa; it also chose the epoch' \
        --model MiniLM-L6 --score 'entity F1=best' \
        --baseline 'label of each word' 'entity F1=0.6536'
    python docs/site/results.py

Several runs are the seeds of one result: their options are the same but for the seed, and the score
is their mean. Parameters, commands, commits, seeds, times and the machine come from the runs. The
second command prints the pages. A result that exists keeps what is not given again.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCORES = ROOT / "benchmarks/results/scores"
FIELDS = {  # of a result -> its type; what nobody recorded is null, or empty
    "task": str,  # the page of docs/results
    "recipe": str,
    "data": str,
    "training_data": str | None,
    "split": str,
    "model": str,
    "model_details": str | None,
    "parameters": int | None,
    "commands": list,
    "commits": list,
    "seeds": list,
    "scores": dict,  # metric -> value, the mean of the seeds; the first is the main one
    "by_seed": dict,
    "baselines": list,  # each with name, scores, and the command or null
    "published": list,  # each with name, scores and source
    "seconds": int | float | list | None,  # of one run; the shortest and the longest
    "machine": str | None,
    "notes": list,
}
# Options that a result's runs may differ in.
FREE = {"seed", "name", "runs_dir", "export", "save", "resume"}


def check(name: str, result: dict[str, Any]) -> None:
    """Checks a result.

    Raises:
        ValueError: a field is missing, unknown or of another type, or a figure has no number.
    """
    if wrong := FIELDS.keys() ^ result.keys():
        raise ValueError(f"{name}: these fields are unknown or missing: {sorted(wrong)}")
    for field, kind in FIELDS.items():
        if not isinstance(result[field], kind):
            raise ValueError(f"{name}: {field} is {result[field]!r}, not {kind}")
    others = [("name", "scores", "command"), ("name", "scores", "source")]
    for field, keys in zip(("baselines", "published"), others, strict=True):
        for entry in result[field]:
            if tuple(entry) != keys:
                raise ValueError(f"{name}: {field} has {tuple(entry)}, not {keys}")
    if not result["baselines"]:
        raise ValueError(f"{name}: no baseline; give one with --baseline")
    entries = [result["scores"], *(one["scores"] for one in result["baselines"])]
    entries += [one["scores"] for one in result["published"]]
    for found in entries:
        if not found or not all(isinstance(value, int | float) for value in found.values()):
            raise ValueError(f"{name}: scores {found!r}: give at least one, and numbers alone")
    main = next(iter(result["scores"]))
    if main not in result["baselines"][0]["scores"]:
        raise ValueError(f"{name}: the first baseline has no {main!r}, which is the main score")
    for metric, values in result["by_seed"].items():
        if len(values) != len(result["seeds"]):
            raise ValueError(f"{name}: {metric} of {len(values)} seeds, not {result['seeds']}")
        mean = statistics.mean(values)
        if abs(mean - result["scores"][metric]) > 0.002 * mean:
            raise ValueError(f"{name}: {metric} {result['scores'][metric]}, but the mean is {mean}")


def of_runs(folders: list[Path], figures: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of a result that its runs know.

    Args:
        folders: the runs' folders, one per seed.
        figures: metric -> the name of its figure in metrics.json.

    Raises:
        ValueError: a run is missing, differs from the others in more than its seed, or lacks a
            figure or its origin.
    """
    for file in (folder / name for folder in folders for name in ("metrics.json", "config.json")):
        if not file.is_file():
            raise ValueError(f"{file}: no such file; pass the folder of a finished run of a recipe")
    runs = [json.loads((folder / "metrics.json").read_text("utf-8")) for folder in folders]
    options = [json.loads((folder / "config.json").read_text("utf-8")) for folder in folders]
    for folder, run, chosen in zip(folders, runs, options, strict=True):
        if "origin" not in run:
            raise ValueError(f"{folder}/metrics.json: no origin, so it is of an older version")
        if missing := set(figures.values()) - run.keys():
            raise ValueError(f"{folder}/metrics.json: no {sorted(missing)}; it has {sorted(run)}")
        differing = [name for name in chosen if chosen[name] != options[0].get(name)]
        if differing := sorted(set(differing) - FREE):
            raise ValueError(f"{folder}: other options than {folders[0]}: {differing}")
    origins = [run["origin"] for run in runs]
    values = {metric: [run[figure] for run in runs] for metric, figure in figures.items()}
    seconds = sorted({run["seconds"] for run in runs})
    machine = origins[0]["machine"]
    parts = [machine["processor"], f"{machine['cores']} cores", *machine["accelerators"]]
    return {
        "recipe": _recipe(origins[0]["command"]),
        "parameters": origins[0]["parameters"],
        "commands": [origins[0]["command"]],
        "commits": sorted({str(origin["commit"])[:7] for origin in origins}),
        "seeds": [origin["seed"] for origin in origins],
        "scores": {name: round(statistics.mean(each), 4) for name, each in values.items()},
        "by_seed": {name: [round(x, 4) for x in each] for name, each in values.items()},
        "seconds": seconds[0] if len(seconds) == 1 else [seconds[0], seconds[-1]],
        "machine": ", ".join(parts),
    }


def _recipe(command: str) -> str:
    """Returns the name of the recipe that a command runs."""
    scripts = [Path(word).stem for word in command.split() if word.endswith(".py")]
    return scripts[0] if scripts else command


def _pairs(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise ValueError(f"{word!r}: give METRIC=VALUE")
    return dict(word.rsplit("=", 1) for word in words)


def _numbers(words: list[str]) -> dict[str, float]:
    return {metric: json.loads(value) for metric, value in _pairs(words).items()}


def main(arguments: list[str]) -> Path:
    """Records the runs that the arguments name; returns the result's file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders, one per seed")
    parser.add_argument("--name", required=True, help="of the file in benchmarks/results/scores")
    parser.add_argument("--score", nargs="+", required=True, help="METRIC=FIGURE of metrics.json")
    parser.add_argument("--task", help="the page of docs/results that shows it")
    parser.add_argument("--data", help="a short name, such as SST-2")
    parser.add_argument("--training-data", help="what it was trained on, if more is to be said")
    parser.add_argument("--split", help="what it was measured on")
    parser.add_argument("--model", help="a short name; other results on these data have others")
    parser.add_argument("--model-details", help="its layers, weights and the like")
    parser.add_argument("--baseline", nargs="+", action="append", help="NAME METRIC=VALUE ...")
    parser.add_argument("--published", nargs="+", action="append", help="NAME SOURCE METRIC=VALUE")
    parser.add_argument("--note", action="append", help="a sentence, which the page shows")
    given = parser.parse_args(arguments)
    path = SCORES / f"{given.name}.json"
    empty = {field: [] if kind is list else {} if kind is dict else None
             for field, kind in FIELDS.items()}  # fmt: skip
    result = empty | (json.loads(path.read_text("utf-8")) if path.exists() else {})
    result |= of_runs(given.runs, _pairs(given.score))
    for field in ("task", "data", "training_data", "split", "model", "model_details"):
        result[field] = getattr(given, field) or result[field]
    if given.baseline:
        result["baselines"] = [
            {"name": name, "scores": _numbers(scores), "command": None}
            for name, *scores in given.baseline
        ]
    if given.published:
        result["published"] = [
            {"name": name, "scores": _numbers(scores), "source": source}
            for name, source, *scores in given.published
        ]
    result["notes"] = given.note or result["notes"]
    check(given.name, result)
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return path


if __name__ == "__main__":
    try:
        print(f"written: {main(sys.argv[1:])}\nnow: python docs/site/results.py")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
