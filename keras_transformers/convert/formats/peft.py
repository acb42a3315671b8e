"""Reads and writes PEFT's adapters: low-rank updates of a model's matrices.

`adapter_config.json` and `adapter_model.safetensors`, as `PeftModel.from_pretrained` reads them.
"""

import logging
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, open_arrays
from keras_transformers.convert.family import Family
from keras_transformers.convert.regular_expressions import matching
from keras_transformers.convert.tensors import NamedTensor, unusable
from keras_transformers.files import read_json, write_json

__all__: list[str] = []

_logger = logging.getLogger(__name__)

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_UPDATE = re.compile(r"(.*)\.lora_(A|B)\.weight")
_RANK = _ALPHA = 8  # PEFT's defaults
_MOST_ALPHA = 1e6  # common ranks are 8 to 64
_MOST_SECONDS = 10  # for patterns; those of a large model take a tenth of a second
_MOST_NAMED = 5
# Fields whose other values compute something else -> the values that are supported.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False,),
    "bias": ("none",),
    "lora_bias": (False,),
    "use_qalora": (False,),
    "use_bdlora": (None,),
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "layer_replication": (None,),
    "target_parameters": (None,),
    "trainable_token_indices": (None,),
    # The others change the model's own matrices when PEFT loads the adapter.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
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
        **{field: _PLAIN[field][0] for field in ("peft_type", "use_dora", "bias", "lora_bias")},
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


def read_peft(model: keras.Model, family: Family, folder: Path) -> set[str]:
    """Adds an adapter's updates to a model, and sets the weights that it stores in full.

    The file has an update for each module that PEFT adapted, so `target_modules` and the other
    fields that chose them are not needed. Shapes are compared before any array is read.

    Returns:
        The paths of the variables that the adapter stores in full.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the adapter is not a plain LoRA, or for another model.
    """
    place, file = folder / CONFIG, folder / WEIGHTS
    config = _read_config(place)
    arrays = open_arrays(file).renamed(_name_in_model)
    pairs: dict[str, dict[str, str]] = {}  # module -> "A" and "B" -> name
    whole: list[str] = []
    for name in arrays:
        if match := _UPDATE.fullmatch(name):
            pairs.setdefault(match[1], {})[match[2]] = name
        else:
            whole.append(name)
    adapted = _tensors(model, family, file, [f"{module}.weight" for module in pairs])
    stored = _tensors(model, family, file, whole)
    ranks = _by_module(place, config, "rank_pattern", pairs, config.get("r", _RANK))
    alphas = _by_module(place, config, "alpha_pattern", pairs, config.get("lora_alpha", _ALPHA))
    for tensor, (module, pair) in zip(adapted, pairs.items(), strict=True):
        _check_pair(tensor, pair, arrays.shapes, ranks[module], f"{file}: {module}")
    for tensor, name in zip(stored, whole, strict=True):
        if (shape := tuple(arrays.shapes[name])) != tensor.shape:
            raise ValueError(f"{file}: {name} has shape {shape}, the model's {tensor.shape}")
    if troubles := unusable(arrays.items()):
        raise ValueError(f"{file}: {'. '.join(troubles)}: save the adapter again")
    for tensor, (module, pair) in zip(adapted, pairs.items(), strict=True):
        first, second = (arrays[pair[part]].astype("float32") for part in "AB")
        rank = ranks[module]
        divisor = np.sqrt(rank) if config.get("use_rslora") else rank
        update = alphas[module] / divisor * (second @ first)  # (out, in)
        tensor.fill(tensor.read() + (update.T if tensor.form.order is None else update))
    for tensor, name in zip(stored, whole, strict=True):
        tensor.fill(arrays[name].astype("float32"))
    return {variable.path for tensor in stored for variable in tensor.variables}


def _name_in_model(stored: str) -> str:
    """Returns the name in the model that an adapter was trained on."""
    name = stored.removeprefix(_PREFIX).replace(".modules_to_save.default", "")
    return re.sub(r"\.(lora_[AB])\.default\.weight$", r".\1.weight", name)


