"""docs/migrating.md: its blocks under "Now" run, on tiny models in folders of the names it uses."""

import ast
import re
import runpy
import shlex
import shutil
import tarfile
import tempfile
from pathlib import Path

import camembert_toy
import encoder_decoder_toys as toys
import pytest
import tiny
import weights_folders
import xlm_roberta_toy
from weights_folders import change_json

import keras_transformers as kt
from keras_transformers.cli import main as cli

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
DOCUMENT = ROOT / "docs/migrating.md"
TEXT = DOCUMENT.read_text("utf-8")
BLOCK = re.compile(r"^(Before|Now):\n\n```python\n(.*?)```", re.DOTALL | re.MULTILINE)
SECTIONS = dict(
    section.split("\n", 1) for section in re.split(r"^###? ", TEXT, flags=re.MULTILINE)[1:]
)
NOW = {
    title: "".join(code for when, code in BLOCK.findall(text) if when == "Now")
    for title, text in SECTIONS.items()
    if "\nNow:\n" in text
}
# They export, train, or import keras-hub.
SLOW = {
    *("Fine-tuning", "keras-hub and keras-nlp", "Pretraining with keras-bert", "OpenNMT-tf"),
    "TFT5ForConditionalGeneration",
}


def bert(task):
    return lambda folder: weights_folders.write("bert", task, folder)


def answerer(folder):
    """One with the defaults of QuestionAnswerer, which need more positions."""
    folder.mkdir()
    encoder = kt.families.bert.bert(
        **weights_folders.SHAPE | {"vocabulary_size": 14, "max_sequence_length": 400}
    )
    made = tiny.lively(kt.heads.span_extractor(encoder))
    kt.families.bert.FAMILY.save(made, folder / "model.safetensors")
    kt.families.bert.FAMILY.save_config(made, folder / "config.json")
    change_json(folder / "config.json", architectures=["BertForQuestionAnswering"])
    tiny.wordpiece().save(folder)


def both_heads(folder):
    folder.mkdir()
    made = tiny.lively(kt.heads.pretrainer(tiny.encoder()))
    kt.families.bert.FAMILY.save(made, folder / "model.safetensors")
    kt.families.bert.FAMILY.save_config(made, folder / "config.json")
    change_json(folder / "config.json", architectures=["BertForPreTraining"])
    tiny.wordpiece().save(folder)


def xlm_roberta(folder):
    folder.mkdir()
    size = xlm_roberta_toy.tokenizer(folder).vocabulary_size
    model = kt.families.roberta.roberta(vocabulary_size=size, **weights_folders.SHAPE)
    kt.families.xlm_roberta.FAMILY.save(model, folder / "model.safetensors")
    kt.families.xlm_roberta.FAMILY.save_config(model, folder / "config.json")
    change_json(folder / "config.json", architectures=["XLMRobertaModel"])


def camembert(folder):
    folder.mkdir()
    size = camembert_toy.tokenizer(folder).vocabulary_size
    model = kt.families.roberta.roberta(vocabulary_size=size, **weights_folders.SHAPE)
    kt.families.camembert.FAMILY.save(model, folder / "model.safetensors")
    kt.families.camembert.FAMILY.save_config(model, folder / "config.json")
    change_json(folder / "config.json", architectures=["CamembertModel"])


def mpnet(folder):
    folder.mkdir()
    words = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *tiny.VOCABULARY[5:]]
    tokenizer = kt.tokenizers.MPNetTokenizer(words)
    tokenizer.save(folder)
    size = tokenizer.vocabulary_size
    model = kt.families.mpnet.mpnet(vocabulary_size=size, **weights_folders.SHAPE)
    kt.families.mpnet.FAMILY.save(model, folder / "model.safetensors")
    kt.families.mpnet.FAMILY.save_config(model, folder / "config.json")
    change_json(folder / "config.json", architectures=["MPNetModel"])


def gpt2(folder):
    written = tiny.pipeline("generation")
    kt.convert.save_weights(written.model, folder, written.tokenizer, family="gpt2")


