"""Makes distilbert.npz with Hugging Face transformers (the `reference` extra); see family_maker.py.

python tests/golden/families/make_distilbert.py
"""

import runpy
from pathlib import Path

FamilyMaker = runpy.run_path(str(Path(__file__).with_name("family_maker.py")))["FamilyMaker"]
MAKER = FamilyMaker(
    "distilbert",
    "DistilBert",
    {
        "vocab_size": 50,
        "n_layers": 2,
        "n_heads": 2,
        "dim": 16,
        "hidden_dim": 24,
        "max_position_embeddings": 20,
    },
    {"sequence_output": "last_hidden_state"},
)

if __name__ == "__main__":
    MAKER.write()
