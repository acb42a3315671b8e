"""Opens GGUF files, llama.cpp's, of BERT, such as its embedders."""

from typing import Any

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.gguf import Gguf, GgufMap
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.families.bert.shapes import encoder_arguments

__all__: list[str] = []

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
_CONTROL = 3  # the type of special tokens
_SPACE = "▁"  # before a token that starts a word; others had "##"


def _open(opened: Gguf, arrays: Arrays, family: Family) -> FoundWeights:
    """Opens a BERT.

    The file lacks the encoder's pooler, and does not say which GELU to use: it is the exact one
    here, as in Hugging Face's models. If the vocabulary has words with capitals, texts keep their
    case.
    """
    file = opened.file
    kind = opened.fields.get("tokenizer.ggml.model")
    if kind != "bert":
        raise ValueError(
            f"{file}: tokenizer {kind!r:.100}; only 'bert' (WordPiece) is supported: get "
            "the model.safetensors that it was made from"
        )
    heads = opened.number("bert.attention.head_count", int)
    arguments = encoder_arguments(arrays, "bert", num_heads=heads, missing="config.json") | {
        "activation": "gelu",
        "norm_epsilon": opened.number("bert.attention.layer_norm_epsilon", float, 1e-12),
    }
    pooling = opened.number("bert.pooling_type", int, 1)
    if pooling not in _POOLINGS:
        raise ValueError(
            f"{file}: bert.pooling_type={pooling}; expected 1 (mean), 2 (cls) or 3 (last token)"
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
        build=lambda **changes: family.build(**(arguments | changes)),
        fill=lambda model, ignore: family.fill(model, arrays, ignore=ignore),
        tokenizers=tokenizers,
        parts=family.parts,
        has_pooler=False,
        options={"pooling": _POOLINGS[pooling]},
        masked_lm={"activation": "gelu", "norm_epsilon": arguments["norm_epsilon"]},
    )


def _words(opened: Gguf) -> list[str]:
    """Returns the vocabulary in WordPiece's form."""
    words = opened.fields.get("tokenizer.ggml.tokens")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{opened.file}: tokenizer.ggml.tokens is not a list of tokens")
    kinds = opened.fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(words):
        kinds = [0] * len(words)
    return [_word(word, kind) for word, kind in zip(words, kinds, strict=True)]


def _word(word: str, kind: Any) -> str:
    if kind == _CONTROL or (word.startswith("[") and word.endswith("]")):
        return word
    return word[1:] if word.startswith(_SPACE) else f"##{word}"


GGUF = GgufMap(
    modules={
        "token_embd": "bert.embeddings.word_embeddings",
        "position_embd": "bert.embeddings.position_embeddings",
        "token_types": "bert.embeddings.token_type_embeddings",
        "token_embd_norm": "bert.embeddings.LayerNorm",
    },
    block="bert.encoder.layer",
    parts={
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
    open=_open,
)
