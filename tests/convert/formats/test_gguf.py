"""GGUF files of BERT, written with llama.cpp's own package as its converter writes them."""

import struct

import gguf
import numpy as np
import pytest
import tiny
from left_behind import unpacked

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays

TEXTS = ["a good film!", "very bad films", ""]
MODULES = {
    "bert.embeddings.word_embeddings": "token_embd",
    "bert.embeddings.position_embeddings": "position_embd",
    "bert.embeddings.token_type_embeddings": "token_types",
    "bert.embeddings.LayerNorm": "token_embd_norm",
}
PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
F32 = gguf.GGMLQuantizationType.F32


@pytest.fixture(scope="module")
def embed():
    """An embedder whose rows are long enough for blocks of 256."""
    encoder = kt.families.bert.bert(
        vocabulary_size=len(tiny.VOCABULARY),
        num_layers=2,
        num_heads=2,
        hidden_dim=256,
        intermediate_dim=256,
        max_sequence_length=16,
    )
    return kt.pipelines.Embedder(tiny.lively(encoder), tiny.wordpiece(), pooling="cls")


def phantom(word):
    if word.startswith("["):
        return word
    return word[2:] if word.startswith("##") else f"▁{word}"


def write(file, embed, kind=F32, *, architecture="bert", **changes):
    encoder = embed.model if hasattr(embed, "model") else embed
    writer = gguf.GGUFWriter(str(file), architecture)
    numbers = {"attention.head_count": 2, "pooling_type": 2, "block_count": 2} | changes
    for name, number in numbers.items():
        writer.add_uint32(f"bert.{name}", number)
    writer.add_float32("bert.attention.layer_norm_epsilon", 1e-12)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([phantom(word) for word in tiny.VOCABULARY])
    writer.add_token_types([3 if word.startswith("[") else 1 for word in tiny.VOCABULARY])
    named = kt.families.bert.files.NAMES.tensors(encoder)
    tensors = {tensor.name: tensor.read() for tensor in named}
    for name, array in tensors.items():
        module, _, last = name.rpartition(".")
        if "pooler" in name:
            continue
        if module in MODULES:
            theirs = MODULES[module]
        else:
            number, part = module.removeprefix("bert.encoder.layer.").split(".", 1)
            theirs = f"blk.{number}.{PARTS[part]}"
        quantized = kind if array.ndim == 2 and "embeddings" not in name else F32
        data = gguf.quantize(np.ascontiguousarray(array), quantized)
        writer.add_tensor(f"{theirs}.{last}", data, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def vectors(pipeline):
    return np.stack([answer.vector for answer in pipeline(TEXTS)])


def test_a_float32_file_gives_the_same_vectors(embed, tmp_path):
    loaded = kt.load(write(tmp_path / "model.gguf", embed))
    assert loaded.tokenizer.vocabulary == list(tiny.VOCABULARY)
    assert loaded.tokenizer.lowercase
    np.testing.assert_allclose(vectors(loaded), vectors(embed), atol=1e-6)
    np.testing.assert_array_equal(vectors(kt.load(tmp_path)), vectors(loaded))


@pytest.mark.parametrize(
    ("kind", "least"),
    [("F16", 0.99999), ("BF16", 0.999), ("Q8_0", 0.999), ("Q4_0", 0.8), ("Q4_1", 0.8)],
)
def test_quantized_files_are_read_as_llama_cpp_dequantizes_them(kind, least, embed, tmp_path):
    kind = gguf.GGMLQuantizationType[kind]
    file = write(tmp_path / "model.gguf", embed, kind)
    arrays = open_arrays(file)
    (tensor,) = [t for t in gguf.GGUFReader(file).tensors if t.name == "blk.1.ffn_up.weight"]
    wanted = gguf.dequantize(tensor.data, tensor.tensor_type)
    np.testing.assert_array_equal(arrays["bert.encoder.layer.1.intermediate.dense.weight"], wanted)
    cosines = np.sum(vectors(kt.load(file)) * vectors(embed), axis=1)  # vectors of length 1
    assert cosines.min() > least


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_blocks_of_k_are_dequantized_in_steps(kind, tmp_path):
    rows = 600  # more than are dequantized at once
    kind = gguf.GGMLQuantizationType[kind]
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 120, (rows, 256 // size * num_bytes), "uint8")
    writer = gguf.GGUFWriter(str(tmp_path / "model.gguf"), "bert")
    writer.add_tensor("token_embd.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    arrays = open_arrays(tmp_path / "model.gguf")
    name, wanted = "bert.embeddings.word_embeddings.weight", gguf.dequantize(raw, kind)
    assert wanted.shape == arrays.shapes[name] == (rows, 256)
    np.testing.assert_array_equal(arrays[name], wanted)
    lent = arrays.lent(name)
    np.testing.assert_array_equal(lent, wanted)
    assert not lent.flags.writeable
    assert np.shares_memory(lent, arrays.lent(name))
    assert not np.shares_memory(arrays[name], lent)


@pytest.mark.slow
def test_a_new_task_gets_a_new_head(embed, tmp_path):
    write(tmp_path / "model.gguf", embed)
    classify = kt.load(tmp_path, pipeline="classification", labels=["a", "b"])
    assert len(classify(TEXTS)) == 3
    assert kt.export(kt.load(tmp_path), tmp_path / "export").is_dir()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architecture": "nomic-bert"},
            "'nomic-bert' .*bert, ",
        ),
        ({"pooling_type": 4}, "bert.pooling_type=4; expected 1"),
        ({"attention.head_count": 3}, "3 attention heads .* 256"),
    ],
)
def test_other_files_are_refused_by_name(changes, message, embed, tmp_path):
    file = write(tmp_path / "model.gguf", embed, **changes)
    with pytest.raises(ValueError, match=rf"model\.gguf.*{message}"):
        kt.load(file)


def test_damaged_and_several_files(embed, tmp_path):
    file = write(tmp_path / "model.gguf", embed)
    write(tmp_path / "other.gguf", embed)
    with pytest.raises(ValueError, match="several files .*pass the path"):
        kt.load(tmp_path)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"model\.gguf.* truncated: download"):
        kt.load(file)


def test_an_array_longer_than_the_file_is_refused(tmp_path):
    name = b"tokens"
    array = (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8, 2**60)
    file = tmp_path / "model.gguf"
    file.write_bytes(
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", len(name)) + name
        + struct.pack("<IIQ", *array)
    )  # fmt: skip
    with pytest.raises(
        ValueError, match=r"model\.gguf: 1152921504606846976 values of 'tokens' do not"
    ):
        kt.load(file)


def test_a_tensor_lies_within_the_file(tmp_path):
    """Offsets do not wrap around: this one would lie within the header."""
    name = b"token_embd.weight"
    described = struct.pack("<IQIQ", 1, 4, F32, 2**64 - 64)
    file = tmp_path / "model.gguf"
    file.write_bytes(
        b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, len(name)) + name + described + bytes(64)
    )
    with pytest.raises(
        ValueError, match=r"model\.gguf: 'token_embd\.weight' .*does not lie within"
    ):
        open_arrays(file)


def test_what_is_no_whole_model_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"model-f16\.gguf"):
        kt.load(unpacked("other/gguf_bert", tmp_path))
    with pytest.raises(ValueError, match=r"no llama\.attention\.head_count"):
        kt.load(unpacked("other/gguf_llama", tmp_path))
