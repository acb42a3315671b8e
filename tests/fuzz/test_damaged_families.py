"""The files that single families have are taken when damaged, or refused by name.

See `test_damaged_files`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import encoder_decoder_toys as toys
import numpy as np
import pytest
from reader import Reader, as_json, check_reader
from safetensors.numpy import save_file

from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.tokenizers import MarianTokenizer, T5Tokenizer

SIZES = {
    "vocab_size": 14,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
MPNET = {
    **SIZES,
    "model_type": "mpnet",
    "architectures": ["MPNetForMaskedLM"],
    "relative_attention_num_buckets": 32,
    "layer_norm_eps": 1e-5,
}
ELECTRA = {
    **SIZES,
    "model_type": "electra",
    "architectures": ["ElectraForPreTraining"],
    "embedding_size": 4,
    "summary_activation": "gelu",
}
T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "vocab_size": toys.NUM_PIECES + 10,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 8,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "feed_forward_proj": "gated-gelu",
    "dropout_rate": 0.1,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
MARIAN = {
    "model_type": "marian",
    "architectures": ["MarianMTModel"],
    "vocab_size": 14,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "max_position_embeddings": 16,
    "activation_function": "swish",
    "scale_embedding": True,
    "eos_token_id": 0,
    "pad_token_id": 13,
    "decoder_start_token_id": 13,
    "num_beams": 4,
}
BART = {
    **{name: value for name, value in MARIAN.items() if name != "scale_embedding"},
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "activation_function": "gelu",
    "eos_token_id": 2,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
}
PEGASUS = {
    **MARIAN,
    "model_type": "pegasus",
    "architectures": ["PegasusForConditionalGeneration"],
    "activation_function": "relu",
    "eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
GENERATION = {
    "num_beams": 4,
    "max_length": 12,
    "min_length": 1,
    "length_penalty": 0.5,
    "early_stopping": True,
    "forced_eos_token_id": 1,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def open_config(path: Path) -> None:
    save_file({"a": np.ones(2, "float32")}, path.parent / "model.safetensors")
    find_weights(path.parent)


def open_generation_config(path: Path) -> None:
    (path.parent / "config.json").write_text(json.dumps(T5))
    open_config(path)


def config(fields: dict[str, Any]) -> Reader:
    return Reader("config.json", as_json(fields), open_config, is_json=True, examples=20)


def of_marian(name: str) -> Callable[[], bytes]:
    return lambda: toys.marian_files()[name]


def read_marian(path: Path) -> None:
    for name, contents in toys.marian_files().items():
        if name != path.name:
            (path.parent / name).write_bytes(contents)
    MarianTokenizer(path.parent, side="source").tokenize(["a small dog"])


def read_pieces(path: Path) -> None:
    T5Tokenizer(path).tokenize(["a small <extra_id_0> dog"])


READERS = {
    "mpnet config": config(MPNET),
    "electra config": config(ELECTRA),
    "t5 config": config(T5),
    "marian config": config(MARIAN),
    "bart config": config(BART),
    "pegasus config": config(PEGASUS),
    "generation config": Reader(
        "generation_config.json",
        as_json(GENERATION),
        open_generation_config,
        is_json=True,
        others=("config.json",),
        examples=20,
    ),
    "t5 pieces": Reader("spiece.model", toys.t5_model, read_pieces, examples=20),
    "marian pieces": Reader(
        "source.spm", of_marian("source.spm"), read_marian, others=("vocab.json",), examples=20
    ),
    "marian vocabulary": Reader(
        "vocab.json",
        of_marian("vocab.json"),
        read_marian,
        is_json=True,
        others=("source.spm",),
        examples=20,
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path, seconds):
    check_reader(name, READERS[name], tmp_path, seconds)
