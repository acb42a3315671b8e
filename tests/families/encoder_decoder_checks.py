"""Plain checks of an encoder-decoder's weights against a golden file of encoder_decoder_maker."""

import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from keras_transformers.convert.family import Family
from keras_transformers.decoding import beam_search

GOLDEN = Path(__file__).parents[1] / "golden" / "families"
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "rules": "transformers"},
    "unpenalized": {"num_beams": 3, "rules": "transformers", "length_penalty": 0.0},
}


@dataclass(frozen=True)
class Golden:
    """A family and its golden file."""

    family: Family

    @property
    def maker(self) -> Any:
        """The `EncoderDecoderMaker` of the golden file."""
        name = f"make_{self.family.model_type}.py"
        return runpy.run_path(str(GOLDEN / name))["MAKER"]

    def outputs(self, name: str) -> dict[str, np.ndarray]:
        """What transformers computes with a configuration's weights."""
        file = np.load(GOLDEN / f"{self.family.model_type}.npz")
        start = f"{name}/"
        return {k.removeprefix(start): file[k] for k in file.files if k.startswith(start)}

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """The weights of a configuration."""
        start = "tensors/"
        found = self.outputs(name)
        return {k.removeprefix(start): found[k] for k in found if k.startswith(start)}

    def folder(
        self,
        name: str,
        folder: Path,
        *,
        tensors: Mapping[str, np.ndarray] | None = None,
        **changes: Any,
    ) -> Path:
        """A folder as transformers writes it; a change to None removes the field."""
        fields = {"model_type": self.family.model_type, **self.maker.configs[name], **changes}
        config = {key: value for key, value in fields.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(config))
        stored = self.tensors(name) if tensors is None else dict(tensors)
        save_file(stored, folder / "model.safetensors")
        return folder

    def model(self, name: str, folder: Path) -> keras.Model:
        """Our model with transformers' weights."""
        return loaded(self.family, self.folder(name, folder))


def loaded(family: Family, folder: Path) -> keras.Model:
    """A folder's model."""
    model = family.build(**family.read(folder))
    family.fill(model, folder)
    return model


def same_logits(found: Any, wanted: Any) -> None:
    """Equal but for rounding, and not all the same."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert np.ptp(wanted) > 1


def outputs_equal_transformers(golden: Golden, name: str, folder: Path) -> None:
    """The logits agree but for rounding, and the searches find the same tokens."""
    model, outputs = golden.model(name, folder), golden.outputs(name)
    inputs, config = golden.maker.inputs(name), golden.maker.configs[name]
    same_logits(model(inputs, training=False)["logits"], outputs["logits"])
    width = outputs["greedy"].shape[1]
    for search, options in SEARCHES.items():

        @tf.function(autograph=False)
        def find(sources: tf.Tensor, options: Any = options) -> tf.Tensor:
            step, cache = model.start_decoding(sources)
            return beam_search(
                step,
                tf.fill([tf.shape(sources)[0]], config["decoder_start_token_id"]),
                cache,
                end_token_id=config["eos_token_id"],
                max_length=width,
                pad_token_id=config["pad_token_id"],
                growing_axis=2,
                **options,
            ).token_ids[:, 0]

        found = find(inputs["source_token_ids"])
        np.testing.assert_array_equal(found, outputs[search], err_msg=search)
    assert len({outputs[search].tobytes() for search in SEARCHES}) > 1


def saving_gives_the_same_files(golden: Golden, name: str, folder: Path, **fields: Any) -> None:
    """All tensors come back bit for bit, and so does the configuration with the given fields."""
    model, tensors = golden.model(name, folder), golden.tensors(name)
    arguments = golden.family.read(folder)
    golden.family.save(model, folder / "copy.safetensors")
    found = load_file(folder / "copy.safetensors")
    assert set(found) == set(tensors)
    for key, tensor in tensors.items():
        np.testing.assert_array_equal(found[key], tensor, err_msg=key)
    golden.family.save_config(model, folder / "config.json", **fields)
    assert golden.family.read(folder) == arguments
    written = json.loads((folder / "config.json").read_text())
    wanted = {k: v for k, v in golden.maker.configs[name].items() if v is not None}
    wanted.pop("bos_token_id", None)  # the tokenizer's
    assert wanted.items() <= written.items()


def the_frozen_outputs_are_transformers_own(golden: Golden, name: str) -> None:
    """Recomputes the golden outputs; needs the `reference` extra."""
    for key, value in golden.maker.outputs(name).items():
        wanted = golden.outputs(name)[key]
        np.testing.assert_allclose(wanted, value, atol=1e-5, rtol=1e-6, err_msg=key)


def transformers_and_we_read_what_the_other_writes(golden: Golden, name: str, folder: Path) -> None:
    """Both compute the golden logits; needs the `reference` extra."""
    import torch
    import transformers

    ours, theirs = folder / "ours", folder / "theirs"
    ours.mkdir()
    model = golden.model(name, folder)
    golden.family.save(model, ours / "model.safetensors")
    golden.family.save_config(model, ours / "config.json")
    kind = f"{golden.maker.classes}ForConditionalGeneration"
    found, report = getattr(transformers, kind).from_pretrained(ours, output_loading_info=True)
    # It computes sinusoids that are not in the file.
    assert not [key for key in report["missing_keys"] if "embed_positions" not in key]
    assert not report["unexpected_keys"]
    given = {key: torch.tensor(value).long() for key, value in golden.maker.inputs(name).items()}
    sources = given["source_token_ids"]
    with torch.no_grad():
        logits = found.eval()(
            input_ids=sources,
            attention_mask=(sources != golden.maker.configs[name]["pad_token_id"]).long(),
            decoder_input_ids=given["target_token_ids"],
        ).logits.numpy()
    same_logits(logits, golden.outputs(name)["logits"])
    golden.maker.model(name).save_pretrained(theirs)
    again = loaded(golden.family, theirs)
    found = again(golden.maker.inputs(name), training=False)["logits"]
    same_logits(found, golden.outputs(name)["logits"])
