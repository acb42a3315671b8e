"""Google's TF1 checkpoints of BERT, written here by TensorFlow under Google's names."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from left_behind import difference
from logged import warnings_in

import keras_transformers as kt
from keras_transformers.families.bert.model import bert

GOLDEN = Path(__file__).parents[2] / "golden/google_bert.npz"
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(tiny.VOCABULARY),
}


def encoder_shapes():
    """Google's name -> shape, as modeling.py makes them."""
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {
        "bert/embeddings/word_embeddings": (CONFIG["vocab_size"], hidden),
        "bert/embeddings/token_type_embeddings": (2, hidden),
        "bert/embeddings/position_embeddings": (16, hidden),
        **norm("bert/embeddings", hidden),
        **dense("bert/pooler/dense", hidden, hidden),
    }
    for layer in (f"bert/encoder/layer_{index}" for index in range(2)):
        for part in ("query", "key", "value"):
            shapes |= dense(f"{layer}/attention/self/{part}", hidden, hidden)
        shapes |= dense(f"{layer}/attention/output/dense", hidden, hidden)
        shapes |= norm(f"{layer}/attention/output", hidden)
        shapes |= dense(f"{layer}/intermediate/dense", hidden, inner)
        shapes |= dense(f"{layer}/output/dense", inner, hidden)
        shapes |= norm(f"{layer}/output", hidden)
    return shapes


def dense(module, inputs, outputs):
    return {f"{module}/kernel": (inputs, outputs), f"{module}/bias": (outputs,)}


def norm(module, width):
    return {f"{module}/LayerNorm/gamma": (width,), f"{module}/LayerNorm/beta": (width,)}


PRETRAINING = {
    **dense("cls/predictions/transform/dense", 8, 8),
    **norm("cls/predictions/transform", 8),
    "cls/predictions/output_bias": (CONFIG["vocab_size"],),
    "cls/seq_relationship/output_weights": (2, 8),
    "cls/seq_relationship/output_bias": (2,),
}
# What run_classifier.py adds, with its optimizer's state.
FINE_TUNED = {
    "output_weights": (3, 8),
    "output_bias": (3,),
    "output_weights/adam_m": (3, 8),
    "bert/encoder/layer_1/output/dense/bias/adam_m": (8,),
    "bert/pooler/dense/bias/adam_v": (8,),
    "global_step": (),
}
# What a tagger's run adds: no gradient reaches the pooler, so the optimizer has no slots of it.
TAGGER = {name: shape for name, shape in FINE_TUNED.items() if "pooler" not in name}
WITHOUT_SLOTS = {name: shape for name, shape in FINE_TUNED.items() if "adam" not in name}


def write(folder, head, name="bert_model.ckpt"):
    """Writes a checkpoint with random arrays; returns them."""
    random = np.random.default_rng(5)
    arrays = {
        key: random.normal(0, 0.5, shape).astype("float32")
        for key, shape in (encoder_shapes() | head).items()
    }
    write_arrays(folder, arrays, name)
    return arrays


