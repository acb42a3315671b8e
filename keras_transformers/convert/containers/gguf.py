"""Reads GGUF, llama.cpp's files: weights, quantized or not, configuration and vocabulary.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; llama.cpp, convert_hf_to_gguf.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.dependencies.extras import optional

__all__: list[str] = []

_MAGIC = b"GGUF"
# Architecture -> module there -> Hugging Face's.
_MODULES: dict[str, dict[str, str]] = {
    "bert": {
        "token_embd": "bert.embeddings.word_embeddings",
        "position_embd": "bert.embeddings.position_embeddings",
        "token_types": "bert.embeddings.token_type_embeddings",
        "token_embd_norm": "bert.embeddings.LayerNorm",
    },
}
_LLAMA = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_MODULES |= dict.fromkeys(("llama", "qwen2", "qwen3"), _LLAMA)
# The same for the tensors of every block.
_BLOCKS: dict[str, tuple[str, dict[str, str]]] = {
    "bert": (
        "bert.encoder.layer",
        {
            "attn_q": "attention.self.query",
            "attn_k": "attention.self.key",
            "attn_v": "attention.self.value",
            "attn_output": "attention.output.dense",
            "attn_output_norm": "attention.output.LayerNorm",
            "ffn_up": "intermediate.dense",
            "ffn_down": "output.dense",
            "layer_output_norm": "output.LayerNorm",
        },
    ),
}
_BLOCKS |= dict.fromkeys(
    ("llama", "qwen2", "qwen3"),
    (
        "model.layers",
        {
            "attn_norm": "input_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        },
    ),
)
# llama.cpp rotates neighbouring numbers of a head together, Hugging Face's classes those of its two
# halves. The converter reorders the matrices of these architectures; the field has their heads.
_REORDERED = {
    "llama": {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"},
}
_ROTARY_FACTORS = "rope_freqs.weight"  # belongs to no module; `rotary_factors` reads it
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)")


@dataclass(frozen=True)
class Gguf:
    """A GGUF file.

    Attributes:
        file: the file.
        fields: name -> value of the metadata.
        tensors: name -> tensor, whose values stay in the file until they are read.
    """

    file: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """The family's name in llama.cpp."""
        return str(self.fields.get("general.architecture", ""))

    @classmethod
    def open(cls, file: Path) -> "Gguf":
        """Reads the metadata.

        Raises:
            ValueError: the file is damaged.
        """
        reader = _reader()
        try:
            opened = reader(file)
            fields = {field.name: field.contents() for field in opened.fields.values()}
            tensors = {tensor.name: tensor for tensor in opened.tensors}
        except Exception as error:  # any error that a damaged file causes in that package
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{file}: not readable as GGUF ({reason:.200}); it may be truncated: download it "
                "again"
            ) from error
        return cls(file, fields, tensors)

    def arrays(self) -> Arrays:
        """Returns the weights as float32, under Hugging Face's names.

        Raises:
            ValueError: the architecture is unsupported, or has a tensor that our families lack.
        """
        if self.architecture not in _MODULES:
            raise ValueError(
                f"{self.file}: architecture {self.architecture!r:.100} is not supported in GGUF; "
                f"expected one of {', '.join(_MODULES)}: get the model.safetensors that it was "
                "made from, or run it with llama.cpp"
            )
        turns = self.architecture != "bert"  # BERT has no rotary positions
        names = {
            self._name(name): tensor
            for name, tensor in self.tensors.items()
            if not (turns and name == _ROTARY_FACTORS)
        }
        shapes = {name: tuple(map(int, tensor.shape[::-1])) for name, tensor in names.items()}
        dequantize = optional("gguf", extra="gguf").dequantize

        def read(name: str) -> np.ndarray:
            tensor = names[name]
            try:
                array: np.ndarray = dequantize(tensor.data, tensor.tensor_type)
            except (NotImplementedError, ValueError) as error:
                raise ValueError(
                    f"{self.file}: {tensor.name} has the unsupported type "
                    f"{tensor.tensor_type.name} ({error})"
                ) from error
            return self._in_halves(tensor.name, array.reshape(shapes[name]))

        return Arrays(self.file, shapes, read)

    def rotary_factors(self) -> np.ndarray | None:
        """Returns the divisors for the rates of rotary positions, (head_dim / 2,), if given.

        Files contain Llama 3.1's scaling only as these numbers.
        """
        tensor = self.tensors.get(_ROTARY_FACTORS)
        if tensor is None:
            return None
        if tensor.tensor_type.name != "F32":
            raise ValueError(
                f"{self.file}: {_ROTARY_FACTORS} is of type {tensor.tensor_type.name}; expected F32"
            )
        return np.asarray(tensor.data, "float32").reshape(-1)

    def _in_halves(self, name: str, array: np.ndarray) -> np.ndarray:
        """Returns a matrix or bias of queries or keys in Hugging Face's order, and others as is."""
        block = _BLOCK.fullmatch(name.rpartition(".")[0])
        field = _REORDERED.get(self.architecture, {}).get(block[2] if block else "")
        if field is None:
            return array
        default = self.fields.get(f"{self.architecture}.attention.head_count")
        heads = self.fields.get(f"{self.architecture}.{field}", default)
        if type(heads) is not int or heads < 1 or len(array) % (2 * heads):
            raise ValueError(
                f"{self.file}: {self.architecture}.{field}={heads!r:.100}, but {name} has "
                f"{len(array)} rows: each head needs the same even number of rows"
            )
        pairs = array.reshape(heads, -1, 2, *array.shape[1:])  # (heads, head_dim / 2, 2, ...)
        return pairs.swapaxes(1, 2).reshape(array.shape)

    def _name(self, name: str) -> str:
        module, _, last = name.rpartition(".")
        start, parts = _BLOCKS[self.architecture]
        block = _BLOCK.fullmatch(module)
        known = parts if block else _MODULES[self.architecture]
        part = block[2] if block else module
        if part not in known or last not in ("weight", "bias"):
            raise ValueError(
                f"{self.file}: unexpected tensor {name!r:.100} for {self.architecture}: get the "
                "model.safetensors that it was made from"
            )
        return f"{start}.{block[1]}.{known[part]}.{last}" if block else f"{known[part]}.{last}"


def _reader() -> Any:
    """Returns gguf's reader, changed to stop at the end of the file.

    The original keeps reading nothing past the end: an array that claims 2^60 bytes would exhaust
    the memory.
    """
    original: Any = optional("gguf", extra="gguf").GGUFReader

    class Reader(original):
        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **orders: Any) -> Any:
            found = super()._get(offset, dtype, count, *order, **orders)
            if len(found) != count:
                raise ValueError(f"{count} values at byte {offset} reach past the end")
            return found

    return Reader


def find_gguf(path: Path) -> Path | None:
    """Returns the GGUF file at a path: the file itself, or the only one in a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(files) != 1:
        return None
    with files[0].open("rb") as opened:
        return files[0] if opened.read(len(_MAGIC)) == _MAGIC else None


CONTAINER = Container("GGUF", 9, find_gguf, lambda file: Gguf.open(file).arrays())
