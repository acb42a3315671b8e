"""Makes before_parts/: recurrent models from before `RecurrentDecoder` was handed its parts.

The files in the repository were written at commit 3cc70bf, where the decoder made its cells, its
attention and its readout from 13 arguments. With later code this script writes files of the later
kind.

    PYTHONPATH=tests python tests/golden/make_before_parts.py FOLDER
"""

import sys
import zipfile
from pathlib import Path

import keras
import numpy as np

import keras_transformers as kt

SIZES = {"vocabulary_size": 9, "embedding_dim": 4, "hidden_dim": 6, "encoder_hidden_dim": 3}
FORMS = {
    "feeding": {"cell": "lstm", "attention": "dot", "input_feeding": True, "readout_dim": 7},
    "bahdanau": {
        "attention": "additive",
        "attention_dim": 5,
        "context": "input_and_output",
        "readout_dim": 7,
        "readout_activation": "maxout",
        "teacher_forcing": 0.5,
    },
    "no tokens": {
        "attention": None,
        "readout_dim": None,
        "context": "input",
        "bridge": "zeros",
        "feed_tokens": False,
        "context_from": "mean",
        "context_dim": 5,
    },
}
INPUTS = {
    "source_token_ids": np.array([[5, 6, 7, 8, 2], [3, 4, 2, 0, 0]], "int32"),
    "target_token_ids": np.array([[1, 3, 8, 2], [1, 7, 6, 5]], "int32"),
}


def model(form: str) -> keras.Model:
    """Returns a model with its first weights, from seed 7."""
    keras.utils.set_random_seed(7)
    return kt.create_model("seq2seq_multi30k", **SIZES, **FORMS[form])


def compress(path: Path) -> None:
    """Compresses what Keras only stores."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def main(folder: Path) -> None:
    """Writes all files."""
    folder.mkdir(parents=True)
    outputs = {}
    for form in FORMS:
        made = model(form)
        outputs[form] = np.asarray(made(INPUTS, training=False)["logits"])
        path = folder / f"{form.replace(' ', '_')}.keras"
        made.save(path)
        compress(path)
    np.savez_compressed(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
