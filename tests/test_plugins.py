"""Families, tasks, formats, models and recipes of other packages: registered, or installed.

The package of tests/plugin has what this one lacks; `acme` finds it as if it were installed.
"""

import dataclasses
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import tomllib
import types
import venv
from pathlib import Path

import keras
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers import registry
from keras_transformers.cli import main as cli
from keras_transformers.families.bert.files import FAMILY as BERT
from keras_transformers.models import Entry, named_factory
from keras_transformers.tasks import AnswerType, Result
from keras_transformers.tasks.answers import answer_type
from keras_transformers.tasks.regression.task import TASK as REGRESSION
from keras_transformers.tasks.texts import takes_lists, text_inputs

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "tests/plugin"
PAIRS = (["a good film.", "a bad film!", "very long", "films films"] * 4,
         ["very long!", "a film", "good.", "bad"] * 4)  # fmt: skip
ORDER = [1, 0, 1, 0] * 4


def distribution(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Writes what pip would write of a package: its name and its entry points."""
    info = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch):
    monkeypatch.setattr(registry, "_additions", dict(registry._additions))


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """Makes the plug-in's package known as an installed one; yields its project's entry points."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text("utf-8"))["project"]
    folder = tmp_path_factory.mktemp("installed")
    distribution(folder, project["name"], project["entry-points"])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.syspath_prepend(PLUGIN)
        yield project["entry-points"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes a package with this code and these entry points known as an installed one."""

    def install(name: str, code: str, **points: str) -> None:
        folder = tmp_path / name
        distribution(folder, name, {"keras_transformers": points})
        (folder / f"{name.replace('-', '_')}.py").write_text(code, "utf-8")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name.replace("-", "_"), raising=False)

    return install


# An installed package.


@pytest.fixture(scope="module")
def in_order(acme):
    """A pipeline for the plug-in's task, with an encoder and a tokenizer of its family."""
    from acme.echo.tokenizer import EchoTokenizer
    from acme.sentence_order.head import orderer
    from acme.sentence_order.pipeline import SentenceOrderer

    tokenizer = EchoTokenizer(["[PAD]", "[UNK]", "[ECHO]", "[END]", *tiny.VOCABULARY[4:]])
    encoder = kt.acme_echo_tiny(vocabulary_size=tokenizer.vocabulary_size)
    return SentenceOrderer(orderer(tiny.lively(encoder)), tokenizer, max_sequence_length=16)


def test_its_models_are_models(acme, capsys):
    assert {"acme_echo_tiny", "acme_echo_small"} <= set(kt.list_models())
    assert "acme_echo_tiny" in dir(kt)
    assert kt.create_model("acme_echo_tiny").count_params() == 20_624
    assert cli.main(["list", "acme_*", "--json"]) == 0
    assert [(row["name"], row["parameters"]) for row in json.loads(capsys.readouterr().out)] == [
        ("acme_echo_tiny", 20_624),
        ("acme_echo_small", 222_336),
    ]
    assert cli.main(["summary", "acme_echo_tiny"]) == 0


def test_its_recipe_is_listed_and_runs(acme, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert cli.main(["train"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("acme_")]
    assert line.split(maxsplit=1)[1].startswith("Sentence order: fine-tunes")
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "acme_sentence_order", "--help"])
    assert ended.value.code == 0
    assert "--label-smoothing" in capsys.readouterr().out


@pytest.mark.slow
def test_its_task_is_saved_and_loaded_in_every_format(in_order, tmp_path):
    from acme.sentence_order.answer import SentenceOrder

    answer = in_order("a good film.", "very long!")
    assert isinstance(answer, SentenceOrder)
    kt.save(in_order, tmp_path / "saved")
    kt.save(in_order, tmp_path / "huggingface", format="huggingface")
    config = json.loads((tmp_path / "huggingface/config.json").read_text("utf-8"))
    assert (config["model_type"], config["num_passes"], config["num_hidden_layers"]) == (
        *("acme-echo", 3, 1),
    )
    assert config["architectures"] == ["AcmeEchoForSentenceOrder"]
    for folder in ("saved", "huggingface"):
        loaded = kt.load(tmp_path / folder)
        assert type(loaded) is type(in_order)
        assert type(loaded.tokenizer) is type(in_order.tokenizer)
        assert loaded("a good film.", "very long!") == answer
    # Its family serves our tasks, and our families its task.
    classify = kt.load(tmp_path / "huggingface", pipeline="classification", labels=["a", "b"])
    classify.save(tmp_path / "classifier")
    assert kt.load(tmp_path / "classifier").labels == ("a", "b")
    new = kt.load(tmp_path / "classifier", pipeline="acme_sentence_order", threshold=0.9)
    assert new.threshold == 0.9


def test_its_format_is_known(acme, in_order, tmp_path):
    from acme import archive

    encoder = keras.Model(
        in_order.model.input,
        {
            "sequence_output": in_order.model.get_layer("pooler").input,
            "pooled_output": in_order.model.get_layer("pooler").output,
        },
    )
    tokens = list(in_order.tokenizer.vocabulary)
    sizes = {"num_layers": 1, "num_passes": 3, "num_heads": 2, "hidden_dim": 16}
    file = tmp_path / "tiny.echo.npz"
    archive.write(encoder, {"vocabulary_size": len(tokens), **sizes}, tokens, file)
    assert "Echo's archives" in str(kt.convert.look(file))
    vectors = kt.load(file)(["a good film", "very long"])
    assert np.shape([answer.vector for answer in vectors]) == (2, 16)
    encoder, tokenizer = kt.convert.load_encoder(weights=file)
    assert (encoder.name, tokenizer.vocabulary_size) == ("echo", len(tokens))


@pytest.mark.slow
def test_its_task_is_trained_and_measured(in_order):
    before = in_order.model.get_weights()
    kt.fit(in_order, (*PAIRS, ORDER), epochs=1, batch_size=8, label_smoothing=0.1)
    assert not np.array_equal(in_order.model.get_weights()[0], before[0])
    assert kt.evaluate(in_order, (*PAIRS, ORDER)).keys() >= {"accuracy", "majority"}
    with pytest.raises(TypeError, match="label_smoothin.*label_smoothing"):
        kt.fit(in_order, (*PAIRS, ORDER), label_smoothin=0.1)


def test_its_task_answers_tables(in_order):
    texts, texts_b = PAIRS
    table = kt.predict(in_order, {"text": texts, "text_b": texts_b}, quiet=True)
    assert list(table) == ["text", "text_b", "in_order", "probability"]
    assert table["in_order"] == [answer.in_order for answer in in_order(texts, texts_b)]


@pytest.mark.slow
def test_installed_in_a_fresh_environment_it_goes_all_the_way(tmp_path):
    """pip installs it beside the packages of this environment; nothing is imported from tests."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python3*/site-packages")
    places = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "this_environment.pth").write_text("\n".join(places), "utf-8")
    shutil.copytree(PLUGIN, tmp_path / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PLUGIN.parent / "plugin_user.py", tmp_path)
    python = str(environment / "bin/python")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet"]
    for words in (
        ["-m", "pip", "install", *options, str(tmp_path / "plugin")],
        ["plugin_user.py"],
    ):
        variables = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
        ended = subprocess.run(
            [python, *words],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.splitlines()[-1] == "all the way"
    assert "left out" not in ended.stderr


def test_a_client_reads_its_answers_without_the_rest_of_it(acme):
    code = """
import sys
sys.modules |= {"keras": None, "tensorflow": None}  # so that importing them fails
import keras_transformers as kt
from keras_transformers.tasks.answers import answer_type, typed
from keras_transformers.tasks.texts import text_inputs
kt.serving.Client
answer_type("classification"), text_inputs(["text"])
assert "acme" not in sys.modules  # ours are looked at first
row = typed({"in_order": True, "probability": 0.75}, answer_type("acme_sentence_order"))
print(row, "acme.sentence_order.task" in sys.modules)
"""
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[:2], str(ROOT)])},
        check=False,
    )
    assert said.stdout == "SentenceOrder(in_order=True, probability=0.75) False\n", said.stderr
    assert said.stderr == ""


def test_a_task_without_an_entry_point_for_its_answer_is_read_too(installed):
    installed(
        "acme-lone",
        "import dataclasses\n"
        "from acme_answers import ANSWER\n"
        "TASK = __import__('fake_task').task('lone', ANSWER)\n",
        lone="acme_lone:TASK",
    )
    modules = {"fake_task": types.ModuleType("fake_task"), "acme_answers": types.ModuleType("a")}
    modules["fake_task"].task = fake_task
    modules["acme_answers"].ANSWER = AnswerType("lone", Lone)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        assert answer_type("lone").type is Lone


# Registered in this process.


@dataclasses.dataclass(frozen=True)
class Lone(Result):
    """An answer."""

    value: float


def fake_task(name, answer=None, pipeline_task=None):
    """Returns a task of this name."""

    class Pipeline(REGRESSION.pipeline):
        task = pipeline_task or name

    class FakeTask(type(REGRESSION)):
        pass

    FakeTask.name, FakeTask.pipeline = name, Pipeline
    FakeTask.answer = answer or AnswerType(name, Lone, inputs=(("first", "second"),))
    return FakeTask()


def family(model_type="acme-bert", **fields):
    return dataclasses.replace(BERT, model_type=model_type, **{"entries": {}, **fields})


def entry(name="acme_small", **fields):
    size = {"vocabulary_size": 10, "num_layers": 1, "num_heads": 1, "hidden_dim": 4}
    bert = kt.families.bert.model.bert
    factory = named_factory(bert, name, {**size, "max_sequence_length": 8}, summary="A BERT.")
    return Entry(**{"name": name, "factory": factory, "num_parameters": 352, "paper": "", **fields})


def test_what_is_registered_is_known_everywhere():
    small = entry()
    kt.register(family(entries={"acme_small": small}), fake_task("acme_task"), entry("acme_lone"))
    assert {"acme_small", "acme_lone"} <= set(kt.list_models())
    assert kt.acme_small().count_params() == 352
    assert kt.convert.families.family_named("acme-bert").entries == {"acme_small": small}
    assert "acme_task" in kt.tasks.task.all_tasks()
    assert answer_type("acme_task").type is Lone
    assert text_inputs(["second", "first"]) == ("first", "second")
    assert not takes_lists("second")


def test_a_module_is_registered_with_all_that_it_has():
    module = types.ModuleType("acme_module")
    module.FAMILY, module.MODELS = family(), {"acme_small": entry()}
    module.TOKENIZER = type("AcmeTokenizer", (kt.tokenizers.WordPieceTokenizer,), {})
    module.FORMAT = kt.convert.Format("acme's files", lambda path: False, lambda path: None)
    kt.register(module)
    assert "acme_small" in kt.list_models()
    assert module.FORMAT in registry.values("FORMAT")
    assert module.TOKENIZER in registry.additions("TOKENIZER")
    kt.register(module, module.FAMILY)  # the same again changes nothing
    assert kt.list_models().count("acme_small") == 1


def test_a_container_is_known_at_once(tmp_path):
    kind = type(next(registry.values("CONTAINER")))
    assert kt.convert.containers.arrays.all_containers()[0].contents != "acme's arrays"
    kt.register(kind("acme's arrays", -1, lambda path: None, lambda path: None))
    assert kt.convert.containers.arrays.all_containers()[0].contents == "acme's arrays"


def test_two_threads_register_and_look():
    barrier, errors = threading.Barrier(8), []

    def work(number):
        barrier.wait()
        try:
            kt.register(entry(f"acme_{number}"))
            assert f"acme_{number}" in kt.list_models()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert {f"acme_{number}" for number in range(8)} <= set(kt.list_models())


def test_two_threads_load_an_entry_point_once(installed, caplog):
    installed("acme-broken", "raise RuntimeError('no such luck')", models="acme_broken:MODELS")
    barrier = threading.Barrier(4)
    threads = [
        threading.Thread(target=lambda: (barrier.wait(), kt.list_models())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([x for x in caplog.records if "acme-broken" in x.getMessage()]) == 1


# Bad input.


def test_an_entry_point_that_cannot_be_imported_is_skipped_with_one_warning(installed, caplog):
    installed("acme-broken", "import no_such_module", one="acme_broken:FAMILY")
    installed("acme-misspelt", "FAMILI = 1", two="acme_misspelt:FAMILY")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert "bert_base" in kt.list_models()
            assert kt.convert.families.family_named("bert") is BERT
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    (broken,) = [text for text in said if "acme-broken 0.1" in text]
    (misspelt,) = [text for text in said if "acme-misspelt 0.1" in text]
    assert "one = acme_broken:FAMILY" in broken
    assert "no_such_module" in broken
    assert "two = acme_misspelt:FAMILY" in misspelt
    assert "'FAMILY'" in misspelt


CODE = """
import dataclasses
from keras_transformers.families.bert.files import FAMILY as BERT
FAMILY = dataclasses.replace(BERT, model_type="acme-twin", entries={})
"""


def test_two_plug_ins_of_one_name_are_an_error_that_names_both(installed, capsys):
    installed("acme-one", CODE, one="acme_one:FAMILY")
    assert kt.convert.families.family_named("acme-twin")
    installed("acme-two", CODE, two="acme_two:FAMILY")
    for _ in range(2):  # it does not go away
        with pytest.raises(ValueError, match="'acme-twin' is registered twice") as refused:
            kt.list_models()
        for words in ("acme-one 0.1", "acme_one:FAMILY", "acme-two 0.1", "rename"):
            assert words in str(refused.value)
    with pytest.raises(ValueError, match="acme-one 0.1.*acme-two 0.1|acme-two.*acme-one"):
        kt.register(family("acme-other"))


def test_a_plug_in_cannot_take_our_names_nor_those_of_another():
    with pytest.raises(ValueError, match="FAMILY 'bert'.*families.bert.files.*test_plugins.py"):
        kt.register(family("acme-good"), family("bert"))
    assert "acme-good" not in {known.model_type for known in registry.values("FAMILY")}
    with pytest.raises(ValueError, match="MODELS 'bert_tiny'"):
        kt.register(entry("bert_tiny"))
    with pytest.raises(ValueError, match="TASK 'regression'"):
        kt.register(fake_task("regression", REGRESSION.answer))
    kt.register(entry("acme_small"))
    with pytest.raises(ValueError, match="'acme_small'.*line .*line "):
        kt.register(entry("acme_small"))
    with pytest.raises(ValueError, match="'acme_twice'"):
        kt.register(entry("acme_twice"), entry("acme_twice"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_parameters": 353}, ("acme_small", "353", "352", "model")),
        ({"count": lambda: 350}, ("acme_small", "352", "350", "formula")),
        ({"count": lambda *, size: size}, ("acme_small", "size")),
    ],
)
def test_a_family_with_a_wrong_count_fails_at_registration(fields, words):
    wrong = entry(**fields)
    state = random.getstate()
    with pytest.raises((TypeError, ValueError)) as refused:
        kt.register(family(entries={"acme_small": wrong}))
    for word in (*words, "test_plugins.py"):
        assert word in str(refused.value)
    assert "acme_small" not in kt.list_models()
    assert random.getstate() == state


def test_an_installed_family_with_a_wrong_count_names_its_package(installed):
    code = CODE.replace("entries={}", "entries=MODELS").replace(
        "FAMILY =",
        "bert = BERT.entries['bert_tiny']\n"
        "MODELS = {'acme_off': dataclasses.replace(bert, name='acme_off', num_parameters=7)}\n"
        "FAMILY =",
    )
    installed("acme-off", code, off="acme_off:FAMILY")
    with pytest.raises(ValueError, match=r"acme-off 0\.1.*'acme_off'.*7.*4,385,920"):
        kt.list_models()


def test_a_task_has_one_name():
    with pytest.raises(ValueError, match="'acme_a'.*'acme_b'"):
        kt.register(fake_task("acme_a", AnswerType("acme_b", Lone)))
    with pytest.raises(ValueError, match="'acme_a'.*'acme_b'"):
        kt.register(fake_task("acme_a", pipeline_task="acme_b"))


@pytest.mark.parametrize("thing", [3, "acme", BERT.build, type(REGRESSION), types.ModuleType("x")])
def test_nothing_else_can_be_registered(thing):
    with pytest.raises(TypeError, match="FAMILY.*TASK") as refused:
        kt.register(thing)
    assert "test_plugins.py" in str(refused.value)


def test_a_package_may_ask_for_models_while_it_is_imported(installed):
    installed(
        "acme-asks",
        "import keras_transformers as kt\nNAMES = kt.list_models()\n"
        + CODE.replace("acme-twin", "acme-asks"),
        asks="acme_asks:FAMILY",
    )
    assert kt.convert.families.family_named("acme-asks")


def test_a_recipe_that_does_not_exist_is_skipped_and_two_of_one_name_are_refused(
    tmp_path, monkeypatch, caplog, capsys
):
    group = "keras_transformers.recipes"
    distribution(tmp_path / "a", "acme-a", {group: {"acme_none": "acme_no_such.recipe"}})
    monkeypatch.syspath_prepend(tmp_path / "a")
    with caplog.at_level(logging.WARNING):
        assert cli.main(["train"]) == 0
    assert "acme_none" not in capsys.readouterr().out
    assert "acme-a 0.1" in caplog.text
    distribution(tmp_path / "b", "acme-b", {group: {"tagging": "acme_no_such.recipe"}})
    monkeypatch.syspath_prepend(tmp_path / "b")
    assert cli.main(["train"]) == 2
    said = capsys.readouterr().err
    assert "'tagging'" in said
    assert "acme-b 0.1" in said


def test_a_saved_pipeline_of_a_package_that_is_gone_says_so(in_order, tmp_path, monkeypatch):
    in_order.save(tmp_path / "saved")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(PLUGIN)])
    monkeypatch.setattr(registry, "_additions", {})
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    with pytest.raises(ValueError, match=r"pipeline\.json.*'EchoTokenizer'.*install"):
        kt.load(tmp_path / "saved")