def write_arrays(folder, arrays, name="bert_model.ckpt", config=CONFIG, words=tiny.VOCABULARY):
    folder.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(key, initializer=a) for key, a in arrays.items()]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(folder / name), write_meta_graph=False)
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in words))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder as Google published them; do not change it."""
    folder = tmp_path_factory.mktemp("google") / "bert"
    write(folder, PRETRAINING)
    return folder


@pytest.fixture
def copy(pretrained, tmp_path):
    return Path(shutil.copytree(pretrained, tmp_path / "bert"))


def test_from_google_to_us_to_hugging_face_to_us_nothing_changes(pretrained, tmp_path, caplog):
    fill = kt.load(pretrained)
    assert fill.task == "fill_mask"
    judge = kt.load(pretrained, pipeline="next_sentence")
    assert not warnings_in(caplog)
    arrays = {
        name: tf.train.load_variable(str(pretrained / "bert_model.ckpt"), name)
        for name, _ in tf.train.list_variables(str(pretrained / "bert_model.ckpt"))
    }
    path = {variable.path: np.asarray(variable) for variable in judge.model.weights}
    for ours, theirs in {
        "token_embedding/embeddings": "bert/embeddings/word_embeddings",
        "encoder_layer_1/self_attention/output/kernel": (
            "bert/encoder/layer_1/attention/output/dense/kernel"
        ),
        "encoder_layer_0/feed_forward_norm/beta": "bert/encoder/layer_0/output/LayerNorm/beta",
    }.items():
        np.testing.assert_array_equal(path[ours], arrays[theirs])
    np.testing.assert_array_equal(
        path["next_sentence_logits/kernel"], arrays["cls/seq_relationship/output_weights"].T
    )
    arguments = kt.convert.read_google_bert_config(pretrained / "bert_config.json")
    head = {name: arguments[name] for name in ("activation", "norm_epsilon")}
    both = kt.heads.pretrainer(bert(**arguments), **head)
    tensors = kt.convert.containers.open_arrays(pretrained / "bert_model.ckpt")
    kt.families.bert.FAMILY.fill(both, tensors)
    tokenizer = kt.tokenizers.WordPieceTokenizer(pretrained / "vocab.txt")
    kt.convert.save_weights(both, tmp_path / "hf", tokenizer, family="bert")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    (tmp_path / "hf/config.json").write_text(
        json.dumps(config | {"architectures": ["BertForPreTraining"]})
    )
    written = kt.convert.containers.open_arrays(tmp_path / "hf")
    assert written.keys() == tensors.keys()
    for name, tensor in written.items():
        np.testing.assert_array_equal(tensor, tensors[name], err_msg=name)
    again = kt.load(tmp_path / "hf"), kt.load(tmp_path / "hf", pipeline="next_sentence")
    for back, once in zip(again, (fill, judge), strict=True):
        assert type(back) is type(once)
        for found, wanted in zip(back.model.weights, once.model.weights, strict=True):
            assert found.path == wanted.path
            np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)


@pytest.mark.parametrize(
    "task", [pytest.param("fill_mask", marks=pytest.mark.slow), "next_sentence"]
)
def test_what_kt_save_writes_of_it_comes_back_too(task, pretrained, tmp_path):
    once = kt.load(pretrained, pipeline=task)
    back = kt.load(kt.save(once, tmp_path / "hf", format="huggingface"))
    assert type(back) is type(once)
    for found, wanted in zip(back.model.weights, once.model.weights, strict=True):
        assert found.path == wanted.path
        np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
    texts = [["a [MASK] film", "[MASK]"], ["good", ""]][: len(once.text_names)]
    answers = [pipeline.decode(pipeline.encode(*texts)) for pipeline in (back, once)]
    for name, wanted in answers[1].items():
        np.testing.assert_array_equal(answers[0][name], wanted)


def test_every_head_of_googles_scripts(tmp_path, pretrained, caplog):
    write(tmp_path / "tuned", FINE_TUNED, name="model.ckpt-343")
    classify = kt.load(tmp_path / "tuned")
    assert list(classify.labels) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    named = kt.load(tmp_path / "tuned", labels=["bad", "so-so", "good"])
    assert list(named.labels) == ["bad", "so-so", "good"]
    write(
        tmp_path / "squad",
        {"cls/squad/output_weights": (2, 8), "cls/squad/output_bias": (2,)},
    )
    ask = kt.load(tmp_path / "squad", max_question_length=5)
    assert ask.max_sequence_length == 16
    assert "question_answering does not use bert.pooler.dense.bias" in caplog.text
    caplog.clear()
    new = kt.load(pretrained, pipeline="classification", labels=["a", "b"])
    assert "classification does not use cls.predictions.bias" in caplog.text
    assert "the layers logits for classification are new" in caplog.text  # the pooler is there
    assert new.model.get_layer("pooler")


@pytest.fixture(scope="module")
def golden():
    """A checkpoint and the outputs that Google's own code computed with it."""
    with np.load(GOLDEN) as found:
        return dict(found)


def write_golden(folder, golden, **changes):
    arrays = {
        name.removeprefix("checkpoint/"): array
        for name, array in golden.items()
        if name.startswith("checkpoint/")
    }
    config = json.loads(str(golden["config"]))
    words = [*tiny.VOCABULARY, *(f"word{i}" for i in range(config["vocab_size"]))]
    write_arrays(folder, arrays, config=config | changes, words=words[: config["vocab_size"]])
    return arrays


def inputs(golden):
    return {
        "token_ids": golden["in_input_ids"],
        "segment_ids": golden["in_token_type_ids"],
        "padding_mask": golden["in_attention_mask"].astype(bool),
    }


