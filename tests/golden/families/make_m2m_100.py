"""Makes m2m_100.npz with Hugging Face transformers (the `reference` extra).

It holds the weights of a tiny random M2M-100, and what transformers computes with them: keys
"tensors/<tensor>", "logits", "greedy" and "beams", the searches with LANGUAGE forced.

python tests/golden/families/make_m2m_100.py
"""

from pathlib import Path
from typing import Any

import numpy as np

PAD, END = 1, 2
LANGUAGE = 37
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
    "activation_function": "relu",
    "scale_embedding": True,
    "pad_token_id": PAD,
    "decoder_start_token_id": END,
    "eos_token_id": END,
}
LENGTHS = (9, 3, 6)
NUM_BEAMS, MAX_LENGTH = 3, 12
SEED = 5


def inputs() -> dict[str, np.ndarray]:
    """Three sources of different lengths with language and end token, and the decoder's input."""
    random = np.random.default_rng(0)
    sources = np.full((len(LENGTHS), max(LENGTHS)), PAD, "int32")
    for row, length in enumerate(LENGTHS):
        sources[row, :length] = [LANGUAGE + 1, *random.integers(3, 36, length - 2), END]
    targets = random.integers(3, 36, (len(LENGTHS), 8)).astype("int32")
    targets[:, 0], targets[:, 1] = END, LANGUAGE
    return {"source_token_ids": sources, "target_token_ids": targets}


def model() -> Any:
    """The model of transformers with random weights."""
    import torch
    import transformers

    found = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**CONFIG)).eval()
    with torch.no_grad():
        for name, parameter in sorted(found.named_parameters()):
            torch.manual_seed(SEED + sum(map(ord, name)))
            noise = torch.randn_like(parameter)
            is_gain = "norm.weight" in name
            parameter.copy_(1 + 0.3 * noise if is_gain else 0.5 * noise)
        found.model.shared.weight[END] *= 1.6  # texts end
    return found


def tensors() -> dict[str, np.ndarray]:
    """Every tensor once, tied ones too."""
    state = model().state_dict()
    return {
        name: tensor.numpy()
        for name, tensor in state.items()
        if not any(part in name for part in ("embed_tokens", "lm_head"))
    }


def outputs() -> dict[str, np.ndarray]:
    """The logits, and the tokens of greedy and beam search, without start token, padded."""
    import torch

    given = {name: torch.tensor(array).long() for name, array in inputs().items()}
    sources = given["source_token_ids"]
    source = {"input_ids": sources, "attention_mask": (sources != PAD).long()}
    theirs = model()

    def search(num_beams: int) -> np.ndarray:
        found = theirs.generate(
            **source,
            do_sample=False,
            max_new_tokens=MAX_LENGTH,
            num_beams=num_beams,
            forced_bos_token_id=LANGUAGE,
        ).numpy()[:, 1:]
        width = MAX_LENGTH - found.shape[1]
        return np.pad(found, ((0, 0), (0, width)), constant_values=PAD).astype("int32")

    with torch.no_grad():
        logits = theirs(**source, decoder_input_ids=given["target_token_ids"]).logits.numpy()
        return {"logits": logits, "greedy": search(1), "beams": search(NUM_BEAMS)}


def write() -> None:
    """Writes the golden file."""
    arrays = {f"tensors/{name}": array for name, array in tensors().items()} | outputs()
    file = Path(__file__).with_name("m2m_100.npz")
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")


if __name__ == "__main__":
    write()
