"""Makes t5.npz and mt5.npz with Hugging Face transformers (the `reference` extra).

They hold the weights of a tiny random T5 of each version, an mT5 and a UMT5, and what transformers
computes with them: keys "<kind>/tensors/<tensor>", "<kind>/logits" and, of searches,
"<kind>/greedy", "<kind>/beams", "<kind>/defaults".

python tests/golden/families/make_t5.py
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

KINDS: dict[str, dict[str, Any]] = {
    "t5": {"feed_forward_proj": "relu"},
    "t5_v1_1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
MULTILINGUAL = {
    "mt5": KINDS["t5_v1_1"],
    "umt5": KINDS["t5_v1_1"],
}
CLASSES = {"mt5": "MT5", "umt5": "UMT5"}  # those of others are T5's
CONFIG = {
    "vocab_size": 50,
    "d_model": 16,
    "d_kv": 6,  # the heads together are narrower than the model
    "d_ff": 24,
    "num_layers": 3,  # transformers' cache has no room for more decoder layers than these
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}
SEEDS = {"t5": 29, "t5_v1_1": 50, "mt5": 50, "umt5": 50}  # some of their searches end early
LENGTHS = (24, 3, 11)
TARGET_LENGTH = 20  # beyond the largest distance
NUM_BEAMS, MAX_LENGTH = 3, 15


def inputs() -> dict[str, np.ndarray]:
    """Three sources of different lengths with their end token, and the decoder's input."""
    random = np.random.default_rng(0)
    sources = np.zeros((len(LENGTHS), max(LENGTHS)), "int32")
    for row, length in enumerate(LENGTHS):
        sources[row, :length] = [*random.integers(3, 50, length - 1), 1]
    targets = random.integers(3, 50, (len(LENGTHS), TARGET_LENGTH)).astype("int32")
    targets[:, 0] = 0
    return {"source_token_ids": sources, "target_token_ids": targets}


def model(kind: str) -> Any:
    """The model of transformers with random weights."""
    import torch
    import transformers

    start = CLASSES.get(kind, "T5")
    config = getattr(transformers, f"{start}Config")(**CONFIG, **{**KINDS, **MULTILINGUAL}[kind])
    found = getattr(transformers, f"{start}ForConditionalGeneration")(config).eval()
    if kind != "t5":  # transformers ties the logits until a file unties them
        found.lm_head.weight = torch.nn.Parameter(torch.zeros_like(found.lm_head.weight))
    with torch.no_grad():
        for name, parameter in sorted(found.named_parameters()):
            torch.manual_seed(SEEDS[kind] + sum(map(ord, name)))
            noise = torch.randn_like(parameter)
            # Queries and keys are small, so that no softmax is all or nothing.
            scales = {"q": 0.3, "k": 0.3, "o": 1.0, "wo": 1.0, "relative_attention_bias": 2.0}
            scale = next((s for part, s in scales.items() if part in name.split(".")), 0.6)
            parameter.copy_(1 + 0.3 * noise if "norm" in name else scale * noise)
    return found


def tensors(kind: str) -> dict[str, np.ndarray]:
    """Every tensor once, tied ones too."""
    copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    copies |= {"lm_head.weight"} if kind == "t5" else set()
    state = model(kind).state_dict()
    return {name: tensor.numpy() for name, tensor in state.items() if name not in copies}


def outputs(kind: str) -> dict[str, np.ndarray]:
    """The logits, and the tokens of greedy and beam search, without start token, padded with 0."""
    import torch

    given = {name: torch.tensor(array).long() for name, array in inputs().items()}
    sources = given["source_token_ids"]
    source = {"input_ids": sources, "attention_mask": (sources != 0).long()}
    theirs = model(kind)

    def search(**options: Any) -> np.ndarray:
        found = theirs.generate(
            **source, do_sample=False, max_new_tokens=MAX_LENGTH, min_length=0, **options
        ).numpy()[:, 1:]
        found = np.pad(found, ((0, 0), (0, MAX_LENGTH - found.shape[1]))).astype("int32")
        # After the end token there is only padding; transformers takes padding 0 for none given.
        ended = np.cumsum(found == 1, axis=1) - (found == 1) > 0
        return np.where(ended, 0, found)

    with torch.no_grad():
        logits = theirs(**source, decoder_input_ids=given["target_token_ids"]).logits.numpy()
        return {
            "logits": logits,
            "greedy": search(num_beams=1),
            # Scores without a length penalty, and no early end: the search that ours does.
            "beams": search(num_beams=NUM_BEAMS, length_penalty=0.0, early_stopping="never"),
            # It stops earlier, and divides scores by lengths.
            "defaults": search(num_beams=NUM_BEAMS),
        }


def write(name: str, kinds: Iterable[str]) -> None:
    """Writes a golden file."""
    arrays: dict[str, np.ndarray] = {}
    for kind in kinds:
        arrays |= {f"{kind}/tensors/{name}": array for name, array in tensors(kind).items()}
        arrays |= {f"{kind}/{name}": array for name, array in outputs(kind).items()}
    file = Path(__file__).with_name(f"{name}.npz")
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")


if __name__ == "__main__":
    write("t5", KINDS)
    write("mt5", MULTILINGUAL)
