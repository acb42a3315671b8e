"""Makes left_behind/hf4_tf_denoisers.tar.xz: what TFBart and TFPegasus write and compute.

It makes hf4_tf_bart_classifier.tar.xz too, with a TFBartForSequenceClassification. With a
vocabulary of tests/mbart_toy.py, it makes hf4_tf_mbart.tar.xz, with TFMBart's.

Needs transformers 4 with TensorFlow (made with 4.57.3 and 2.19), and tiny vocabularies:

python tests/golden/make_tf_denoisers.py VOCABULARY_FOLDER
"""

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

os.environ["TF_USE_LEGACY_KERAS"] = "1"
ARCHIVES = Path(__file__).parent / "left_behind"
SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
}
FILES = {
    "bart": ("vocab.json", "merges.txt"),
    "classifier": ("vocab.json", "merges.txt"),
    "pegasus": ("spiece.model",),
    "mbart": ("sentencepiece.bpe.model", "tokenizer_config.json"),
}
PEGASUS_SIZE = 136  # tokens of the vocabulary in tests/encoder_decoder_toys.py
MBART_SIZE, ENGLISH = 77, 54  # and of that in tests/mbart_toy.py


def inputs(config: Any, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Two sources that end with the end token, and the decoder's input."""
    sources = random.integers(4, config.vocab_size, (2, 7)).astype("int32")
    sources[:, -1] = config.eos_token_id
    targets = random.integers(4, config.vocab_size, (2, 5)).astype("int32")
    targets[:, 0] = config.decoder_start_token_id
    mask = np.ones_like(sources)
    return {"input_ids": sources, "attention_mask": mask, "decoder_input_ids": targets}


def write(name: str, model: Any, vocabulary: Path, folder: Path) -> None:
    """Writes a model with random weights, its vocabulary, and what it computes."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    model(model.dummy_inputs)
    for weight in model.weights:
        if "embed_positions" not in weight.name or name != "pegasus":  # which has sinusoids
            shift = 1.0 if "gamma" in weight.name else 0.0
            weight.assign(random.normal(shift, 0.3, weight.shape).astype("float32"))
    given = inputs(model.config, random)
    if name == "classifier":  # it makes the decoder's input, and the second text is shorter
        del given["decoder_input_ids"]
        given["input_ids"][1, 4:] = [2, 1, 1]
        given["attention_mask"][1, 5:] = 0
    found = model({key: tf.constant(array) for key, array in given.items()}, training=False)
    model.save_pretrained(folder / name, safe_serialization=False)
    for file in FILES[name]:
        (folder / name / file).write_bytes((vocabulary / file).read_bytes())
    arrays = {f"in_{key}": array for key, array in given.items()}
    np.savez(folder / f"{name}.npz", **arrays, out_logits=found.logits.numpy())


def write_archive(name: str, models: dict[str, Any], vocabulary: Path) -> None:
    """Writes an archive of models."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, name)
        folder.mkdir()
        for each, model in models.items():
            write(each, model, vocabulary, folder)
        with tarfile.open(ARCHIVES / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(folder, folder.name)


def main(vocabulary: Path) -> None:
    """Writes the archive."""
    import transformers

    if (vocabulary / FILES["mbart"][0]).is_file():
        mbart = transformers.MBartConfig(
            vocab_size=MBART_SIZE, decoder_start_token_id=ENGLISH, scale_embedding=True, **SIZES
        )
        model = transformers.TFMBartForConditionalGeneration(mbart)
        write_archive("hf4_tf_mbart", {"mbart": model}, vocabulary)
        return
    size = len(json.loads((vocabulary / "vocab.json").read_text()))
    bart = transformers.BartConfig(vocab_size=size, **SIZES)
    pegasus = transformers.PegasusConfig(
        vocab_size=PEGASUS_SIZE, scale_embedding=True, activation_function="relu", **SIZES
    )
    models = {
        "bart": transformers.TFBartForConditionalGeneration(bart),
        "pegasus": transformers.TFPegasusForConditionalGeneration(pegasus),
    }
    write_archive("hf4_tf_denoisers", models, vocabulary)
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    bart = transformers.BartConfig(vocab_size=size, id2label=names, **SIZES)
    classifier = transformers.TFBartForSequenceClassification(bart)
    write_archive("hf4_tf_bart_classifier", {"classifier": classifier}, vocabulary)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
