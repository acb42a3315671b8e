"""GGUF files of BERT, as llama.cpp's embedders are."""

from pathlib import Path
from typing import Any

from keras_transformers.convert.bert import FAMILY
from keras_transformers.convert.containers.gguf import Gguf, find_gguf
from keras_transformers.convert.formats.encoder_shapes import encoder_arguments
from keras_transformers.convert.formats.weights import Format, FoundWeights

__all__: list[str] = []

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
_CONTROL = 3  # the type of special tokens
_SPACE = "▁"  # before a token that starts a word; the others had "##"


def open_gguf(path: Path) -> FoundWeights:
    """Opens a BERT that llama.cpp converted, at any precision.

    Quantized weights become float32. The file lacks the encoder's pooler, and does not say how GELU
    is computed: it is exact here, as in the models of Hugging Face. If the vocabulary has words
    with capitals, texts keep their case.

    Args:
        path: the file, or a folder with no other.

    Raises:
        ValueError: the file is damaged, or of another family or tokenizer.
    """
    file = find_gguf(path)
    assert file is not None
    opened = Gguf.open(file)
    arrays = opened.arrays()
    kind = opened.fields.get("tokenizer.ggml.model")
    if kind != "bert":
        raise ValueError(
            f"{file}: tokenizer {kind!r:.100}; only 'bert', WordPiece, is read: get the "
            "model.safetensors that it was made of"
        )
    heads = _number(opened, "bert.attention.head_count", int, None)
    arguments = encoder_arguments(arrays, "bert", num_heads=heads, missing="config.json") | {
        "activation": "gelu",
        "norm_epsilon": _number(opened, "bert.attention.layer_norm_epsilon", float, 1e-12),
    }
    pooling = _number(opened, "bert.pooling_type", int, 1)
    if pooling not in _POOLINGS:
        raise ValueError(
            f"{file}: bert.pooling_type={pooling}; known are 1 (mean), 2 (cls), 3 (last token)"
        )

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        # Imported here because it needs TensorFlow, which the weights do not.
        from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

        words = _words(opened)
        lowers = lowercase
        if lowers is None:
            lowers = not any(word != word.lower() for word in words if not word.startswith("["))
        try:
            return (WordPieceTokenizer(words, lowercase=lowers),)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error

    return FoundWeights(
        source=file,
        base="embedding",
        trained=("embedding",),
        build=lambda **changes: FAMILY.build(**(arguments | changes)),
        fill=lambda model, ignore: FAMILY.fill(model, arrays, ignore=ignore),
        tokenizers=tokenizers,
        parts=FAMILY.parts,
        has_pooler=False,
        options={"pooling": _POOLINGS[pooling]},
        masked_lm={"activation": "gelu", "norm_epsilon": arguments["norm_epsilon"]},
    )


def _number(opened: Gguf, name: str, kind: type, default: Any) -> Any:
    """Returns a number of the metadata; ValueError if it is something else."""
    value = opened.fields.get(name, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{opened.file}: {name}={value!r:.100}; expected a number, 0 or more")
    return kind(value)


def _words(opened: Gguf) -> list[str]:
    """Returns the vocabulary as WordPiece has it."""
    words = opened.fields.get("tokenizer.ggml.tokens")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{opened.file}: tokenizer.ggml.tokens is no list of tokens")
    kinds = opened.fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(words):
        kinds = [0] * len(words)
    return [_word(word, kind) for word, kind in zip(words, kinds, strict=True)]


def _word(word: str, kind: Any) -> str:
    if kind == _CONTROL or (word.startswith("[") and word.endswith("]")):
        return word
    return word[1:] if word.startswith(_SPACE) else f"##{word}"


def _recognises(path: Path) -> bool:
    folder = path if path.is_dir() else path.parent
    alone = path.is_file() or not (folder / "config.json").is_file()
    return alone and find_gguf(path) is not None


FORMAT = Format("GGUF of a BERT", _recognises, open_gguf)
