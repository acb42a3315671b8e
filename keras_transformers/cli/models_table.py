"""Writes docs/models.md and models.json, the tables of all models, from the registry.

`make docs-tables` runs it, and a test compares both files with the registry. `keras-transformers
list` reads models.json, since the registry imports every model, Keras and TensorFlow.
"""

import sys
from pathlib import Path
from typing import Any

from keras_transformers import registry
from keras_transformers.files import write_json, write_lines
from keras_transformers.models.entry import Entry

_INTRODUCTION = """\
# Every model, counted

`keras_transformers.NAME()` or `create_model("NAME")` builds a model with random weights. The counts
are exact: the tests compute each one by arithmetic and build the models. They are for the default
sizes, without a head; tied weights count once. For other sizes,
`keras-transformers summary NAME --vocabulary-size V` prints the count layer by layer. The other
compact sizes of BERT, `bert_l2_h128` to `bert_l12_h768`, are names for `create_model` too.

Sizes: V tokens, P positions, H width, I inner width of the feed-forward networks, E width of the
embeddings, D width of the LSTMs, F filters. "Paper's figure" is the count that the paper prints; a
note says why it differs from the exact one. `make docs-tables` writes this page.

| model | family | sizes | parameters | paper's figure | paper |
|---|---|---|--:|--:|---|
"""


def models_page() -> str:
    """Returns the text of docs/models.md: an introduction, a row for every model, and the notes."""
    entries = registry.own("MODELS")
    notes = list(dict.fromkeys(entry.paper_note for entry in entries if entry.paper_note))
    rows = [_row(entry, notes) for entry in entries]
    footnotes = [f"{number}. {note[0].upper()}{note[1:]}." for number, note in enumerate(notes, 1)]
    return "\n".join([_INTRODUCTION + "\n".join(rows), "", "Notes:", "", *footnotes, ""])


def models_json() -> list[dict[str, Any]]:
    """Returns the rows of models.json: each model's name, exact count, paper's figure and paper."""
    return [json_row(entry) for entry in registry.own("MODELS")]


def json_row(entry: Entry) -> dict[str, Any]:
    """Returns the row of one model."""
    return {
        "name": entry.name,
        "parameters": entry.num_parameters,
        "paper_figure": entry.paper_figure or None,
        "paper": entry.paper,
    }


def _row(entry: Entry, notes: list[str]) -> str:
    sizes = ", ".join(f"{letter} {value:,}" for letter, value in entry.symbols.items())
    figure = entry.paper_figure or "-"
    if entry.paper_note:
        figure += f" (note {notes.index(entry.paper_note) + 1})"
    citation, _, address = entry.paper.rpartition(", ")
    cells = (f"`{entry.name}`", entry.family, sizes, f"{entry.num_parameters:,}", figure)
    return f"| {' | '.join(cells)} | [{citation}]({address}) |"


if __name__ == "__main__":
    page, table = map(Path, sys.argv[1:])
    write_lines(page, models_page().splitlines())
    write_json(table, models_json(), indent=1)
