"""Commands that run an export or a saved pipeline in this process: `predict`, `translate`."""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional

from keras_transformers.cli.arguments import (
    BeamOptions,
    Command,
    OptionalText,
    PipelinePath,
    Texts,
    argument,
    batched,
    batches,
    stdin_lines,
)

# Takes columns of texts by input name; returns one row of outputs per text.
Answer = Callable[[Mapping[str, Sequence[Any]]], list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Predict(Command):
    """Run an exported model, a saved pipeline or pretrained weights on text; print JSON lines.

    With --input, run an export on files, and write one file of JSON lines per file. Tables (.tsv,
    .csv, .jsonl, .parquet) have one text per row, other files one per line. If --output is a table
    too, write the rows of one file to it, with the answers as more columns.

    Examples:
        keras-transformers predict saved_models/fill_mask_en --text "She opened the [MASK]."
        keras-transformers predict pairs/ --text "A film." --text-b "A movie."
        keras-transformers predict choices/ --text "It rains." --choice "Wet." --choice "Dry."
        keras-transformers predict saved_models/sentiment --input 'texts/*.txt.gz' --output answers/
        keras-transformers predict mine/ --input a.csv --text-column review --output answers/
        keras-transformers predict mine/ --input a.csv --text-column review --output answered.csv
    """

    path: PipelinePath
    text: Texts = ()  # a text to run on; default: the lines of stdin
    text_b: Texts = ()  # the second text of each pair
    choice: Texts = ()  # a choice, or a document, for --text; repeat for each
    input: Annotated[
        tuple[str, ...],
        argument(
            "PATTERN [PATTERN ...]",
            "run on the rows of these files, plain or compressed: paths or URLs, with * for any "
            "characters; for pairs, a line of text is `text<TAB>text_b`, for choices "
            "`text<TAB>choice<TAB>choice`",
        ),
    ] = ()
    # folder or URL for the answers to --input, or a .csv, .tsv, .jsonl or .parquet file for the
    # rows of a file with their answers; a stopped run resumes there
    output: OptionalText = None
    text_column: OptionalText = None  # column of tables: a name, or a number from 0; default: text
    text_b_column: OptionalText = None  # the same for the second text of pairs
    delimiter: str = "auto"  # separates columns: a character, or tab
    encoding: str = "utf-8"  # encoding of the files, such as utf-16 or cp1252
    probabilities: bool = False  # in a table, add the probability of each label
    prefix: str = ""  # in a table, begins the names of the columns that are added
    beam: BeamOptions = ()

    def run(self) -> int:
        """Prints one JSON object per text, or writes the answers to files."""
        if self.input or self.output or self.beam:
            return self._run_on_files()
        names, answer = _answerer(self.path)
        from keras_transformers.tasks.texts import takes_lists

        for columns in batches(self.text, self.text_b, self.choice, names=names):
            takes_choices = any(map(takes_lists, names))
            if len(columns) != len(names) or takes_choices != isinstance(columns[-1][0], list):
                second = "--choice" if takes_choices else "--text-b"
                raise ValueError(
                    f"{self.path} takes {', '.join(names)}: pass {len(names)} "
                    f"text{'s'[: len(names) - 1]} per row, --text and {second}, or lines with a "
                    "tab between them"
                )
            for row in answer(dict(zip(names, columns, strict=True))):
                print(json.dumps(row, ensure_ascii=False), flush=True)
        return 0

    def _run_on_files(self) -> int:
        if not self.input or self.output is None or self.text or self.text_b or self.choice:
            raise ValueError("files need --input and --output together, and no --text")
        from keras_transformers.data.tables.files import is_output

        if is_output(self.output):
            return self._run_on_table(self.output)
        if self.probabilities or self.prefix:
            name = "--probabilities" if self.probabilities else "--prefix"
            raise ValueError(
                f"{name} is for tables: let --output {self.output} end in .csv, .tsv, .jsonl or "
                ".parquet"
            )
        from keras_transformers.jobs.engines import Beam, Local
        from keras_transformers.saved_model import TextRows, predict_files

        rows = TextRows(
            text_column=_column(self.text_column),
            text_b_column=_column(self.text_b_column),
            delimiter=self.delimiter,
            encoding=self.encoding,
        )
        engine = Beam(self.beam) if self.beam else Local()
        report = predict_files(self.path, self.input, self.output, engine=engine, rows=rows)
        print(f"{self.output}: {report}")
        return 0

    def _run_on_table(self, output: str) -> int:
        """Writes the rows of a file with their answers."""
        from keras_transformers.convert.formats.weights import has_weights
        from keras_transformers.fitting.table_files import model_digest, predict_table
        from keras_transformers.jobs import places
        from keras_transformers.saved_model.file_prediction import digest_of_answers
        from keras_transformers.saved_model.measuring import Export
        from keras_transformers.saved_model.versions import resolve
        from keras_transformers.tasks.table_rows import TableAnswers
        from keras_transformers.tasks.weights import loading

        files = [file for pattern in self.input for file in places.matches(pattern)]
        if len(files) != 1 or self.beam:
            what = "--beam" if self.beam else f"--input with {len(files)} files"
            raise ValueError(
                f"{what} and --output {output}: a table has the rows of one file; for more, let "
                "--output be a folder"
            )
        options = {"text": self.text_column, "text_b": self.text_b_column}
        columns: dict[str, Any] = {x: _column(y) for x, y in options.items() if y is not None}
        with contextlib.ExitStack() as stack:
            model: Callable[[], str]
            if has_weights(self.path):
                pipeline: Any = loading.load(self.path)
                model = functools.partial(model_digest, pipeline)
            else:
                version = resolve(stack.enter_context(places.fetched_folder(self.path)))
                pipeline = Export(version, batch_size=32)
                model = functools.partial(digest_of_answers, version)
            answers = TableAnswers(
                pipeline=pipeline,
                columns=columns,
                probabilities=self.probabilities,
                prefix=self.prefix,
            )
            num_rows = predict_table(
                answers,
                files[0],
                output,
                model=model,
                delimiter=self.delimiter,
                encoding=self.encoding,
            )
        print(f"{output}: {num_rows} rows")
        return 0


@dataclass(frozen=True, kw_only=True)
class Translate(Command):
    """Translate line by line with an exported or saved translator.

    Examples:
        keras-transformers translate saved_models/translate_de_en german.txt
        keras-transformers translate saved_models/translate_de_en german.txt.gz --json
    """

    path: PipelinePath
    file: Annotated[
        Positional[str],
        argument("[FILE]", "one text per line, plain or compressed; default: stdin"),
    ] = ""
    json: bool = False  # print JSON lines, with scores

    def run(self) -> int:
        """Prints exactly one line per input line, even if a translation has line breaks."""
        from keras_transformers.files import read_lines

        names, answer = _answerer(self.path)
        if names != ("text",):
            raise ValueError(f"{self.path} takes {', '.join(names)}: use a translator")
        lines = read_lines(self.file) if self.file else stdin_lines()
        for batch in batched(lines):
            for row in answer({"text": batch}):
                if "translation" not in row:
                    raise ValueError(
                        f"{self.path} answers {', '.join(row)}, not a translation: use a translator"
                    )
                line = " ".join(row["translation"].splitlines())
                print(json.dumps(row, ensure_ascii=False) if self.json else line, flush=True)
        return 0


def _column(name: str | None) -> int | str | None:
    """Returns a column's number, or its name."""
    return int(name) if name is not None and re.fullmatch(r"-?\d{1,9}", name) else name


def _answerer(path: str) -> tuple[tuple[str, ...], Answer]:
    """Returns the names of the texts that an export or pipeline takes, and its function.

    Raises:
        FileNotFoundError: the path has neither.
        ValueError: it does not take texts, or cannot be read.
    """
    from keras_transformers.convert.formats.weights import has_weights
    from keras_transformers.saved_model import Predictor
    from keras_transformers.tasks.texts import text_inputs
    from keras_transformers.tasks.weights import loading

    if has_weights(path):
        pipeline: Any = loading.load(path)
        names, answer = text_inputs(pipeline.text_names), pipeline.rows
    else:
        predictor = Predictor(path)
        names, answer = predictor.text_names, predictor
    if not names:
        raise ValueError(f"{path} does not take texts; `keras-transformers show` lists its inputs")
    return names, answer
