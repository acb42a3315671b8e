"""Publishing, rolling back and pruning, completely and interrupted at every step."""

import builtins
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from google.protobuf import text_format

from keras_transformers.saved_model import versions
from keras_transformers.saved_model.models_config import ModelsConfig
from keras_transformers.saved_model.publishing import prune, publish, rollback

server_config = pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2",
    reason="needs tensorflow-serving-api: pip install -e .[serving]",
)
FILES = ("saved_model.pb", "variables/variables.index")


def make_export(folder: Path, content: str) -> Path:
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def export(tmp_path):
    return make_export(tmp_path / "exports" / "1", "good")


@pytest.fixture
def base(tmp_path):
    return tmp_path / "models" / "sentiment"


def config_of(base):
    return ModelsConfig(base.parent / "models.config")


def numbers(base):
    return versions.versions(base)


def test_versions_follow_each_other_and_are_whole(export, base):
    assert publish(export, base) == base / "1"
    assert publish(export.parent, base) == base / "2"
    assert publish(export, base / "7") == base / "7"
    assert publish(export, base) == base / "8"
    for number in (1, 2, 7, 8):
        assert [(base / str(number) / name).read_text() for name in FILES] == ["good"] * 2
    with pytest.raises(FileExistsError, match="never overwritten"):
        publish(export, base / "7")
    assert sorted(os.listdir(base)) == ["1", "2", "7", "8"]
    assert os.listdir(base.parent) == ["sentiment"]  # no config without labels


def test_what_is_no_export_is_not_published(tmp_path, base):
    with pytest.raises(FileNotFoundError, match="no such path"):
        publish(tmp_path / "nowhere", base)
    with pytest.raises(ValueError, match="sentiment: the label ''"):
        publish(make_export(tmp_path / "1", "good"), base, label="")
    assert not base.exists()


def test_a_canary_is_served_beside_the_stable_version(export, base):
    publish(export, base)
    publish(export, base, label="canary", server_path="/models/sentiment")
    found = config_of(base)
    assert found.labels(base) == {"stable": 1, "canary": 2}
    assert found.served(base) == {1, 2}
    entry = found.entry(base)
    assert (entry.name, entry.base_path) == ("sentiment", "/models/sentiment")
    assert entry.model_platform == "tensorflow"
    # Versions without a label are now stable; the server's path stays.
    publish(export, base)
    assert config_of(base).labels(base) == {"stable": 3, "canary": 2}
    publish(export, base, label="canary")
    assert config_of(base).labels(base) == {"stable": 3, "canary": 4}
    assert config_of(base).served(base) == {3, 4}
    assert config_of(base).entry(base).base_path == "/models/sentiment"


def test_the_config_is_what_tf_serving_reads(export, base):
    publish(export, base, label="stable")
    message = text_format.Parse(
        (base.parent / "models.config").read_text(), server_config.ModelServerConfig()
    )
    (entry,) = message.model_config_list.config
    assert dict(entry.version_labels) == {"stable": 1}
    assert list(entry.model_version_policy.specific.versions) == [1]


def test_other_models_in_the_config_stay(export, base):
    base.parent.mkdir()
    file = base.parent / "models.config"
    file.write_text(
        'model_config_list { config { name: "other" base_path: "/o" model_platform: "tensorflow"\n'
        "  model_version_policy { latest { num_versions: 2 } } logging_config { } } }\n"
    )
    publish(export, base, label="canary")
    found = ModelsConfig(file)
    assert found.labels(base) == {"canary": 1}
    other = found.entry(base.parent / "other")
    assert other.model_version_policy.latest.num_versions == 2
    assert other.HasField("logging_config")


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", {3}),
        ("model_version_policy { all { } }", {1, 2, 3}),
        ("model_version_policy { latest { num_versions: 2 } }", {2, 3}),
        ("model_version_policy { specific { versions: 1 } }", {1}),
    ],
)
def test_what_is_served_follows_the_policy(export, base, policy, served):
    for _ in range(3):
        publish(export, base)
    file = base.parent / "models.config"
    file.write_text(f'model_config_list {{ config {{ name: "sentiment" {policy} }} }}')
    assert ModelsConfig(file).served(base) == served


def test_a_config_that_cannot_be_read_stops_before_anything_changes(export, base):
    publish(export, base)
    for content, text in (
        ("no proto", "not a TF Serving model config"),
        ("custom_model_config { }", "only its owner can change"),
    ):
        (base.parent / "models.config").write_text(content)
        for change in (
            lambda: publish(export, base),
            lambda: rollback(base),
            lambda: prune(base, keep=1),
        ):
            with pytest.raises(ValueError, match=text):
                change()
        assert numbers(base) == [1]


