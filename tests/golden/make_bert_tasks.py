"""Makes bert_tasks.npz with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_bert_tasks.py

What BertForSequenceClassification (of classes, and of one score), BertForTokenClassification,
BertForQuestionAnswering and BertForMultipleChoice compute with the random BERT of make_bert.py and
random heads, which are kept with the outputs: keys "<task>/head/<tensor>" and "<task>/<output>".
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
FILE = FOLDER / "bert_tasks.npz"
# Task -> class of transformers, and options of its configuration.
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classifier": ("BertForSequenceClassification", {"num_labels": 3}),
    "regressor": ("BertForSequenceClassification", {"num_labels": 1}),
    "tagger": ("BertForTokenClassification", {"num_labels": 5}),
    "span_extractor": ("BertForQuestionAnswering", {}),
    "multiple_choice": ("BertForMultipleChoice", {}),
}


def inputs(task: str) -> dict[str, np.ndarray]:
    """Three rows with two segments and padding; for choices two rows of three, not all alike."""
    rows = runpy.run_path(str(FOLDER / "make_bert.py"))["random_inputs"]()
    del rows["mask_positions"]
    if task != "multiple_choice":
        return rows
    turned = {key: value[[1, 2, 0]] for key, value in rows.items()}
    turned["token_ids"] = (turned["token_ids"] * 7 + 3) % 50
    return {key: np.stack([rows[key], turned[key]]) for key in rows}


def model(task: str):
    """The model of transformers: the encoder of make_bert.py, a random head."""
    import torch
    import transformers

    both = runpy.run_path(str(FOLDER / "make_bert.py"))["random_model"]("gelu")
    kind, options = TASKS[task]
    config = transformers.BertConfig(**both.config.to_dict() | options)
    found = getattr(transformers, kind)(config).eval()
    kept = {k: v for k, v in both.bert.state_dict().items() if k in found.bert.state_dict()}
    found.bert.load_state_dict(kept)  # strict: all of it
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            if not name.startswith("bert."):
                parameter.copy_(torch.randn_like(parameter))
    return found


def outputs(task: str) -> dict[str, np.ndarray]:
    """What transformers computes, by the names of our outputs, and "head/<tensor>"."""
    import torch

    given = inputs(task)
    # In float64: in float32 PyTorch's results depend on the processor, by more than 1e-5.
    reference = model(task).double()
    with torch.no_grad():
        results = reference(
            input_ids=torch.tensor(given["token_ids"]).long(),
            token_type_ids=torch.tensor(given["segment_ids"]).long(),
            attention_mask=torch.tensor(given["padding_mask"]).long(),
        )
    arrays = {key: value.float().numpy() for key, value in results.items()}
    if task == "regressor":
        arrays = {"score": arrays["logits"][:, 0]}
    head = {k: v for k, v in reference.state_dict().items() if not k.startswith("bert.")}
    return arrays | {f"head/{name}": tensor.float().numpy() for name, tensor in head.items()}


def main() -> None:
    """Writes the file."""
    arrays = {f"{task}/{key}": value for task in TASKS for key, value in outputs(task).items()}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
