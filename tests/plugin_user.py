"""Uses the package of tests/plugin from the command line and from Python, as its users do.

test_plugins.py runs it where that package is installed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt

PAIRS = (["a good film.", "good films!", "a bad film.", "bad films!"] * 8, ["very long."] * 32)
LABELS = [1, 1, 0, 0] * 8  # easy to learn: the first text alone decides
ASKED = ("a good film.", "very long.")
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[ECHO]",
    "[END]",
    "[MASK]",
    "a",
    "film",
    "good",
    "bad",
    "long",
    "very",
    "##s",
    ".",
    "!",
]


def command(*words: str) -> str:
    """Returns what `keras-transformers` prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "keras_transformers.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{words}: {ended.stderr[-3000:]}"
    return ended.stdout


def main() -> None:
    """Loads, trains, measures, saves, exports, checks, serves and asks."""
    assert "site-packages" in __import__("acme").__file__
    assert "acme_echo_small" in command("list", "acme_*")
    assert "acme_sentence_order" in command("train")

    # A recipe, from a new encoder to an export.
    rows = [f"{a}\t{b}\t{c}\n" for a, b, c in zip(*PAIRS, LABELS, strict=True)]
    Path("pairs.tsv").write_text("text\ttext_b\tlabel\n" + "".join(rows), "utf-8")
    Path("vocab.txt").write_text("\n".join(TOKENS), "utf-8")
    columns = ("--text-column", "text", "--text-b-column", "text_b", "--label-column", "label")
    files = ("--train-file", "pairs.tsv", "--dev-file", "pairs.tsv", *columns)
    source = ("--model", "acme_echo_tiny", "--vocabulary", "vocab.txt")
    command("train", "acme_sentence_order", *files, *source, "--epochs", "1", "--save", "first")
    in_order = kt.load("first")
    assert type(in_order).__name__ == "SentenceOrderer"

    # The same in Python, from the encoder in Hugging Face's layout.
    kt.save(in_order, "order-model", format="huggingface")
    keras.utils.set_random_seed(0)
    in_order = kt.load("order-model", pipeline="acme_sentence_order")
    kt.fit(in_order, (*PAIRS, LABELS), epochs=20, batch_size=8, learning_rate=3e-3)
    assert kt.evaluate(in_order, (*PAIRS, LABELS))["accuracy"] > 0.9
    kt.save(in_order, "saved")
    answer = in_order(*ASKED)
    assert kt.load("saved")(*ASKED) == answer

    folder = str(kt.export(in_order, "served/1"))
    assert "acme_sentence_order" in command("show", folder)
    command("check", folder)
    row = json.loads(command("predict", folder, "--text", ASKED[0], "--text-b", ASKED[1]))
    assert row["in_order"] == answer.in_order
    settings = [kt.serving.ModelSettings("order", Path("served"))]
    with kt.serving.Server(settings, rest_port=0, grpc_port=0) as server:
        assert server.wait_until_loaded(300)
        for target in (f"http://127.0.0.1:{server.rest_port}", f"127.0.0.1:{server.grpc_port}"):
            with kt.serving.Client(target) as client:
                (said,) = client.ask([ASKED[0]], [ASKED[1]], model="order")
            assert type(said).__name__ == "SentenceOrder"
            assert abs(said.probability - answer.probability) < 1e-5
    print("all the way")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