def vit(folder):
    folder.mkdir()
    written = tiny.pipeline("image_classification")
    kt.families.vit.FAMILY.save(written.model, folder / "model.safetensors")
    fields = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    fields |= {"patch_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
    fields |= {"hidden_size": 8, "intermediate_size": 32, "image_size": [8, 12]}
    change_json(folder / "config.json", **fields, id2label={"0": "a", "1": "b"})
    (folder.parent / "dog.png").write_bytes(written.example_batches(None)[0]["image_bytes"][0])


def marian(folder):
    folder.mkdir()
    toys.marian_folder(folder)
    source, target = (kt.tokenizers.MarianTokenizer(folder, side=s) for s in ("source", "target"))
    sizes = {**toys.T5_SIZES, "vocabulary_size": source.vocabulary_size, "max_sequence_length": 24}
    del sizes["head_dim"]
    model = kt.families.marian.marian(**sizes, pad_token_id=source.pad_token_id)
    kt.convert.save_weights(model, folder, source, target, family="marian")


def t5(folder):
    model = kt.families.t5.t5(**toys.T5_SIZES)
    kt.convert.save_weights(model, folder, toys.t5_tokenizer(), family="t5")


def bart(folder):
    sizes = {**toys.T5_SIZES, "max_sequence_length": 24}
    del sizes["head_dim"]
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = toys.bart_tokenizer(Path(scratch, "files"))
    sizes["vocabulary_size"] = tokenizer.vocabulary_size
    kt.convert.save_weights(kt.families.bart.bart(**sizes), folder, tokenizer, family="bart")


def google(folder):
    tests = runpy.run_path(str(ROOT / "tests/families/bert/test_google_bert.py"))
    tests["write"](folder, tests["PRETRAINING"])


def keras_bert(folder):
    folder.mkdir()
    tests = runpy.run_path(str(ROOT / "tests/families/bert/test_keras_bert.py"))
    tests["write"](folder, "classifier").rename(folder / "model.h5")


def left_behind(archive, name, *, base=""):
    """Unpacks a folder of tests/golden/left_behind, which the original software wrote."""

    def write(folder):
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(GOLDEN / f"left_behind/{archive}.tar.xz") as opened:
                opened.extractall(scratch, filter="data")
            shutil.copytree(Path(scratch, name), folder)
            if base:
                shutil.copy(Path(scratch, base), folder)
        if archive == "onmt":
            (folder / "model_description.py").write_text("num_heads = 2\n")

    return write


def sentence_transformers(name):
    def write(folder):
        tests = runpy.run_path(str(ROOT / "tests/convert/formats/test_sentence_transformers.py"))
        with tempfile.TemporaryDirectory() as scratch:
            shutil.copytree(tests["unpack"](name, Path(scratch)), folder)

    return write


def colbert(folder):
    kt.save(tiny.pipeline("late_interaction"), folder, format="huggingface")


def gguf(folder):
    folder.mkdir()
    tests = runpy.run_path(str(ROOT / "tests/convert/formats/test_gguf.py"))
    tests["write"](folder / "model.gguf", tiny.pipeline("embedding"))


def google_albert(folder):
    tests = runpy.run_path(str(ROOT / "tests/families/albert/test_google_albert.py"))
    with tempfile.TemporaryDirectory() as scratch:
        made = weights_folders.pipeline("albert", "fill_mask", Path(scratch, "vocabulary"))
        kt.save(made, Path(scratch, "hf"), format="huggingface")
        width = weights_folders.SHAPE["hidden_dim"]
        tests["write"](
            folder,
            Path(scratch, "hf"),
            embedding_size=4,
            hidden_size=width,
            num_hidden_layers=2,
            intermediate_size=4 * width,
            max_position_embeddings=weights_folders.SHAPE["max_sequence_length"],
        )


def fast_text(folder):
    folder.mkdir()
    for ours, theirs in (("model.bin", "words.bin"), ("model.ftz", "pruned.ftz")):
        shutil.copy(GOLDEN / "fasttext" / theirs, folder / ours)


def preset(family):
    def write(folder):
        tests = runpy.run_path(str(ROOT / "tests/convert/formats/test_keras_nlp.py"))
        size = tests["text_assets"](folder, family).vocabulary_size
        backbone = getattr(tests["models"], family)
        backbone(vocabulary_size=size, **tests["SIZES"]).save_to_preset(str(folder))

    return write


FOLDERS = {
    "bert-base-uncased": bert("embedding"),
    "bert-sst2": bert("classification"),
    "bert-ner": bert("tagging"),
    "bert-squad": answerer,
    "bert-pretrained": both_heads,
    "distilbert-sst2": lambda folder: weights_folders.write("distilbert", "classification", folder),
    "roberta-sst2": lambda folder: weights_folders.write("roberta", "classification", folder),
    "xlm-roberta-base": xlm_roberta,
    "camembert-base": camembert,
    "mpnet-base": mpnet,
    "gpt2": gpt2,
    "vit-base": vit,
    "opus-mt-de-en": marian,
    "t5-small": t5,
    "bart-large-cnn": bart,
    "bert_base_en_uncased": preset("BertBackbone"),
    "gpt2_base_en": preset("GPT2Backbone"),
    "uncased_L-12_H-768_A-12": google,
    "fine-tuned": keras_bert,
    "tf-bert": left_behind("hf4_tf", "hf4_tf/bert_pre"),
    "tf-shards": left_behind("hf4_tf", "hf4_tf/bert_sharded"),
    "tf-safetensors": left_behind("hf4_tf_safe", "hf4_tf_safe/bert_cls"),
    "transformers-3": left_behind("hf_old_3.5.1", "hf_old_3.5.1/bert_tok"),
    "pytorch-bert": left_behind("hf4_pt", "hf4_pt/bert_bf16"),
    "model-garden": left_behind("model_garden", "classifier"),
    "tf-hub": left_behind("model_garden", "hub"),
    "onmt-run": left_behind("onmt", "onmt/transformer"),
    "sentence-transformers": sentence_transformers("st/pool_mean"),
    "cross-encoder": sentence_transformers("st/cross_encoder"),
    "keras-nlp": left_behind("nlp012", "nlp012/bert_cls"),
    "keras-bert": left_behind("kb", "kb/kb_lambda_model"),
    "bert4keras": left_behind("kb", "kb/b4k_weights", base="kb/b4k_ckpt/bert_config.json"),
    "own-model": left_behind("user", "user/model_h5"),
    "albert_base": google_albert,
    "fasttext": fast_text,
    "gguf": gguf,
    "colbert": colbert,
}
HAVE = re.findall(r"^\|.*\| `(kt\.load\(\"([^/]+)/.*\))` \|$", TEXT, re.MULTILINE)


def marks(title):
    return pytest.mark.slow if title in SLOW else ()


@pytest.mark.parametrize("title", [pytest.param(title, marks=marks(title)) for title in NOW])
def test_the_new_lines_run(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, write in FOLDERS.items():
        if f'"{name}/' in NOW[title]:
            write(tmp_path / name)
    exec(compile(NOW[title], f"{DOCUMENT}, {title}", "exec"), {"kt": kt})


@pytest.mark.parametrize(("line", "name"), HAVE)
def test_what_you_have_is_read_by_what_you_type(line, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FOLDERS[name](tmp_path / name)
    pipeline = eval(line, {"kt": kt})
    assert pipeline.model.count_params() > 100
    contents = kt.convert.look(re.search(r'"(.*)"', line)[1])
    assert contents.format is not None


def test_the_table_has_every_line():
    assert len(HAVE) == TEXT[: TEXT.index("`kt.convert.look(")].count("| `kt.load(")
    assert len(HAVE) >= 18


def test_every_block_is_before_or_now_and_is_python():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    marked = [code for _, code in BLOCK.findall(TEXT)]
    assert blocks == ["import keras_transformers as kt\n", *marked]
    assert set(NOW) >= {"keras-bert", *SLOW}
    for code in marked:
        ast.parse(code)


def test_every_name_of_ours_exists():
    names = set(re.findall(r"\bkt((?:\.\w+)+)", TEXT))
    assert len(names) > 10
    for name in names:
        found = kt
        for part in name[1:].split("."):
            found = getattr(found, part)


def test_the_commands_parse():
    text = re.sub(r"\\\n\s+", "", TEXT)
    commands = re.findall(r"^    ((?:python|keras-transformers) .*)$", text, re.MULTILINE)
    predict, recipe, translate = commands
    for command in (predict, translate):
        assert callable(cli.parse(shlex.split(command)[1:]).run)
    _, script, *arguments = shlex.split(recipe)
    options = runpy.run_path(str(ROOT / script))["Config"].__dataclass_fields__
    given = {word[2:].replace("-", "_") for word in arguments if word.startswith("--")}
    assert given <= options.keys()
    table = TEXT[TEXT.index("| YAML |") :]
    named = re.findall(r"--([a-z][a-z-]+[a-z])\b", table)  # OpenNMT-tf's own have underscores
    assert len(named) > 20
    assert {name.replace("-", "_") for name in named} <= options.keys()