def test_vectors_and_masked_words_are_those_of_googles_code(golden, tmp_path):
    write_golden(tmp_path / "bert", golden)
    fill = kt.load(tmp_path / "bert")
    found = kt.convert.find_weights(tmp_path / "bert")
    encoder = found.build()
    found.fill(encoder, ["cls.*"])
    mask = golden["in_attention_mask"].astype(bool)  # (batch, length)
    found = np.asarray(encoder(inputs(golden))["sequence_output"])
    np.testing.assert_allclose(found[mask], golden["out_seq"][mask], atol=1e-5)
    positions = np.broadcast_to(np.arange(mask.shape[1], dtype="int32"), mask.shape)
    found = fill.model(inputs(golden) | {"mask_positions": positions})["mask_logits"]
    np.testing.assert_allclose(np.asarray(found)[mask], golden["out_logits"][mask], atol=3e-5)


def test_the_activation_is_the_one_that_the_folder_says(golden, tmp_path):
    tanh = "gelu_approximate"
    for name, ours in {"relu": "relu", "gelu_new": tanh, "gelu": tanh}.items():
        write_golden(tmp_path / name, golden, hidden_act=name)
        encoder = kt.load(tmp_path / name, pipeline="embedding").model
        assert encoder.get_layer("encoder_layer_0").feed_forward.activation == ours


def test_a_folder_without_the_number_of_segments_has_sixteen(golden, tmp_path):
    arrays = write_golden(tmp_path / "bert", golden)
    (tmp_path / "bert/bert_config.json").write_text(
        json.dumps(
            {k: v for k, v in json.loads(str(golden["config"])).items() if k != "type_vocab_size"}
        )
    )
    arguments = kt.convert.read_google_bert_config(tmp_path / "bert/bert_config.json")
    assert arguments["num_segments"] == 16
    width = len(arrays["bert/pooler/dense/bias"])
    with pytest.raises(ValueError, match=rf"token_type_embeddings.weight is .2, {width}."):
        kt.load(tmp_path / "bert")


@pytest.mark.parametrize("head", [TAGGER, WITHOUT_SLOTS], ids=["slots", "no slots"])
def test_a_taggers_head_is_used(head, tmp_path, caplog):
    arrays = write(tmp_path / "ner", head, name="model.ckpt-30")
    tag = kt.load(tmp_path / "ner", **({} if head is TAGGER else {"pipeline": "tagging"}))
    assert tag.task == "tagging"
    assert list(tag.labels) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert "are new" not in caplog.text
    assert "tagging does not use bert.pooler.dense.bias" in caplog.text
    logits = tag.model.get_layer("logits")
    np.testing.assert_array_equal(logits.kernel, arrays["output_weights"].T)
    np.testing.assert_array_equal(logits.bias, arrays["output_bias"])


def test_where_nothing_tells_a_tagger_from_a_classifier_the_user_does(tmp_path, caplog):
    arrays = write(tmp_path / "either", WITHOUT_SLOTS, name="model.ckpt-30")
    wanted = r"either: output_weights may be a classifier's or a tagger's.* pass pipeline='clas"
    with pytest.raises(ValueError, match=wanted):
        kt.load(tmp_path / "either")
    classify = kt.load(tmp_path / "either", pipeline="classification", labels=["a", "b", "c"])
    np.testing.assert_array_equal(
        classify.model.get_layer("logits").kernel, arrays["output_weights"].T
    )
    assert not warnings_in(caplog)


