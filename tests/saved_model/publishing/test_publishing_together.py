"""Several exports are published together, or none of them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from keras_transformers.cli import main as cli
from keras_transformers.saved_model import publishing, versions
from keras_transformers.saved_model.models_config import ModelsConfig
from keras_transformers.saved_model.publishing import Publication, publish, publish_all, read_plan

pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2",
    reason="needs tensorflow-serving-api: pip install -e .[serving]",
)


@pytest.fixture
def exports(tmp_path):
    """Two exports."""
    folders = [tmp_path / "runs" / name / "1" for name in ("film", "news")]
    for folder in folders:
        (folder / "variables").mkdir(parents=True)
        (folder / "saved_model.pb").write_text(folder.parent.name)
        (folder / "variables" / "variables.index").write_text("x")
    return folders


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def plan(exports, models):
    """A plan of two models, one of them in two versions."""
    film, news = exports
    return [
        Publication(film, models / "film", labels=("stable", "blue")),
        Publication(news, models / "news" / "7", labels=("canary",), server_path="/models/news"),
        Publication(news, models / "film", labels=("canary",)),
    ]


def labels(models):
    config = ModelsConfig(models / "models.config")
    return {entry.name: dict(entry.version_labels) for entry in config.entries}


def content(models):
    """The names of all files and folders, without those of locks and such."""
    return sorted(str(path.relative_to(models)) for path in models.rglob("*"))


def test_models_versions_and_labels(plan, models):
    film, news, second = publish_all(plan)
    assert (film, news, second) == (models / "film/1", models / "news/7", models / "film/2")
    assert [v.joinpath("saved_model.pb").read_text() for v in (film, news, second)] == [
        "film",
        "news",
        "news",
    ]
    assert labels(models) == {
        "film": {"stable": 1, "blue": 1, "canary": 2},
        "news": {"canary": 7},
    }


def test_one_fault_publishes_none(plan, exports, models):
    publish(exports[0], models / "film")
    before = content(models)
    link = exports[1] / "variables" / "link"
    link.symlink_to(exports[0])
    with pytest.raises(ValueError, match="variables/link is a link"):
        publish_all(plan)
    link.unlink()
    twice = [plan[0], Publication(exports[1], models / "film", labels=("blue",))]
    with pytest.raises(ValueError, match="film gets the label 'blue' twice"):
        publish_all(twice)
    apart = [plan[0], Publication(exports[1], models.parent / "others" / "news")]
    with pytest.raises(ValueError, match="others/models.config.*name one"):
        publish_all(apart)
    assert content(models) == before


@pytest.mark.parametrize("step", ["copy", "rename", "config"])
def test_a_failure_on_the_way_publishes_none(plan, exports, models, monkeypatch, step):
    publish(exports[0], models / "film", label="stable")
    before, labelled = content(models), labels(models)
    calls = []

    def failing(real, at):
        def call(*arguments, **options):
            calls.append(arguments)
            if len(calls) == at:
                raise OSError(28, "No space left on device")
            return real(*arguments, **options)

        return call

    where, name, at = {
        "copy": (publishing, "_copy", 3),
        "rename": (versions, "publish", 3),
        "config": (ModelsConfig, "write", 1),
    }[step]
    monkeypatch.setattr(where, name, failing(getattr(where, name), at))
    with pytest.raises(OSError, match="No space left"):
        publish_all(plan)
    assert len(calls) == at
    assert (content(models), labels(models)) == (before, labelled)


def test_a_plan_that_was_interrupted_can_be_repeated(plan, exports, models, monkeypatch):
    def killed(self):
        os._exit(9)  # after all renames, before the labels

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(ModelsConfig, "write", killed)
        publish_all(plan, again=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (models / "models.config").exists()
    done = publish_all(plan, again=True)
    assert done == [models / "film/1", models / "news/7", models / "film/2"]
    assert publish_all(plan, again=True) == done
    assert labels(models)["film"] == {"stable": 1, "blue": 1, "canary": 2}
    (exports[0] / "saved_model.pb").write_text("film, trained again")
    assert publish_all(plan, again=True)[0] == models / "film/3"
    with pytest.raises(FileExistsError, match="never overwritten"):
        publish_all(plan)


def write_plan(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "release.toml"
    file.write_text(text)
    return file


def test_the_command(exports, models, tmp_path, capsys):
    file = write_plan(
        tmp_path,
        """
