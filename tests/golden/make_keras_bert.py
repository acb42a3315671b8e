"""Makes keras_bert.npz and keras_bert_files.json.gz with keras-bert 0.89, elsewhere.

    python3.11 -m venv env
    env/bin/pip install tensorflow-cpu==2.15.1 keras-bert==0.89.0
    env/bin/pip install "numpy<2" "setuptools<70" safetensors
    TF_KERAS=1 env/bin/python tests/golden/make_keras_bert.py

Probabilities that keras-bert computes with the weights of bert_random.safetensors. It always takes
20 tokens here, the number of positions, and takes id 0 for padding, so the inputs are its own.

The JSON has what Keras writes into the HDF5 files of such models: their `model_config`, and the
paths and shapes of their arrays.
"""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
FILE = FOLDER / "keras_bert.npz"
FILES = FOLDER / "keras_bert_files.json.gz"
LENGTH, NUM_LAYERS = 20, 2


def inputs() -> dict[str, np.ndarray]:
    """Ids (3, 20), 0 at padding and nowhere else; segments; two masked positions a row."""
    random = np.random.default_rng(1)
    lengths = np.array([6, 20, 13])
    padding_mask = np.arange(LENGTH)[None] < lengths[:, None]
    return {
        "token_ids": (random.integers(1, 50, (3, LENGTH)) * padding_mask).astype("int32"),
        "segment_ids": ((np.arange(LENGTH)[None] >= lengths[:, None] // 2) * padding_mask).astype(
            "int32"
        ),
        "padding_mask": padding_mask,
        "mask_positions": np.array([[1, 4], [0, 19], [7, 2]], "int32"),
    }


def weights() -> dict[str, list[np.ndarray]]:
    """Name of a layer of keras-bert -> its weights, in its order."""
    from safetensors.numpy import load_file

    tensors = load_file(FOLDER / "bert_random.safetensors")

    def pair(module: str, names: tuple[str, str] = ("weight", "bias")) -> list[np.ndarray]:
        kernel, bias = (tensors[f"{module}.{name}"] for name in names)
        return [kernel.T if kernel.ndim == 2 else kernel, bias]

    found = {
        "Embedding-Token": [tensors["bert.embeddings.word_embeddings.weight"]],
        "Embedding-Segment": [tensors["bert.embeddings.token_type_embeddings.weight"]],
        "Embedding-Position": [tensors["bert.embeddings.position_embeddings.weight"]],
        "Embedding-Norm": pair("bert.embeddings.LayerNorm"),
        "MLM-Dense": pair("cls.predictions.transform.dense"),
        "MLM-Norm": pair("cls.predictions.transform.LayerNorm"),
        "MLM-Sim": [tensors["cls.predictions.bias"]],
        "NSP-Dense": pair("bert.pooler.dense"),
        "NSP": pair("cls.seq_relationship"),
    }
    for index in range(NUM_LAYERS):
        layer, name = f"bert.encoder.layer.{index}", f"Encoder-{index + 1}"
        attention = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        attention.append(f"{layer}.attention.output.dense")
        feed_forward = [f"{layer}.intermediate.dense", f"{layer}.output.dense"]
        found[f"{name}-MultiHeadSelfAttention"] = [w for m in attention for w in pair(m)]
        found[f"{name}-MultiHeadSelfAttention-Norm"] = pair(f"{layer}.attention.output.LayerNorm")
        found[f"{name}-FeedForward"] = [w for m in feed_forward for w in pair(m)]
        found[f"{name}-FeedForward-Norm"] = pair(f"{layer}.output.LayerNorm")
    return found


def filled(*, training: bool) -> Any:
    """Returns keras-bert's model with these weights, with or without its heads."""
    from keras_bert import get_model
    from tensorflow import keras

    model = get_model(
        token_num=50,
        pos_num=LENGTH,
        seq_len=LENGTH,
        embed_dim=16,
        transformer_num=NUM_LAYERS,
        head_num=2,
        feed_forward_dim=24,
        dropout_rate=0.0,
        training=training,
    )
    if not training:
        model = keras.models.Model(*model)
    given = weights()
    for layer in model.layers:
        if layer.get_weights():
            layer.set_weights(given.pop(layer.name))
    assert not training or not given, f"not used: {list(given)}"
    return model


def outputs() -> dict[str, np.ndarray]:
    """Probabilities at the masked positions, and of the next sentence: class 0 is next."""
    model = filled(training=True)
    feed = inputs()
    is_masked = np.zeros((3, LENGTH), "int32")
    rows = np.arange(3)[:, None]
    is_masked[rows, feed["mask_positions"]] = 1
    masked_lm, next_sentence = model.predict([feed["token_ids"], feed["segment_ids"], is_masked])
    return {
        "mask_probabilities": masked_lm[rows, feed["mask_positions"]],
        "next_sentence_probabilities": next_sentence,
    }


def files() -> dict[str, dict[str, Any]]:
    """Returns what the HDF5 files of a few models have, in the way people build on keras-bert."""
    from tensorflow import keras

    layers, model = keras.layers, keras.models.Model
    whole, encoder = filled(training=True), filled(training=False)
    pooled = layers.Dropout(0.1)(whole.get_layer("NSP-Dense").output)
    first = layers.Lambda(lambda x: x[:, 0])(encoder.output)
    made = {
        "pretrained": whole,
        "encoder": encoder,
        "classifier": model(whole.inputs[:2], layers.Dense(3, "softmax", name="label")(pooled)),
        "tagger": model(encoder.inputs, layers.Dense(5, "softmax", name="tag")(encoder.output)),
        "other": model(encoder.inputs, layers.Dense(3, "softmax", name="of_first")(first)),
    }
    made["classifier"].compile("adam", "sparse_categorical_crossentropy")
    return {name: contents(each) for name, each in made.items()}


def contents(model: Any) -> dict[str, Any]:
    """Returns `model_config` and path -> shape of each array in the file of a model."""
    import h5py

    shapes = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.h5")
        with h5py.File(f"{folder}/model.h5") as file:
            file.visititems(
                lambda name, item: (
                    shapes.update({name: item.shape}) if hasattr(item, "shape") else None
                )
            )
            config = json.loads(file.attrs["model_config"])
    return {"model_config": without_code(config), "shapes": shapes}


def without_code(value: Any) -> Any:
    """Returns the configuration without the bytecode of Lambda layers, which nobody needs here."""
    if isinstance(value, list):
        return [without_code(item) for item in value]
    if isinstance(value, dict):
        return {k: without_code(v) for k, v in value.items() if k != "function"}
    return value


def main() -> None:
    """Writes the files."""
    np.savez_compressed(FILE, **outputs())
    FILES.write_bytes(gzip.compress(json.dumps(files()).encode(), mtime=0))


if __name__ == "__main__":
    main()
