"""Compares position encodings on texts longer than those in a translator's training.

    python benchmarks/training/ablations.py DATA/multi30k
    python benchmarks/training/beyond_length.py DATA/multi30k --runs-dir runs/ablations

One to five sentences of test_2016_flickr are joined, in sources and references, and translated as
one text by greedy search: the same sentences at other positions. Each BLEU is followed, in
brackets, by the translations' length as a share of the references'. Rotary positions can be scaled
without training: linearly, or by YaRN.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.translation import read_multi30k
from keras_transformers.evaluation import corpus_bleu
from keras_transformers.layers import RotaryPositions, RotaryScaling
from keras_transformers.models.anatomy import anatomy

LONGEST = 57  # tokens of a source in training
# Name -> the run's folder, and the scaling of its rotary positions.
VARIANTS: dict[str, tuple[str, RotaryScaling | None]] = {
    "sinusoidal": ("base_0", None),
    "learned": ("positions__learned_0", None),
    "relative": ("positions__relative_0", None),
    "rotary": ("positions__rotary_0", None),
    "rotary, linear": ("positions__rotary_0", RotaryScaling(kind="linear", factor=2.0)),
    "rotary, YaRN": (
        "positions__rotary_0",
        RotaryScaling(kind="yarn", factor=2.0, original_length=LONGEST),
    ),
}
MOST_JOINED, SENTENCES, MOST_TOKENS = 5, 600, 128


def joined(pairs: list[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """Returns rows of so many sentences, the same sentences for every count."""
    rows = [pairs[start : start + count] for start in range(0, SENTENCES, count)]
    return [
        (" ".join(source for source, _ in row), " ".join(target for _, target in row))
        for row in rows
    ]


def translator(folder: Path, scaling: RotaryScaling | None) -> kt.pipelines.Translator:
    """Returns the translator of a finished run, with the weights that the run chose."""
    options = json.loads((folder / "config.json").read_text())["model_options"]
    tokenizer = kt.tokenizers.SentencePieceTokenizer(folder / "vocabulary.model")
    model = kt.create_model(
        "transformer_tiny",
        vocabulary_size=tokenizer.vocabulary_size,
        max_sequence_length=MOST_TOKENS,
        norm_position="pre",
        **options,
    )
    model.load_weights(folder / "chosen.weights.h5")
    for parts in (anatomy(model), anatomy(model).encoder):
        for layer in parts.positions:
            if isinstance(layer, RotaryPositions):
                layer.scaling = scaling
    return kt.pipelines.Translator(model, tokenizer, num_beams=1, max_sequence_length=MOST_TOKENS)


def table(data: Path, runs_dir: Path, variants: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a Markdown table."""
    translators = {}
    for name in variants:
        folder, scaling = VARIANTS[name]
        translators[name] = translator(runs_dir / folder, scaling)
    tokenizer = next(iter(translators.values())).tokenizer
    train = [source for source, _ in read_multi30k(data, "train")]
    lengths = tokenizer.tokenize(train).row_lengths().numpy()
    yield f"trained on sources of {np.median(lengths):.0f} tokens (median), at most {lengths.max()}"
    yield f"| sentences in a row | source tokens, mean | {' | '.join(translators)} |"
    yield f"|--:|--:|{'--:|' * len(translators)}"
    test = list(read_multi30k(data, "test_2016_flickr"))
    for count in range(1, MOST_JOINED + 1):
        sources, references = zip(*joined(test, count), strict=True)
        mean = tokenizer.tokenize(list(sources)).row_lengths().numpy().mean()
        cells = []
        for each in translators.values():
            found = corpus_bleu(each.translate_all(sources), references)
            share = found.hypothesis_length / found.reference_length
            cells.append(f"{found.score:.1f} ({share:.2f})")
        yield f"| {count} | {mean:.0f} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    for line in table(arguments.data, arguments.runs_dir, arguments.variants):
        print(line, flush=True)


if __name__ == "__main__":
    main()
