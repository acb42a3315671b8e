"""Makes activations.json with Hugging Face transformers (the `reference` extra).

What each function of its ACT2FN without weights of its own gives for some numbers, in float32.

python tests/golden/make_activations.py
"""

import json
from pathlib import Path

FILE = Path(__file__).with_name("activations.json")
INPUTS = [-20.0, -10.5, -4.0, -2.5, -1.0, -0.3, 0.0, 0.1, 0.7, 1.0, 2.5, 4.0, 6.5, 10.5, 20.0]
WITH_WEIGHTS = ("prelu", "xielu")


def outputs() -> dict[str, list[float]]:
    """Returns the function's name in transformers -> its values at INPUTS."""
    import torch
    from transformers.activations import ACT2FN

    inputs = torch.tensor(INPUTS)
    return {name: ACT2FN[name](inputs).tolist() for name in ACT2FN if name not in WITH_WEIGHTS}


if __name__ == "__main__":
    FILE.write_text(json.dumps({"inputs": INPUTS, "outputs": outputs()}) + "\n")
