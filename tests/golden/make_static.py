"""Makes static.json: vectors of tiny folders by model2vec and sentence-transformers.

    python tests/golden/make_static.py

`FOLDERS` writes the folders; tests write them again, and compare.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

FILE = Path(__file__).with_name("static.json")
TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "##s", "good", "##ness", "bad"),
    *("not", "a", "long", "winter", "!", ",", "über", "uber", "2", "##0", "films"),
]
TEXTS = [
    "The good film",
    "Films, films!",
    "goodness",
    "Not a bad zebra film",
    "zebra zebra",
    "",
    " \t ",
    "Über uber ÜBER",
    "a long long long winter, a long zebra winter, a film",
    "zebra a zebra a zebra a zebra a",
    "the [CLS] film",
    "200 winters",
    "zero\x00width\u200bfilm",
]
LENGTH = 6  # so that Model2Vec cuts some of the texts
DIM = 5


def tokenizer_json() -> dict[str, Any]:
    """Returns an uncased BERT's tokenizer.json."""
    special = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, token in enumerate(TOKENS[:5])
    ]  # fmt: skip
    around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
              {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": around,
            "pair": [*around, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                name: {"id": name, "ids": [TOKENS.index(name)], "tokens": [name]}
                for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(TOKENS)},
        },
    }


def table(rows: int = len(TOKENS)) -> np.ndarray:
    """Returns vectors, (rows, DIM)."""
    return np.random.default_rng(7).normal(size=(rows, DIM)).astype("float32")


def write_model2vec(
    folder: Path,
    *,
    dtype: str = "float32",
    weighted: bool = False,
    mapped: bool = False,
    modules: bool = False,
    **config: Any,
) -> None:
    """Writes a folder as model2vec does."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = 9 if mapped else len(TOKENS)
    vectors = table(rows)
    if dtype == "int8":
        vectors = np.round(vectors * 40)
    tensors = {"embeddings": vectors.astype(dtype)}
    if weighted:
        tensors["weights"] = np.linspace(0.1, 2.0, len(TOKENS))
    if mapped:
        tensors["mapping"] = np.arange(len(TOKENS), dtype="int64") * 5 % rows
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()), "utf-8")
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "max_length": LENGTH,
              **config}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    if modules:
        _write_modules(folder, ".", normalize=bool(config.get("normalize")))


def write_static_embedding(
    folder: Path, *, place: str = "0_StaticEmbedding", normalize: bool = True
) -> None:
    """Writes a folder as sentence-transformers does, for a StaticEmbedding."""
    (folder / place).mkdir(parents=True, exist_ok=True)
    save_file({"embedding.weight": table()}, folder / place / "model.safetensors")
    (folder / place / "tokenizer.json").write_text(json.dumps(tokenizer_json()), "utf-8")
    _write_modules(folder, place, normalize=normalize)


def _write_modules(folder: Path, place: str, *, normalize: bool) -> None:
    modules = [("sentence_transformers.models.StaticEmbedding", place)]
    modules += [("sentence_transformers.models.Normalize", "1_Normalize")] * normalize
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries), "utf-8")
    (folder / "config_sentence_transformers.json").write_text("{}", "utf-8")


# Name -> (the library that reads it, what writes it).
FOLDERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "plain": ("model2vec", lambda f: write_model2vec(f, normalize=True)),
    "not normalized": ("model2vec", lambda f: write_model2vec(f)),
    "whole texts": ("model2vec", lambda f: write_model2vec(f, max_length=None, normalize=True)),
    "float16": ("model2vec", lambda f: write_model2vec(f, dtype="float16", modules=True)),
    "int8": ("model2vec", lambda f: write_model2vec(f, dtype="int8", normalize=True)),
    "weights": ("model2vec", lambda f: write_model2vec(f, weighted=True, normalize=True)),
    "mapping": ("model2vec", lambda f: write_model2vec(f, mapped=True, weighted=True)),
    "module": ("sentence-transformers", write_static_embedding),
    "module in the root": (
        "sentence-transformers",
        lambda f: write_static_embedding(f, place=".", normalize=False),
    ),
}


def vectors_of(library: str, folder: Path, texts: list[str]) -> np.ndarray:
    """Returns the library's vectors of texts, float32."""
    if library == "model2vec":
        from model2vec import StaticModel

        vectors = StaticModel.from_pretrained(folder).encode(texts)
    else:
        from sentence_transformers import SentenceTransformer

        vectors = SentenceTransformer(str(folder), device="cpu").encode(texts)
    return np.asarray(vectors, "float32")


def main() -> None:
    parts = []
    for name, (library, write) in FOLDERS.items():
        with tempfile.TemporaryDirectory() as scratch:
            write(Path(scratch))
            rows = vectors_of(library, Path(scratch), TEXTS)
        lines = [json.dumps([float(f"{x:.7g}") for x in row]) for row in rows]
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(lines) + "\n]")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
