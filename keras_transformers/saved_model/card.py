"""Writes model cards: what a model is, what it was trained on, how good it is, how to use it.

A card is the README.md of an export's version folder, or of a folder from `Pipeline.save`. It is
published with the version, Git hosts and the Hugging Face Hub show it, and TF Serving ignores it.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.saved_model import metadata
from keras_transformers.saved_model.description import (
    describe,
    plain,
    read_metadata,
    shape_text,
)
from keras_transformers.saved_model.examples import encode_array, first_row
from keras_transformers.saved_model.manifest import add_file
from keras_transformers.tasks.weights import saving

__all__ = ["write_card"]

CARD = "README.md"
# Words in a score's name -> the Hugging Face Hub's name of the metric.
_METRICS = {
    "accuracy": "accuracy",
    "bleu": "bleu",
    "exact match": "exact_match",
    "f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "perplexity": "perplexity",
    "sacrebleu": "sacrebleu",
    "spearman": "spearmanr",
    "word error rate": "wer",
}
# Fields that have their own place in a card, or that only programs read.
_ELSEWHERE = {
    *("path", "num_bytes", "warm_up", "task", "model", "signatures", "scores", "provenance"),
    *("vocabulary_size", "vocabulary_sha256", "max_sequence_length", "lengths"),
}


def write_card(
    path: str | os.PathLike[str],
    *,
    data: str | None = None,
    data_licence: str | None = None,
    licence: str | None = None,
    limits: str | None = None,
    languages: Sequence[str] = (),
    command: str | None = None,
    scores: Mapping[str, float] | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the model card of an export or a saved pipeline, for people and for the Hub.

    The task, exact parameter count, signatures, vocabulary and scores come from the files. If
    `manifest.json` beside the export lists it, the training data and command come from there, and
    its scores replace the export's own; the manifest then lists the card too. The card says what is
    not given.

    Args:
        path: an export, or the BASE of its versions, of which the newest gets the card; or a folder
            from `Pipeline.save`.
        data: what the model was trained on.
        data_licence: the licence of that data.
        licence: the licence of the weights, such as "apache-2.0".
        limits: uses that the model is not meant or tested for.
        languages: ISO 639 codes of the languages that it reads or writes, such as "en".
        command: the command that trained and scored it.
        scores: additional scores: name -> value, where the name says which data was used.
        overwrite: whether to replace an existing card.

    Returns:
        The card, README.md in the folder.

    Raises:
        FileNotFoundError: there is no export.
        FileExistsError: there is a card, and `overwrite` is False.
        ValueError: the export or pipeline is damaged or not from this package; a language is not a
            code; a score is not finite; or the files already have the value of an argument.

    Example:
        kt.export(classify, "saved_models/sentiment", scores={"accuracy on SST-2 dev": 0.886})
        kt.saved_model.write_card("saved_models/sentiment", data="SST-2", languages=["en"])
    """
    for language in languages:
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*", language):
            raise ValueError(f"language {language!r}: pass an ISO 639 code, such as 'en'")
    facts = _of_pipeline(Path(path)) if saving.is_pipeline(path) else _of_export(path)
    folder = Path(facts["path"])
    card = folder / CARD
    if os.path.lexists(card) and not overwrite:
        raise FileExistsError(f"{card} exists: overwrite=True replaces it")
    origin = {"training_data": data, "data_licence": data_licence, "command": command}
    recorded = facts.pop("provenance", {})
    for name, value in origin.items():
        if value and recorded.get(name):
            raise ValueError(
                f"{name.replace('_', ' ')} {value!r}: the manifest beside {folder.parent} says "
                f"{recorded[name]!r}; correct it there"
            )
    told = {**origin, **{name: value for name, value in recorded.items() if value}}
    of_export = facts.pop("scores", {})
    measured = dict(recorded.get("scores") or of_export)
    for name, score in metadata.checked_scores(scores).items():
        if name in measured:
            raise ValueError(f"score {name!r}: {folder} already says {measured[name]}")
        measured[name] = score
    lines = [
        *_front_matter(facts, languages, licence, measured),
        *_what_it_is(facts, told),
        *_section("Data", told["training_data"], "what it was trained on"),
        *_scores(measured, told),
        *_licence(licence, told["data_licence"]),
        *_limits(facts, limits, languages),
        *_how_to_ask(facts),
    ]
    files.write_lines(card, lines)
    if not saving.is_pipeline(folder):
        add_file(folder, CARD)
    return card


