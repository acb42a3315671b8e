"""Stages on this machine: their order, their errors, and Beam's options."""

import sys

import pytest

from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.jobs.engines import Beam, Local, Stage


def squares(path, number):
    """A task, which processes import from here."""
    if number < 0:
        raise ValueError(f"{number}: give a positive number")
    (path / f"{number}").write_text(str(number**2))
    return {"num_squares": 1}


def test_stages_run_in_order_and_none_after_an_error():
    done = []

    def note(task):
        if task == "wrong":
            raise ValueError("wrong: give another")
        done.append(task)
        return {}

    Local()([Stage("one", note, ["a", "b"]), Stage("two", note, ["c"])], "notes")
    assert done == ["a", "b", "c"]
    done.clear()
    with pytest.raises(ValueError, match="wrong: give another"):
        Local()([Stage("one", note, ["a", "wrong"]), Stage("two", note, ["c"])], "notes")
    assert done == ["a"]


def test_at_least_one_process():
    with pytest.raises(ValueError, match="num_processes=0: must be 1 or more"):
        Local(0)


def test_beams_options_are_its_command_line():
    options = ("runner=FlinkRunner", "--flink_master=host:8081", "streaming")
    assert Beam(options).flags() == [
        "--runner=FlinkRunner",
        "--flink_master=host:8081",
        "--streaming",
    ]


def test_beam_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(MissingExtraError, match=r"this needs apache_beam: .*transformers\[beam\]"):
        Beam()([], str(tmp_path))
