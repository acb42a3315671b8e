"""Loads and saves CamemBERT's weights, against transformers."""

import base64
import json
import shutil

import camembert_toy
import family_checks
import pytest
import xlm_roberta_toy
from family_checks import ALL_TASKS, FamilyFiles
from sentencepiece import sentencepiece_model_pb2
from tiny import lively

import keras_transformers as kt
from keras_transformers.convert.families import family_named
from keras_transformers.convert.formats.tokenizer_files import read_tokenizers
from keras_transformers.families.camembert.files import FAMILY as CAMEMBERT
from keras_transformers.families.roberta.model import roberta

SHAPE = {
    "vocabulary_size": 60,
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 20,
}
CONFIG = {
    "model_type": "camembert",
    "vocab_size": 60,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 22,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "hidden_act": "gelu",
}
FAMILY = FamilyFiles(
    "camembert",
    lambda task: roberta(**SHAPE, norm_epsilon=1e-5),
    kt.convert.load_weights,
    CAMEMBERT.save,
    {"masked_lm": {"norm_epsilon": 1e-5}},
    without_pooler=("masked_lm", "classifier", "regressor", "tagger", "span_extractor"),
)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_outputs_equal_transformers(task, tmp_path):
    family_checks.outputs_equal_transformers(FAMILY, task, tmp_path)


def test_padding_may_be_on_the_left(tmp_path):
    family_checks.padding_on_the_left_is_as_on_the_right(FAMILY, tmp_path)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_saving_gives_the_same_tensors(task, tmp_path):
    family_checks.saving_gives_the_same_tensors(FAMILY, task, tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", ALL_TASKS)
def test_against_transformers_live(task, tmp_path):
    family_checks.the_frozen_outputs_are_transformers_own(FAMILY, task)
    family_checks.transformers_reads_what_we_write(FAMILY, task, tmp_path)


def test_a_config_comes_back(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = CAMEMBERT.read(tmp_path)
    assert SHAPE.items() <= found.items()
    CAMEMBERT.save_config(roberta(**found), tmp_path / "copy.json")
    assert CAMEMBERT.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; expected 'camembert'"),
        ({"type_vocab_size": 2}, "type_vocab_size=2; only 1 is supported"),
        ({"pad_token_id": 0}, "pad_token_id=0; only 1 is supported"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        CAMEMBERT.read(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a masked-language model, without tokenizer_config.json, as the first one's."""
    folder = tmp_path_factory.mktemp("camembert")
    size = {"vocabulary_size": camembert_toy.tokenizer(folder).vocabulary_size}
    model = kt.heads.masked_lm(lively(roberta(**(SHAPE | size))), norm_epsilon=1e-5)
    CAMEMBERT.save(model, folder / "model.safetensors")
    architectures = ["CamembertForMaskedLM"]
    CAMEMBERT.save_config(model, folder / "config.json", architectures=architectures)
    return folder


def test_a_folder_without_a_tokenizers_class_fills_masks(written):
    fill = kt.load(written)
    assert type(fill.tokenizer) is kt.tokenizers.CamembertTokenizer
    assert len(fill("a <mask> film").tokens[0]) == 5
    config = json.loads((written / "config.json").read_text())
    vocabulary = fill.tokenizer.vocabulary
    tokens = [vocabulary[config[f"{name}_token_id"]] for name in ("bos", "pad", "eos")]
    assert tokens == ["<s>", "<pad>", "</s>"]


def test_a_vocabulary_of_another_size_is_refused(written, tmp_path):
    """The model of XLM-RoBERTa, with the same file, has three tokens fewer."""
    folder = shutil.copytree(written, tmp_path / "model")
    size = {"vocabulary_size": xlm_roberta_toy.tokenizer(folder).vocabulary_size}
    model = roberta(**(SHAPE | size))
    CAMEMBERT.save(model, folder / "model.safetensors")
    CAMEMBERT.save_config(model, folder / "config.json", architectures=["CamembertModel"])
    with pytest.raises(ValueError, match="tokenizer has 57 tokens but model .* embeds 54"):
        kt.load(folder)


@pytest.mark.parametrize("folder", ["xlm-roberta", "camembert"])
@pytest.mark.parametrize("encoder", ["bert", "camembert"])
def test_tokenizer_json_tells_the_two_with_one_files_name_apart(folder, encoder, tmp_path):
    """Without the model's own file and the tokenizer's class."""
    toy = {"xlm-roberta": xlm_roberta_toy, "camembert": camembert_toy}[folder]
    wanted = toy.tokenizer(tmp_path)
    model = tmp_path / wanted.model_file
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigrams(wanted, model.read_bytes())))
    model.unlink()
    (tokenizer,) = read_tokenizers(tmp_path, family_named(encoder))
    assert type(tokenizer) is type(wanted)
    assert tokenizer.vocabulary == wanted.vocabulary
    assert tokenizer.tokenize(["two dogs"]).to_list() == wanted.tokenize(["two dogs"]).to_list()


def unigrams(tokenizer, model):
    """The parts of a fast tokenizer's file that are read here."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    scores = {piece.piece: piece.score for piece in proto.pieces}
    vocabulary = tokenizer.vocabulary
    charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    return {
        "added_tokens": [],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            ],
        },
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.index("<unk>"),
            "vocab": [[token, scores.get(token, 0.0)] for token in vocabulary],
        },
    }


@pytest.mark.reference
def test_transformers_reads_the_ids_and_its_own_files_come_back(written, tmp_path):
    import transformers

    ours = kt.load(written)
    kt.save(ours, tmp_path / "written", format="huggingface")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "written")
    texts = ["a good film", "", " two  dogs\nrun\t", "Cafés in Zürich, 東京 🎬🎬!", "x\u00a0 ﬁlm"]
    wanted = theirs(texts, texts[::-1])["input_ids"]
    found = ours.tokenizer(texts, texts[::-1], max_sequence_length=99)
    rows = zip(found["token_ids"].numpy(), found["padding_mask"].numpy(), strict=True)
    assert [ids[mask].tolist() for ids, mask in rows] == wanted
    theirs.save_pretrained(tmp_path / "fast")  # only tokenizer.json
    (again,) = read_tokenizers(tmp_path / "fast", CAMEMBERT)
    assert again.vocabulary == ours.tokenizer.vocabulary
    assert again.tokenize(texts).to_list() == ours.tokenizer.tokenize(texts).to_list()