def _of_export(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the description of an export, and `request`, the input of a stored example."""
    description = describe(path)
    folder = Path(description["path"])
    if "model" not in description:
        raise ValueError(
            f"{folder} is not an export of this package and does not describe its model: "
            "export the model with keras_transformers.export"
        )
    folder = folder.absolute()
    signature = read_metadata(folder)["signatures"]["serving_default"]
    is_version = folder.name.isdecimal()
    return {
        **description,
        "name": (folder.parent if is_version else folder).name,
        "request": _first_row(signature),
    }


def _of_pipeline(folder: Path) -> dict[str, Any]:
    """Returns the same for a saved pipeline."""
    pipeline = saving.load(folder)
    signatures = pipeline.signatures()
    batch = signatures["serving_default"].examples[0]
    encoded = {name: encode_array(batch[name]) for name in pipeline.text_names}
    return {
        "path": str(folder),
        "name": folder.absolute().name,
        "saved_pipeline": type(pipeline).__name__,
        **metadata.of_pipeline(pipeline),
        "signatures": {name: metadata.of_signature(value) for name, value in signatures.items()},
        "request": {name: first_row(array) for name, array in encoded.items()},
    }


def _first_row(signature: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an example's first row of inputs; "..." for one without examples."""
    for example in signature.get("examples", ()):
        if all(array["values"] for array in example["inputs"].values()):
            return {name: first_row(array) for name, array in example["inputs"].items()}
    return dict.fromkeys(signature["inputs"], "...")


def _front_matter(
    facts: Mapping[str, Any],
    languages: Sequence[str],
    licence: str | None,
    scores: Mapping[str, float],
) -> Iterator[str]:
    """Yields the fields that the Hugging Face Hub reads, as YAML; a JSON string is YAML too."""
    yield "---"
    if licence and re.fullmatch(r"[\w.+-]+", licence):
        yield f"license: {json.dumps(licence.lower())}"
    else:
        yield f"license: {'other' if licence else 'unknown'}"
        if licence:
            yield f"license_name: {json.dumps(licence)}"
    kind = ("keras",) if "saved_pipeline" in facts else ("saved-model", "tf-serving")
    words = " ".join(scores).lower()
    lists = {
        "language": languages,
        "tags": ("tensorflow", *kind, facts["task"].replace("_", "-")),
        "metrics": [name for word, name in _METRICS.items() if re.search(rf"\b{word}\b", words)],
    }
    yield "library_name: keras-transformers"
    for name, values in lists.items():
        if values:
            yield from (f"{name}:", *(f"- {json.dumps(value)}" for value in values))
    yield "---"


def _what_it_is(facts: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[str]:
    model = facts["model"]
    kind = "a saved pipeline" if "saved_pipeline" in facts else "a SavedModel for TF Serving"
    yield from ("", f"# {_text(facts['name'])}", "")
    yield (
        f"`{_text(model['name'])}` with {model['num_parameters']:,} parameters, for the task "
        f"`{_text(facts['task'])}`: {kind}, written by keras_transformers."
    )
    if told.get("notes"):
        yield from ("", _text(told["notes"]))
    yield from ("", "## What it is", "")
    rows = {"task": facts["task"], "model": model["name"]}
    rows["parameters, exact"] = f"{model['num_parameters']:,}"
    rows |= {
        name.replace("_", " "): plain(value)
        for name, value in facts.items()
        if name not in {*_ELSEWHERE, "name", "request", "commit"} and value not in (None, "", {})
    }
    if commit := facts.get("commit"):
        rows["exported at commit"] = commit
    if commit := told.get("commit"):
        rows["trained at commit"] = commit
    yield from _table(("", ""), rows.items())
    if layers := model.get("configuration"):
        yield from ("", "Its layers:", "")
        yield from _table(
            ("number", "layer", "options"),
            ((layer["count"], layer["class"], plain(layer["options"])) for layer in layers),
        )
    yield from ("", "Its signatures; `?` is any size, and the first dimension is the batch:", "")
    yield from _table(
        ("signature", "API", "inputs", "outputs"),
        (
            (f"`{name}`", signature["method_name"].rpartition("/")[2].capitalize(), *sides)
            for name, signature in facts["signatures"].items()
            for sides in [[_tensors(signature[side]) for side in ("inputs", "outputs")]]
        ),
    )


def _tensors(specs: Mapping[str, Any]) -> str:
    return "; ".join(
        f"`{name}` {spec['dtype']} {shape_text(spec['shape'])}" for name, spec in specs.items()
    )


def _scores(scores: Mapping[str, float], told: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Scores", "")
    if not scores:
        yield "Not given: its scores."
        return
    yield from _table(("score", "measured"), ((value, name) for name, value in scores.items()))
    if told["command"]:
        yield from ("", "The commands that measured them:", "", "```sh")
        yield from _text(told["command"]).split("; ")
        yield "```"
    else:
        yield from ("", "Not given: the command that measured them.")


def _licence(licence: str | None, data_licence: str | None) -> Iterator[str]:
    yield from ("", "## Licence", "")
    for what, text in (("weights", licence), ("training data", data_licence)):
        yield f"- Of the {what}: {_text(text)}" if text else f"- Of the {what}: not given."


def _limits(
    facts: Mapping[str, Any], limits: str | None, languages: Sequence[str]
) -> Iterator[str]:
    yield from ("", "## Limits", "")
    if "max_sequence_length" in facts:
        length = f"{facts['max_sequence_length']:,} tokens"
        in_windows = facts.get("long_texts") == "windows"
        yield f"- Length: {'any, in windows of' if in_windows else 'at most'} {length}."
    if "vocabulary_size" in facts:
        sha256 = facts.get("vocabulary_sha256")
        of_file = f"; SHA-256 with one token per line {sha256}" if sha256 else ""
        yield f"- Vocabulary: {facts['vocabulary_size']:,} tokens{of_file}."
    yield f"- Languages: {', '.join(languages) if languages else 'not given'}."
    yield "- Tested: only on the data that the scores above name. No score is recorded for other"
    yield "  data, other languages or groups of people."
    yield f"- {_text(limits)}" if limits else "- Not given: what it should not be used for."


def _how_to_ask(facts: Mapping[str, Any]) -> Iterator[str]:
    name = facts["name"]
    request = {
        key: {"b64": "BASE64"} if isinstance(value, dict) else value
        for key, value in facts["request"].items()
    }
    base = f"saved_models/{name}" if "saved_pipeline" in facts else name
    yield from ("", "## How to use it", "")
    if "saved_pipeline" in facts:
        texts = ", ".join(
            "image_bytes" if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
            for value in facts["request"].values()
        )
        yield from ("```python", "import keras_transformers as kt", "")
        yield from (f"pipeline = kt.load({json.dumps(name)})", f"pipeline({texts})")
        yield from (f"kt.export(pipeline, {json.dumps(base)})  # for TF Serving", "```", "")
        yield "The export answers over REST:"
    else:
        yield f"From the folder that holds `{_text(name)}`:"
    body = json.dumps({"instances": [request]}, ensure_ascii=False)
    url = f"http://127.0.0.1:8501/v1/models/{name}:predict"
    model = shlex.quote(name)
    yield from ("", "```sh")
    yield f'docker run -p 8501:8501 -v "$PWD"/{shlex.quote(base)}:/models/{model} \\'
    yield f"    -e MODEL_NAME={model} -t tensorflow/serving"
    yield f"curl -d {shlex.quote(body)} {shlex.quote(url)}"
    yield "```"


def _section(title: str, text: str | None, what: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", _text(text) if text else f"Not given: {what}.")


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_text(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _text(value: object) -> str:
    """Returns a value in one line, without control characters."""
    line = " ".join(str(value).split())
    return "".join(char for char in line if char.isprintable())