def test_the_words_of_the_vocabulary_decide_about_case(copy):
    assert kt.load(copy).tokenizer.lowercase
    vocabulary = copy / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("film\n", "Film\n"))
    assert not kt.load(copy).tokenizer.lowercase


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_groups": 1}, "num_hidden_groups makes it an ALBERT"),
        ({"embedding_size": 4}, "embedding_size .*ALBERT or ELECTRA"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
        ({"hidden_size": 10}, "of another shape: .*word_embeddings.weight is .14, 8."),
        ({"num_hidden_layers": 1}, "not used .*bert.encoder.layer.1.attention"),
        ({"num_hidden_layers": 3}, "missing from the file: bert.encoder.layer.2"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change, message, copy):
    found = {k: v for k, v in (CONFIG | change).items() if v is not None}
    (copy / "bert_config.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=message):
        kt.load(copy)


def test_damaged_files_are_refused(copy):
    (data,) = copy.glob("*.data-*")
    whole = data.read_bytes()
    data.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        kt.load(copy)
    data.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(ValueError, match=r"bert_model.ckpt: not a readable checkpoint.*again"):
        kt.load(copy)
    data.unlink()
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        kt.load(copy)
    index = copy / "bert_model.ckpt.index"
    index.write_bytes(index.read_bytes()[:20])
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        kt.load(copy)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="model.ckpt-1000.index"):
        kt.load(copy)


def test_several_checkpoints_in_a_folder(tmp_path):
    wanted = write(tmp_path / "run", FINE_TUNED, name="model.ckpt-30")
    shutil.copytree(tmp_path / "run", tmp_path / "two")
    write(tmp_path / "new", FINE_TUNED | {"output_bias": (4,), "output_weights": (4, 8)})
    for file in (tmp_path / "new").glob("*.ckpt*"):
        shutil.copy(file, tmp_path / "two" / file.name.replace(".ckpt", ".ckpt-60"))
    (tmp_path / "two/checkpoint").unlink()
    with pytest.raises(ValueError, match="bert_model.ckpt-60, model.ckpt-30,.*file"):
        kt.load(tmp_path / "two")
    (tmp_path / "two/checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-30"')
    classify = kt.load(tmp_path / "two")
    np.testing.assert_array_equal(classify.model.get_layer("logits").bias, wanted["output_bias"])
    assert len(kt.load(tmp_path / "two/bert_model.ckpt-60").labels) == 4
    assert len(kt.load(tmp_path / "two/bert_model.ckpt-60.index").labels) == 4


def test_an_output_folder_without_its_configuration_says_what_is_missing(copy):
    (copy / "bert_config.json").unlink()
    message = r"checkpoint bert_model.ckpt but no bert_config.json.* folder of the pretrained model"
    with pytest.raises(FileNotFoundError, match=message):
        kt.load(copy)


def test_a_vocabulary_that_is_missing_is_named(copy):
    (copy / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab.txt.*copy"):
        kt.load(copy)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("base", "fill_mask"),
        ("multi_cased", "fill_mask"),
        ("pretrained_slots", "fill_mask"),
        ("cls_slots", "classification"),
        ("squad_slots", "question_answering"),
        ("two", "classification"),
        ("two/model.ckpt-30", "classification"),
    ],
)
def test_folders_that_googles_scripts_left_behind(name, task, left_behind):
    folder = left_behind(f"tf1/{name}")
    loaded = kt.load(folder)
    assert loaded.task == task
    outputs = left_behind(f"tf1/{name.partition('/')[0]}.npz")
    model = loaded.model
    if task == "question_answering":  # one array has both logits
        spans = model.output
        both = keras.ops.stack([spans["start_logits"], spans["end_logits"]], axis=-1)
        model = keras.Model(model.input, {"logits": both})
    assert difference(model, outputs) < 1e-5


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("output_dir_only", "model.ckpt-30"), ("electra_noconfig", "electra_small.ckpt")],
)
def test_an_output_folder_that_run_classifier_left_behind(name, prefix, left_behind):
    with pytest.raises(FileNotFoundError, match=rf"{prefix}.*bert_config.json"):
        kt.load(left_behind(f"tf1/{name}"))


def test_an_albert_is_refused_by_name(copy):
    (copy / "bert_config.json").rename(copy / "albert_config.json")
    config = copy / "albert_config.json"
    config.write_text(json.dumps(CONFIG | {"num_hidden_groups": 1, "inner_group_num": 1}))
    with pytest.raises(ValueError, match=r"albert_config.json: num_hidden_groups.*ALB"):
        kt.load(copy)


@pytest.mark.parametrize("head", [PRETRAINING, FINE_TUNED], ids=["pretraining", "fine_tuned"])
def test_a_checkpoint_goes_on_to_hugging_face_and_comes_back(head, tmp_path):
    write(tmp_path / "google", head)
    first = kt.load(tmp_path / "google")
    kt.save(first, tmp_path / "ours")
    kt.save(kt.load(tmp_path / "ours"), tmp_path / "hf", format="huggingface")
    last = kt.load(tmp_path / "hf")
    assert type(last) is type(first)
    found, wanted = ({v.path: np.asarray(v) for v in p.model.weights} for p in (last, first))
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)
    assert last.config() == first.config()
    inputs, tokens = (p.encode(["a good [MASK] film!"]) for p in (last, first))
    for name, value in tokens.items():
        np.testing.assert_array_equal(inputs[name], value, err_msg=name)
    # Without a graph, which takes long to trace. Where its operands lie in memory, and so in the
    # file that they were read from, decides the order of Eigen's sums: their last bits.
    answers, others = (p.decode(tokens) for p in (last, first))
    for name, value in others.items():
        if value.dtype.is_floating:
            np.testing.assert_array_max_ulp(answers[name].numpy(), value.numpy(), maxulp=16)
        else:
            np.testing.assert_array_equal(answers[name], value, err_msg=name)
