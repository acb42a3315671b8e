"""benchmarks/gpu.py and docs/gpu.md, on JAX's CPU."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOAD = f"""
import collections, re, runpy, sys, types
gpu = types.SimpleNamespace(**runpy.run_path({str(ROOT / "benchmarks/gpu.py")!r}, run_name="gpu"))
"""
SUBJECTS = ["bert_base", "bert_large", "gpt2_small", "smollm2_135m", "transformer_big"]

pytestmark = pytest.mark.slow


def test_the_toys_train_and_have_a_row_each(on_jax):
    output = on_jax(f"""{LOAD}
import keras
fit = keras.Model.fit
def spied(model, *args, **named):
    print("computes in", gpu.anatomy(model).blocks[0].compute_dtype)
    return fit(model, *args, **named)
keras.Model.fit = spied
gpu.main(['--toy', '--steps', '2', '--peak', '1e-6'])
""")
    assert output.count("computes in bfloat16") == len(SUBJECTS)
    lines = output.splitlines()
    assert lines[0].startswith("cpu")
    found = re.findall(
        r"^(\w+) +2 x 16 +[\d,]+ +[\d.]+ +[\d,]+ +([\d.]+) % +([\d.]+) %$", output, re.M
    )
    assert [name for name, *_ in found] == SUBJECTS
    assert all(float(share) > 0 for _, *shares in found for share in shares)
    kernels = re.findall(r"^ +([\d.]+) % of the time  \S+", output, re.M)
    assert len(kernels) == 3 * len(SUBJECTS)
    assert all(0 < float(share) <= 100 for share in kernels)


def test_operations_are_those_of_the_formulas(on_jax):
    output = on_jax(f"""{LOAD}
for name in ("gpt2_small", "transformer_big"):
    (job,) = gpu.jobs([name], None, 2, True)
    model = gpu.make_model(job, toy=True)
    inputs, _ = gpu.random_batch(model, job)
    shapes = {{key: array.shape for key, array in inputs.items()}}
    matrices = sum(w.shape[0] * w.shape[1] for w in model.weights if len(w.shape) > 1)
    print(gpu.usual_flops(model, job), model.count_params(), matrices,
          gpu.training_flops(model, shapes))
""")
    rows, length, width = 2, 16, 16
    for line, attentions in zip(output.splitlines(), (1, 3), strict=True):
        usual, parameters, matrices, products = map(float, line.split())
        scores = 12 * attentions * length * width * rows * length
        assert usual == 6 * parameters * rows * length + scores
        # GPT's positions are a matrix that nothing is multiplied with.
        positions = length * width if attentions == 1 else 0
        assert products == 6 * (matrices - positions) * rows * length + scores


def test_a_step_for_a_gpu_has_the_flash_kernel_for_every_attention(on_jax):
    output = on_jax(f"""{LOAD}
import jax, keras
from unittest import mock
from jax._src.cudnn import fused_attention_stablehlo as cudnn
allowed = [jax.export.DisabledSafetyCheck.custom_call(f"__cudnn$fmha{{bias}}Softmax{{back}}")
           for bias in ("", "ScaleBias") for back in ("", "Backward")]
keras.config.set_dtype_policy("mixed_bfloat16")
try:
    with (mock.patch.object(cudnn, "check_cudnn_version", return_value=91000),
          mock.patch.object(cudnn, "check_compute_capability", return_value=True),
          mock.patch.object(keras.distribution, "list_devices", return_value=["gpu:0"])):
        for job in gpu.jobs(["bert_base", "gpt2_small", "transformer_big"], None, None, True):
            model = gpu.make_model(job, toy=True)
            inputs, targets = gpu.random_batch(model, job)
            trainable, others = ([v.value for v in group] for group in (
                model.trainable_variables, model.non_trainable_variables))
            def loss(trainable):
                outputs, _ = model.stateless_call(trainable, others, inputs, training=True)
                return sum(model.loss[name](targets[name], outputs[name]) for name in targets)
            step = jax.export.export(
                jax.jit(jax.grad(loss)), platforms=["cuda"], disabled_checks=allowed)
            text = step(trainable).mlir_module()
            kinds = re.findall(r"__cudnn\\$fmha(?:ScaleBias)?Softmax(Backward)?", text)
            print(job.name, kinds.count(""), kinds.count("Backward"))
finally:
    keras.config.set_dtype_policy("float32")
""")
    assert output.split() == [
        "bert_base",
        "1",
        "1",
        "gpt2_small",
        "1",
        "1",
        "transformer_big",
        "3",
        "3",
    ]


def test_tensorflow_is_refused(on_jax):
    on_jax(f"""{LOAD}
sys.modules["tensorflow"] = sys
try:
    gpu.main(["--toy"])
except SystemExit as error:
    assert "TensorFlow was imported" in str(error)
else:
    raise AssertionError("not refused")
finally:
    del sys.modules["tensorflow"]
""")


def test_the_documents_code_trains(on_jax):
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/gpu.md").read_text("utf-8"), re.DOTALL
    )
    output = on_jax(f"""{code}
keras.config.set_dtype_policy("float32")
print(type(model.optimizer).__name__, int(model.optimizer.iterations))
""")
    assert output.split()[-2:] == ["AdamW", "2"]
