"""Finds the heads of an encoder that attend to the previous or next token, [CLS] or [SEP].

    python benchmarks/attention_heads.py PIPELINE [--figure heads.png]

PIPELINE is anything with an encoder that `kt.load` reads. For each of these positions it prints the
three heads that give it the largest share of their attention, averaged over the inner tokens of
four sentences, and then the words that "bank" attends to in two of them. `--figure` draws all heads
for the first one.
"""

import argparse
from pathlib import Path

import numpy as np

import keras_transformers as kt
from keras_transformers.inspection import attention, attention_figure

SENTENCES = (
    "The river bank was covered with wild flowers after the rain.",
    "He opened an account at the bank to save a little money each month.",
    "Two dogs run along the beach while children play with a red ball.",
    "The committee will publish its final report on the new railway next week.",
)


def shares(probabilities: np.ndarray) -> dict[str, np.ndarray]:
    """Returns place -> the mean attention to it (layers, heads), of tokens with both neighbours."""
    length = probabilities.shape[-1]
    inner = np.arange(2, length - 2)
    return {
        "previous token": probabilities[:, :, inner, inner - 1].mean(axis=-1),
        "same token": probabilities[:, :, inner, inner].mean(axis=-1),
        "next token": probabilities[:, :, inner, inner + 1].mean(axis=-1),
        "first, [CLS]": probabilities[:, :, inner, 0].mean(axis=-1),
        "last, [SEP]": probabilities[:, :, inner, length - 1].mean(axis=-1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    pipeline = kt.load(arguments.pipeline)
    maps = [attention(pipeline, sentence)["encoder"] for sentence in SENTENCES]
    found = [shares(each.probabilities) for each in maps]
    for place in found[0]:
        mean = np.mean([each[place] for each in found], axis=0)
        largest = np.argsort(-mean, axis=None)[:3]
        heads = [divmod(int(index), mean.shape[1]) for index in largest]
        cells = [f"layer {i}, head {j}: {mean[i, j]:.2f}" for i, j in heads]
        print(f"{place}: {'; '.join(cells)}")
    for sentence, found_map in zip(SENTENCES[:2], maps, strict=False):
        first = found_map.probabilities[0].mean(axis=0)[found_map.keys.index("bank")]
        words = [f"{found_map.keys[i]} {first[i]:.2f}" for i in np.argsort(-first[1:-1])[:3] + 1]
        print(f'"bank" in layer 0, mean of the heads: {", ".join(words)} ("{sentence}")')
    if arguments.figure:
        attention_figure(maps[0]).savefig(arguments.figure, dpi=70)


if __name__ == "__main__":
    main()
