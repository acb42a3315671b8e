"""A run's metrics.json becomes a file of results."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORIGIN = {
    "command": "python recipes/tagging.py --train-file eng.train --seed 0",
    "commit": "0123456789abcdef",
    "parameters": 22_570_000,
    "seed": 0,
    "machine": {"processor": "AMD EPYC", "cores": 2, "accelerators": []},
}
ASKED = [
    *("--name", "tagging_mine", "--task", "tagging", "--data", "CoNLL-2003", "--split", "testa"),
    *("--model", "mine", "--score", "entity F1=best"),
]
BASELINE = ["--baseline", "label of each word", "entity F1=0.6536"]


@pytest.fixture
def record(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import record

    monkeypatch.setattr(record, "SCORES", tmp_path)
    return record


def run(folder, *, seed=0, best=0.9, seconds=600, **options):
    folder.mkdir()
    metrics = {"best": best, "epochs": [], "seconds": seconds, "origin": ORIGIN | {"seed": seed}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    config = {"seed": seed, "name": folder.name, "learning_rate": 5e-5, **options}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_seeds_become_one_result(record, tmp_path):
    runs = [
        run(tmp_path / "a", seed=0, best=0.9),
        run(tmp_path / "b", seed=1, best=0.92, seconds=700),
    ]
    path = record.main([*runs, *ASKED, *BASELINE, "--note", "Lower-cased."])
    found = json.loads(path.read_text())
    assert (found["scores"], found["by_seed"]) == ({"entity F1": 0.91}, {"entity F1": [0.9, 0.92]})
    assert (found["seeds"], found["seconds"], found["commits"]) == ([0, 1], [600, 700], ["0123456"])
    assert (found["recipe"], found["parameters"]) == ("tagging", 22_570_000)
    assert (found["commands"], found["machine"]) == ([ORIGIN["command"]], "AMD EPYC, 2 cores")

    # Run again: what is not given stays.
    again = [*ASKED[:2], "--score", "entity F1=best", "--published", "BERT", "a paper", "F1=0.96"]
    path = record.main([run(tmp_path / "c", best=0.95), *again])
    found = json.loads(path.read_text())
    assert (found["scores"], found["seeds"]) == ({"entity F1": 0.95}, [0])
    assert (found["task"], found["notes"]) == ("tagging", ["Lower-cased."])
    assert found["baselines"][0]["scores"] == {"entity F1": 0.6536}
    assert found["published"] == [{"name": "BERT", "scores": {"F1": 0.96}, "source": "a paper"}]


def test_what_is_no_result_is_refused(record, tmp_path):
    one = run(tmp_path / "a")
    other = run(tmp_path / "b", seed=1, learning_rate=1e-4)
    with pytest.raises(ValueError, match=r"other options than .*a: \['learning_rate'\]"):
        record.main([one, other, *ASKED, *BASELINE])
    with pytest.raises(ValueError, match=r"no \['dev_f1'\]; it has \['best'"):
        record.main([one, *ASKED, "--score", "entity F1=dev_f1", *BASELINE])
    with pytest.raises(ValueError, match="'entity F1': give METRIC=VALUE"):
        record.main([one, *ASKED, "--score", "entity F1", *BASELINE])
    with pytest.raises(ValueError, match="no baseline"):
        record.main([one, *ASKED])
    with pytest.raises(ValueError, match="nowhere/metrics.json: .*folder"):
        record.main([str(tmp_path / "nowhere"), *ASKED, *BASELINE])
    (tmp_path / "a/metrics.json").write_text(json.dumps({"best": 0.9, "seconds": 1}))
    with pytest.raises(ValueError, match="no origin"):
        record.main([one, *ASKED, *BASELINE])
    assert not list(tmp_path.glob("*.json"))
