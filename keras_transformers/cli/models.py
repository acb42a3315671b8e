"""Commands that describe models: `list`, `summary` and `plot`."""

import dataclasses
import fnmatch
import io
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from keras_transformers import registry
from keras_transformers.cli.arguments import Command, OptionalCount, OptionalFile, argument
from keras_transformers.ranges import PositiveInt


@dataclass(frozen=True, kw_only=True)
class List(Command):
    """List the models and their exact parameter counts.

    Examples:
        keras-transformers list
        keras-transformers list 'bert_*'
        keras-transformers list --json
    """

    pattern: Annotated[Positional[str], argument("[PATTERN]")] = "*"  # wildcard, such as 'bert_*'
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints one line per model: name, parameters, the paper's figure, the paper."""
        table = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
        if others := registry.additions("MODELS"):
            from keras_transformers.cli.models_table import json_row

            table += map(json_row, others)
        rows = [row for row in table if fnmatch.fnmatchcase(row["name"], self.pattern)]
        if not rows:
            raise ValueError(
                f"no model's name matches {self.pattern!r}; `keras-transformers list` has all"
            )
        if self.json:
            print(json.dumps(rows, indent=1))
            return 0
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            figure = row["paper_figure"] or "-"
            print(f"{row['name']:<{width}}  {row['parameters']:>13,}  {figure:>5}  {row['paper']}")
        return 0


_LENGTH = 128  # tokens per text, for --flops

_Heads = Annotated[
    Literal["pretraining"] | None, argument("{pretraining}", "put these heads on top")
]


