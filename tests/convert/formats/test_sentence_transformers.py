"""Folders that sentence-transformers wrote, from 2.7 to 5.7, and those that it reads."""

import base64
import gzip
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformers as kt

GOLDEN = Path(__file__).parents[2] / "golden" / "left_behind" / "sentence_transformers.json.gz"
PACKED = json.loads(gzip.decompress(GOLDEN.read_bytes()))
TEXTS = ["a warm film.", "two dogs play in the snow", "where is ada lovelace born?"]
EMBEDDERS = [name for name in PACKED["folders"] if not name.endswith("cross_encoder")]
BASE = "st/pool_mean"  # the newest layout


def unpack(name, folder):
    for path, blob in PACKED["folders"][name]["files"].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(PACKED["blobs"][blob]))
    return folder


def answers(name):
    return np.array(PACKED["folders"][name]["answers"])


def vectors(embed, **options):
    return np.array([answer.vector for answer in embed(TEXTS, **options)])


def comes_back(embed, folder):
    embed.save(folder)
    again = kt.load(folder)
    assert again.config() == embed.config()
    np.testing.assert_array_equal(vectors(again), vectors(embed))


def edited(folder, file, **fields):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_those_of_sentence_transformers(name, tmp_path):
    embed = kt.load(unpack(name, tmp_path / "folder"))
    np.testing.assert_allclose(vectors(embed), answers(name), atol=1e-6)


def test_every_folder_of_other_versions(left_behind):
    left_behind("st")
    for root in ("st_3.4.1", "st_5.1.2", "st_2.7.0"):
        for folder in sorted(path for path in left_behind(root).iterdir() if path.is_dir()):
            # Their truncate_dim was an argument, which they did not write.
            if not folder.name.startswith("_") and folder.name not in ("truncate", "cross_encoder"):
                expected = np.load(folder.with_name(f"{folder.name}.npy"))
                np.testing.assert_allclose(vectors(kt.load(folder)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("st/cross_encoder", {}),
        # Before 4.0 nothing in a folder said that a CrossEncoder wrote it.
        ("st_2.7.0/cross_encoder", {"activation": "sigmoid", "pair": True}),
    ],
)
def test_a_cross_encoder_answers_as_predict(name, options, tmp_path):
    score = kt.load(unpack(name, tmp_path / "folder"), **options)
    found = [answer.score for answer in score(TEXTS[:2], TEXTS[1:])]
    np.testing.assert_allclose(found, answers(name), atol=1e-6)
    kt.save(score, tmp_path / "again", format="huggingface")
    again = kt.load(tmp_path / "again")
    assert [answer.score for answer in again(TEXTS[:2], TEXTS[1:])] == found
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith("Sigmoid")


@pytest.mark.parametrize("field", ["sentence_transformers", "sbert_ce_default_activation_function"])
def test_a_cross_encoders_activation_in_older_fields(field, tmp_path):
    folder = unpack("st_2.7.0/cross_encoder", tmp_path / "folder")
    said = "torch.nn.modules.linear.Identity"
    value = {"activation_fn": said} if field == "sentence_transformers" else said
    score = kt.load(edited(folder, "config.json", **{field: value}))
    assert score.pair
    found = [answer.score for answer in score(TEXTS[:2], TEXTS[1:])]
    wanted = answers("st_2.7.0/cross_encoder")
    np.testing.assert_allclose(found, np.log(wanted / (1 - wanted)), atol=1e-5)
    value = {"activation_fn": "torch.nn.Tanh"} if isinstance(value, dict) else "torch.nn.Tanh"
    edited(folder, "config.json", **{field: value})
    with pytest.raises(ValueError, match=r"config\.json.*'torch\.nn\.Tanh'.*Sigmoid"):
        kt.load(folder)


@pytest.mark.slow
def test_prompts_are_options_of_calls_and_signatures(tmp_path):
    embed = kt.load(unpack("st/prompts", tmp_path / "folder"))
    prompts = {name: prompt for name, prompt in embed.prompts.items() if prompt}
    assert prompts == {"query": "query: ", "passage": "passage: "}
    by_hand = vectors(kt.load(unpack("st/prompts", tmp_path / "plain")))
    np.testing.assert_allclose(vectors(embed), by_hand)
    prefixed = [answer.vector for answer in embed([f"query: {text}" for text in TEXTS])]
    np.testing.assert_array_equal(vectors(embed, prompt_name="query"), prefixed)
    assert np.abs(vectors(embed) - prefixed).max() > 0.01
    comes_back(embed, tmp_path / "saved")
    ask = kt.saved_model.Predictor(kt.export(embed, tmp_path / "export"), signature="query")
    found = [row["embedding"] for row in ask({"text": TEXTS})]
    np.testing.assert_allclose(found, prefixed, atol=1e-6)
    with pytest.raises(ValueError, match=r"'title'.*query"):
        embed(TEXTS, prompt_name="title")


