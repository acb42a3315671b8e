"""Makes the GPT golden files with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_gpt.py

gpt_random.safetensors, gpt2_random.safetensors: a random OpenAIGPTLMHeadModel and GPT2LMHeadModel
of 2 layers, as transformers saves them.
gpt_random.npz: their logits and losses on random ids, and how GPT-2 continues, greedily.
"""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
CONFIG = {
    "vocab_size": 50,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 20,
    # Large weights: each part of the model moves the outputs well above the tolerance.
    "initializer_range": 0.3,
}
KINDS = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


def token_ids() -> np.ndarray:
    """Three rows."""
    return np.random.default_rng(0).integers(0, 50, (3, 11)).astype("int32")


def random_model(kind: str):
    """The random model of that kind."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{KINDS[kind]}Config")(**CONFIG)
    model = getattr(transformers, f"{KINDS[kind]}LMHeadModel")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too: zeros and ones hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def outputs(kind: str) -> dict[str, np.ndarray]:
    """What transformers computes for `token_ids`."""
    import torch

    model = random_model(kind)
    ids = torch.tensor(token_ids()).long()
    with torch.no_grad():
        found = model(input_ids=ids, labels=ids)
        arrays = {"logits": found.logits.numpy(), "loss": found.loss.numpy()}
        if kind == "gpt2":
            generated = model.generate(
                ids[:, :4],
                attention_mask=torch.ones_like(ids[:, :4]),
                max_new_tokens=8,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
            arrays["greedy"] = generated[:, 4:].numpy().astype("int32")
    return arrays


def file_of(kind: str) -> Path:
    """Where the random model of that kind is kept."""
    return FOLDER / f"{kind.removeprefix('openai-')}_random.safetensors"


def main() -> None:
    """Writes the three files."""
    from safetensors.torch import save_file

    arrays = {}
    for kind in KINDS:
        state = random_model(kind).state_dict()
        kept = {k: v.clone() for k, v in state.items() if k != "lm_head.weight"}
        save_file(kept, file_of(kind), {"format": "pt"})
        arrays |= {f"{kind}/{key}": value for key, value in outputs(kind).items()}
    np.savez_compressed(FOLDER / "gpt_random.npz", **arrays)


if __name__ == "__main__":
    main()
