"""Makes albert.npz with Hugging Face transformers (the `reference` extra); see family_maker.py.

python tests/golden/families/make_albert.py
"""

import runpy
from pathlib import Path

FamilyMaker = runpy.run_path(str(Path(__file__).with_name("family_maker.py")))["FamilyMaker"]
MAKER = FamilyMaker(
    "albert",
    "Albert",
    {
        "vocab_size": 50,
        "embedding_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "max_position_embeddings": 20,
    },
    {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"},
    num_segments=2,
)

if __name__ == "__main__":
    MAKER.write()