def _tensors(model: keras.Model, family: Family, file: Path, names: list[str]) -> list[NamedTensor]:
    """Returns the model's tensors of these names; ValueError if it lacks one."""
    tensors = {tensor.name: tensor for tensor in family.names.tensors(model)}
    today = list(family.names.today(Arrays.of(file, dict.fromkeys(names, np.zeros(0)))))
    for name in today:
        if name not in tensors:
            raise ValueError(f"{file}: model {model.name!r} has no {name} to update")
    return [tensors[name] for name in today]


def _by_module(
    file: Path, config: Mapping[str, Any], field: str, modules: Iterable[str], default: Any
) -> dict[str, Any]:
    """Returns each module's rank or alpha, as PEFT's `get_pattern_key` chooses it.

    The keys of a pattern are regular expressions. The first that matches a module's name, or the
    end of it after a dot, decides; modules that none matches have the default. A warning names the
    keys that decide nothing.

    Raises:
        ValueError: a key is not a regular expression, or all together take too long.
    """
    left, values, unused = list(modules), dict.fromkeys(modules, default), []
    end = time.monotonic() + _MOST_SECONDS
    for pattern, value in (config.get(field) or {}).items():
        if time.monotonic() > end:
            raise ValueError(
                f"{file}: {field} takes more than {_MOST_SECONDS} seconds to match: use fewer or "
                "simpler patterns"
            )
        try:
            hits = matching(rf"(.*\.)?({pattern})", left)
        except ValueError as error:
            raise ValueError(f"{file}: {field}: {error}") from error
        values |= dict.fromkeys(hits, value)
        left = [module for module in left if module not in hits]
        if not hits:
            unused.append(pattern)
    if unused:
        _logger.warning(
            "%s: %s has %s, which no update in %s uses",
            file, field, ", ".join(f"{pattern!r:.80}" for pattern in unused[:_MOST_NAMED]), WEIGHTS,
        )  # fmt: skip
    return values


def _check_pair(
    tensor: NamedTensor,
    pair: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    rank: int,
    place: str,
) -> None:
    """Raises ValueError unless two stored matrices make an update of a tensor."""
    if pair.keys() != {"A", "B"}:
        raise ValueError(f"{place}: only lora_{min(pair)}; the other matrix is missing")
    if len(tensor.shape) != 2:
        raise ValueError(f"{place}: the model's tensor of shape {tensor.shape} is not a matrix")
    outputs, inputs = tensor.shape[::-1] if tensor.form.order is None else tensor.shape
    first, second = (tuple(shapes[pair[part]]) for part in "AB")
    if (first, second) != ((rank, inputs), (outputs, rank)):
        raise ValueError(
            f"{place}: lora_A is {first}, lora_B {second}; with rank {rank} from {CONFIG}, the "
            f"model needs {(rank, inputs)} and {(outputs, rank)}"
        )


def _read_config(file: Path) -> dict[str, Any]:
    """Reads a configuration; ValueError unless it is that of a plain LoRA."""
    config = read_json(file)
    for field, allowed in _PLAIN.items():
        value = config.get(field)
        if value not in (None, [], {}, *allowed):
            raise ValueError(
                f"{file}: {field}={value!r:.80} is not supported: only plain LoRA with "
                f"{field}={allowed[0]!r}; merge the adapter with PEFT's merge_and_unload and load "
                "the merged model"
            )
    for name, pattern, default, is_valid, wanted in (
        ("lora_alpha", "alpha_pattern", _ALPHA, _is_alpha, "a number"),
        ("r", "rank_pattern", _RANK, _is_rank, "a rank of 1 or more"),
    ):
        patterns = config.get(pattern) or {}
        numbers = patterns.values() if isinstance(patterns, dict) else [patterns]
        for value in (config.get(name, default), *numbers):
            if not is_valid(value):
                raise ValueError(f"{file}: {name} or {pattern} has {value!r:.80}, not {wanted}")
    return config


def _is_alpha(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_MOST_ALPHA < value < _MOST_ALPHA


def _is_rank(value: Any) -> bool:
    return type(value) is int and value > 0


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
