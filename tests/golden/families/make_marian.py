"""Makes marian.npz with Hugging Face transformers (the `reference` extra).

It holds the weights of a tiny random Marian, and what transformers computes with them: keys
"tensors/<tensor>", "logits", "greedy", "beams" and "defaults"; and "moved_logits", those with
`positions()` in place of the sinusoids.

python tests/golden/families/make_marian.py
"""

from pathlib import Path
from typing import Any

import numpy as np

PAD = 39
CONFIG: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 30,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": PAD,
    "decoder_start_token_id": PAD,
    "eos_token_id": 0,
    "forced_eos_token_id": None,
}
LENGTHS = (9, 3, 6)
NUM_BEAMS, MAX_LENGTH = 3, 12
SEED = 9


def inputs() -> dict[str, np.ndarray]:
    """Three sources of different lengths with their end token, and the decoder's input."""
    random = np.random.default_rng(0)
    sources = np.full((len(LENGTHS), max(LENGTHS)), PAD, "int32")
    for row, length in enumerate(LENGTHS):
        sources[row, :length] = [*random.integers(1, PAD, length - 1), 0]
    targets = random.integers(1, PAD, (len(LENGTHS), 8)).astype("int32")
    targets[:, 0] = PAD
    return {"source_token_ids": sources, "target_token_ids": targets}


def positions() -> dict[str, np.ndarray]:
    """Positions of either side that are not the sinusoids."""
    random = np.random.default_rng(1)
    shape = (CONFIG["max_position_embeddings"], CONFIG["d_model"])
    return {
        f"model.{side}.embed_positions.weight": random.normal(0, 1, shape).astype("float32")
        for side in ("encoder", "decoder")
    }


def model() -> Any:
    """The model of transformers with random weights."""
    import torch
    import transformers

    found = transformers.MarianMTModel(transformers.MarianConfig(**CONFIG)).eval()
    with torch.no_grad():
        for name, parameter in sorted(found.named_parameters()):
            if "embed_positions" in name:
                continue
            torch.manual_seed(SEED + sum(map(ord, name)))
            noise = torch.randn_like(parameter)
            is_gain = "norm.weight" in name
            scale = 0.5 if "shared" in name else 0.6
            parameter.copy_(1 + 0.3 * noise if is_gain else scale * noise)
        torch.manual_seed(SEED)
        found.final_logits_bias.copy_(0.5 * torch.randn_like(found.final_logits_bias))
        found.final_logits_bias[0, PAD] = -1e4  # no search may find padding
    return found


def tensors() -> dict[str, np.ndarray]:
    """Every tensor once, tied ones too; no sinusoids."""
    state = model().state_dict()
    left_out = ("embed_positions", "embed_tokens", "lm_head")
    return {
        name: tensor.numpy()
        for name, tensor in state.items()
        if not any(part in name for part in left_out)
    }


def outputs() -> dict[str, np.ndarray]:
    """The logits, and the tokens of greedy and beam search, without start token, padded."""
    import torch

    given = {name: torch.tensor(array).long() for name, array in inputs().items()}
    sources = given["source_token_ids"]
    source = {"input_ids": sources, "attention_mask": (sources != PAD).long()}
    theirs = model()

    def search(**options: Any) -> np.ndarray:
        found = theirs.generate(
            **source, do_sample=False, max_new_tokens=MAX_LENGTH, **options
        ).numpy()[:, 1:]
        width = MAX_LENGTH - found.shape[1]
        return np.pad(found, ((0, 0), (0, width)), constant_values=PAD).astype("int32")

    def logits(model: Any) -> np.ndarray:
        return model(**source, decoder_input_ids=given["target_token_ids"]).logits.numpy()

    with torch.no_grad():
        moved = model()
        moved.load_state_dict(
            {name: torch.tensor(array) for name, array in positions().items()}, strict=False
        )
        return {
            "logits": logits(theirs),
            "moved_logits": logits(moved),
            "greedy": search(num_beams=1),
            "beams": search(num_beams=NUM_BEAMS, length_penalty=0.0, early_stopping="never"),
            # It stops earlier, and divides scores by lengths.
            "defaults": search(num_beams=NUM_BEAMS),
        }


def write() -> None:
    """Writes the golden file."""
    arrays = {f"tensors/{name}": array for name, array in tensors().items()} | outputs()
    file = Path(__file__).with_name("marian.npz")
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")


if __name__ == "__main__":
    write()
