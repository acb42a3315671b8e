"""Reads and writes PEFT's adapters: low-rank updates of a model's matrices.

`adapter_config.json` and `adapter_model.safetensors`, as `PeftModel.from_pretrained` reads them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, open_arrays
from keras_transformers.convert.family import Family
from keras_transformers.convert.tensors import NamedTensor
from keras_transformers.files import read_json, write_json

__all__: list[str] = []

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_UPDATE = re.compile(r"(.*)\.lora_(A|B)(?:\.default)?\.weight")
_MOST_ALPHA = 1e6  # common ranks are 8 to 64
# Fields that must have these values; others compute something else.
_PLAIN: Mapping[str, Any] = {
    "peft_type": "LORA",
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
}
# The suffix of transformers' class -> PEFT's name for its task.
_TASKS = {
    "SequenceClassification": "SEQ_CLS",
    "TokenClassification": "TOKEN_CLS",
    "QuestionAnswering": "QUESTION_ANS",
    "LMHeadModel": "CAUSAL_LM",
    "ConditionalGeneration": "SEQ_2_SEQ_LM",
    "MTModel": "SEQ_2_SEQ_LM",
    "Model": "FEATURE_EXTRACTION",
}


def write_peft(
    model: keras.Model, family: Family, adapter: Any, folder: Path, *, class_name: str
) -> None:
    """Writes an adapter that was merged into a model.

    Args:
        model: the model.
        family: the model's family.
        adapter: see `fitting.Adapter`.
        folder: an existing folder.
        class_name: transformers' class for the model.
    """
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    modules, heads = [], []
    kind = next((name for end, name in _TASKS.items() if class_name.endswith(end)), None)
    bare = kind == "FEATURE_EXTRACTION"  # such as BertModel, which has no module around it
    for tensor in family.names.tensors(model):
        paths = [variable.path for variable in tensor.variables]
        place = tensor.name.partition(".")[2] if bare else tensor.name
        module = place.removesuffix(".weight")
        name = f"{_PREFIX}{module}"
        if any(path in adapter.updates for path in paths):
            first, second = _joined(tensor, adapter)
            arrays[f"{name}.lora_A.weight"] = np.ascontiguousarray(first.T)
            arrays[f"{name}.lora_B.weight"] = np.ascontiguousarray(second.T)
            modules.append(module)
            ranks[module] = first.shape[1]
        elif any(path in adapter.head for path in paths):
            values = tensor.form.tensor([adapter.head[path] for path in paths])
            arrays[f"{_PREFIX}{place}"] = values
            heads.append(tensor.name.rpartition(".")[0].partition(".")[0])
    save_file(arrays, folder / WEIGHTS, {"format": "pt"})
    config = {
        **_PLAIN,
        "base_model_name_or_path": None,
        "task_type": kind,
        "inference_mode": True,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "modules_to_save": sorted(set(heads)) or None,
        "fan_in_fan_out": family.names.kernel.order is None,
        "rank_pattern": {m: r for m, r in ranks.items() if r != adapter.rank},
        "alpha_pattern": {
            m: adapter.alpha * r / adapter.rank for m, r in ranks.items() if r != adapter.rank
        },
    }
    write_json(folder / CONFIG, config)


def read_peft(model: keras.Model, family: Family, folder: Path) -> None:
    """Adds an adapter's updates to a model, and sets the weights that it stores in full.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the adapter is not a plain LoRA, or for another model.
    """
    config = read_json(folder / CONFIG)
    _check_config(folder / CONFIG, config)
    arrays = open_arrays(folder / WEIGHTS)
    tensors = {tensor.name: tensor for tensor in family.names.tensors(model)}
    updates: dict[str, dict[str, np.ndarray]] = {}
    whole: dict[str, np.ndarray] = {}
    for stored in arrays:
        name = stored.removeprefix(_PREFIX)
        if found := _UPDATE.fullmatch(name):
            updates.setdefault(f"{found[1]}.weight", {})[found[2]] = arrays[stored]
        else:
            whole[name.replace(".modules_to_save.default", "")] = arrays[stored]
    for group in (updates, whole):
        named = Arrays.of(folder / WEIGHTS, dict.fromkeys(group, np.zeros(0)))
        today = list(family.names.today(named))
        for name, values in zip(today, list(group.values()), strict=True):
            if name not in tensors:
                raise ValueError(
                    f"{folder / WEIGHTS}: model {model.name!r} has no {name} to update"
                )
            _add(tensors[name], values, config, family, f"{folder / WEIGHTS}: {name}")


def _add(
    tensor: NamedTensor, found: Any, config: Mapping[str, Any], family: Family, place: str
) -> None:
    if not isinstance(found, dict):
        if found.shape != tensor.shape:
            raise ValueError(f"{place} has shape {found.shape}, the model's {tensor.shape}")
        tensor.fill(found.astype("float32"))
        return
    if set(found) != {"A", "B"}:
        raise ValueError(f"{place}: only lora_{min(found)}; the other matrix is missing")
    first, second = (found[name].astype("float32") for name in "AB")  # (rank, in), (out, rank)
    if not (first.ndim == second.ndim == 2 and 0 < len(first) == second.shape[1]):
        raise ValueError(
            f"{place}: lora_A {first.shape} and lora_B {second.shape}: expected (rank, in) and "
            "(out, rank)"
        )
    alpha = _alpha(config, tensor.name.removesuffix(".weight"), default=len(first))
    divisor = np.sqrt(len(first)) if config.get("use_rslora") else len(first)
    update = alpha / divisor * (second @ first)  # (out, in)
    if family.names.kernel.order is None:
        update = update.T
    if update.shape != tensor.shape:
        raise ValueError(f"{place}: an update of shape {update.shape}, the model's {tensor.shape}")
    tensor.fill(tensor.read() + update)


def _alpha(config: Mapping[str, Any], module: str, *, default: float) -> float:
    """Returns a module's alpha: its own, or the common one."""
    alpha = config.get("lora_alpha", default)
    for name, value in (config.get("alpha_pattern") or {}).items():
        if module == name or module.endswith(f".{name}"):
            alpha = value
    return float(alpha)


