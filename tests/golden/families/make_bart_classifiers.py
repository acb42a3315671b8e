"""Makes bart_classifiers.npz with Hugging Face transformers (the `reference` extra).

For each model of bart.npz and mbart.npz, it holds a classifier's head with random weights, and its
logits: keys "<family>/<name>/tensors/<tensor>" and "<family>/<name>/logits".

python tests/golden/families/make_bart_classifiers.py
"""

import runpy
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
CASES = (("bart", "base"), ("bart", "scaled"), ("mbart", "base"))
LABELS = ("contradiction", "neutral", "entailment")
FIELDS = {
    "id2label": dict(enumerate(LABELS)),
    "label2id": {name: number for number, name in enumerate(LABELS)},
}


def maker(family: str) -> Any:
    """The `EncoderDecoderMaker` of the family's golden file."""
    return runpy.run_path(str(FOLDER / f"make_{family}.py"))["MAKER"]


def inputs(family: str, name: str) -> dict[str, np.ndarray]:
    """Four pairs of texts of different lengths, with the family's special tokens."""
    config = maker(family).configs[name]
    random = np.random.default_rng(0)
    rows = []
    for lengths in ((3, 5), (2, 1), (6, 2), (1, 2)):
        first, second = (random.integers(4, 36, length).tolist() for length in lengths)
        if family == "mbart":
            rows.append([*first, *second, 2, 36 + len(rows) % 2])
        else:
            rows.append([0, *first, 2, 2, *second, 2])
    width = max(map(len, rows))
    pad = config["pad_token_id"]
    token_ids = np.array([row + [pad] * (width - len(row)) for row in rows], "int32")
    return {"token_ids": token_ids, "padding_mask": token_ids != pad}


def model(family: str, name: str) -> Any:
    """The classifier of transformers: the golden file's model with a random head."""
    import torch
    import transformers

    body = maker(family)
    config = getattr(transformers, f"{body.classes}Config")(**body.configs[name] | FIELDS)
    found = getattr(transformers, f"{body.classes}ForSequenceClassification")(config).eval()
    found.model.load_state_dict(body.model(name).model.state_dict())
    with torch.no_grad():
        for key, parameter in sorted(found.classification_head.named_parameters()):
            torch.manual_seed(sum(map(ord, key)))
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return found


def outputs(family: str, name: str) -> dict[str, np.ndarray]:
    """The head's tensors and the logits."""
    import torch

    found, given = model(family, name), inputs(family, name)
    ids, mask = (torch.tensor(given[key]).long() for key in ("token_ids", "padding_mask"))
    with torch.no_grad():
        logits = found(ids, attention_mask=mask).logits.numpy()
    state = found.state_dict()
    head = {f"tensors/{key}": state[key].numpy() for key in state if key.startswith("class")}
    return {**head, "logits": logits}


def main() -> None:
    """Writes the golden file."""
    arrays = {
        f"{family}/{name}/{key}": array
        for family, name in CASES
        for key, array in outputs(family, name).items()
    }
    file = FOLDER / "bart_classifiers.npz"
    np.savez_compressed(file, **arrays)
    print(f"{file}: {file.stat().st_size} bytes, {len(arrays)} arrays")


if __name__ == "__main__":
    main()
