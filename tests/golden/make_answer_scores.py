"""Makes answer_scores.json with the official evaluation scripts of SQuAD 1.1 and 2.0.

    python tests/golden/make_answer_scores.py evaluate-v1.1.py evaluate-v2.0.py

The scripts stand at https://rajpurkar.github.io/SQuAD-explorer. Frozen are their outputs for the
predictions in `CASES`, one by one (script 1.1) and all together (script 2.0, with thresholds).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).parent / "answer_scores.json"
THRESHOLDS = [-3.0, 0.0, 1.5, 100.0]

# Prediction, references (none: the question has no answer), null score.
CASES: list[tuple[str, list[str], float]] = [
    ("the Denver Broncos", ["Denver Broncos", "The Denver Broncos"], -4.0),
    ("Broncos", ["Denver Broncos", "Carolina Panthers"], -2.5),
    ("", ["Denver Broncos"], 3.0),
    ("", [], 2.0),
    ("Denver", [], 1.0),
    ("the", [], 0.5),  # not empty, but empty once normalized
    ("", ["the", "a"], 0.0),  # references that normalize to nothing
    ("an", ["the"], 0.0),
    ("...", ["!"], -1.0),
    ("U.S.A.", ["USA", "us a"], -1.0),
    ("7,000,000", ["7000000"], 0.25),
    ("«Faust»", ["Faust"], -0.5),  # punctuation beyond ASCII stays
    ("Faust – part one", ["Faust - part one"], -0.5),  # noqa: RUF001
    ("“the end”", ["end"], -0.5),
    ("it’s", ["its"], 0.75),  # noqa: RUF001
    ("it's", ["its"], 0.75),
    ("theatre an-other a.n the_end", ["theatre another end"], -6.0),
    ("A\u00a0B", ["b"], -2.0),  # a no-break space parts words
    ("CAFÉ", ["café"], -2.0),
    ("cafe\u0301", ["café"], -2.0),  # the accent apart: another word
    ("İstanbul", ["istanbul"], -2.0),
    ("Straße", ["STRASSE"], -2.0),
    ("中国 北京", ["北京", "中国北京"], 1.25),
    ("ＡＢＣ，", ["abc"], 1.25),  # noqa: RUF001
    ("🎬 film", ["film", "🎬"], 1.25),
    ("a a a b b", ["a b b c"], -0.125),
    ("b b b", ["b b"], -0.125),
    ("one two three four", ["two", "four three two one", "one"], -0.25),
    ("  spaced \n out\t", ["spaced out"], -0.25),
    ("wrong", [], 7.0),
    ("also wrong", [], -7.0),
]


def article(references: list[list[str]]) -> dict:
    """References in SQuAD's JSON; the ids are numbers."""
    qas = [
        {"id": str(i), "question": "?", "answers": [{"text": t, "answer_start": 0} for t in texts]}
        for i, texts in enumerate(references)
    ]
    return {"version": "1.1", "data": [{"paragraphs": [{"context": "", "qas": qas}]}]}


def run(script: str, *files: object, options: tuple[str, ...] = ()) -> dict:
    """What a script prints for JSON files with these contents."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, content in enumerate(files):
            paths.append(f"{folder}/{i}.json")
            Path(paths[-1]).write_text(json.dumps(content))
        if len(files) == 3:
            paths.insert(2, "--na-prob-file")
        command = [sys.executable, script, *paths, *options]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def main() -> None:
    """Writes the file."""
    first, second = sys.argv[1:]
    predictions = {str(i): text for i, (text, _, _) in enumerate(CASES)}
    references = [texts for _, texts, _ in CASES]
    null_scores = {str(i): score for i, (_, _, score) in enumerate(CASES)}
    single = [
        run(first, article([texts]), {"0": text}) if texts else None for text, texts, _ in CASES
    ]
    whole = {
        str(threshold): run(
            second,
            article(references),
            predictions,
            null_scores,
            options=(f"--na-prob-thresh={threshold}",),
        )
        for threshold in THRESHOLDS
    }
    FILE.write_text(json.dumps({"v1": single, "v2": whole}, indent=1) + "\n")


if __name__ == "__main__":
    main()
