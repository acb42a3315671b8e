"""Packs folders that sentence-transformers' SparseEncoder wrote, and its vectors, into a file.

Command: python tests/golden/make_sparse_encoder.py, with sentence-transformers 6.2.0
"""

import base64
import gzip
import json
import tempfile
from pathlib import Path

TEXTS = ["a warm film.", "two dogs play in the snow", "where is ada lovelace born? a a", ""]
WORDS = (
    *("a", "warm", "film", ".", "two", "dogs", "play", "in", "the", "snow", "where", "is", "ada"),
    *("love", "##lace", "born", "?", "cold", "movie"),
)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
FILE = Path(__file__).parent / "left_behind" / "sparse_encoder.json.gz"


def make(base: Path) -> dict[str, dict[str, list[list[float]]]]:
    """Saves the folders; returns name -> side -> the vectors of `TEXTS`."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        Router,
        SparseStaticEmbedding,
        SpladePooling,
        Transformer,
    )
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    torch.manual_seed(0)
    bert = base / "bert"
    bert.mkdir()
    (bert / "vocab.txt").write_text("\n".join(VOCABULARY))
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    BertForMaskedLM(config).save_pretrained(bert)
    BertTokenizerFast(str(bert / "vocab.txt"), model_max_length=32).save_pretrained(bert)

    def encoder() -> Transformer:
        return Transformer(str(bert), transformer_task="fill-mask")

    table = SparseStaticEmbedding(
        encoder().tokenizer, weight=torch.rand(len(VOCABULARY)) * 5, frozen=True
    )
    routes = Router.for_query_document([table], [encoder(), SpladePooling()])
    models = {
        "max": SparseEncoder(modules=[encoder(), SpladePooling()]),
        "sum": SparseEncoder(
            modules=[encoder(), SpladePooling("sum", "log1p_relu")], max_active_dims=4
        ),
        "router": SparseEncoder(modules=[routes]),
    }
    answers = {}
    for name, model in models.items():
        model.save(str(base / name))
        sides = {"document": model.encode_document, "query": model.encode_query}
        answers[name] = {
            side: encode(TEXTS, convert_to_sparse_tensor=False).tolist()
            for side, encode in sides.items()
        }
    return answers


def main() -> None:
    """Writes `FILE`."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        blobs: dict[str, int] = {}  # most files are in several folders
        packed = {
            name: {
                "files": {
                    str(path.relative_to(base / name)): blobs.setdefault(
                        base64.b64encode(path.read_bytes()).decode(), len(blobs)
                    )
                    for path in sorted((base / name).rglob("*"))
                    if path.is_file() and path.name != "README.md"
                },
                "answers": answers,
            }
            for name, answers in make(base).items()
        }
    text = json.dumps({"blobs": list(blobs), "folders": packed})
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