def test_the_default_prompt_goes_before_every_text(tmp_path):
    folder = unpack("st/prompts", tmp_path / "folder")
    plain = kt.load(folder)
    embed = kt.load(
        edited(folder, "config_sentence_transformers.json", default_prompt_name="query")
    )
    np.testing.assert_array_equal(vectors(embed), vectors(plain, prompt_name="query"))
    np.testing.assert_array_equal(
        embed.encode(["a film"])["token_ids"], plain.encode(["query: a film"])["token_ids"]
    )
    comes_back(embed, tmp_path / "saved")


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["st/pool_two", "st/dense_identity", "st/layernorm"])
def test_what_is_written_comes_back(name, tmp_path):
    embed = kt.load(unpack(name, tmp_path / "folder"))
    kt.save(embed, tmp_path / "again", format="huggingface")
    np.testing.assert_array_equal(vectors(kt.load(tmp_path / "again")), vectors(embed))
    comes_back(embed, tmp_path / "saved")


@pytest.mark.reference
@pytest.mark.parametrize("name", EMBEDDERS)
def test_sentence_transformers_reads_what_is_written(name, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    kt.save(kt.load(unpack(name, tmp_path / "folder")), tmp_path / "again", format="huggingface")
    found = library.SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, answers(name), atol=1e-5)


@pytest.mark.reference
def test_cross_encoder_reads_what_is_written(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    score = kt.load(unpack("st/cross_encoder", tmp_path / "folder"))
    kt.save(score, tmp_path / "again", format="huggingface")
    model = library.CrossEncoder(str(tmp_path / "again"), device="cpu")
    found = model.predict([(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[2])])
    np.testing.assert_allclose(found, answers("st/cross_encoder"), atol=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize("mode", kt.layers.TokenPooling.MODES)
def test_every_pooling_is_saved_and_takes_an_empty_batch(mode, tmp_path):
    encoder = kt.bert_tiny(vocabulary_size=20)
    model = kt.heads.embedder(encoder, pooling=mode)
    empty = {name: np.zeros((0, 4), tensor.dtype) for name, tensor in model.input.items()}
    assert model(empty)["embedding"].shape == (0, model.output["embedding"].shape[-1])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    tokens = {name: np.ones((2, 4), tensor.dtype) for name, tensor in model.input.items()}
    np.testing.assert_array_equal(again(tokens)["embedding"], model(tokens)["embedding"])


POOLING, SETTINGS = "1_Pooling/config.json", "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("name", "file", "fields", "parts"),
    [
        (BASE, POOLING, {"pooling_mode": "median"}, ["median", "lasttoken"]),
        (BASE, POOLING, {"pooling_mode": 3}, ["3", "mean"]),
        (BASE, SETTINGS, {"prompts": 3}, ["prompts=3", "names"]),
        (BASE, SETTINGS, {"default_prompt_name": "x"}, ["'x'", "query"]),
        (BASE, SETTINGS, {"truncate_dim": -1}, ["truncate_dim=-1", "1 to"]),
        (BASE, SETTINGS, {"truncate_dim": 400}, ["truncate_dim=400", "16"]),
        ("st/prompts", POOLING, {"include_prompt": False}, ["include_prompt", "prompts to {}"]),
        ("st/dense", "2_Dense/config.json", {"activation_function": "os.system"}, ["os.system"]),
        ("st/dense", "2_Dense/config.json", {"out_features": 65536}, ["65536", "(8, 16)"]),
        ("st/dense", "2_Dense/config.json", {"out_features": "8"}, ["out_features='8'"]),
        ("st/dense", "2_Dense/config.json", {"use_residual": True}, ["use_residual"]),
        ("st/dense", "2_Dense/config.json", {"module_input_name": "token_embeddings"}, ["token_"]),
        ("st/layernorm", "2_LayerNorm/config.json", {"dimension": 17}, ["norm.weight", "(17,)"]),
    ],
)
def test_what_is_not_supported_is_refused(name, file, fields, parts, tmp_path):
    folder = edited(unpack(name, tmp_path / "folder"), file, **fields)
    with pytest.raises(ValueError, match=".") as caught:
        kt.load(folder)
    for part in [folder.name, *parts]:
        assert part in str(caught.value)


def test_other_modules_are_refused_by_name(tmp_path):
    folder = unpack(BASE, tmp_path / "folder")
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.CNN"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"modules\.json.*CNN.*Dense, LayerNorm, Normalize"):
        kt.load(folder)


def test_a_projection_without_weights_is_refused(tmp_path):
    folder = unpack("st/dense", tmp_path / "folder")
    shutil.rmtree(folder / "2_Dense")
    with pytest.raises(FileNotFoundError, match="2_Dense"):
        kt.load(folder)
