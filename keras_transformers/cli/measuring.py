"""The command that measures an export or a saved pipeline on labelled data: `evaluate`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import Positional

from keras_transformers.cli.arguments import Command, OptionalText, PipelinePath, argument
from keras_transformers.ranges import PositiveInt


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure an exported model, a saved pipeline or weights on labelled data; print a report.

    An export is measured by its own answers, which are those of a server.

    Examples:
        keras-transformers evaluate saved_models/sentiment_en sst2/dev.tsv.gz
        keras-transformers evaluate mine/ tickets.csv --columns text=body label=queue
        keras-transformers evaluate mine/ dev.tsv --output reports/mine
    """

    path: PipelinePath
    file: Annotated[
        Positional[str],
        argument("FILE", "labelled data, in any format that the task is trained on"),
    ]
    columns: Annotated[
        tuple[str, ...],
        argument("NAME=COLUMN [NAME=COLUMN ...]", "the task's columns that have another name"),
    ] = ()
    labels_are: Literal["auto", "names", "indices", "indicators"] = "auto"  # how to read labels
    batch_size: PositiveInt = 32  # rows in one call of the model
    # also write report.json, report.txt and the pictures to this folder
    output: OptionalText = None
    json: bool = False  # print JSON

    def run(self) -> int:
        """Prints the report, and writes it to a folder if one is set."""
        report = self._report()
        if self.output is not None:
            report.save(self.output)
        print(report.to_json() if self.json else report)
        return 0

    def _report(self) -> Any:
        from keras_transformers.convert.formats.weights import has_weights

        options: dict[str, Any] = {
            "columns": dict(map(_pair, self.columns)),
            "labels_are": None if self.labels_are == "auto" else self.labels_are,
            "batch_size": self.batch_size,
        }
        if not has_weights(self.path):
            from keras_transformers.saved_model.measuring import evaluate_export

            return evaluate_export(self.path, self.file, **options)
        from keras_transformers.fitting.evaluate import evaluate
        from keras_transformers.tasks.weights import loading

        pipeline = loading.load(self.path)
        report = evaluate(pipeline, self.file, **options).report
        if report is None:
            raise ValueError(f"{self.path}: {pipeline.task} has no report")
        return report


def _pair(word: str) -> tuple[str, str]:
    """Returns the two sides of NAME=COLUMN."""
    name, sign, column = word.partition("=")
    if not (name and sign and column):
        raise ValueError(f"--columns {word!r}: expected NAME=COLUMN, such as text=body")
    return name, column
