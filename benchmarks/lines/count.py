"""Counts the lines of code for six jobs in several libraries, and runs them.

    python benchmarks/lines/count.py > benchmarks/results/lines.txt

Each script gets the same lists from data.py, loads the same tiny BERT, trains for an epoch, prints
the task's metrics and answers a text; "serving" exports a SavedModel that takes strings and calls
it. The scripts follow each library's documentation and are formatted by ruff. All lines except
blank ones count; imports are counted separately. A library without a script has no class for the
job: keras-hub has no tagger, trainer of embeddings or reranker, and transformers' Trainer has no
export that takes strings.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
JOBS = ("classification", "several_labels", "tagging", "embedding", "reranking", "serving")
LIBRARIES = {
    "with_keras_transformers": "keras_transformers",
    "with_keras_hub": "keras-hub",
    "with_transformers": "transformers",
    "with_sentence_transformers": "sentence-transformers",
}


def make_bert(folder: Path) -> None:
    """Writes a tiny BERT with transformers."""
    import data
    from transformers import BertConfig, BertModel, BertTokenizer

    folder.mkdir()
    lists = (data.TEXTS, data.QUESTIONS, data.ANSWERS, [" ".join(words) for words in data.WORDS])
    words = sorted({word for texts in lists for text in texts for word in text.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 512}
    sizes |= {"hidden_size": 16, "intermediate_size": 32, "vocab_size": len(tokens)}
    config = BertConfig(**sizes)
    BertModel(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def lines(script: Path) -> tuple[int, int]:
    """Returns the number of import lines and of other lines."""
    imports = others = 0
    inside = False
    for line in filter(str.strip, script.read_text("utf-8").splitlines()):
        starts = line.startswith(("import ", "from "))
        if starts or inside:
            imports += 1
            inside = (line.endswith("(") if starts else inside) and line != ")"
        else:
            others += 1
    return imports, others


def run(script: Path, folder: Path) -> None:
    """Runs a script in an empty folder; exits with its errors if it fails."""
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    given = {"TINY_BERT": str(folder), "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as empty:
        code = f"import runpy; runpy.run_path({str(script)!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **given, "KERAS_BACKEND": "tensorflow"},
            cwd=empty,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"{script}:\n{done.stderr}")


def main() -> None:
    """Prints a row for each job."""
    print("lines of code, and of imports in brackets")
    print(f"| job | {' | '.join(LIBRARIES.values())} |")
    print(f"|---|{'--:|' * len(LIBRARIES)}")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "bert"
        os.environ["TINY_BERT"] = str(folder)
        make_bert(folder)
        for job in JOBS:
            cells = []
            for library in LIBRARIES:
                script = HERE / library / f"{job}.py"
                if not script.exists():
                    cells.append("")
                    continue
                run(script, folder)
                imports, others = lines(script)
                cells.append(f"{others} ({imports})")
            print(f"| {job.replace('_', ' ')} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
