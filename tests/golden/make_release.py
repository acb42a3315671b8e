"""Makes release_1_0_0.tar.xz: pipelines and models that version 1.0.0 saved, and their answers.

The archive in the repository was written by version 1.0.0, at commit 61da3cd. It imports public
names only, so a later version can write its own archive.

    python tests/golden/make_release.py ARCHIVE
"""

import dataclasses
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_transformers as kt

SIZES = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
ONE_LAYER = {"num_layers": 1, **SIZES}
STACKS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good", "bad", "very"]
TEXT = "a good film"
PNG = tf.io.encode_png(np.arange(8 * 12 * 3, dtype="uint8").reshape(8, 12, 3)).numpy()


def lively(model: keras.Model) -> keras.Model:
    """Returns a model with weights far from zero, of few values so that they compress well."""
    random = np.random.default_rng(3)
    for variable in model.trainable_variables:
        values = random.integers(-3, 4, variable.shape) / 4
        variable.assign(values if len(variable.shape) > 1 else 1 + values / 4)
    return model


def pipelines() -> Iterator[tuple[str, kt.pipelines.Pipeline]]:
    """Yields name -> a pipeline for each family that has layers, or a model class, of its own."""
    words = kt.tokenizers.WordPieceTokenizer(VOCABULARY)
    letters = kt.tokenizers.SymbolTokenizer(list("abdefgilmorvy"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pairs")
        pairs = kt.tokenizers.BytePairTokenizer.train([TEXT] * 2, path, vocabulary_size=260)
    grams = kt.tokenizers.NgramTokenizer(["</s>", "a", "good"], num_buckets=8, word_ngrams=2)

    encoder = kt.bert_base(vocabulary_size=len(VOCABULARY), max_sequence_length=16, **ONE_LAYER)
    labels = ["negative", "positive"]
    yield "bert", kt.pipelines.TextClassifier(kt.heads.classifier(encoder, 2), words, labels)

    encoder = kt.fasttext_base(vocabulary_size=grams.vocabulary_size, embedding_dim=4)
    model = kt.heads.classifier(encoder, 2, dropout=0.0)
    yield "fasttext", kt.pipelines.TextClassifier(model, grams, labels, max_sequence_length=32)

    encoder = kt.vit_tiny16(patch_size=4, image_size=(8, 12), **ONE_LAYER)
    decoder = kt.pipelines.ImageDecoder((8, 12))
    yield "vit", kt.pipelines.ImageClassifier(kt.heads.classifier(encoder, 2), decoder, labels)

    widths = {"lstm_dim": 6, "projection_dim": 4, "num_highways": 1, "character_dim": 2}
    yield "elmo", kt.pipelines.WordEmbedder(kt.elmo_original(filters=[(1, 2), (3, 3)], **widths))

    limits = {"max_sequence_length": 4, "num_beams": 2, "extra_length": 1}
    size = {"vocabulary_size": letters.vocabulary_size}
    model = kt.transformer_tiny(norm_position="pre", **size, **STACKS, **SIZES)
    yield "transformer", kt.pipelines.Translator(model, letters, **limits)
    model = kt.t5_small(**size, **STACKS, **SIZES, head_dim=3)
    yield "t5", kt.pipelines.Translator(model, letters, **limits)
    widths = {"embedding_dim": 4, "hidden_dim": 6, "encoder_hidden_dim": 3}
    model = kt.rnnsearch_50(**size, **widths, attention_dim=5, readout_dim=7)
    yield "rnnsearch", kt.pipelines.Translator(model, letters, **limits)
    recurrent = {"input_feeding": True, "readout_dim": 7, "cell": "lstm"}
    model = kt.seq2seq_multi30k(**size, **widths, **recurrent)
    yield "seq2seq", kt.pipelines.Translator(model, letters, **limits)

    size = {"vocabulary_size": pairs.vocabulary_size, "max_sequence_length": 24}
    model = kt.gpt2_small(**size, **ONE_LAYER)
    yield "gpt", kt.pipelines.TextGenerator(model, pairs, max_length=2, top_k=1)
    model = kt.smollm2_135m(**size, **ONE_LAYER, num_key_value_heads=1)
    yield "llama", kt.pipelines.TextGenerator(model, pairs, max_length=2, top_k=1)


def answer(name: str, pipeline: kt.pipelines.Pipeline) -> dict:
    """Returns a pipeline's answer to `PNG` or `TEXT`, as JSON values."""
    fields = dataclasses.asdict(pipeline(PNG if name == "vit" else TEXT))
    fields = {name: value for name, value in fields.items() if value is not None}  # options' own
    return json.loads(json.dumps(fields, default=lambda array: array.tolist()))


def main(archive: Path) -> None:
    """Writes the archive."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, recorded = Path(temporary), {}
        for name, pipeline in pipelines():
            lively(pipeline.model)
            pipeline.save(folder / name)
            pipeline.model.save(folder / f"{name}.keras")
            recorded[name] = answer(name, pipeline)
        (folder / "answers.json").write_text(json.dumps(recorded), "utf-8")
        with tarfile.open(archive, "w:xz", preset=9) as file:
            for path in sorted(folder.iterdir()):
                file.add(path, path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
