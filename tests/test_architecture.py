"""The house rules that a program can check: which way imports run, and how long a file is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformers"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# room -> rooms of ours that it may import.
ALLOWED = {
    "layers": set(),
    "models": {"layers"},
    "tokenizers": {"files"},
    "data": {"tokenizers", "files"},
    "decoding": set(),
    "training": {"files"},
    "convert": {"layers", "models", "files"},
    "inspection": {"layers", "models"},
    "export": {"layers", "models", "tokenizers", "decoding", "inspection", "files"},
    "serving": {"files"},
    "registry": {"models"},
    "encoders": {"models", "registry", "convert", "tokenizers"},
    "fine_tuning": {"encoders", "export", "tokenizers", "training"},
}
# These reach a GPU through JAX, so TensorFlow may not be needed to import them.
WITHOUT_TENSORFLOW = ("layers", "models", "registry", "convert", "inspection")
# Where keras.ops cannot do it; the import stands in a function, behind a look at the backend.
WITH_TENSORFLOW = ("layers/recurrent.py",)


def imports(path: Path) -> list[str]:
    """Modules that a file imports, at its top or inside its functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    here = room(path)
    if here in ("__init__", "cli"):
        return
    allowed = ALLOWED.get(here, set()) | {here}
    for name in imports(path):
        parts = name.split(".")
        assert parts[0] != "recipes", f"{path} imports {name}: nothing imports recipes"
        if parts[0] == "keras_transformers" and len(parts) > 1:
            assert parts[1] in allowed, f"{path}: {here} may not import {name}"
        if here in WITHOUT_TENSORFLOW and str(path.relative_to(PACKAGE)) not in WITH_TENSORFLOW:
            assert not parts[0].startswith("tensorflow"), f"{path}: {here} speaks keras.ops alone"


def test_a_wrong_import_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from keras_transformers.export import classifier\n")
    assert imports(wrong) == ["keras_transformers.export.classifier"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_reads_in_one_sitting(path):
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= 430, f"{path} has {lines} lines: split it by what it does"


def run(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import keras_transformers, sys; print('tensorflow' in sys.modules, 'keras' in sys.modules)"
    )
    assert run(code) == "False False"


def test_on_jax_the_same_numbers_without_tensorflow(tmp_path):
    pytest.importorskip("jax", reason="needs jax: pip install -e .[dev]")
    code = f"""
import sys, numpy as np, keras_transformers as kt, keras
from keras_transformers.models.bert import bert
from keras_transformers.models.transformer import transformer
encoder = bert(vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16,
               intermediate_dim=24, max_sequence_length=20)
model = kt.heads.pretrainer(encoder)
kt.convert.load_bert(model, {str(ROOT / "tests/golden/bert_random.safetensors")!r})
golden = np.load({str(ROOT / "tests/golden/bert_random.npz")!r})
import runpy
inputs = runpy.run_path({str(ROOT / "tests/golden/make_bert.py")!r})["random_inputs"]()
outputs = model.predict(inputs, verbose=0)
np.testing.assert_allclose(outputs["mask_logits"], golden["gelu/mask_logits"], atol=1e-5)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
tiny = transformer(vocabulary_size=20, num_encoder_layers=1, num_decoder_layers=1, num_heads=2,
                   hidden_dim=8, intermediate_dim=16)
tiny.compile("adam", loss={{"logits": loss}})
ids = np.ones((2, 4), "int32")
tiny.fit({{"source_token_ids": ids, "target_token_ids": ids}}, {{"logits": ids}}, verbose=0)
print(keras.backend.backend(), "tensorflow" in sys.modules)
"""
    assert run(code, KERAS_BACKEND="jax") == "jax False"
