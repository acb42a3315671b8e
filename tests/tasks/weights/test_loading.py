"""`kt.load` of other people's folders: the pipeline that the weights were trained for."""

import json
import logging

import keras
import numpy as np
import pytest
import tiny
import weights_folders
import xlm_roberta_toy
from logged import warnings_in
from safetensors.numpy import load_file, save_file
from weights_folders import CLASSES, FAMILIES, LABELS, QUESTION_OPTIONS, change_json

import keras_transformers as kt
from keras_transformers.convert.formats import hub
from keras_transformers.families.bert.model import bert

TEXTS = ["a good film", "", "very long films. a bad [MASK]<mask>!"]


def same_pipelines(one, other):
    """They have the same type, options, vocabulary and, bit for bit, weights."""
    assert type(one) is type(other)
    assert one.config() == other.config()
    for found, wanted in zip(one.tokenizers.values(), other.tokenizers.values(), strict=True):
        assert type(found) is type(wanted)
        assert found.config() == wanted.config()
        assert list(found.vocabulary) == list(wanted.vocabulary)
    same_weights(one.model, other.model)


def same_weights(model, other):
    found, wanted = ({v.path: np.asarray(v) for v in m.weights} for m in (model, other))
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def vectors(embedder):
    """Embeddings of TEXTS, without a graph, which takes long to trace."""
    return np.asarray(embedder.decode(embedder.encode(TEXTS))["embedding"])


