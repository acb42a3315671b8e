"""Files that other libraries wrote, and the outputs of the models that they hold.

All of them are in the folder that KERAS_TRANSFORMERS_LEFT_BEHIND names, as archives:
`hf4_tf.tar.gz` has the folder `hf4_tf` with one folder for each model. A few small ones are in
tests/golden/left_behind, in archives of the same names with the suffix `.tar.xz`. NAME.npz beside a
model's folder has inputs (`in_...`) and the original's outputs (`out_...`).
"""

import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden" / "left_behind"
VARIABLE = "KERAS_TRANSFORMERS_LEFT_BEHIND"
_ARCHIVES = {"st": "sentence_transformers"}  # whose folders are st, st_2.7.0 and so on
# The originals' names -> ours, of inputs and outputs; the first one that a file has counts.
_INPUTS = {
    "token_ids": ("input_ids",),
    "padding_mask": ("attention_mask",),
    "segment_ids": ("token_type_ids",),
    "source_token_ids": ("input_ids", "encoder_token_ids"),
    "target_token_ids": ("decoder_input_ids", "decoder_token_ids"),
    "mask_positions": ("mask_positions",),
    "images": ("images",),
}
_OUTPUTS = {
    "logits": ("logits",),
    "score": ("logits",),
    "mask_logits": ("prediction_logits", "mlm", "logits"),
    "next_sentence_logits": ("seq_relationship_logits", "nsp", "logits"),
    "start_logits": ("start_logits",),
    "end_logits": ("end_logits",),
    "sequence_output": ("last_hidden_state", "sequence_output", "sequence", "seq", "logits"),
    "pooled_output": ("pooler_output", "pooled_output", "pooled"),
}


def unpacked(name: str, into: Path) -> Path:
    """Unpacks the archive of a file or folder such as "hf4_tf/bert_cls", unless it is there.

    Skips the test if there is no folder of archives, and the golden ones lack the file.

    Args:
        name: the path in the archive, with its top folder.
        into: where to unpack it.
    """
    folder, top = os.environ.get(VARIABLE, ""), name.partition("/")[0]
    archive = _ARCHIVES.get(top.partition("_")[0], top)
    path = Path(folder) / f"{archive}.tar.gz"
    if not folder or not path.is_file():
        path = GOLDEN / f"{archive}.tar.xz"
    if not (into / top).exists() and path.is_file():
        with tarfile.open(path) as opened:
            opened.extractall(into, filter="data")
    if not (into / name).exists():
        pytest.skip(
            f"needs another library's files, {name}: set {VARIABLE} to the folder with their "
            f"archives (now {folder!r}); see CONTRIBUTING.md"
        )
    return into / name


def difference(model: keras.Model, file: Path) -> float:
    """Returns the largest difference of a model's outputs from those in a file, NAME.npz.

    It is in units of each output's magnitude, and counts real tokens only. Every output of the
    model must be in the file, and vary there.
    """
    with np.load(file) as opened:
        arrays = dict(opened)
    given = {name: _first(arrays, "in_", _INPUTS[name]) for name in model.input}
    if given.get("mask_positions", 0) is None:  # the original gives logits at every position
        rows, length = given["token_ids"].shape
        given["mask_positions"] = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    if "padding_mask" in given:
        given["padding_mask"] = given["padding_mask"].astype(bool)
    if "images" in given:  # scaled; in transformers with the channels first
        scaling = model.get_layer("pixel_scaling")
        pixels = arrays.get("in_images")
        if pixels is None:
            pixels = arrays["in_pixel_values"].transpose(0, 2, 3, 1)
        given["images"] = (pixels - np.asarray(scaling.offset)) / np.asarray(scaling.scale)
    outputs, mask = model(given), arrays.get("in_attention_mask")
    differences = []
    for name, output in outputs.items():
        found, wanted = np.asarray(output), _first(arrays, "out_", _OUTPUTS[name])
        assert wanted is not None, f"{file.name} has no counterpart of {name}"
        if found.ndim > wanted.ndim and found.shape[-1] == 2:  # one number for two classes
            found = found[..., 1] - found[..., 0]
        assert found.size == wanted.size, f"{name}: {found.shape}, the original {wanted.shape}"
        found = found.reshape(wanted.shape)
        if mask is not None and found.shape[:2] == mask.shape:
            found, wanted = found[mask == 1], wanted[mask == 1]
        is_possible = found > -1e3  # a Translator never answers padding, whatever the original does
        assert is_possible.mean() > 0.9
        found, wanted = found[is_possible], wanted[is_possible]
        assert np.ptp(wanted) > 0.01, f"{name} does not vary"
        scale = max(1.0, float(np.abs(wanted).max()))
        differences.append(float(np.abs(found - wanted).max()) / scale)
    return max(differences)


def same_outputs(model: keras.Model, file: Path, tolerance: float = 1e-5) -> None:
    """A model's outputs are the original's, within a tolerance of their magnitude."""
    found = difference(model, file)
    assert found <= tolerance, f"{file.stem}: differs by {found:.2g} of the outputs' magnitude"


def _first(arrays: Mapping[str, np.ndarray], start: str, names: tuple[str, ...]) -> Any:
    return next((arrays[start + name] for name in names if start + name in arrays), None)


Unpack = Callable[[str], Path]
