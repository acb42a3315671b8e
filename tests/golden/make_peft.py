"""Makes peft.json and peft.npz with the library PEFT: adapters, and the models that they make.

python tests/golden/make_peft.py

needs torch, transformers and peft (the `reference` extra); the files come from PEFT 0.19.1,
transformers 5.24.0 and torch 2.13.0.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

BERT = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
GPT2 = {"vocab_size": 20, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
# Name -> the class in transformers, its configuration, and the options of peft.LoraConfig.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "patterns": (
        "BertForSequenceClassification",
        BERT,
        {
            "task_type": "SEQ_CLS",
            "target_modules": ["query", "key", "value"],
            "r": 2,
            "lora_alpha": 4,
            "rank_pattern": {r"layer\.[0-1]\..*query": 4, "value": 3},
            "alpha_pattern": {r"layer\.[0-1]\..*query": 64, "(query|value)": 16, "query": 1},
        },
    ),
    "rank-stabilized": (
        "BertForSequenceClassification",
        BERT,
        {
            "task_type": "SEQ_CLS",
            "target_modules": r".*layer\.[12]\..*(query|key)",
            "r": 2,
            "lora_alpha": 6,
            "use_rslora": True,
            "rank_pattern": {r"^bert.encoder.layer.2.attention.self.query": 4},
            "alpha_pattern": {"self.key": 3, "key": 100, "layer": 100},
        },
    ),
    "chosen layers": (
        "BertForSequenceClassification",
        BERT,
        {
            "task_type": "SEQ_CLS",
            "target_modules": ["query", "dense"],
            "layers_to_transform": [1],
            "exclude_modules": r".*attention\.output\.dense",
            "modules_to_save": ["classifier"],
            "alpha_pattern": {"output.dense": 2, "dense": 5},
        },
    ),
    "joined matrices": (
        "GPT2LMHeadModel",
        GPT2,
        {
            "task_type": "CAUSAL_LM",
            "target_modules": ["c_attn", "c_proj"],
            "fan_in_fan_out": True,
            "r": 2,
            "rank_pattern": {"attn.c_proj": 3},
            "alpha_pattern": {r"transformer\.h\.1\..+": 32, r"c_(attn|proj)": 2},
        },
    ),
}


def make(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns an adapter's configuration, and the arrays: the model's, the adapter's, the sums."""
    import peft
    import torch
    import transformers
    from safetensors.numpy import load_file

    kind, config, options = CASES[name]
    torch.manual_seed(0)
    config_class = getattr(transformers, kind).config_class

    def model() -> Any:
        return getattr(transformers, kind)(config_class(**config)).eval()

    plain = model()
    tensors = {key: tensor.clone() for key, tensor in plain.state_dict().items()}
    adapted = peft.get_peft_model(plain, peft.LoraConfig(**options))
    for key, parameter in adapted.named_parameters():
        if "lora_" in key or "modules_to_save" in key:
            torch.nn.init.normal_(parameter, std=0.3)
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        written = json.loads((Path(folder) / "adapter_config.json").read_text())
        adapter = load_file(Path(folder) / "adapter_model.safetensors")
        base = model()
        base.load_state_dict(tensors)
        merged = peft.PeftModel.from_pretrained(base, folder).merge_and_unload()
    if isinstance(written["target_modules"], list):  # PEFT writes a set
        written["target_modules"].sort()
    result = merged.state_dict()
    changed = [key for key in result if not torch.equal(result[key], tensors[key])]
    return written, {
        **{f"{kind}/{key}": tensor.numpy() for key, tensor in tensors.items()},
        **{f"{name}/adapter/{key}": array for key, array in adapter.items()},
        **{f"{name}/merged/{key}": result[key].numpy() for key in changed},
    }


def main() -> None:
    """Writes both files."""
    configs, arrays = {}, {}
    for name in CASES:
        configs[name], found = make(name)
        arrays |= found
    here = Path(__file__).parent
    (here / "peft.json").write_text(json.dumps(configs, indent=1) + "\n")
    np.savez_compressed(here / "peft.npz", **arrays)


if __name__ == "__main__":
    main()
