import dataclasses
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.cli import data as data_commands
from keras_transformers.cli import main as cli
from keras_transformers.dependencies import extras
from keras_transformers.models.registry import entry
from keras_transformers.saved_model import prediction

ROOT = Path(__file__).parents[1]


def run(capsys, *arguments):
    status = cli.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_help_and_list_take_no_seconds():
    """Nor does parsing a command, which imports what it needs only when it runs."""
    code = (
        "import sys; from keras_transformers.cli.main import main\n"
        "assert main(['list', 'bert_*']) == 0\n"
        "try: main(['--help'])\n"
        "finally: print({'tensorflow', 'keras', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "set()"), result.stderr
    assert "bert_base" in result.stdout
    for name in ("list", "predict", "serving-config", "warm-up", "ask", "make-pretraining-data"):
        assert name in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("summary",),
        ("bogus",),
        ("list", "--bogus"),
        ("summary", "bert_tiny", "--heads", "bogus"),
        ("check", "path", "--max-batch-size", "many"),
        ("predict", "path", "--text"),
        ("ask", "http://h:1", "text"),  # no --model
        ("ask", "http://h:1", "text", "--model", "m", "--version", "1", "--label", "a"),
    ],
)
def test_arguments_that_fit_no_command(arguments, capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(arguments)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err


def test_values_are_taken_as_typed():
    options = ("--label", "None", "--config", "c", "--keep", "3", "--warm-up", "1", "8")
    published = cli.parse(["publish", "EXPORT", "BASE", *options])
    assert (published.export, published.base_path) == ("EXPORT", "BASE")
    assert published.label == ("None",)
    assert (published.keep, published.warm_up) == (3, (1, 8))
    asked = cli.parse(["ask", "h:1", "- a", "b", "--text-b=-c", "--text-b", "d", "--model", "m"])
    assert (asked.texts, asked.text_b) == (("- a", "b"), ("-c", "d"))
    assert cli.parse(["serve", "a", "--rest-port", "-1"]).rest_port == -1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("publish a b --keep 0", "--keep 0 ... 1 or more"),
        ("check a --max-batch-size -1", "--max-batch-size -1 ... 1 or more"),
        ("ask h:1 a --model m --timeout nan", "--timeout nan ... above 0, and finite"),
        ("serve a --max-requests 0", "--max-requests 0 ... 1 or more"),
        ("serve a --max-body-mib inf", "--max-body-mib inf ... above 0, and finite"),
        ("serve a --batch-timeout -1", "--batch-timeout -1.0 ... 0 or more"),
        ("serve a --allowed-batch-sizes 1 0", "--allowed-batch-sizes 1 0 ... 1 or more"),
        ("explore a --port 65536", "--port 65536 ... 0 to 65535"),
        ("serve a --rest-port -2", "--rest-port -2 ... -1 to 65535"),
    ],
)
def test_numbers_are_checked_by_their_options_names(capsys, words, said):
    status, out, err = run(capsys, *words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says(err, f"keras-transformers: {said}")


@pytest.mark.parametrize("command", ["average", "make-pretraining-data", "serving-config"])
def test_some_commands_need_a_file_at_least(capsys, command, tmp_path):
    more = ("--vocabulary", "v.txt") if command == "make-pretraining-data" else ()
    status, _, err = run(capsys, command, str(tmp_path / "output.weights.h5"), *more)
    assert (status, len(err.splitlines())) == (2, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (("serve", "base"), "uvicorn"),
        (("serve", "--config", "models.config"), "uvicorn"),
        (("ask", "http://host:1", "text", "--model", "m"), "httpx"),
        (("ask", "host:1", "text", "--model", "m"), "grpc"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(capsys, monkeypatch, command, package):
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("server.local", "server.rest", "client.rest", "client.grpc"):
        monkeypatch.delitem(sys.modules, f"keras_transformers.serving.{name}", raising=False)
    said = f"keras-transformers: this needs {package}: pip install 'keras-transformers[serving]'\n"
    assert run(capsys, *command) == (2, "", said)


def test_a_module_of_ours_that_is_missing_is_no_extra():
    with pytest.raises(ModuleNotFoundError) as raised, extras.needing("serving"):
        importlib.import_module("keras_transformers.no_such_module")
    assert not isinstance(raised.value, extras.MissingExtraError)


def test_a_target_that_makes_no_sense(capsys):
    status, _, err = run(capsys, "ask", "http://[::1", "text", "--model", "m")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "target 'http://[::1': pass http://host" in err


def test_ctrl_c_ends_a_command_in_one_line(capsys, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_transformers.cli.models.List.run", interrupted)
    assert run(capsys, "list") == (130, "", "keras-transformers: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["verify", "saved_models"]])
def test_output_that_cannot_be_written(words):
    """A short output is written only when the command ends."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "keras_transformers.cli.main", *words],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("keras-transformers: ")
    assert line.endswith(": No space left on device")


def test_a_message_is_one_line_that_can_be_printed(capsys, tmp_path):
    place = tmp_path / "a\nb\x1b[31m"
    status, _, err = run(capsys, "show", str(place))
    assert (status, err.count("\n")) == (2, 1)
    assert "a\\nb\\x1b[31m" in err
    (tmp_path / "models.config").write_text("x" * 100_000)
    status, _, err = run(capsys, "serve", "--config", str(tmp_path / "models.config"))
    assert (status, err.count("\n")) == (2, 1)
    assert len(err) < 2500
    (tmp_path / "file").touch()
    status, _, err = run(capsys, "serving-config", str(tmp_path / "file"), str(tmp_path))
    assert (status, "Errno" in err) == (2, False)


def test_list_names_sizes_and_papers(capsys):
    status, out, _ = run(capsys, "list", "bert_b*")
    assert status == 0
    base, large = (entry(name).num_parameters for name in ("bert_base", "bert_large"))
    assert out.split()[:3] == ["bert_base", f"{base:,}", "110M"]
    status, out, _ = run(capsys, "list", "--json")
    rows = {row["name"]: row["parameters"] for row in json.loads(out)}
    assert rows["bert_large"] == large


def test_list_without_a_match_says_so(capsys):
    status, _, err = run(capsys, "list", "nothing*")
    assert status == 2
    assert "no model's name matches 'nothing*'" in err


@pytest.fixture
def zeros(monkeypatch):
    """Initializes weights with zeros: these tests only count them, and drawing takes seconds."""
    import keras

    for initializer in (keras.initializers.TruncatedNormal, keras.initializers.GlorotUniform):
        monkeypatch.setattr(
            initializer,
            "__call__",
            lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype),
        )


def test_summary_of_bert_base_with_both_heads(capsys, zeros):
    arguments = ("summary", "bert_base", "--vocabulary-size", "30000", "--heads", "pretraining")
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "total 109,705,010: as registered (109,705,010)" in out
    assert "paper's figure 110M: agrees" in out
    assert "I = 4H = 3,072" in out
    for cell in ("V*H", "12H^2+13H", "4H^2+4H", "8H^2+5H", "2,362,368", "(?, ?, 30000)"):
        assert cell in out


def test_summary_shows_the_shapes_of_a_length(capsys, zeros):
    given = ("summary", "bert_tiny", "--heads", "pretraining", "--length")
    status, out, _ = run(capsys, *given, "512")
    assert status == 0
    for cell in ("(?, 512, 128)", "(?, 77, 30522)"):  # 15 % of the words are masked
        assert cell in out
    assert "(?, ?, " not in out
    status, _, err = run(capsys, *given, "513")
    assert status == 2
    assert says(err, "--length 513 ... bert_tiny ... 512 positions ... at most")


def test_summary_as_json_adds_up(capsys, zeros):
    status, out, _ = run(capsys, "summary", "bert_tiny", "--json")
    result = json.loads(out)
    top = [row["num_parameters"] for row in result["layers"] if "/" not in row["name"]]
    count = entry("bert_tiny").num_parameters
    assert (status, sum(top), result["total"]) == (0, count, count)


def test_summary_shows_connections_activations_and_costs(capsys, zeros, tmp_path):
    from keras_transformers.inspection import forward_flops, input_shapes
    from keras_transformers.models.registry import create_model

    given = ("summary", "bert_tiny", "--flops", "--batch-size", "2", "--length", "16")
    status, out, _ = run(capsys, *given, "--json")
    result = json.loads(out)
    rows = {row["name"]: row for row in result["layers"]}
    assert rows["token_and_segment"]["connected_to"] == ["token_embedding", "segment_embedding"]
    assert rows["encoder_layer_0/feed_forward"]["activation"] == "gelu"
    assert rows["encoder_layer_0"]["output_bytes"] == 4 * 2 * 16 * 128
    assert rows["pooler"]["weight_bytes"] == 4 * (128 * 128 + 128)
    model = create_model("bert_tiny")
    expected = forward_flops(model, input_shapes(model, batch_size=2, length=16))
    flops = sum(row["flops"] for row in rows.values() if "flops" in row)
    assert (status, result["flops"]["total"], flops) == (0, expected, expected)
    page = tmp_path / "bert.html"
    status, out, _ = run(capsys, *given, "--html", str(page))
    assert (status, out) == (0, f"written: {page}\n")
    for cell in ("token_embedding, segment_embedding", "gelu", "forward pass of 2 x 16 tokens: "):
        assert cell in page.read_text("utf-8")


def test_summary_fails_when_the_count_is_not_the_registered_one(capsys, monkeypatch, zeros):
    from keras_transformers.models import registry

    entries = dict(registry.all_entries())
    tiny = entries["bert_tiny"]
    entries["bert_tiny"] = dataclasses.replace(tiny, num_parameters=1)
    monkeypatch.setattr(registry, "all_entries", lambda: entries)
    status, out, _ = run(capsys, "summary", "bert_tiny")
    assert status == 1
    assert "NOT as registered (1)" in out
    entries["bert_tiny"] = dataclasses.replace(tiny, paper_figure="9M")
    status, out, _ = run(capsys, "summary", "bert_tiny")
    assert status == 1
    assert "paper's figure 9M: differs" in out


def test_wrong_names_end_with_one_line(capsys):
    status, out, err = run(capsys, "summary", "bert_tinny")
    assert (status, out) == (2, "")
    assert err.startswith("keras-transformers: model 'bert_tinny' is not registered; did you mean")
    status, _, err = run(capsys, "summary", "bert_tiny", "--vocabulary-size", "0")
    assert (status, "--vocabulary-size 0: must be 1 or more" in err) == (2, True)


def test_summary_is_a_page_or_json(capsys, tmp_path):
    page = tmp_path / "page.html"
    status, _, err = run(capsys, "summary", "bert_tiny", "--json", "--html", str(page))
    assert (status, "use one of them" in err, page.exists()) == (2, True, False)


def test_heads_need_an_encoder(capsys, zeros):
    status, _, err = run(capsys, "summary", "transformer_tiny", "--heads", "pretraining")
    assert status == 2
    assert "has no output 'sequence_output'" in err


def test_predict_reads_texts_and_stdin(capsys, monkeypatch):
    calls = []
    texts = ("text",)

    class Predictor:
        def __init__(self, path):
            self.path, self.text_names = path, texts

        def __call__(self, inputs):
            calls.append(inputs)
            return [{"label": text.upper()} for text in inputs["text"]]

    monkeypatch.setattr(prediction, "Predictor", Predictor)
    status, out, _ = run(capsys, "predict", "somewhere", "--text", "a", "--text", "ü")
    assert (status, out.splitlines()) == (0, ['{"label": "A"}', '{"label": "Ü"}'])
    texts = ("text", "text_b")
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ttwo\nthree\tfour\n"))
    run(capsys, "predict", "somewhere")
    assert calls[-1] == {"text": ["one", "three"], "text_b": ["two", "four"]}
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\tthree\n"))
    status, _, err = run(capsys, "predict", "somewhere")
    assert status == 2
    assert "stdin:2: 2 fields" in err
    status, _, err = run(
        capsys, "predict", "somewhere", "--text", "a", "--text-b", "b", "--text-b", "c"
    )
    assert status == 2
    assert says(err, "texts: 1, --text-b: 2 ... one of each")


def test_predict_reads_choices(capsys, monkeypatch):
    calls = []

    class Predictor:
        def __init__(self, path):
            self.path, self.text_names = path, ("text", "choices")

        def __call__(self, inputs):
            calls.append(inputs)
            return [{"choice": "x"} for _ in inputs["text"]]

    monkeypatch.setattr(prediction, "Predictor", Predictor)
    given = ("--text", "a", "--choice", "b", "--choice", "c d")
    assert run(capsys, "predict", "somewhere", *given)[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ttwo\nthree\tfour\tfive\n"))
    assert run(capsys, "predict", "somewhere")[0] == 0
    assert calls == [
        {"text": ["a"], "choices": [["b", "c d"]]},
        {"text": ["one", "three"], "choices": [["two"], ["four", "five"]]},
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ttwo\nthree\n"))
    for arguments, message in (
        ((), "stdin:2: no choices: expected `text<TAB>choice<TAB>choice`"),
        (("--text", "a", "--text", "b", "--choice", "c"), "texts: 2, --text-b: 0; --choice needs"),
        (("--text", "a", "--text-b", "b"), "takes text, choices: pass 2 texts per row, --text and"),
    ):
        status, _, err = run(capsys, "predict", "somewhere", *arguments)
        assert (status, message in err) == (2, True), err


@pytest.mark.parametrize("names", [("text", "text_b"), ("question", "context")])
def test_predict_names_the_inputs_as_the_export_does(capsys, monkeypatch, names):
    calls = []

    class Predictor:
        def __init__(self, path):
            self.path, self.text_names = path, names

        def __call__(self, inputs):
            calls.append(inputs)
            return [{"probability": 0.5}]

    monkeypatch.setattr(prediction, "Predictor", Predictor)
    status, out, _ = run(capsys, "predict", "somewhere", "--text", "a", "--text-b", "b")
    assert (status, out) == (0, '{"probability": 0.5}\n')
    assert calls == [{names[0]: ["a"], names[1]: ["b"]}]
    status, _, err = run(capsys, "predict", "somewhere", "--text", "a")
    assert status == 2
    assert f"somewhere takes {', '.join(names)}: pass 2 texts per row" in err


@pytest.fixture(scope="module")
def pipeline():
    """An untrained classifier of pairs."""
    import keras_transformers as kt
    from keras_transformers.families.bert.model import bert

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "!"]
    tokenizer = kt.tokenizers.WordPieceTokenizer(words)
    encoder = bert(
        vocabulary_size=8, num_layers=1, num_heads=2, hidden_dim=8, max_sequence_length=16
    )
    model = kt.heads.classifier(encoder, 2)
    return kt.pipelines.TextClassifier(model, tokenizer, ["no", "yes"], pair=True)


def test_predict_runs_a_saved_pipeline(capsys, pipeline, tmp_path):
    folder = str(pipeline.save(tmp_path / "pipeline"))
    pairs = ("--text", "good", "--text", "film !", "--text-b", "film", "--text-b", "ü")
    status, out, _ = run(capsys, "predict", folder, *pairs)
    rows = pipeline.rows({"text": ["good", "film !"], "text_b": ["film", "ü"]})
    assert (status, [json.loads(line) for line in out.splitlines()]) == (0, rows)
    for given in ((), ("--choice", "film")):
        status, _, err = run(capsys, "predict", folder, "--text", "good", *given)
        assert (status, f"{folder} takes text, text_b: pass 2 texts per row" in err) == (2, True)


def test_predict_runs_pretrained_weights(capsys, tmp_path):
    tiny.wordpiece().save(tmp_path)
    model = tiny.pipeline("classification").model
    kt.families.bert.FAMILY.save(model, tmp_path / "model.safetensors")
    kt.families.bert.FAMILY.save_config(model, tmp_path / "config.json", labels=["x", "y"])
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    status, out, _ = run(capsys, "predict", str(tmp_path), "--text", "good")
    assert status == 0
    assert json.loads(out)["label"] in ("x", "y")
    (tmp_path / "vocab.txt").unlink()
    status, _, err = run(capsys, "predict", str(tmp_path), "--text", "good")
    assert status == 2
    assert err.startswith(f"keras-transformers: {tmp_path} has no vocabulary")
    assert "as the tokenizer's save_pretrained writes" in err


def test_predict_says_where_there_is_nothing_to_run(capsys, tmp_path):
    status, _, err = run(capsys, "predict", str(tmp_path), "--text", "a")
    assert (status, f"no export at {tmp_path}" in err) == (2, True)
    assert "pass a model's folder of versions" in err


def test_translate_gives_a_line_for_each_line(capsys, monkeypatch, tmp_path):
    class Predictor:
        text_names = ("text",)

        def __init__(self, path):
            assert path == "somewhere"

        def __call__(self, inputs):
            assert len(inputs["text"]) <= 32
            return [{"translation": f"<{text}>\n", "score": 0.0} for text in inputs["text"]]

    monkeypatch.setattr(prediction, "Predictor", Predictor)
    lines = [f"Zeile {i}" for i in range(40)] + [""]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", "utf-8")
    status, out, _ = run(capsys, "translate", "somewhere", str(tmp_path / "in.txt"))
    assert (status, out.splitlines()) == (0, [f"<{line}>" for line in lines])
    rows = run(capsys, "translate", "somewhere", str(tmp_path / "in.txt"), "--json")[1].splitlines()
    assert json.loads(rows[0]) == {"translation": "<Zeile 0>\n", "score": 0.0}
    monkeypatch.setattr("sys.stdin", io.StringIO("eins\r\nzwei\n"))
    assert run(capsys, "translate", "somewhere")[1] == "<eins>\n<zwei>\n"
    status, _, err = run(capsys, "translate", "somewhere", str(tmp_path / "missing.txt"))
    assert (status, "missing.txt" in err) == (2, True)
    monkeypatch.setattr(Predictor, "__call__", lambda *_: [{"label": "good", "score": 0.9}])
    status, out, err = run(capsys, "translate", "somewhere", str(tmp_path / "in.txt"))
    assert (status, out) == (2, "")
    assert err == (
        "keras-transformers: somewhere answers label, score, not a translation: use a translator\n"
    )


def test_average_writes_the_mean(capsys, tmp_path):
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    for value in (1.0, 3.0):
        model.set_weights([np.full((2, 1), value), np.full(1, value)])
        model.save_weights(tmp_path / f"{value}.weights.h5")
    files = [str(tmp_path / f"{value}.weights.h5") for value in (1.0, 3.0)]
    output = str(tmp_path / "mean.weights.h5")
    status, out, _ = run(capsys, "average", output, *files)
    assert (status, out) == (0, f"{output}: the average of 2 files\n")
    model.load_weights(output)
    np.testing.assert_array_equal(model.get_weights()[0], [[2.0], [2.0]])
    status, _, err = run(capsys, "average", output, *files)
    assert status == 2
    assert "exists" in err


def test_make_pretraining_data_has_the_true_options():
    from keras_transformers.data.pretraining import PretrainingOptions, TextFormat

    found, wanted = data_commands.Options(), PretrainingOptions()
    assert dataclasses.asdict(found) == dataclasses.asdict(wanted)
    assert get_type_hints(data_commands.Options) == get_type_hints(PretrainingOptions)
    hints = get_type_hints(data_commands.MakePretrainingData)
    assert get_args(hints["text_format"]) == get_args(TextFormat)


@pytest.mark.slow
def test_make_pretraining_data(capsys, tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *"abcde"]), "utf-8")
    (tmp_path / "a.txt").write_text("a b c\nd E\n\n" * 5, "utf-8")
    output, vocabulary = str(tmp_path / "data"), ("--vocabulary", str(tmp_path / "vocab.txt"))
    command = ("make-pretraining-data", output, str(tmp_path / "a.txt"), *vocabulary)
    status, out, _ = run(
        capsys, *command, "--max-sequence-length", "16", "--num-shards", "2", "--whole-words"
    )
    assert status == 0
    assert out.startswith(f"{output}: 5 documents (0 empty, skipped;")
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text("utf-8"))
    expected = {"max_sequence_length": 16, "num_shards": 2, "whole_words": True}
    expected |= {"dupe_factor": 10, "max_predictions": 20, "text_format": "lines"}
    assert expected.items() <= manifest["configuration"].items()
    status, _, err = run(capsys, *command, "--cased")
    assert status == 2
    assert says(err, "lowercase ... True ... False, max_sequence_length ... 16 ... 128")

    (tmp_path / "vocab.txt").write_text("\n".join([*special[:4], *"abcde"]), "utf-8")
    status, _, err = run(capsys, *command)
    assert (status, "vocab.txt: [MASK] missing from 9 tokens" in err) == (2, True)
