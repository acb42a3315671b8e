"""Makes roberta.npz with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_roberta.py

The weights of a tiny random RoBERTa, the random heads of every task, and what the models of
transformers compute with them: keys "encoder/<tensor>", "<task>/head/<tensor>", "<task>/<output>".
"""

from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "roberta.npz"
PREFIX = "roberta"
CONFIG: dict[str, Any] = {
    "vocab_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 22,  # two of them are not used
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
# Task -> class of transformers, options of its configuration, its outputs by our names.
TASKS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "encoder": (
        "RobertaModel",
        {},
        {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"},
    ),
    "masked_lm": ("RobertaForMaskedLM", {}, {"mask_logits": "logits"}),
    "classifier": (
        "RobertaForSequenceClassification",
        {"num_labels": 3},
        {"logits": "logits"},
    ),
    "regressor": ("RobertaForSequenceClassification", {"num_labels": 1}, {"score": "logits"}),
    "tagger": ("RobertaForTokenClassification", {"num_labels": 5}, {"logits": "logits"}),
    "span_extractor": (
        "RobertaForQuestionAnswering",
        {},
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
    "multiple_choice": ("RobertaForMultipleChoice", {}, {"logits": "logits"}),
}


def inputs(task: str) -> dict[str, np.ndarray]:
    """Three rows of different lengths; for choices two rows of three."""
    random = np.random.default_rng(0)
    lengths = np.array([4, 9, 6])
    rows = {
        "token_ids": random.integers(4, CONFIG["vocab_size"], (3, 9)).astype("int32"),
        "padding_mask": np.arange(9)[None] < lengths[:, None],
    }
    if task != "multiple_choice":
        return rows
    turned = {key: value[[1, 2, 0]] for key, value in rows.items()}
    return {key: np.stack([rows[key], turned[key]]) for key in rows}


def model(task: str):
    """The model of transformers: a random encoder, the same for all tasks, and a random head."""
    import torch
    import transformers

    kind, options, _ = TASKS[task]
    found = getattr(transformers, kind)(transformers.RobertaConfig(**CONFIG, **options)).eval()
    with torch.no_grad():
        for name, parameter in sorted(found.named_parameters()):
            own = name.removeprefix(f"{PREFIX}.")
            # By its name: not by its place, which differs from task to task.
            torch.manual_seed(sum(map(ord, own if name != own or task == "encoder" else name)))
            is_head = own == name and task != "encoder"
            parameter.copy_((1.5 if is_head else 0.3) * torch.randn_like(parameter))
        if hasattr(found, "tie_weights"):
            found.tie_weights()
    return found


def outputs(task: str) -> dict[str, np.ndarray]:
    """What transformers computes, by the names of our outputs."""
    import torch

    given = inputs(task)
    with torch.no_grad():
        found = model(task)(
            input_ids=torch.tensor(given["token_ids"].astype("int64")),
            attention_mask=torch.tensor(given["padding_mask"]),
        )
    return {ours: np.asarray(found[theirs]) for ours, theirs in TASKS[task][2].items()}


def tensors(task: str) -> dict[str, np.ndarray]:
    """What `save_pretrained` writes: every tensor once, tied ones too."""
    found = model(task)
    return {name: tensor.detach().numpy() for name, tensor in found.state_dict().items()}


if __name__ == "__main__":
    arrays: dict[str, np.ndarray] = {
        f"encoder/{name}": array for name, array in tensors("encoder").items()
    }
    for task in TASKS:
        arrays |= {f"{task}/{name}": array for name, array in outputs(task).items()}
        arrays |= {
            f"{task}/head/{name}": array
            for name, array in tensors(task).items()
            if task != "encoder" and not name.startswith(f"{PREFIX}.")
        }
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {FILE.stat().st_size} bytes, {len(arrays)} arrays")
