"""Makes left_behind/model_garden.tar.xz with TensorFlow Model Garden's own BERT.

    python3.10 -m venv env
    env/bin/pip install tensorflow-cpu==2.13.1 tensorflow-text==2.13.0 numpy==1.23.5 "scipy<1.11" \
        "pandas<2.1" tensorflow-hub==0.14.0 tf-slim tensorflow-model-optimization==0.7.5 \
        gin-config tensorflow-addons==0.21.0 dm-tree psutil pyyaml sentencepiece six
    env/bin/pip install --no-deps tf-models-official==2.13.2
    env/bin/python tests/golden/make_model_garden.py

Each folder has a checkpoint of one of its models, with random weights far from zero, and beside it
NAME.npz has the inputs and the outputs. `hub` is a SavedModel as export_tfhub_lib.py writes it.
"""

import tarfile
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from official.modeling import tf_utils
from official.nlp.configs import encoders
from official.nlp.modeling import layers, models, networks

FILE = Path(__file__).with_name("left_behind") / "model_garden.tar.xz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "warm", "film", "two", "dogs", "play"]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_layers": 2,
    "num_attention_heads": 2,
}
RANDOM = np.random.default_rng(7)
IDS = RANDOM.integers(4, len(WORDS), (2, 6)).astype("int32")
MASK = np.array([[1] * 6, [1] * 4 + [0] * 2], "int32")
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]], "int32")
INPUTS = {"input_word_ids": IDS * MASK, "input_mask": MASK, "input_type_ids": SEGMENTS}


def encoder():
    bert = encoders.BertEncoderConfig(intermediate_size=12, max_position_embeddings=16, **SIZES)
    return encoders.build_encoder(encoders.EncoderConfig(type="bert", bert=bert))


def outputs_of(model, inputs=INPUTS):
    """Fills a model with random weights and runs it."""
    model(inputs)
    for variable in model.variables:
        variable.assign(RANDOM.normal(0, 0.4, variable.shape) + ("gamma" in variable.name))
    return model(inputs)


def write(folder, name, outputs, **items):
    if items:
        tf.train.Checkpoint(**items).save(str(folder / name / "ckpt"))
        (folder / name / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    arrays = {f"out_{key}": np.asarray(value) for key, value in outputs.items()}
    np.savez(
        folder / f"{name}.npz",
        in_input_ids=IDS * MASK,
        in_attention_mask=MASK,
        in_token_type_ids=SEGMENTS,
        **arrays,
    )


def vectors(outputs):
    return {
        "last_hidden_state": outputs["sequence_output"],
        "pooler_output": outputs["pooled_output"],
    }


def trained(model):
    """Takes one step; returns the optimizer."""
    optimizer = tf.keras.optimizers.legacy.Adam()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(INPUTS) ** 2)
    gradients = zip(
        tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=False
    )
    optimizer.apply_gradients([pair for pair in gradients if pair[0] is not None])
    return optimizer


def main(folder):
    """Writes every kind of checkpoint."""
    made = encoder()
    write(folder, "encoder", vectors(outputs_of(made)), encoder=made)
    sizes = {**SIZES, "max_sequence_length": 16, "inner_dim": 12}
    made = networks.BertEncoderV2(**sizes)
    write(folder, "encoder_v2", vectors(outputs_of(made)), encoder=made)
    made = models.BertPretrainerV2(
        encoder_network=encoder(),
        classification_heads=[layers.ClassificationHead(8, 2, name="next_sentence")],
        mlm_activation=tf_utils.get_activation("gelu"),
    )
    places = np.tile(np.arange(6, dtype="int32"), (2, 1))
    found = outputs_of(made, {**INPUTS, "masked_lm_positions": places})
    found = {
        "prediction_logits": found["mlm_logits"],
        "seq_relationship_logits": found["next_sentence"],
    }
    write(folder, "pretrainer", found, model=made, **made.checkpoint_items)
    made = models.BertClassifier(encoder(), 3, dropout_rate=0.0)
    outputs_of(made)
    optimizer = trained(made)
    write(folder, "classifier", {"logits": made(INPUTS)}, model=made, optimizer=optimizer)
    made = models.BertClassifier(encoder(), 1, dropout_rate=0.0, use_encoder_pooler=False)
    write(folder, "regressor", {"logits": outputs_of(made)}, model=made, **made.checkpoint_items)
    made = models.BertSpanLabeler(encoder())
    start, end = outputs_of(made)
    write(folder, "span", {"start_logits": start, "end_logits": end}, model=made)
    made = models.BertTokenClassifier(encoder(), 4, dropout_rate=0.0)
    write(folder, "tagger", {"logits": outputs_of(made)["logits"]}, model=made)
    words = folder / "vocab.txt"
    words.write_text("\n".join([*WORDS, ""]))
    tokens = {name: tf.keras.Input((None,), dtype=tf.int32, name=name) for name in INPUTS}
    made = tf.keras.Model(tokens, encoder()(tokens))
    write(folder, "hub", vectors(outputs_of(made)))
    made.vocab_file = tf.saved_model.Asset(str(words))
    made.do_lower_case = tf.Variable(False, trainable=False)
    made.save(str(folder / "hub"), include_optimizer=False, save_format="tf")
    words.unlink()
    (folder / "hub/keras_metadata.pb").unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
        with tarfile.open(FILE, "w:xz") as archive:
            for item in sorted(Path(scratch).iterdir()):
                archive.add(item, item.name)
