"""docs/migrating.md: its blocks under "Now" run, on tiny models in folders of the names it uses."""

import ast
import re
import runpy
import shlex
from pathlib import Path

import encoder_decoder_toys as toys
import pytest
import tiny
import weights_folders
import xlm_roberta_toy
from weights_folders import change_json

import keras_transformers as kt
from keras_transformers.cli import main as cli
from keras_transformers.pipelines import Pipeline

ROOT = Path(__file__).parents[3]
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
SLOW = {"Fine-tuning it", "keras-hub and keras-nlp"}  # an export; importing keras-nlp


def bert(task):
    return lambda folder: weights_folders.write("bert", task, folder)


def answerer(folder):
    """One with the defaults of QuestionAnswerer, which need more positions."""
    folder.mkdir()
    encoder = kt.models.encoders.bert.bert(
        **weights_folders.SHAPE | {"vocabulary_size": 14, "max_sequence_length": 400}
    )
    made = tiny.lively(kt.heads.span_extractor(encoder))
    kt.convert.save_bert(made, folder / "model.safetensors")
    kt.convert.save_bert_config(made, folder / "config.json")
    change_json(folder / "config.json", architectures=["BertForQuestionAnswering"])
    tiny.wordpiece().save(folder)


def both_heads(folder):
    folder.mkdir()
    made = tiny.lively(kt.heads.pretrainer(tiny.encoder()))
    kt.convert.save_bert(made, folder / "model.safetensors")
    kt.convert.save_bert_config(made, folder / "config.json")
    change_json(folder / "config.json", architectures=["BertForPreTraining"])
    tiny.wordpiece().save(folder)


def xlm_roberta(folder):
    folder.mkdir()
    size = xlm_roberta_toy.tokenizer(folder).vocabulary_size
    model = kt.models.encoders.roberta.roberta(vocabulary_size=size, **weights_folders.SHAPE)
    kt.convert.save_xlm_roberta(model, folder / "model.safetensors")
    kt.convert.save_xlm_roberta_config(model, folder / "config.json")
    change_json(folder / "config.json", architectures=["XLMRobertaModel"])


def mpnet(folder):
    folder.mkdir()
    words = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *tiny.VOCABULARY[5:]]
    tokenizer = kt.tokenizers.MPNetTokenizer(words)
    tokenizer.save(folder)
    size = tokenizer.vocabulary_size
    model = kt.models.encoders.mpnet.mpnet(vocabulary_size=size, **weights_folders.SHAPE)
    kt.convert.save_mpnet(model, folder / "model.safetensors")
    kt.convert.save_mpnet_config(model, folder / "config.json")
    change_json(folder / "config.json", architectures=["MPNetModel"])


def gpt2(folder):
    written = tiny.pipeline("generation")
    kt.convert.save_language_model(written.model, folder, written.tokenizer)


def vit(folder):
    folder.mkdir()
    written = tiny.pipeline("image_classification")
    kt.convert.save_vit(written.model, folder / "model.safetensors")
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
    model = kt.models.encoder_decoders.marian.marian(**sizes, pad_token_id=source.pad_token_id)
    kt.convert.save_marian_translator(model, folder, source, target)


def t5(folder):
    model = kt.models.encoder_decoders.t5.t5(**toys.T5_SIZES)
    kt.convert.save_text_to_text(model, folder, toys.t5_tokenizer())


def google(folder):
    tests = runpy.run_path(str(ROOT / "tests/convert/formats/test_google_bert.py"))
    tests["write"](folder, tests["PRETRAINING"])


def keras_bert(folder):
    folder.mkdir()
    tests = runpy.run_path(str(ROOT / "tests/convert/formats/test_keras_bert.py"))
    tests["write"](folder, "classifier").rename(folder / "model.h5")


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
    "mpnet-base": mpnet,
    "gpt2": gpt2,
    "vit-base": vit,
    "opus-mt-de-en": marian,
    "t5-small": t5,
    "bert_base_en_uncased": preset("BertBackbone"),
    "gpt2_base_en": preset("GPT2Backbone"),
    "uncased_L-12_H-768_A-12": google,
    "fine-tuned": keras_bert,
}


def marks(title):
    return pytest.mark.slow if title in SLOW else ()


@pytest.mark.parametrize("title", [pytest.param(title, marks=marks(title)) for title in NOW])
def test_the_new_lines_run(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Without graphs, which take long to trace and have tests of their own.
    monkeypatch.setattr(Pipeline, "_graph", property(lambda self: self.answer))
    for name, write in FOLDERS.items():
        if f'"{name}/' in NOW[title]:
            write(tmp_path / name)
    exec(compile(NOW[title], f"{DOCUMENT}, {title}", "exec"), {"kt": kt})


def test_every_block_is_before_or_now_and_is_python():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    marked = [code for _, code in BLOCK.findall(TEXT)]
    assert blocks == ["import keras_transformers as kt\n", *marked]
    assert set(NOW) >= {"Fine-tuning it", "keras-bert", *SLOW}
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
    recipe, command = re.findall(r"^    ((?:python|keras-transformers) .*)$", text, re.MULTILINE)
    assert callable(cli.parse(shlex.split(command)[1:]).run)
    _, script, *arguments = shlex.split(recipe)
    options = runpy.run_path(str(ROOT / script))["Config"].__dataclass_fields__
    given = {word[2:].replace("-", "_") for word in arguments if word.startswith("--")}
    assert given <= options.keys()
    table = TEXT[TEXT.index("| YAML |") :]
    named = re.findall(r"--([a-z][a-z-]+[a-z])\b", table)  # OpenNMT-tf's own have underscores
    assert len(named) > 20
    assert {name.replace("-", "_") for name in named} <= options.keys()
