"""Writes a BERT's weights in common file formats, each as its original software does."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

Tensors = dict[str, np.ndarray]  # under Hugging Face's names, in PyTorch's layout

_LAYER_PARTS = {  # Google's and Keras' -> Model Garden's
    "attention/self": "self_attention",
    "attention/output/dense": "self_attention/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "intermediate",
    "output/dense": "output",
    "output/LayerNorm": "output_layer_norm",
}


def write_safetensors(folder: Path, tensors: Tensors) -> None:
    """Writes model.safetensors, transformers' default."""
    from safetensors.numpy import save_file

    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write_pickle(folder: Path, tensors: Tensors, *, zipped: bool = True) -> None:
    """Writes pytorch_model.bin with torch.save."""
    import torch

    torch.save(
        {name: torch.from_numpy(values) for name, values in tensors.items()},
        folder / "pytorch_model.bin",
        _use_new_zipfile_serialization=zipped,
    )


def write_legacy_pickle(folder: Path, tensors: Tensors) -> None:
    """Writes pytorch_model.bin as PyTorch before 1.6 did."""
    write_pickle(folder, tensors, zipped=False)


def write_tf_h5(folder: Path, tensors: Tensors) -> None:
    """Writes tf_model.h5, as transformers' TFBertModel did."""
    import h5py

    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, values in tensors.items():
            path, values = _keras(name, values)
            path = path.replace("/layer_", "/layer_._")
            path = path.replace("word_embeddings/embeddings", "word_embeddings/weight")
            file[f"bert/tf_bert_model/bert/{path}:0"] = values


def write_tf1(folder: Path, tensors: Tensors) -> None:
    """Writes bert_model.ckpt, as google-research/bert did."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, values in tensors.items():
            path, values = _keras(name, values)
            path = f"bert/{path}".removesuffix("/embeddings")
            tf.compat.v1.get_variable(path, values.shape, use_resource=True).load(values, session)
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)


def write_tf2(folder: Path, tensors: Tensors) -> None:
    """Writes an object-based checkpoint, as Model Garden does."""
    import tensorflow as tf

    variables = [
        tf.Variable(values, name=path)
        for path, values in (_model_garden(*_keras(*item)) for item in tensors.items())
    ]
    tf.train.Checkpoint(model=variables).save(str(folder / "ckpt"))


WRITERS: dict[str, Callable[[Path, Tensors], None]] = {
    "safetensors": write_safetensors,
    "pytorch_model.bin": write_pickle,
    "legacy pickle": write_legacy_pickle,
    "tf_model.h5": write_tf_h5,
    "TF1 checkpoint": write_tf1,
    "TF2 checkpoint": write_tf2,
}
OF_TENSORFLOW = ("TF1 checkpoint", "TF2 checkpoint")  # transformers 5 reads neither
NOT_OF_TRANSFORMERS = ("tf_model.h5", *OF_TENSORFLOW)


def _keras(name: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """Returns Keras' path and array: `encoder/layer_3/attention/self/query/kernel`."""
    path = name.removeprefix("bert.").replace(".", "/")
    path = re.sub(r"layer/(\d+)", r"layer_\1", path)
    module, _, weight = path.rpartition("/")
    if module.endswith("LayerNorm"):
        weight = {"weight": "gamma", "bias": "beta"}[weight]
    elif module.endswith("_embeddings"):
        weight = "embeddings"
    elif weight == "weight":
        weight, values = "kernel", values.T
    return f"{module}/{weight}", values


def _model_garden(path: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """Returns the path of Model Garden's: `layer_3/self_attention/query/kernel`."""
    path = path.removeprefix("encoder/")
    for part, theirs in _LAYER_PARTS.items():
        path = re.sub(rf"^(layer_\d+)/{part}/", rf"\1/{theirs}/", path)
    path = path.replace("embeddings/LayerNorm", "embeddings/layer_norm")
    path = path.replace("embeddings/position_embeddings/", "position_embedding/")
    path = path.replace("embeddings/token_type_embeddings/", "type_embeddings/")
    path = path.replace("embeddings/word_embeddings/", "word_embeddings/")
    return path.replace("pooler/dense/", "pooler_transform/"), values
