"""Makes tiny late-interaction models with the original libraries, and their answers, in one file.

Command: python tests/golden/make_late_interaction.py
    with sentence-transformers 6.2.0, whose MultiVectorEncoder wrote the folders "multi_vector_...",
    and PyLate 1.6.0, which wrote "pylate"; "colbert" is Stanford's layout, written here. The
    answers to all are MultiVectorEncoder's.
"""

import base64
import gzip
import json
import string
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Normalize

WORDS = (
    *("[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *string.ascii_lowercase,
    *("##" + letter for letter in string.ascii_lowercase),
    *(".", ",", "!", "?", ":", "-"),
    *("the", "dog", "dogs", "run", "where", "do", "film", "warm", "query", "good"),
)
QUERIES = ["Where do dogs run?", "a warm film: the good, warm, good film of the dog", "z", ""]
DOCUMENTS = [
    "The dog runs; a good dog!",
    "A warm film.",
    "dogs , dogs . dogs ? run - run é",
    "the good film " * 12,
    "...",
]


def bert(folder: Path, *, special: tuple[str, ...] = ()) -> str:
    """Writes a tiny BERT with random weights far from zero."""
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    torch.manual_seed(0)
    model = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=48,
        )
    )
    lively(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def lively(module: torch.nn.Module) -> torch.nn.Module:
    """The module with larger weights: every input matters."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1)
    return module


def dense(rows: int, columns: int, **options) -> Dense:
    return lively(
        Dense(
            rows,
            columns,
            **{"bias": False, "activation_function": None} | options,
            module_input_name="token_embeddings",
        )
    )


def multi_vector_encoders(scratch: Path) -> dict[str, MultiVectorEncoder]:
    """The kinds of folders that MultiVectorEncoder writes."""

    def encoder(name: str, special: tuple[str, ...] = ("[Q]", "[D]"), **options) -> Transformer:
        (scratch / name).mkdir()
        return Transformer(bert(scratch / name, special=special), **options)

    marks = {"query": "[Q] ", "document": "[D] "}
    norm = {"module_input_name": "token_embeddings"}
    return {
        "multi_vector_unattended": MultiVectorEncoder(
            modules=[
                encoder(
                    "unattended",
                    document_length=20,
                    query_expansion={"strategy": "fixed", "length": 12},
                ),
                dense(16, 8),
                MultiVectorMask(skiplist_words=list(string.punctuation)),
                Normalize(**norm),
            ],
            prompts=marks,
        ),
        "multi_vector_attended": MultiVectorEncoder(
            modules=[
                encoder(
                    "attended",
                    query_length=14,
                    document_length=24,
                    query_expansion={"strategy": "min", "attend": True, "length": 8},
                ),
                dense(16, 12, bias=True, activation_function=torch.nn.Tanh()),
                dense(12, 6),
                MultiVectorMask(),
            ],
            prompts=marks,
        ),
        "multi_vector_text": MultiVectorEncoder(
            modules=[
                encoder("text", special=(), query_length=16),
                dense(16, 8),
                MultiVectorMask(skiplist_words=[".", "film"]),
                Normalize(**norm),
            ],
            # Tokens of the vocabulary that the tokenizer splits, since nothing registers them.
            prompts={"query": "query: ", "document": "[unused1] "},
        ),
    }


def colbert(folder: Path) -> None:
    """Stanford's layout of ColBERT."""
    bert(folder)
    weights = {f"bert.{name}": w for name, w in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = torch.randn(8, 16)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 10,
        "doc_maxlen": 30,
        "attend_to_mask_tokens": False,
        "mask_punctuation": True,
        "dim": 8,
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))


def pylate(folder: Path, scratch: Path) -> None:
    """What PyLate writes for a plain BERT."""
    from pylate.models import ColBERT

    (scratch / "bert").mkdir()
    model = ColBERT(
        modules=[Transformer(bert(scratch / "bert"))],
        embedding_size=8,
        query_length=12,
        document_length=20,
        attend_to_expansion_tokens=True,
        device="cpu",
    )
    lively(model[1])
    model._model_config = {"model_type": "ColBERT"}  # which sentence-transformers 5 had set
    model.save(str(folder))
    file = folder / "1_Dense" / "config.json"
    config = json.loads(file.read_text())  # with version 5, it had no names
    names = ("module_input_name", "module_output_name")
    file.write_text(json.dumps({name: config[name] for name in config if name not in names}))


def answers(model: MultiVectorEncoder) -> dict:
    """The vectors of all texts, and the scores."""
    model.eval()
    queries = model.encode_query(QUERIES, convert_to_numpy=True)
    documents = model.encode_document(DOCUMENTS, convert_to_numpy=True)
    return {
        "queries": [vectors.round(7).tolist() for vectors in queries],
        "documents": [vectors.round(7).tolist() for vectors in documents],
        "scores": model.similarity(queries, documents).tolist(),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        scratch, made = Path(place, "scratch"), Path(place, "made")
        scratch.mkdir()
        made.mkdir()
        for name, model in multi_vector_encoders(scratch).items():
            model.save(str(made / name))
        (made / "colbert").mkdir()
        colbert(made / "colbert")
        pylate(made / "pylate", scratch)
        blobs: dict[str, int] = {}
        packed = {}
        for folder in sorted(made.iterdir()):
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            packed[folder.name] = {
                "files": {
                    str(path.relative_to(folder)): blobs.setdefault(
                        base64.b64encode(path.read_bytes()).decode(), len(blobs)
                    )
                    for path in files
                    if path.name not in ("README.md", ".gitattributes")
                },
                **answers(MultiVectorEncoder(str(folder), device="cpu")),
            }
    text = json.dumps(
        {"blobs": list(blobs), "texts": [QUERIES, DOCUMENTS], "folders": packed},
        separators=(",", ":"),
    )
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    (file / "late_interaction.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
