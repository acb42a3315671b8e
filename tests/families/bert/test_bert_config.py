"""A model's shape, written as Hugging Face's config.json and read back."""

import json

import keras
import pytest

import keras_transformers as kt
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.families.bert.model import bert

SHAPE = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 20,
    "num_segments": 3,
    "dropout": 0.3,
    "attention_dropout": 0.2,
    "activation": "gelu_approximate",
    "norm_epsilon": 1e-6,
    "initializer_range": 0.05,
}


def test_what_is_written_reads_back(tmp_path):
    model = kt.heads.pretrainer(bert(**SHAPE))
    BERT.save_config(model, tmp_path / "config.json")
    assert BERT.read(tmp_path) == SHAPE
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.reference
def test_hugging_face_builds_the_same_model_of_it(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the `reference` extra")
    model = bert(**SHAPE)
    BERT.save_config(model, tmp_path / "config.json")
    BERT.save(model, tmp_path / "model.safetensors")
    theirs = transformers.BertModel.from_pretrained(tmp_path)
    assert theirs.num_parameters() == model.count_params()
    assert theirs.config.hidden_act == "gelu_new"


@pytest.mark.parametrize(
    ("head", "labels", "names"),
    [
        (kt.heads.classifier, ["neg", "so so", "pos"], ["neg", "so so", "pos"]),
        (kt.heads.tagger, None, ["LABEL_0", "LABEL_1", "LABEL_2"]),
    ],
)
def test_the_labels_of_a_head_are_written(tmp_path, head, labels, names):
    BERT.save_config(head(bert(**SHAPE), 3), tmp_path / "config.json", labels=labels)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_labels"] == 3
    assert config["id2label"] == {str(index): name for index, name in enumerate(names)}
    assert config["label2id"] == {name: index for index, name in enumerate(names)}


def test_labels_that_do_not_fit_are_refused(tmp_path):
    for model, text in (
        (kt.heads.classifier(bert(**SHAPE), 3), "2 labels, but model 'bert_classifier' has 3"),
        (bert(**SHAPE), "2 labels, but model 'bert' has no head with labels"),
    ):
        with pytest.raises(ValueError, match=text):
            BERT.save_config(model, tmp_path / "config.json", labels=["a", "b"])
    classifier = kt.heads.classifier(bert(**SHAPE), 3)
    with pytest.raises(ValueError, match="one occurs twice"):
        BERT.save_config(classifier, tmp_path / "config.json", labels=["a", "b", "a"])
    assert not list(tmp_path.iterdir())


@pytest.mark.reference
def test_hugging_face_has_the_labels(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the `reference` extra")
    model = kt.heads.classifier(bert(**SHAPE), 3)
    BERT.save_config(model, tmp_path / "config.json", labels=["a", "b", "c"])
    BERT.save(model, tmp_path / "model.safetensors")
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.num_labels == 3
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": []}, r"vocab_size=\[\]; .*integer from 1 to 16777216"),
        ({"vocab_size": -1}, "vocab_size=-1; expected an integer"),
        ({"vocab_size": 10**9}, "vocab_size=1000000000; expected an integer"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True; expected an integer"),
        ({"hidden_size": "8"}, "hidden_size='8'; expected an integer"),
        ({"hidden_size": 9}, "hidden_size=9 is not a multiple of num_attention_heads=2"),
        ({"type_vocab_size": 0}, "type_vocab_size=0; expected an integer"),
        ({"hidden_dropout_prob": 1}, "hidden_dropout_prob=1; .*at least 0 and"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps='1e-12'; expected a number"),
        ({"initializer_range": float("nan")}, "initializer_range=nan; expected a number"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]; expected one of gelu"),
    ],
)
def test_values_that_no_model_has_are_refused(tmp_path, change, message):
    BERT.save_config(bert(**SHAPE), tmp_path / "config.json")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=rf"config\.json: {message}"):
        BERT.read(tmp_path)


def test_what_is_no_bert_is_refused(tmp_path):
    with pytest.raises(ValueError, match="token_embedding;.*position_em"):
        BERT.save_config(keras.Sequential([keras.Input((2,))]), tmp_path / "config.json")
    assert json.dumps(list(tmp_path.iterdir())) == "[]"