def test_without_the_messages_the_error_names_the_extra(export, base, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.config", None)
    publish(export, base)
    with pytest.raises(ValueError, match=r"pip install keras-transformers\[serving\]"):
        publish(export, base, label="canary")
    assert numbers(base) == [1]


def test_rollback_without_labels_takes_the_newest_away_for_good(export, base):
    for _ in range(3):
        publish(export, base)
    assert rollback(base) == (base / "3", base / "2")
    assert numbers(base) == [1, 2]
    assert (base / ".withdrawn-3" / "saved_model.pb").is_file()
    assert publish(export, base) == base / "4"  # 3 is not reused
    rollback(base)
    rollback(base)
    with pytest.raises(ValueError, match="no version before 1"):
        rollback(base)
    assert numbers(base) == [1]


def test_rollback_with_labels_moves_them(export, base):
    for label in ("stable", "stable", "canary"):
        publish(export, base, label=label)
    assert rollback(base, label="canary") == (base / "3", base / "2")
    assert config_of(base).labels(base) == {"stable": 2, "canary": 2}
    assert config_of(base).served(base) == {2}
    assert rollback(base) == (base / "2", base / "1")
    assert config_of(base).labels(base) == {"stable": 1, "canary": 1}
    assert numbers(base) == [1, 2, 3]  # versions outside the config are not served
    with pytest.raises(ValueError, match="'beta'.*canary, stable"):
        rollback(base, label="beta")
    with pytest.raises(FileNotFoundError, match="no version folder"):
        rollback(base.parent / "nobody")


def test_there_is_nothing_to_roll_back_where_nothing_is_served(export, base):
    publish(export, base)
    entry = f'config {{ name: "{base.name}" model_version_policy {{ specific {{}} }} }}'
    (base.parent / "models.config").write_text(f"model_config_list {{ {entry} }}")
    with pytest.raises(ValueError, match="no version of sentiment; publish one"):
        rollback(base)


def test_pruning_keeps_the_newest_the_served_and_the_labelled(export, base):
    for _ in range(6):
        publish(export, base)
    assert prune(base, keep=4) == [base / "1", base / "2"]
    assert numbers(base) == [3, 4, 5, 6]
    publish(export, base, label="canary")  # 6 becomes stable
    models = config_of(base)
    models.set_labels(base, models.labels(base) | {"old": 3})
    models.write()
    publish(export, base, label="canary")
    assert prune(base, keep=1) == [base / "4", base / "5", base / "7"]
    assert numbers(base) == [3, 6, 8]
    assert sorted(os.listdir(base)) == ["3", "6", "8"]
    with pytest.raises(ValueError, match="keep=0"):
        prune(base, keep=0)


def test_pruning_removes_what_was_withdrawn_once_its_number_is_safe(export, base):
    publish(export, base)
    publish(export, base)
    rollback(base)
    assert prune(base, keep=1) == []  # or 2 would be reused
    publish(export, base)
    assert prune(base, keep=5) == [base / ".withdrawn-2"]
    assert sorted(os.listdir(base)) == ["1", "3"]


def assert_valid(base: Path) -> None:
    """Checks what a server sees: complete versions, and a config that names no others."""
    existing = numbers(base)
    assert existing
    for number in existing:
        assert [(base / str(number) / name).read_text() for name in FILES] == ["good"] * 2
    models = config_of(base)
    assert models.served(base) <= set(existing)
    assert models.served(base)
    assert set(models.labels(base).values()) <= models.served(base)


# A step is whatever changes or flushes the disk.
STEPS = ("mkdir", "rename", "replace", "fsync", "unlink", "rmdir", "open")


def killed_at(step: int, change) -> bool:
    """Runs a change in a child that dies before step `step`; returns whether it got that far."""
    child = os.fork()
    if child == 0:
        taken = 0

        def counted(function):
            def call(*arguments, **keywords):
                nonlocal taken
                if taken == step:
                    os._exit(9)  # like SIGKILL: no cleanup
                taken += 1
                return function(*arguments, **keywords)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        builtins.open = counted(builtins.open)
        try:
            change()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), code
    return code == 9


def publish_canary(export, base):
    publish(export, base, label="canary")


def publish_plain(export, base):
    publish(export, base)


def roll_back(export, base):
    rollback(base)


def prune_all(export, base):
    prune(base, keep=1)


@pytest.mark.parametrize("labels", [pytest.param((), marks=pytest.mark.slow), ("stable", "canary")])
@pytest.mark.parametrize(
    "change",
    [  # each step forks a large process
        pytest.param(publish_plain, marks=pytest.mark.slow),
        publish_canary,
        roll_back,
        pytest.param(prune_all, marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_step_leaves_the_served_set_valid(export, base, change, labels, tmp_path):
    for _ in range(3):
        publish(export, base)
    for label in labels:
        publish(export, base, label=label)
    whole = shutil.copytree(base.parent, tmp_path / "whole")
    before = config_of(base).served(base)
    step = 0
    while killed_at(step, lambda: change(export, base)):
        assert_valid(base)
        # A truncated config might have no model at all.
        assert set(labels) <= set(config_of(base).labels(base))
        if change in (publish_canary, prune_all):
            assert before <= set(numbers(base))
        # The next change works.
        change(export, base)
        assert_valid(base)
        shutil.rmtree(base.parent)
        shutil.copytree(whole, base.parent)
        step += 1
    assert step >= 3
    assert_valid(base)


FOREVER = """
import sys
from keras_transformers.saved_model.publishing import publish
publish(sys.argv[1], sys.argv[2])
print("begun", flush=True)
while True:
    publish(sys.argv[1], sys.argv[2], label="canary")
"""


def test_a_real_kill_leaves_the_served_set_valid(export, base):
    root = Path(versions.__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", FOREVER, str(export), str(base)],
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"begun\n"
        time.sleep(0.2)  # while versions are copied and renamed
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    assert_valid(base)
    latest = publish(export, base, label="canary")  # no lock is left behind
    assert config_of(base).labels(base)["canary"] == int(latest.name)


def test_publishers_at_the_same_time_lose_no_label(export, base):
    root = Path(versions.__file__).parents[2]
    code = (
        "import sys; from keras_transformers.saved_model.publishing import publish\n"
        "for i in range(5): publish(sys.argv[1], sys.argv[2], label=f'{sys.argv[3]}-{i}')\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(export), str(base), name],
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        for name in ("a", "b")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    labels = config_of(base).labels(base)
    assert {f"{name}-{i}" for name in "ab" for i in range(5)} <= set(labels)
    assert numbers(base) == list(range(1, 11))
    assert_valid(base)