[[publish]]
export = "runs/film"
base_path = "models/film"
labels = ["stable"]
[[publish]]
export = "runs/news/1"
base_path = "models/news/7"
""",
    )
    assert cli.main(["publish", "--plan", str(file), "--json", "--keep", "1"]) == 0
    wanted = [str(models / "film/1"), str(models / "news/7")]
    assert json.loads(capsys.readouterr().out) == {"published": wanted, "removed": []}
    assert labels(models) == {"film": {"stable": 1}}
    assert cli.main(["publish", "--plan", str(file), "runs/film"]) == 2
    assert "leave out EXPORT" in capsys.readouterr().err
    assert cli.main(["publish"]) == 2
    assert "--plan FILE" in capsys.readouterr().err
    shutil.rmtree(models)
    words = ["publish", str(exports[0]), str(models / "film"), "--label", "a", "--label", "b"]
    assert cli.main(words) == 0
    assert labels(models) == {"film": {"a": 1, "b": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("publish = 3", "publish is 3: expected an array"),
        ("publish = [3]", "publish has 3: expected a table"),
        ("[publish]\nexport = 'a'", r"publish is a table.*write \[\[publish\]\]"),
        ("", r"nothing to publish: write \[\[publish\]\]"),
        ("[[publish]]\nexport = 'a'", r": \[\[publish\]\] 1: base_path is missing"),
        ("[[publish]]\nexport = 'a'\nbase_pth = 'b'", "base_path is missing: .*base_pth"),
        (
            "[[publish]]\nexport = 'a'\nbase_path = 'b'\nlabel = 'c'",
            r"\[\[publish\]\] 1: label is unknown: the keys are export, base_path, labels",
        ),
        (
            "[[publish]]\nexport = 'a'\nbase_path = 'b'\nlabels = 'c'",
            r"\[\[publish\]\] 1: labels is 'c': expected an array",
        ),
        (
            "[[publish]]\nexport = 'a'\nbase_path = 'b'\nwarm_up = [true]",
            "warm_up has True: expected an integer",
        ),
        ("[[publish]", "not TOML: .*line 1"),
    ],
)
def test_a_plan_that_is_wrong(tmp_path, text, message):
    file = write_plan(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        read_plan(file)
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("news", "message"),
    [
        ("export = 'runs/new'\nbase_path = 'models/news'", "no export at .*runs/new"),
        ("export = 'runs/news'\nbase_path = 'models/news/07'", "version '07' .*write it as 7"),
        (
            "export = 'runs/news'\nbase_path = 'models/news'\nlabels = ['a:b']",
            "models/news: the label 'a:b' must not",
        ),
        (
            "export = 'runs/news'\nbase_path = 'models/news'\nwarm_up = [0]",
            r"batch sizes \[0\]: expected .* 1 or more",
        ),
        (
            "export = 'runs/news'\nbase_path = 'models/news'\nwarm_up = [1]",
            "models/news: no stored examples",
        ),
    ],
)
def test_an_export_of_a_plan_that_cannot_be_published(
    exports, models, tmp_path, capsys, news, message
):
    """The error names its table, also among exports without warm-up, and nothing is published."""
    film = "[[publish]]\nexport = 'runs/film'\nbase_path = 'models/film'\n"
    file = write_plan(tmp_path, f"{film}[[publish]]\n{news}")
    assert cli.main(["publish", "--plan", str(file)]) == 2
    error = capsys.readouterr().err
    place = re.escape(f"{file}: [[publish]] 2: ")
    assert re.search(f"keras-transformers: {place}.*{message}", error), error
    assert not models.exists()
