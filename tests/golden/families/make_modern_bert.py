"""Makes modern_bert.npz with transformers (the `reference` extra); see family_maker.py.

python tests/golden/families/make_modern_bert.py
"""

import runpy
from pathlib import Path

FamilyMaker = runpy.run_path(str(Path(__file__).with_name("family_maker.py")))["FamilyMaker"]
MAKER = FamilyMaker(
    "modern_bert",
    "ModernBert",
    {
        "vocab_size": 50,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
        "local_attention": 4,
        "pad_token_id": 1,
        "attn_implementation": "eager",
    },
    {"sequence_output": "last_hidden_state"},
    first_token_id=4,
    prefix="model",
)

if __name__ == "__main__":
    MAKER.write()
