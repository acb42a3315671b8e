import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suite():
    """The modules of benchmarks/suite that need no peers, imported as its scripts do."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "suite"))
    import contest
    import report

    yield contest, report
    sys.path.remove(str(ROOT / "benchmarks" / "suite"))


def test_the_page_is_printed_from_the_tables(suite):
    _, report = suite
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert page == report.page(), "run `python benchmarks/suite/report.py`"


def test_all_take_turns_and_ours_is_compared_with_the_best_peer(suite):
    contest, _ = suite
    turns = []
    jobs = {name: lambda name=name: turns.append(name) for name in ("ours", "a", "b")}
    found = contest.take_turns(jobs, seconds=0, least=3)
    assert turns == 2 * ["ours"] + 2 * ["a"] + 2 * ["b"] + 3 * ["ours", "a", "b"]
    assert all(times["turns"] == 3 for times in found.values())
    medians = {"ours": 6.0, "ours, other": 3.0, "a": 4.0, "b": 5.0}
    times = {
        name: {"median": median, "first_quartile": 1.0, "third_quartile": 9.0}
        for name, median in medians.items()
    }
    text = contest.line("1 x 12", times)
    assert text.startswith("1 x 12: ours 6.0 ms (1.0 to 9.0), ")
    assert text.endswith("; ours / best 1.50, ours, other / best 0.75")


def test_a_table_names_command_machine_and_versions(suite, tmp_path, monkeypatch):
    contest, _ = suite
    monkeypatch.setattr(contest, "RESULTS", tmp_path / "suite")
    row = {name: {"median": 1.0, "first_quartile": 1.0, "third_quartile": 1.0} for name in ("a",)}
    contest.write("table", "python table.py", {"row": {**row, "ours": row["a"]}})
    suffix = contest.INSTRUCTION_SETS[contest.machine()["instruction_set"]][1]
    file = tmp_path / "suite" / f"table{suffix}.json"
    table = json.loads(file.read_text())
    assert table["command"] == "python table.py"
    assert {"tensorflow", "keras"} <= table["machine"]["versions"].keys()
    assert "ours / best 1.00" in file.with_suffix(".txt").read_text()


@pytest.mark.parametrize(
    ("limit", "flags", "expected"),
    [
        ("", ["avx2"], "AVX2"),
        ("", ["avx2", "avx512f"], "AVX-512"),
        ("AVX2", ["avx2", "avx512f", "amx_tile"], "AVX2"),
        ("AVX512_CORE_VNNI", ["avx2", "avx512f", "amx_tile"], "AVX-512"),
        ("", ["avx2", "avx512f", "amx_tile"], "AMX"),
    ],
)
def test_a_table_says_which_instructions_ran(suite, tmp_path, monkeypatch, limit, flags, expected):
    contest, report = suite
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert contest.instruction_set(flags) == expected
    for module in (contest, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    machine = {**contest.machine(), "instruction_set": expected, "kernels": "oneDNN"}
    monkeypatch.setattr(contest, "machine", lambda: machine)
    row = {"median": 1.0, "first_quartile": 1.0, "third_quartile": 1.0}
    contest.write("encoders", "python table.py", {"1 x 12": {"ours": row, "peer": row}})
    suffix = contest.INSTRUCTION_SETS[expected][1]
    assert (tmp_path / f"encoders{suffix}.json").exists()
    others = "\n".join(report._others("encoders"))
    assert (f"{expected}, oneDNN" in others) == bool(suffix)
    missing = {"AMX", "AVX2"} - {expected}
    assert all(name in others.rpartition("Not measured")[2] for name in missing)


def test_the_parts_of_a_training_step_add_up(suite):
    import training_step

    medians = {
        "forward": 10.0,
        "gradients, no dropout": 31.0,
        "gradients": 34.0,
        "dense": 1.0,
        "optimizer": 4.0,
        "optimizer, clip norm": 6.0,
        "step": 42.0,
    }
    found = training_step.parts(medians)
    assert list(found.values()) == [10.0, 21.0, 3.0, 1.0, 4.0, 2.0, 1.0]
    assert sum(found.values()) == medians["step"]
