"""What the makers of encoder-decoders' golden files share; make_<family>.py say what differs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = (9, 3, 6)
NUM_BEAMS, MAX_LENGTH = 3, 12
# What the searches are called -> options of transformers' `generate`.
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": NUM_BEAMS},
    "unpenalized": {"num_beams": NUM_BEAMS, "length_penalty": 0.0},
}


class EncoderDecoderMaker:
    """Makes <family>.npz with Hugging Face transformers (the `reference` extra).

    For each of the family's configurations it holds the weights of a tiny random model, and what
    transformers computes with them: keys "<name>/tensors/<tensor>", "<name>/logits" and
    "<name>/<search>", the searches' tokens without the start token.

    Args:
        family: the file's name.
        classes: start of the names of its classes, such as "Bart".
        configs: name -> options of a configuration.
        left_out: parts of the names of tensors that are not in the file.
        seed: of the weights.
    """

    def __init__(
        self,
        family: str,
        classes: str,
        configs: Mapping[str, dict[str, Any]],
        *,
        left_out: Sequence[str] = ("embed_tokens", "lm_head"),
        seed: int = 1,
    ) -> None:
        self.family, self.classes, self.configs = family, classes, configs
        self.left_out, self.seed = left_out, seed

    def inputs(self, name: str) -> dict[str, np.ndarray]:
        """Three sources of different lengths with their end token, and the decoder's input."""
        config = self.configs[name]
        random = np.random.default_rng(0)
        size = (len(LENGTHS), max(LENGTHS))
        sources = np.full(size, config["pad_token_id"], "int32")
        for row, length in enumerate(LENGTHS):
            words = random.integers(4, config["vocab_size"], length - 1)
            sources[row, :length] = [*words, config["eos_token_id"]]
        targets = random.integers(4, config["vocab_size"], (len(LENGTHS), 8)).astype("int32")
        targets[:, 0] = config["decoder_start_token_id"]
        return {"source_token_ids": sources, "target_token_ids": targets}

    def model(self, name: str) -> Any:
        """The model of transformers with random weights."""
        import torch
        import transformers

        config = getattr(transformers, f"{self.classes}Config")(**self.configs[name])
        found = getattr(transformers, f"{self.classes}ForConditionalGeneration")(config).eval()
        with torch.no_grad():
            for key, parameter in sorted(found.named_parameters()):
                if not parameter.requires_grad:  # sinusoids
                    continue
                torch.manual_seed(self.seed + sum(map(ord, key)))
                noise = torch.randn_like(parameter)
                is_gain = "norm" in key and key.endswith("weight")
                # Larger biases would give all sources the same targets.
                scale = 0.1 if noise.ndim == 1 else 0.5
                parameter.copy_(1 + 0.3 * noise if is_gain else scale * noise)
            torch.manual_seed(self.seed)
            found.final_logits_bias.copy_(0.5 * torch.randn_like(found.final_logits_bias))
            found.final_logits_bias[0, self.configs[name]["eos_token_id"]] += 3.0  # texts end
        return found

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """Every tensor once, tied ones too; no sinusoids."""
        state = self.model(name).state_dict()
        kept = [key for key in state if not any(part in key for part in self.left_out)]
        return {key: state[key].numpy() for key in kept}

    def outputs(self, name: str) -> dict[str, np.ndarray]:
        """The logits, and the tokens of the searches, padded."""
        import torch

        pad = self.configs[name]["pad_token_id"]
        given = {key: torch.tensor(array).long() for key, array in self.inputs(name).items()}
        sources = given["source_token_ids"]
        source = {"input_ids": sources, "attention_mask": (sources != pad).long()}
        model = self.model(name)

        def search(**options: Any) -> np.ndarray:
            found = model.generate(
                **source, do_sample=False, max_new_tokens=MAX_LENGTH, **options
            ).numpy()[:, 1:]
            # Beam search fills rows with the end token where the padding's id is 0.
            is_end = found == self.configs[name]["eos_token_id"]
            found = np.where(np.cumsum(is_end, axis=1) - is_end > 0, pad, found)
            width = MAX_LENGTH - found.shape[1]
            return np.pad(found, ((0, 0), (0, width)), constant_values=pad).astype("int32")

        with torch.no_grad():
            logits = model(**source, decoder_input_ids=given["target_token_ids"]).logits.numpy()
            found = {key: search(**options) for key, options in SEARCHES.items()}
        return {"logits": logits, **found}

    def write(self) -> None:
        """Writes the golden file."""
        arrays: dict[str, np.ndarray] = {}
        for name in self.configs:
            tensors = {f"tensors/{key}": array for key, array in self.tensors(name).items()}
            outputs = {**tensors, **self.outputs(name)}
            arrays |= {f"{name}/{key}": array for key, array in outputs.items()}
        file = Path(__file__).with_name(f"{self.family}.npz")
        np.savez_compressed(file, **arrays)
        print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")
