"""Commands that prepare data: `make-pretraining-data`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from keras_transformers.cli.arguments import argument


@dataclass(frozen=True, kw_only=True)
class Options:
    """As `data.pretraining.PretrainingOptions`, whose import takes TensorFlow's seconds."""

    max_sequence_length: int = 128  # tokens of an example
    max_predictions: int = 20  # tokens to predict in an example, at most
    mask_probability: float = 0.15  # share of tokens to predict
    whole_words: bool = False  # mask whole words
    dupe_factor: int = 10  # times that the text is gone through
    short_sequence_probability: float = 0.1  # of aiming at a shorter length
    num_shards: int = 16  # files to write
    seed: int = 12345  # of everything that is drawn


@dataclass(frozen=True, kw_only=True)
class MakePretrainingData(Options):
    """Make TFRecords for BERT's pretraining, from text."""

    output: Annotated[
        Positional[str], argument("OUTPUT", "the folder to write; a stopped run resumes there")
    ]
    files: Annotated[
        Positional[tuple[str, ...]],
        argument("FILE [FILE ...]", "text, plain or .gz, or folders of it"),
    ]
    vocabulary: Annotated[str, arg(metavar="FILE")]  # a file with one token per line
    cased: bool = False  # keep case and accents
    # lines: a sentence per line, blank lines between documents; prose: a document per file, split
    # into sentences; wikitext: WikiText's articles
    text_format: Literal["lines", "prose", "wikitext"] = "lines"
    num_processes: int = 1  # that work at the same time

    def run(self) -> int:
        """Writes the records."""
        from keras_transformers.data.pretraining import PretrainingOptions, make_pretraining_data
        from keras_transformers.tokenizers import WordPieceTokenizer

        if not self.files:
            raise ValueError("no text: give at least one FILE, or a folder of files")
        report = make_pretraining_data(
            self.files,
            self.output,
            WordPieceTokenizer(self.vocabulary, lowercase=not self.cased),
            PretrainingOptions(
                **{field.name: getattr(self, field.name) for field in dataclasses.fields(Options)}
            ),
            text_format=self.text_format,
            num_processes=self.num_processes,
        )
        print(f"{self.output}: {report}")
        return 0
