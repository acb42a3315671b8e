"""Makes llama.npz with Hugging Face transformers (the `reference` extra).

    python tests/golden/families/make_llama.py

It holds tiny decoders with random weights: "<form>/config" as JSON, "<form>/tensor/<name>", and the
"<form>/logits" that transformers computes for `token_ids`.
"""

import json
from pathlib import Path

import numpy as np

SIZES = {
    "vocab_size": 24,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
LLAMA3 = {
    "rope_theta": 5e5,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
FORMS = {
    "llama": {"rope_parameters": LLAMA3, "tie_word_embeddings": True},
    "mistral": {"sliding_window": 3},
    "qwen2": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "qwen3": {"head_dim": 8},
    "smollm3": {"no_rope_layer_interval": 2, "tie_word_embeddings": True, "pad_token_id": 0},
    "phi3": {"sliding_window": 3, "pad_token_id": 0},
    "olmo2": {},
    "gemma3_text": {
        "sliding_window": 3,
        "sliding_window_pattern": 2,
        "head_dim": 8,
        "query_pre_attn_scalar": 12,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}


def main() -> None:
    """Writes the file."""
    import torch
    import transformers

    torch.manual_seed(0)
    ids = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (2, 9)).astype("int32")
    found = {"token_ids": ids}
    for kind, fields in FORMS.items():
        config = transformers.AutoConfig.for_model(kind, **SIZES, **fields)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        with torch.no_grad():
            logits = model.eval()(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        text = json.dumps({**SIZES, **fields, "model_type": kind})
        found |= {f"{kind}/config": np.array(text), f"{kind}/logits": logits}
        for name, parameter in model.named_parameters():
            found[f"{kind}/tensor/{name}"] = parameter.detach().numpy()
    np.savez_compressed(Path(__file__).with_name("llama.npz"), **found)


if __name__ == "__main__":
    main()