def _check_config(file: Path, config: Mapping[str, Any]) -> None:
    """Raises ValueError unless a configuration is that of a plain LoRA."""
    for field, value in _PLAIN.items():
        if config.get(field, value) not in (value, None):
            raise ValueError(
                f"{file}: {field}={config[field]!r:.80} is not supported: only plain LoRA with "
                f"{field}={value!r}; merge the adapter with PEFT's merge_and_unload and load the "
                "merged model"
            )
    pattern = config.get("alpha_pattern") or {}
    alphas = [
        config.get("lora_alpha", 1),
        *(pattern.values() if isinstance(pattern, dict) else "?"),
    ]
    for alpha in alphas:
        is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        if not (is_number and -_MOST_ALPHA < alpha < _MOST_ALPHA):
            raise ValueError(f"{file}: lora_alpha or alpha_pattern has {alpha!r:.80}, not a number")


def _joined(tensor: NamedTensor, adapter: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns A (in, rank) and B (rank, out) of a tensor; joined matrices have one pair each."""
    pairs = [adapter.updates.get(variable.path) for variable in tensor.variables]
    if len(pairs) == 1 and pairs[0] is not None:
        return pairs[0]
    width, rank = tensor.variables[0].shape[0], adapter.rank
    sizes = [variable.shape[1] for variable in tensor.variables]
    first = np.zeros((width, rank * len(pairs)), np.float32)
    second = np.zeros((rank * len(pairs), sum(sizes)), np.float32)
    for place, pair in enumerate(pairs):
        if pair is not None:
            rows, start = slice(rank * place, rank * (place + 1)), sum(sizes[:place])
            first[:, rows] = pair[0]
            second[rows, start : start + sizes[place]] = pair[1]
    return first, second
