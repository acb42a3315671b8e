"""Plain checks of a family's weights against a golden file with every task."""

import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from checks import in_float64, same_but_for_rounding
from safetensors.numpy import load_file, save_file

import keras_transformers as kt

GOLDEN = Path(__file__).parents[1] / "golden" / "families"
TASKS = ("encoder", "masked_lm", "classifier", "regressor", "tagger", "span_extractor")
ALL_TASKS = (*TASKS, "multiple_choice")
SIZES = {"classifier": {"num_classes": 3}, "tagger": {"num_labels": 5}}


@dataclass(frozen=True)
class FamilyFiles:
    """A family and its golden file.

    Attributes:
        name: name of the golden file and its maker.
        encoder: builds our encoder for a task, in the maker's shape.
        load: fills a model from a folder.
        save: writes a model to a file.
        head_options: options of our heads, by task.
        without_pooler: tasks whose models have no `pooler.` tensors.
    """

    name: str
    encoder: Callable[[str], keras.Model]
    load: Callable[..., None]
    save: Callable[..., None]
    head_options: dict[str, dict[str, Any]]
    without_pooler: tuple[str, ...] = ()

    @property
    def maker(self) -> Any:
        """The `FamilyMaker` of the golden file."""
        return runpy.run_path(str(GOLDEN / f"make_{self.name}.py"))["MAKER"]

    @property
    def golden(self) -> Any:
        return np.load(GOLDEN / f"{self.name}.npz")

    def tensors(self, task: str) -> dict[str, np.ndarray]:
        """The tensors that transformers saves: encoder and head."""
        golden = self.golden
        names = [k.removeprefix("encoder/") for k in golden.files if k.startswith("encoder/")]
        outputs = set(self.maker.tasks["encoder"][2])
        encoder = {
            name: golden[f"encoder/{name}"]
            for name in names
            if name not in outputs
            and not (task in self.without_pooler and name.startswith("pooler."))
        }
        if task == "encoder":
            return encoder
        head = f"{task}/head/"
        prefix = self.maker.prefix
        return {f"{prefix}.{name}": tensor for name, tensor in encoder.items()} | {
            k.removeprefix(head): golden[k] for k in golden.files if k.startswith(head)
        }

    def model(self, task: str, folder: Path) -> keras.Model:
        """Our model with these tensors; loading uses exactly those of the file."""
        save_file(self.tensors(task), folder / "model.safetensors")
        model = self.encoder(task)
        if task != "encoder":
            options = SIZES.get(task, {}) | self.head_options.get(task, {})
            model = getattr(kt.heads, task)(model, **options)
        self.load(model, folder)
        return model


def outputs_equal_transformers(family: FamilyFiles, task: str, folder: Path) -> None:
    """Every output agrees at real tokens, but for rounding."""
    inputs, golden = family.maker.inputs(task), family.golden
    given = dict(inputs)
    if task == "masked_lm":  # every position, because transformers projects them all
        rows, length = inputs["token_ids"].shape
        given["mask_positions"] = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    model = family.model(task, folder)
    outputs, exact = model(given), in_float64(model)(given)
    assert set(outputs) == set(family.maker.tasks[task][2])
    for key, value in outputs.items():
        wanted = golden[f"{task}/{key}"].reshape(value.shape)
        arrays = [np.asarray(array) for array in (wanted, value, exact[key])]
        by_token = value.shape[:2] == inputs["token_ids"].shape
        if by_token and task != "multiple_choice":
            arrays = [array[inputs["padding_mask"]] for array in arrays]
        same_but_for_rounding(*arrays)
        assert np.ptp(wanted) > 0.01, key  # the outputs differ


def padding_on_the_left_is_as_on_the_right(family: FamilyFiles, folder: Path) -> None:
    """A row's real tokens have the same vectors, on either side those of transformers."""
    model, maker = family.model("encoder", folder), family.maker
    left, right = maker.left_padded_inputs(), maker.inputs("encoder")
    found = np.asarray(model(left)["sequence_output"])[left["padding_mask"]]
    same = np.asarray(model(right)["sequence_output"])[right["padding_mask"]]
    wanted = family.golden["left/sequence_output"][left["padding_mask"]]
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-5)
    np.testing.assert_allclose(found / scale, same / scale, atol=1e-5)


def saving_gives_the_same_tensors(family: FamilyFiles, task: str, folder: Path) -> None:
    """All tensors come back bit for bit, tied ones once."""
    family.save(family.model(task, folder), folder / "copy.safetensors")
    tied = {"vocab_projector.weight", "lm_head.decoder.weight", "lm_head.decoder.bias"}
    tied |= {"generator_lm_head.weight", "predictions.decoder.weight", "predictions.decoder.bias"}
    tied |= {"decoder.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    expected = {
        name if task != "encoder" else f"{family.maker.prefix}.{name}": tensor
        for name, tensor in family.tensors(task).items()
        if name not in tied
    }
    found = load_file(folder / "copy.safetensors")
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def the_frozen_outputs_are_transformers_own(family: FamilyFiles, task: str) -> None:
    """Recomputes the golden outputs; needs the `reference` extra."""
    for key, value in family.maker.outputs(task).items():
        golden = family.golden[f"{task}/{key}"]
        np.testing.assert_allclose(golden, value, atol=1e-5, err_msg=key)
    if task == "encoder" and family.maker.pad_token_id is not None:
        left = family.maker.outputs(task, family.maker.left_padded_inputs())
        golden = family.golden["left/sequence_output"]
        np.testing.assert_allclose(golden, left["sequence_output"], atol=1e-5)


def transformers_reads_what_we_write(family: FamilyFiles, task: str, folder: Path) -> None:
    """`from_pretrained` finds exactly its tensors; needs the `reference` extra."""
    import torch
    import transformers

    original = family.maker.model(task)
    family.save(family.model(task, folder), folder / "model.safetensors")
    original.config.save_pretrained(folder)
    kind = getattr(transformers, family.maker.tasks[task][0])
    theirs, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, original.state_dict()[name]), name


def the_labels_of_a_head_are_written(
    encoder: keras.Model, save_config: Callable[..., None], folder: Path
) -> None:
    """By name, or as LABEL_0 and so on; a model without classes has none."""
    file = folder / "config.json"
    classifier = kt.heads.classifier(encoder, 2)
    for model, labels, names in (
        (classifier, ["no", "so so"], ["no", "so so"]),
        (kt.heads.tagger(encoder, 2), None, ["LABEL_0", "LABEL_1"]),
    ):
        save_config(model, file, labels=labels)
        config = json.loads(file.read_text())
        assert config["num_labels"] == 2
        assert config["id2label"] == {"0": names[0], "1": names[1]}
        assert config["label2id"] == {names[0]: 0, names[1]: 1}
    save_config(encoder, file)
    assert not {"num_labels", "id2label", "label2id"} & json.loads(file.read_text()).keys()
    with pytest.raises(ValueError, match="3 labels, but model .* has 2 classes"):
        save_config(classifier, file, labels=["a", "b", "c"])
