"""Makes before_blocks/: models, weights and a pipeline from before `TransformerBlock`.

The files in the repository were written at commit cd1ccd9, where models consisted of `EncoderLayer`
and `DecoderLayer`. With later code this script writes files of the later kind.

    PYTHONPATH=tests python tests/golden/make_before_blocks.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import tiny

from keras_transformers import heads
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.mpnet.model import mpnet
from keras_transformers.families.t5.model import t5
from keras_transformers.families.transformer.model import transformer
from keras_transformers.families.vit.model import vit

SIZES = {"num_heads": 2, "hidden_dim": 8}


def models():
    """Yields name -> a model of each kind of block."""
    yield "bert_tagger", heads.tagger(tiny.encoder(), 3)
    yield "mpnet", mpnet(vocabulary_size=12, num_layers=1, max_sequence_length=8, **SIZES)
    yield "gpt", gpt(vocabulary_size=12, num_layers=2, max_sequence_length=8, **SIZES)
    stacks = {"num_encoder_layers": 1, "num_decoder_layers": 1, "intermediate_dim": 12}
    yield "t5", t5(vocabulary_size=12, **stacks, **SIZES, head_dim=3, gated_feed_forward=True)
    yield "vit", vit(image_size=4, patch_size=2, num_layers=1, **SIZES)


def of_weights():
    """Returns the model of transformer.weights.h5, with several layers of both kinds."""
    return transformer(
        vocabulary_size=12,
        num_encoder_layers=2,
        num_decoder_layers=3,
        **SIZES,
        intermediate_dim=12,
        norm_position="pre",
    )


def inputs(model) -> dict[str, np.ndarray]:
    """Returns two rows for a model."""
    random = np.random.default_rng(5)
    found = {}
    for name, tensor in model.input.items():
        if name == "images":
            found[name] = random.normal(size=(2, *tensor.shape[1:])).astype("float32")
        elif name == "padding_mask":
            found[name] = np.arange(5)[None] < np.array([[5], [3]])
        elif name == "segment_ids":
            found[name] = np.array([[0, 0, 1, 1, 1]] * 2, "int32")
        else:
            found[name] = random.integers(2, 12, (2, 5)).astype("int32")
    return found


def main(folder: Path) -> None:
    """Writes all files."""
    folder.mkdir(parents=True)
    outputs = {}

    def keep(name, model):
        for key, value in model(inputs(model), training=False).items():
            outputs[f"{name}/{key}"] = np.asarray(value)

    for name, model in models():
        model = tiny.lively(model)
        model.save(folder / f"{name}.keras")
        keep(name, model)
    model = tiny.lively(of_weights())
    keep("transformer", model)
    model.save_weights(folder / "transformer.weights.h5")
    np.savez_compressed(folder / "outputs.npz", **outputs)
    tiny.pipeline("tagging").save(folder / "tagger")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