def shards(folder):
    """Divides model.safetensors into two files and their index, as for large models."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        shard = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, folder / shard)
        weight_map |= dict.fromkeys(names, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", CLASSES)
def test_a_folder_becomes_the_pipeline_that_it_was_trained_for(family, task, tmp_path, caplog):
    written = weights_folders.write(family, task, tmp_path / "weights")
    if family == "roberta" and task == "tagging":
        shards(tmp_path / "weights")
    options = QUESTION_OPTIONS if task == "question_answering" else {}
    loaded = kt.load(tmp_path / "weights", **options)
    same_pipelines(loaded, written)
    assert not warnings_in(caplog)  # nothing was left out
    if task in ("classification", "tagging"):
        assert list(loaded.labels) == LABELS


def test_it_can_be_saved_and_loaded_again(tmp_path):
    written = weights_folders.write("bert", "classification", tmp_path / "weights")
    loaded = kt.load(tmp_path / "weights")
    assert loaded(TEXTS) == written(TEXTS)
    loaded.save(tmp_path / "saved")
    same_pipelines(kt.load(tmp_path / "saved"), loaded)
    with pytest.raises(ValueError, match="saved pipeline.*leave out pipeline, labels"):
        kt.load(tmp_path / "saved", pipeline="classification", labels=["a", "b"])


def test_both_pretraining_heads_fill_masks_and_judge_pairs(tmp_path, caplog):
    made = tiny.lively(kt.heads.pretrainer(tiny.encoder()))
    tokenizer = tiny.wordpiece()
    kt.families.bert.FAMILY.save(made, tmp_path / "model.safetensors")
    kt.families.bert.FAMILY.save_config(made, tmp_path / "config.json")
    change_json(tmp_path / "config.json", architectures=["BertForPreTraining"])
    tokenizer.save(tmp_path)
    fill = kt.load(tmp_path, top_k=3)
    same_pipelines(fill, kt.pipelines.MaskFiller(made, tokenizer, top_k=3))
    judge = kt.load(tmp_path, pipeline="next_sentence")
    same_pipelines(judge, kt.pipelines.NextSentenceClassifier(made, tokenizer))
    assert not warnings_in(caplog)
    # As bert-base-uncased: the class does not use all that the file has.
    change_json(tmp_path / "config.json", architectures=["BertForMaskedLM"])
    same_pipelines(kt.load(tmp_path, top_k=3), fill)
    assert "does not use bert.pooler.dense.bias, bert.pooler.dense.weight, cls.seq" in caplog.text


def test_a_language_model_generates(tmp_path):
    written = tiny.pipeline("generation")
    kt.convert.save_weights(written.model, tmp_path / "gpt2", written.tokenizer, family="gpt2")
    for architecture in ("GPT2LMHeadModel", "GPT2Model"):
        change_json(tmp_path / "gpt2/config.json", architectures=[architecture])
        loaded = kt.load(tmp_path / "gpt2", max_length=4, top_k=0)
        same_pipelines(loaded, written)
    with pytest.raises(ValueError, match="can only serve generation"):
        kt.load(tmp_path / "gpt2", pipeline="classification", labels=["a", "b"])


def test_an_image_classifier_classifies(tmp_path, caplog):
    written = tiny.pipeline("image_classification")
    kt.families.vit.FAMILY.save(written.model, tmp_path / "model.safetensors")
    config = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "patch_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "intermediate_size": 32,
        "image_size": [8, 12],
        "layer_norm_eps": 1e-6,
        "id2label": {"0": "a", "1": "b"},
    }
    change_json(tmp_path / "config.json", **config)
    loaded = kt.load(tmp_path)
    same_pipelines(loaded, written)
    assert not warnings_in(caplog)
    change_json(tmp_path / "config.json", architectures=["ViTModel"])
    with pytest.raises(ValueError, match="no pipeline .*ViTModel.*one of im"):
        kt.load(tmp_path)
    new = kt.load(tmp_path, pipeline="image_classification", labels=["x", "y", "z"])
    assert new.model.output["logits"].shape[-1] == 3
    assert "does not use classifier.bias, classifier.weight" in caplog.text
    assert "the layers logits for image_classification are new" in caplog.text


def test_elmo_embeds_words(tmp_path):
    written = tiny.pipeline("word_embedding")
    kt.convert.save_elmo(written.model, tmp_path / "tiny_weights.hdf5")
    kt.convert.save_elmo_options(written.model, tmp_path / "tiny_options.json")
    loaded = kt.load(tmp_path)
    assert type(loaded) is type(written)
    first, *rest = zip(loaded.model.weights, written.model.weights, strict=True)
    np.testing.assert_array_equal(first[0][1:], first[1][1:])  # the format has no padding
    for found, wanted in rest:
        np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
    (tmp_path / "other_options.json").write_text("{}")
    with pytest.raises(ValueError, match="one weights file and one options file"):
        kt.load(tmp_path)


def test_a_new_head_is_random_and_the_encoder_is_not(tmp_path, caplog):
    embed = weights_folders.write("bert", "embedding", tmp_path / "bert")
    new = kt.load(
        tmp_path / "bert", pipeline="classification", labels=["x", "y"], pair=True,
        max_sequence_length=9,
    )  # fmt: skip
    assert list(new.labels) == ["x", "y"]
    assert (new.pair, new.max_sequence_length) == (True, 9)
    for variable in embed.model.weights:
        found = next(v for v in new.model.weights if v.path == variable.path)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(variable))
    assert "the layers pooler, logits for classification are new, with random" in caplog.text
    for task in ("regression", "fill_mask", "tagging"):
        labels = {"labels": LABELS} if task == "tagging" else {}
        assert kt.load(tmp_path / "bert", pipeline=task, **labels).task == task
    with pytest.raises(ValueError, match="pass labels="):
        kt.load(tmp_path / "bert", pipeline="tagging")
    with pytest.raises(ValueError, match="pipeline='summary': use one of .*emb"):
        kt.load(tmp_path / "bert", pipeline="summary")


def test_a_trained_head_stays_unless_the_labels_differ_in_number(tmp_path, caplog):
    written = weights_folders.write("roberta", "classification", tmp_path / "roberta")
    renamed = kt.load(tmp_path / "roberta", labels=["a", "b", "c"])
    assert list(renamed.labels) == ["a", "b", "c"]
    same_weights(renamed.model, written.model)
    assert not warnings_in(caplog)
    own = list(kt.load(tmp_path / "roberta").labels)
    assert list(kt.load(tmp_path / "roberta", labels=own).labels) == own
    assert not warnings_in(caplog)
    assert list(kt.load(tmp_path / "roberta", labels=own[::-1]).labels) == own[::-1]
    assert "leave out labels to keep them" in caplog.text
    two = kt.load(tmp_path / "roberta", labels=["a", "b"])
    assert two.model.output["logits"].shape[-1] == 2
    assert "classification does not use classifier.dense.bias" in caplog.text
    assert "the layers pooler, logits for classification are new" in caplog.text
    embed = kt.load(tmp_path / "roberta", pipeline="embedding")
    assert embed.task == "embedding"


def sentence_transformers(folder, *modules, **pooling):
    """Writes a sentence-transformers folder around BERT; returns its encoder and tokenizer."""
    written = weights_folders.write("bert", "embedding", folder)
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir()
    change_json(folder / "1_Pooling/config.json", word_embedding_dimension=8, **pooling)
    return written


MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
POOLED = (("Transformer", ""), ("Pooling", "1_Pooling"))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_pool_as_their_files_say(normalize, pooling, tmp_path):
    modules = (*POOLED, ("Normalize", "2_Normalize")) if normalize else POOLED
    flags = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": False}
    flags["pooling_mode_cls_token"] = pooling == "cls"
    folder = tmp_path / "st"
    made = sentence_transformers(folder, *modules, **flags)
    change_json(folder / "sentence_bert_config.json", max_seq_length=5, do_lower_case=False)
    loaded = kt.load(folder)
    assert loaded.max_sequence_length == 5
    encoder = kt.convert.load_encoder(weights=folder)[0]
    wanted = kt.pipelines.Embedder(
        encoder, made.tokenizer, pooling=pooling, normalize=normalize, max_sequence_length=5
    )
    np.testing.assert_array_equal(vectors(loaded), vectors(wanted))


@pytest.mark.parametrize(
    "name", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"]
)
def test_the_older_names_of_the_length_file_are_read(name, tmp_path):
    sentence_transformers(tmp_path / "st", *POOLED, **MEAN)
    older = tmp_path / f"st/sentence_{name}_config.json"
    change_json(older, max_seq_length=8, do_lower_case=False)
    assert kt.load(tmp_path / "st").max_sequence_length == 8
    change_json(
        tmp_path / "st/sentence_bert_config.json", max_seq_length=9
    )  # the first that is read
    assert kt.load(tmp_path / "st").max_sequence_length == 9
    (tmp_path / "st/sentence_bert_config.json").unlink()
    change_json(older, max_seq_length=True)
    with pytest.raises(ValueError, match=f"sentence_{name}_config.json: max_seq_length=True"):
        kt.load(tmp_path / "st")


def test_lower_casing_that_the_tokenizer_does_anyway_is_accepted(tmp_path):
    """As the bge models say it."""
    made = sentence_transformers(tmp_path / "st", *POOLED, **MEAN)
    change_json(tmp_path / "st/sentence_bert_config.json", do_lower_case=True)
    loaded = kt.load(tmp_path / "st")
    assert loaded.tokenizer.lowercase
    np.testing.assert_array_equal(
        loaded.tokenizer.tokenize(["A GOOD Film"]).values,
        made.tokenizer.tokenize(["a good film"]).values,
    )
    change_json(tmp_path / "st/tokenizer_config.json", do_lower_case=False)
    with pytest.raises(ValueError, match="sentence_bert_config.json: do_lower_case=True, but its"):
        kt.load(tmp_path / "st")


@pytest.mark.parametrize("says", ["class", "file"])
@pytest.mark.parametrize("task", ["embedding", "classification"])
def test_a_bert_reads_the_pieces_of_xlm_roberta(says, task, tmp_path):
    """As multilingual MiniLM: token ids of fairseq, every token of segment 0."""
    folder = weights_folders.made(tmp_path / "minilm")
    tokenizer = xlm_roberta_toy.tokenizer(folder)
    encoder = bert(vocabulary_size=tokenizer.vocabulary_size, **weights_folders.SHAPE)
    made = kt.pipelines.Embedder(tiny.lively(encoder), tokenizer)
    kt.families.bert.FAMILY.save(made.model, folder / "model.safetensors")
    kt.families.bert.FAMILY.save_config(made.model, folder / "config.json")
    if says == "class":
        change_json(folder / "tokenizer_config.json", tokenizer_class="XLMRobertaTokenizerFast")
        change_json(folder / "tokenizer.json", model={"type": "Unigram", "vocab": []})
    options = {"labels": ["a", "b"], "pair": True} if task == "classification" else {}
    loaded = kt.load(folder, pipeline=task, **options)
    assert type(loaded.tokenizer) is type(tokenizer)
    columns = [TEXTS, TEXTS[::-1]][: len(loaded.text_names)]
    tokens = loaded.encode(*columns)
    wanted = tokenizer(*columns, max_sequence_length=loaded.max_sequence_length)
    np.testing.assert_array_equal(tokens["token_ids"], wanted["token_ids"])
    assert not np.asarray(tokens["segment_ids"]).any()
    if task == "embedding":
        np.testing.assert_array_equal(vectors(loaded), vectors(made))
    loaded.save(tmp_path / "saved")
    same_pipelines(kt.load(tmp_path / "saved"), loaded)
    found = kt.convert.load_encoder(weights=folder)[1]  # as recipes load it
    assert type(found) is type(tokenizer)


def test_errors_name_the_users_file_and_no_copy_of_it(tmp_path):
    folder = tmp_path / "bert"
    weights_folders.write("bert", "embedding", folder)
    (folder / "vocab.txt").unlink()
    model = {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 1}}  # without [UNK] and others
    change_json(folder / "tokenizer.json", model=model, added_tokens=[])
    with pytest.raises(ValueError, match=r"tokenizer\.json") as caught:
        kt.load(folder)
    assert str(folder / "tokenizer.json") in str(caught.value)
    assert "vocab.txt" not in str(caught.value)


NEW_HEADS = {
    "classification": ({"labels": ["bad", "good"]}, [TEXTS]),
    "pairs": ({"labels": ["bad", "good"], "pair": True}, [TEXTS, TEXTS[::-1]]),
    "regression": ({}, [TEXTS]),
    "multiple_choice": ({}, [TEXTS[:2], [["a", "good film"], ["bad", ""]]]),
}


@pytest.mark.one_case
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", NEW_HEADS)
def test_a_new_head_on_sentence_transformers_reads_what_their_files_pool(kind, pooling, tmp_path):
    task = "classification" if kind == "pairs" else kind
    options, texts = NEW_HEADS[kind]
    modules = (*POOLED, ("Normalize", "2_Normalize"))
    flags = {
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_cls_token": pooling == "cls",
    }
    sentence_transformers(tmp_path / "st", *modules, **flags)
    loaded = kt.load(tmp_path / "st", pipeline=task, **options)
    model = loaded.model
    # Between the encoder's last layer and the head: the pooling, and nothing with weights.
    names = [layer.name for layer in model.layers if "Op" not in type(layer).__name__]
    after = names[names.index("encoder_layer_0") + 1 :]
    between = [name for name in after if name.endswith(("pooling", "pooler", "embedding"))]
    assert between == [f"{pooling}_pooling"]
    with_weights = [layer.name for layer in model.layers if layer.weights]
    head = "logits" if task == "classification" else "score_dense"
    assert with_weights[with_weights.index("encoder_layer_0") + 1 :] == [head]
    # The head's input is the encoder's own vectors, pooled as the file says.
    inputs = {name: np.asarray(value) for name, value in loaded.encode(*texts).items()}
    flat = {name: value.reshape(-1, value.shape[-1]) for name, value in inputs.items()}
    encoder = kt.convert.load_encoder(weights=tmp_path / "st")[0]
    vectors = np.asarray(encoder(flat)["sequence_output"])
    is_real = flat["padding_mask"][..., None]
    if pooling == "mean":
        pooled = (vectors * is_real).sum(1) / np.maximum(is_real.sum(1), 1)
    else:
        pooled = vectors[:, 0]
    dense = model.get_layer(head)
    wanted = pooled @ np.asarray(dense.kernel) + np.asarray(dense.bias)
    found = np.asarray(next(iter(model(inputs).values()))).reshape(wanted.shape)
    is_there = flat["padding_mask"].any(1)
    np.testing.assert_allclose(found[is_there], wanted[is_there], atol=1e-6)
    # Ours keeps it bit for bit; transformers has no class for it.
    loaded.save(tmp_path / "saved")
    same_pipelines(kt.load(tmp_path / "saved"), loaded)
    with pytest.raises(ValueError, match="first token's vector through a pooler"):
        kt.save(loaded, tmp_path / "hf", format="huggingface")


def test_a_missing_choice_leaves_the_gradient_of_the_mean_finite(tmp_path):
    sentence_transformers(tmp_path / "st", *POOLED, **MEAN)
    loaded = kt.load(tmp_path / "st", pipeline="multiple_choice")
    inputs = loaded.encode(["a good film", "films"], [["a", "good"], ["bad", ""]])
    assert not np.asarray(inputs["padding_mask"])[1, 1].any()
    loaded.model.compile(
        optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    loaded.model.train_on_batch(dict(inputs), {"logits": np.array([1, 0])})
    assert all(np.isfinite(np.asarray(weight)).all() for weight in loaded.model.weights)


def test_a_new_head_takes_another_pooling_if_it_is_given(tmp_path):
    sentence_transformers(tmp_path / "st", *POOLED, **MEAN)
    weights_folders.write("bert", "embedding", tmp_path / "bert")
    for folder, given, layer in (
        ("st", "pooler", "pooler"),
        ("st", "cls", "cls_pooling"),
        ("bert", "mean", "mean_pooling"),
        ("bert", "normalized_mean", "mean_pooling unit_pooling"),
        ("bert", None, "pooler"),
    ):
        options = {} if given is None else {"pooling": given}
        loaded = kt.load(tmp_path / folder, pipeline="regression", **options)
        names = [layer.name for layer in loaded.model.layers]
        assert " ".join(name for name in names if "pool" in name) == layer, (folder, given)
        if given == "normalized_mean":
            read = keras.Model(loaded.model.input, loaded.model.get_layer("unit_pooling").output)
            vectors = read(loaded.pack(loaded.tokenize(["a b", "b"])))
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    with pytest.raises(ValueError, match="pooling='max':.*new.*pool"):
        kt.load(tmp_path / "bert", pipeline="regression", pooling="max")
    hf = kt.save(
        kt.load(tmp_path / "st", pipeline="regression", pooling="pooler"),
        tmp_path / "hf",
        format="huggingface",
    )
    assert kt.load(hf).task == "regression"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modules": (*POOLED, ("CNN", "2_CNN"))}, "modules Transformer, Pooling, CNN; only"),
        ({"modules": POOLED[:1]}, "CrossEncoder"),
        (
            {"modules": (("Transformer", "../x"), POOLED[1])},
            "path '../x' points outside the folder",
        ),
        ({"pooling_mode_median": True}, "pooling by .*pooling_mode_median"),
        ({"pooling_mode_mean_tokens": False}, "pooling by nothing"),
        ({"max_seq_length": "long"}, "max_seq_length='long'"),
        ({"default_prompt_name": "query"}, "default_prompt_name='query'"),
    ],
)
def test_what_sentence_transformers_do_beyond_that_is_refused(change, message, tmp_path):
    change = dict(change)
    modules = change.pop("modules", POOLED)
    flags = {k: change.pop(k) for k in list(change) if k.startswith("pooling_")}
    sentence_transformers(tmp_path / "st", *modules, **MEAN | flags)
    change_json(tmp_path / "st/sentence_bert_config.json", **change)
    change_json(tmp_path / "st/config_sentence_transformers.json", **change)
    with pytest.raises(ValueError, match=message):
        kt.load(tmp_path / "st")


def test_the_tokenizers_files_decide_about_case(tmp_path):
    weights_folders.write("bert", "embedding", tmp_path / "bert")
    folder = tmp_path / "bert"
    assert kt.load(folder).tokenizer.lowercase
    change_json(folder / "tokenizer.json", **tiny.tokenizer_json(lowercase=False))
    assert not kt.load(folder).tokenizer.lowercase
    change_json(folder / "tokenizer_config.json", do_lower_case=True, model_max_length=7)
    loaded = kt.load(folder)
    assert loaded.tokenizer.lowercase
    assert loaded.max_sequence_length == 7
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    words = (folder / "vocab.txt").read_text().replace("film\n", "Film\n")
    (folder / "vocab.txt").write_text(words)
    assert not kt.load(folder).tokenizer.lowercase


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_vocabulary_in_tokenizer_json_is_enough(family, tmp_path):
    folder = tmp_path / family
    written = weights_folders.write(family, "embedding", folder)
    if family == "bert":
        contents = tiny.tokenizer_json()
        (folder / "vocab.txt").unlink()
    else:
        ids = json.loads((folder / "vocab.json").read_text())
        merges = (folder / "merges.txt").read_text().splitlines()[1:]
        model = {"type": "BPE", "vocab": ids, "merges": [merge.split() for merge in merges]}
        splitter = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
        contents = {"added_tokens": [], "pre_tokenizer": splitter, "model": model}
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match="expected vocab.txt"):
        kt.load(folder)
    change_json(folder / "tokenizer.json", **contents)
    same_pipelines(kt.load(folder), written)
    change_json(folder / "tokenizer.json", model={"type": "WordLevel", "vocab": {}})
    with pytest.raises(ValueError, match="'WordLevel';.*WordPiece.*BPE"):
        kt.load(folder)


GAP = "id2label names 0, 2 and num_labels is None, but the head has 3 classes"


@pytest.mark.parametrize(
    ("fields", "labels", "warning"),
    [
        ({"id2label": {"0": "a", "2": "c"}}, ["a", "LABEL_1", "c"], GAP),
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, ["LABEL_0", "a", "b"], "names 1, 2, 3 and"),
        ({"id2label": {"0": "a", "1": "b"}}, ["a", "b", "LABEL_2"], "names 0, 1 and num_labels is"),
        ({"id2label": {"0": 1, "1": 2.5, "2": "x"}}, ["1", "2.5", "x"], None),
        ({"id2label": ["a", "b", "c"]}, ["a", "b", "c"], None),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 4},
            ["a", "b", "c"],
            "num_labels is 4, but the head has 3 classes",
        ),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 1, "b": 0, "c": 2}},
            ["a", "b", "c"],
            "label2id differs from id2label, which takes precedence: {'a': 1, 'b': 0}",
        ),
        ({"id2label": None, "label2id": {"a": 1, "b": 0, "c": 2}}, ["b", "a", "c"], None),
        ({"id2label": None, "num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"], None),
    ],
)
@pytest.mark.parametrize("family", ["bert", "roberta"])  # with other names of the head's layers
def test_labels_as_people_wrote_them(family, fields, labels, warning, tmp_path, caplog):
    written = weights_folders.write(family, "classification", tmp_path / family)
    change_json(tmp_path / family / "config.json", num_labels=None, label2id=None)
    change_json(tmp_path / family / "config.json", **fields)
    found = json.loads((tmp_path / family / "config.json").read_text())
    found = {name: value for name, value in found.items() if value is not None}
    (tmp_path / family / "config.json").write_text(json.dumps(found))
    loaded = kt.load(tmp_path / family)
    assert list(loaded.labels) == labels
    same_weights(loaded.model, written.model)
    if warning is None:
        assert not warnings_in(caplog)
    else:
        assert caplog.text.count(warning) == 1


def test_the_encoder_of_a_model_for_another_task_is_there(tmp_path, caplog):
    weights_folders.write("bert", "classification", tmp_path / "bert")
    change_json(tmp_path / "bert/config.json", problem_type="multi_label_classification")
    assert kt.load(tmp_path / "bert", pipeline="embedding").task == "embedding"
    new = kt.load(tmp_path / "bert", pipeline="classification", labels=["x", "y"])
    assert list(new.labels) == ["x", "y"]
    assert "classification does not use classifier.bias, classifier.weight" in caplog.text
    assert "are new, with random weights" in caplog.text


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"auto_map": {"AutoModel": "x.Y"}}, "auto_map names code to run"),
        (
            "config.json",
            {"model_type": "mamba"},
            "model_type 'mamba'.* is unknown; expected one of",
        ),
        (
            "config.json",
            {"architectures": ["BertLMHeadModel"]},
            "uses the head of BertLMHeadModel",
        ),
        ("config.json", {"architectures": "Bert"}, "architectures='Bert'"),
        ("config.json", {"architectures": ["A", "B"]}, "A, B; .*one class"),
        (
            "config.json",
            {"problem_type": "regression"},
            "=.regression.,.* 3 outputs.* one: pass",
        ),
        ("config.json", {"problem_type": "ranking"}, "problem_type='ranking' is unknown"),
        ("config.json", {"id2label": {"a": 0, "b": 1}}, "names .*0, 1, 2"),
        ("config.json", {"id2label": {"-1": "a"}}, "names .*0, 1, 2"),
        ("config.json", {"id2label": {"0": ["a"]}}, "names .*0, 1, 2"),
        ("config.json", {"id2label": {"0": ""}}, "names .*0, 1, 2"),
        ("config.json", {"id2label": {"0": "a", "00": "b"}}, "expected names for the numbers 0,"),
        ("config.json", {"id2label": {"0": 1, "1": "1", "2": 2}}, "expected different names"),
        ("config.json", {"id2label": {"0": "a", "1": "a", "2": "b"}}, "expected different names"),
        ("config.json", {"vocab_size": 15}, "of another shape: .*word_embeddings.weight"),
        ("config.json", {"hidden_act": "elu"}, "hidden_act='elu'; expected one of"),
        ("config.json", {"architectures": ["BertForTokenClassification"]}, None),
        ("tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTok"),
        ("tokenizer_config.json", {"strip_accents": 0}, "strip_accents=0; expected true or false"),
        ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side='left'"),
        ("tokenizer_config.json", {"mask_token": "<mask>"}, "mask_token='<mask>', but WordPiece"),
        ("tokenizer_config.json", {"do_lower_case": "no"}, "do_lower_case='no'; expected true"),
        ("tokenizer_config.json", {"model_max_length": "x"}, "model_max_length='x'; expected a"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(file, change, message, tmp_path, caplog):
    weights_folders.write("bert", "classification", tmp_path / "bert")
    change_json(tmp_path / "bert" / file, **change)
    if message is None:  # a tagger does not use the pooler, which is named
        assert kt.load(tmp_path / "bert").task == "tagging"
        assert "tagging does not use bert.pooler.dense.bias" in caplog.text
        return
    with pytest.raises(ValueError, match=message) as caught:
        kt.load(tmp_path / "bert")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "bert") in str(caught.value)


def test_tensors_missing_left_over_or_not_finite_are_all_listed(tmp_path):
    folder = tmp_path / "bert"
    weights_folders.write("bert", "classification", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["extra.weight"] = tensors.pop("classifier.bias")
    tensors["classifier.weight"][0, 0] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"missing from the file: classifier.bias\. .*used.*extra.weight\. with NaN",
    ):
        kt.load(folder)


def test_a_short_vocabulary_is_asked_about(tmp_path, caplog):
    weights_folders.write("bert", "classification", tmp_path / "bert")
    vocabulary = tmp_path / "bert/vocab.txt"
    vocabulary.write_text("\n".join(vocabulary.read_text().split()[:-2]))
    assert kt.load(tmp_path / "bert").tokenizer.vocabulary_size == 12
    assert "the tokenizer has 12 tokens but model 'bert_classifier' embeds 14" in caplog.text
    assert "is this the vocabulary that the model was trained with?" in caplog.text


def test_an_address_of_the_hub_is_fetched(tmp_path, monkeypatch):
    written = weights_folders.write("bert", "embedding", tmp_path / "bert")
    addresses = []
    monkeypatch.setattr(hub, "fetch", lambda found: addresses.append(found) or tmp_path / "bert")
    same_pipelines(kt.load("hf://org/name@main"), written)
    assert addresses == ["hf://org/name@main"]


def test_no_weights_of_ours(tmp_path):
    handlers = list(logging.getLogger("keras_transformers").handlers)  # a recipe's test adds one
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        kt.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no weights .*bilm-tf"):
        kt.load(tmp_path)
    weights_folders.write("bert", "classification", tmp_path / "bert")
    with pytest.raises(ValueError, match="part of a folder, with a config.json: pass"):
        kt.load(tmp_path / "bert/model.safetensors")
    (tmp_path / "bert/model.safetensors").rename(tmp_path / "bert/pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin.*torch.save"):
        kt.load(tmp_path / "bert")
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="has a SavedModel"):
        kt.load(tmp_path)
    assert logging.getLogger("keras_transformers").handlers == handlers
