"""Makes vit_random.safetensors and vit_random.npz with Hugging Face transformers (`reference`).

    python tests/golden/make_vit.py

vit_random.safetensors: a random ViTForImageClassification of 2 layers and its ViTModel's pooler, as
files on the hub name them. vit_random.npz: what both make of random images, for two forms of gelu;
and ViTModel at another resolution with `interpolate_pos_encoding`.
"""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 12,
    "patch_size": 4,
    "num_channels": 3,
    # Large weights: each part of the model moves the outputs well above the tolerance.
    "initializer_range": 0.3,
}
NUM_CLASSES = 5
# Not a multiple of the patch size, and not square.
OTHER_SIZE = (22, 17)
# As the files call the modules that transformers 5 calls otherwise in memory.
IN_FILES = {
    "vit.layers.": "vit.encoder.layer.",
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}


def random_images(height: int = 12, width: int = 12) -> np.ndarray:
    """Three images, pixel values 0 to 255, float32."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (3, height, width, 3)).astype("float32")


def random_models(activation: str):
    """ViTModel with its pooler and ViTForImageClassification, with the same weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(**CONFIG, hidden_act=activation, num_labels=NUM_CLASSES)
    encoder = transformers.ViTModel(config).eval()
    classifier = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        # norms and biases too: zeros and ones hide mistakes
        for parameter in [*encoder.parameters(), *classifier.classifier.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    report = classifier.vit.load_state_dict(encoder.state_dict(), strict=False)
    assert not report.missing_keys
    assert all(name.startswith("pooler.") for name in report.unexpected_keys)
    return encoder, classifier


def outputs(activation: str) -> dict[str, np.ndarray]:
    """What transformers computes for `random_images`."""
    import torch

    def pixel_values(images: np.ndarray) -> torch.Tensor:
        return torch.tensor((images / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)

    encoder, classifier = random_models(activation)
    with torch.no_grad():
        encoded = encoder(pixel_values(random_images()))
        resized = encoder(pixel_values(random_images(*OTHER_SIZE)), interpolate_pos_encoding=True)
        logits = classifier(pixel_values(random_images())).logits
    return {
        "sequence_output": encoded.last_hidden_state.numpy(),
        "pooled_output": encoded.pooler_output.numpy(),
        "logits": logits.numpy(),
        "resized/sequence_output": resized.last_hidden_state.numpy(),
    }


def tensors() -> dict[str, np.ndarray]:
    """All weights by the names of files."""
    encoder, classifier = random_models("gelu")
    state = {f"vit.{name}": tensor for name, tensor in encoder.state_dict().items()}
    state |= {k: v for k, v in classifier.state_dict().items() if k.startswith("classifier.")}
    found = {}
    for name, tensor in state.items():
        for in_memory, in_files in IN_FILES.items():
            name = name.replace(in_memory, in_files)
        found[name] = tensor.numpy()
    return found


def main() -> None:
    """Writes the files."""
    from safetensors.numpy import save_file

    save_file(tensors(), FOLDER / "vit_random.safetensors", {"format": "pt"})
    arrays = {
        f"{activation}/{key}": value
        for activation in ("gelu", "gelu_new")
        for key, value in outputs(activation).items()
    }
    np.savez_compressed(FOLDER / "vit_random.npz", **arrays)


if __name__ == "__main__":
    main()
