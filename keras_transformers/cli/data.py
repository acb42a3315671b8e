"""Commands that prepare data: `make-pretraining-data`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from keras_transformers.cli.arguments import BeamOptions, Command, argument
from keras_transformers.ranges import Fraction, PositiveInt, Range, Seed, Share


@dataclass(frozen=True, kw_only=True)
class Options:
    """Mirrors `data.pretraining.PretrainingOptions`, because importing that loads TensorFlow."""

    max_sequence_length: Annotated[int, Range(at_least=5)] = 128  # maximum tokens in an example
    max_predictions: PositiveInt = 20  # maximum tokens to predict in an example
    mask_probability: Fraction = 0.15  # share of tokens to predict
    whole_words: bool = False  # mask whole words
    dupe_factor: PositiveInt = 10  # passes over the text, each with new pairs and masks
    short_sequence_probability: Share = 0.1  # share of documents cut into shorter examples
    num_shards: PositiveInt = 16  # files to write
    seed: Seed = 12345  # seed of all random choices


@dataclass(frozen=True, kw_only=True)
class MakePretrainingData(Options, Command):
    """Make TFRecords for pretraining BERT from text.

    Examples:
        keras-transformers make-pretraining-data data/ texts/ --vocabulary vocab.txt
        keras-transformers make-pretraining-data data/ a.txt --vocabulary v.txt --num-processes 8
    """

    output: Annotated[
        Positional[str],
        argument("OUTPUT", "a folder or URL to write to; a stopped run resumes there"),
    ]
    files: Annotated[
        Positional[tuple[str, ...]],
        argument("FILE [FILE ...]", "text files, plain or compressed, or folders of them"),
    ]
    vocabulary: Annotated[str, arg(metavar="FILE")]  # a file with one token per line
    cased: bool = False  # keep case and accents
    # lines: one sentence per line, blank lines between documents; prose: one document per file, to
    # be split into sentences; wikitext: WikiText's articles
    text_format: Literal["lines", "prose", "wikitext"] = "lines"
    # skip lines that are not text, and list them in OUTPUT/unreadable.jsonl
    skip_unreadable: bool = False
    num_processes: PositiveInt = 1  # processes to run in parallel
    beam: BeamOptions = ()

    def run(self) -> int:
        """Writes the records."""
        from keras_transformers.data.pretraining import PretrainingOptions, make_pretraining_data
        from keras_transformers.jobs.engines import Beam, Local
        from keras_transformers.tokenizers import WordPieceTokenizer

        if not self.files:
            raise ValueError("no text: pass at least one FILE, or a folder of files")
        report = make_pretraining_data(
            self.files,
            self.output,
            WordPieceTokenizer(self.vocabulary, lowercase=not self.cased),
            PretrainingOptions(
                **{field.name: getattr(self, field.name) for field in dataclasses.fields(Options)}
            ),
            text_format=self.text_format,
            skip_unreadable=self.skip_unreadable,
            engine=Beam(self.beam) if self.beam else Local(self.num_processes),
        )
        print(f"{self.output}: {report}")
        return 0