@dataclass(frozen=True, kw_only=True)
class Summary(Command):
    """Show a model's layers, parameters and formulas.

    Examples:
        keras-transformers summary bert_base
        keras-transformers summary bert_base --vocabulary-size 30000 --heads pretraining
        keras-transformers summary transformer_base --flops --length 64 --html page.html
    """

    name: Annotated[Positional[str], argument("NAME")]  # a name from `keras-transformers list`
    vocabulary_size: OptionalCount = None  # replaces the paper's
    heads: _Heads = None
    flops: bool = False  # also show operations and bytes of a forward pass in float32
    batch_size: PositiveInt = 1  # for --flops: texts in the batch
    length: OptionalCount = None  # tokens per text, in the shapes; for --flops 128 by default
    html: OptionalFile = None  # write the table to this file instead
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the count by layer; fails if it differs from the registered or published count."""
        from keras_transformers import heads
        from keras_transformers.inspection import agrees_with_figure, parameter_table
        from keras_transformers.inspection.lengths import at_length
        from keras_transformers.models.registry import entry

        if self.json and self.html is not None:
            raise ValueError("--html writes a page and --json prints: use one of them")
        model_entry = entry(self.name)
        overrides = _overrides(self.vocabulary_size)
        symbols = dict(model_entry.symbols)
        if overrides:
            symbols["V"] = overrides["vocabulary_size"]
        model = _created(self.name, overrides, self.heads)
        expected = (
            model_entry.count(**overrides)
            if overrides and model_entry.count
            else model_entry.num_parameters
        )
        if self.heads == "pretraining":
            expected += heads.pretraining_parameters(
                vocabulary_size=symbols["V"], hidden_dim=symbols["H"]
            )
        if self.length is not None:
            model = at_length(model, self.length)
        rows = parameter_table(model, symbols)
        total = sum(row.num_parameters for row in rows if "/" not in row.name)
        agrees = not model_entry.paper_figure or agrees_with_figure(total, model_entry.paper_figure)
        result: dict[str, Any] = {
            "name": self.name,
            "symbols": symbols,
            "layers": [dataclasses.asdict(row) for row in rows],
            "total": total,
            "registered": expected,
            "paper_figure": model_entry.paper_figure or None,
            "paper_agrees": agrees,
            "paper_note": model_entry.paper_note or None,
        }
        if self.flops:
            _add_costs(result, model, self.batch_size, self.length or _LENGTH)
        if self.json:
            print(json.dumps(result, indent=1))
        else:
            _show(result, self.html)
        passed = total == expected == model.count_params() and (agrees or model_entry.paper_note)
        return 0 if passed else 1


@dataclass(frozen=True, kw_only=True)
class Plot(Command):
    """Draw a model: its blocks, as in the paper, or every layer.

    Examples:
        keras-transformers plot bert_base --to bert.svg
        keras-transformers plot saved_pipeline/ --to pipeline.svg
        keras-transformers plot bert_tiny --to bert.png --level layer
    """

    model: Annotated[
        Positional[str],
        argument(
            "MODEL",
            "a name from `keras-transformers list`, or a saved pipeline or weights that "
            "keras_transformers.load takes",
        ),
    ]
    to: Annotated[str, arg(metavar="FILE")]  # the picture: .svg; for layers also .png or .pdf
    level: Literal["block", "layer"] = "block"  # layer needs the extra `plot`, with Graphviz
    vocabulary_size: OptionalCount = None  # replaces the paper's size; only with a name
    heads: _Heads = None

    def run(self) -> int:
        """Writes the picture."""
        from keras_transformers.convert.formats.weights import has_weights
        from keras_transformers.inspection import plot
        from keras_transformers.models.registry import all_entries
        from keras_transformers.tasks.weights import loading

        overrides = _overrides(self.vocabulary_size)
        if self.model not in all_entries() and has_weights(self.model):
            if overrides or self.heads:
                raise ValueError("--vocabulary-size and --heads are for names, not for weights")
            model = loading.load(self.model).model
        else:
            model = _created(self.model, overrides, self.heads)
        plot(model, self.to, self.level)
        print(f"written: {self.to}")
        return 0


def _overrides(vocabulary_size: int | None) -> dict[str, int]:
    return {} if vocabulary_size is None else {"vocabulary_size": vocabulary_size}


def _created(name: str, overrides: dict[str, int], heads: str | None) -> Any:
    """Returns the registered model, with heads if given."""
    from keras_transformers import heads as all_heads
    from keras_transformers.models.registry import create_model

    model = create_model(name, **overrides)
    return all_heads.pretrainer(model) if heads == "pretraining" else model


def _add_costs(result: dict[str, Any], model: Any, batch_size: int, length: int) -> None:
    """Adds operations and bytes to each layer, and their sums."""
    from keras_transformers.inspection import flops_table, input_shapes

    flops: Counter[str] = Counter()
    for row in flops_table(model, input_shapes(model, batch_size=batch_size, length=length)):
        flops[row.name] += row.flops
    for row in result["layers"]:
        if "/" not in row["name"]:
            axes = [batch_size, *(length if n is None else n for n in row["output_shape"][1:])]
            row["flops"] = flops[row["name"]]
            row["weight_bytes"] = 4 * row["num_parameters"]
            row["output_bytes"] = 4 * math.prod(axes)
    result["flops"] = {"batch_size": batch_size, "length": length, "total": flops.total()}


def _show(result: dict[str, Any], html: str | None) -> None:
    """Prints the table, or writes it as a page."""
    from rich.console import Console

    from keras_transformers.files import replaced

    # Wide enough even in a pipe: a long line is better than a truncated number.
    width = max(160, Console().width)
    if html is None:
        _print(result, Console(width=width))
        return
    console = Console(width=width, record=True, file=io.StringIO())
    _print(result, console)
    page = console.export_html()
    with replaced(html) as file:
        file.write_text(page, "utf-8")
    print(f"written: {html}")


def _print(result: dict[str, Any], console: Any) -> None:
    from rich.table import Table

    from keras_transformers.inspection.parameters import inner_multiple

    symbols = {letter: f"{value:,}" for letter, value in result["symbols"].items()}
    if times := inner_multiple(result["symbols"]):
        symbols["I"] = f"{times}H = {symbols['I']}"
    letters = ", ".join(f"{letter} = {value}" for letter, value in symbols.items())
    table = Table(title=f"{result['name']} ({letters})", title_justify="left")
    for name in ("layer", "connected to", "output shape", "activation"):
        table.add_column(name, no_wrap=name != "connected to")
    for name in ("parameters", "formula"):
        table.add_column(name, justify="right" if name == "parameters" else "left", no_wrap=True)
    costs = {"MFLOP": ("flops", 1e6), "weights MB": ("weight_bytes", 1e6)}
    costs |= {"output MB": ("output_bytes", 1e6)}
    for name in costs if "flops" in result else ():
        table.add_column(name, justify="right", no_wrap=True)
    for row in result["layers"]:
        _, _, part = row["name"].partition("/")
        shape = row["output_shape"]
        cells = [
            f"  {part}" if part else row["name"],
            ", ".join(row["connected_to"]),
            "" if shape is None else str(tuple(shape)).replace("None", "?"),
            row["activation"],
            f"{row['num_parameters']:,}" if row["num_parameters"] else "",
            row["formula"] if row["num_parameters"] else "",
        ]
        if "flops" in row:
            cells += [f"{row[key] / unit:,.2f}" if row[key] else "" for key, unit in costs.values()]
        table.add_row(*cells, style="dim" if part else None)
    console.print(table)
    registered = "as registered" if result["total"] == result["registered"] else "NOT as registered"
    lines = [f"total {result['total']:,}: {registered} ({result['registered']:,})"]
    if result["paper_figure"]:
        verdict = "agrees" if result["paper_agrees"] else "differs"
        note = f": {result['paper_note']}" if result["paper_note"] else ""
        lines.append(f"paper's figure {result['paper_figure']}: {verdict}{note}")
    if "flops" in result:
        flops = result["flops"]
        batch = f"{flops['batch_size']} x {flops['length']} tokens"
        lines.append(f"forward pass of {batch}: {flops['total'] / 1e9:,.2f} GFLOP")
    for line in lines:
        console.print(line, highlight=False)
