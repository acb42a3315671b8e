"""Makes deberta.npz with transformers (the `reference` extra); see family_maker.py.

It also makes deberta_variants.npz: encoders whose configurations differ in more than sizes, and the
masked-LM head that is not "legacy". Keys are "<variant>/config" in JSON, "<variant>/<tensor>" and
"<variant>/output".

python tests/golden/families/make_deberta.py
"""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np

FamilyMaker = runpy.run_path(str(Path(__file__).with_name("family_maker.py")))["FamilyMaker"]
MAKER = FamilyMaker(
    "deberta",
    "DebertaV2",
    {
        "vocab_size": 50,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "max_position_embeddings": 20,
        "relative_attention": True,
        "position_buckets": 6,  # fewer than the distances in a text
        "max_relative_positions": 12,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    {"sequence_output": "last_hidden_state"},
    first_token_id=4,
)

OWN = {"share_att_key": False, "num_hidden_layers": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "convolution": {"conv_kernel_size": 3, "conv_act": "gelu"},
    "own_projections": OWN,
    "content_to_position": {**OWN, "pos_att_type": ["c2p"], "norm_rel_ebd": "none"},
    "position_to_content": {**OWN, "pos_att_type": ["p2c"], "position_buckets": -1},
    "positions_and_segments": {
        "num_hidden_layers": 1,
        "position_biased_input": True,
        "type_vocab_size": 2,
        "max_relative_positions": -1,
        "hidden_act": "gelu_new",
    },
    "not_legacy": {"num_hidden_layers": 1, "legacy": False},
}


def variant(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray]:
    """The configuration of a variant, its tensors, and what its model computes."""
    import torch
    import transformers

    is_masked_lm = name == "not_legacy"
    kind = "DebertaV2ForMaskedLM" if is_masked_lm else "DebertaV2Model"
    options = {**MAKER.config, "hidden_size": 8, "intermediate_size": 12, **VARIANTS[name]}
    config = transformers.DebertaV2Config(**options)
    torch.manual_seed(1)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    tensors = {key: value.numpy() for key, value in model.state_dict().items()}
    written = {**config.to_dict(), "architectures": [kind], **VARIANTS[name]}
    return written, tensors, outputs(model, "logits" if is_masked_lm else "last_hidden_state")


def inputs() -> dict[str, np.ndarray]:
    """Those of every variant; only some have segments."""
    rows: dict[str, np.ndarray] = MAKER.inputs("encoder")
    return {**rows, "segment_ids": (rows["token_ids"] % 2).astype("int32")}


def outputs(model: Any, name: str) -> np.ndarray:
    """What a model of transformers computes."""
    import torch

    given = {key: torch.tensor(value.astype("int64")) for key, value in inputs().items()}
    with torch.no_grad():
        found = model(
            input_ids=given["token_ids"],
            attention_mask=given["padding_mask"],
            token_type_ids=given["segment_ids"],
        )
    return np.asarray(found[name])


def write_variants() -> None:
    """Writes deberta_variants.npz."""
    arrays: dict[str, Any] = {}
    for name in VARIANTS:
        config, tensors, output = variant(name)
        arrays |= {f"{name}/{key}": value for key, value in tensors.items()}
        arrays |= {f"{name}/config": json.dumps(config), f"{name}/output": output}
    np.savez_compressed(Path(__file__).with_name("deberta_variants.npz"), **arrays)


if __name__ == "__main__":
    MAKER.write()
    write_variants()
