"""Makes camembert.npz with Hugging Face transformers (the `reference` extra).

See family_maker.py: python tests/golden/families/make_camembert.py
"""

import runpy
from pathlib import Path

FamilyMaker = runpy.run_path(str(Path(__file__).with_name("family_maker.py")))["FamilyMaker"]
MAKER = FamilyMaker(
    "camembert",
    "Camembert",
    {
        "vocab_size": 60,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 16,
        "intermediate_size": 24,
        "max_position_embeddings": 22,  # two of them are not used
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"},
    first_token_id=4,
    pad_token_id=1,
    prefix="roberta",
)

if __name__ == "__main__":
    MAKER.write()
