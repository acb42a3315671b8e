"""Describes Llama, SmolLM2 and similar decoders in Hugging Face's files."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.convert.config_map import ConfigMap, check_flag, check_number, check_size
from keras_transformers.convert.containers.gguf import GgufMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.gpt.files import sampling_fields
from keras_transformers.families.llama.gguf import REORDERED
from keras_transformers.families.llama.model import MODELS, llama
from keras_transformers.layers import RotaryScaling
from keras_transformers.models.anatomy import anatomy

if TYPE_CHECKING:
    from keras_transformers.tokenizers import DescribedTokenizer

__all__ = ["FAMILY"]

Arguments = dict[str, Any]
# Takes the file, its contents and the builder's arguments; returns those that only some families
# have.
ReadMore = Callable[[Path, Mapping[str, Any], Arguments], Arguments]
# Takes a model; returns such fields.
WriteMore = Callable[[keras.Model], dict[str, Any]]

# Our name of a scaling's argument -> the field there.
_SCALINGS = {
    "linear": {},
    "dynamic": {},
    "llama3": {
        "low_frequency_factor": "low_freq_factor",
        "high_frequency_factor": "high_freq_factor",
    },
    "yarn": {"beta_fast": "beta_fast", "beta_slow": "beta_slow"},
}
_MOST_SCALED = 1e4  # larger than any published factor


def name_map(family: str) -> NameMap:
    """Returns the names of the weights, which all these families share."""
    return NameMap(
        family,
        layers={
            "token_embedding": "model.embed_tokens",
            "final_norm": "model.norm",
            "output_projection": "lm_head",
        },
        blocks=Blocks(
            "model.layers.{}",
            {
                "self_attention/query": "self_attn.q_proj",
                "self_attention/key": "self_attn.k_proj",
                "self_attention/value": "self_attn.v_proj",
                "self_attention/output": "self_attn.o_proj",
                "self_attention/query_norm": "self_attn.q_norm",
                "self_attention/key_norm": "self_attn.k_norm",
                "self_attention_norm": "input_layernorm",
                "feed_forward/intermediate": "mlp.gate_proj",  # the activated one
                "feed_forward/gate": "mlp.up_proj",
                "feed_forward/output": "mlp.down_proj",
                "feed_forward_norm": "post_attention_layernorm",
            },
        ),
        rewritten=(prefixed("model", "embed_tokens", "layers", "norm"),),
        tied={"lm_head.weight": "model.embed_tokens.weight"},
        buffers=("*.rotary_emb.inv_freq",),
        required=("token_embedding", "final_norm"),
        traits={"block.norm": "rms", "block.norm_position": "pre"},
    )


def config_map(
    model_type: str,
    *,
    read_more: ReadMore,
    write_more: WriteMore,
    key_heads: int | None = None,
    norm_epsilon: float = 1e-6,
    absent: Mapping[str, Any] = MappingProxyType({}),
) -> ConfigMap:
    """Returns the fields of a family's `config.json`.

    Args:
        model_type: the family's name there.
        read_more: reads the fields that the families do not share.
        write_more: writes the fields that the families do not share.
        key_heads: number of key heads in files without the field; by default, the number of heads.
        norm_epsilon: the norms' epsilon in files without the field.
        absent: fields of rotary positions and of tied embeddings in files without them.
    """

    def after_read(file: Path, config: Mapping[str, Any], arguments: Arguments) -> Arguments:
        check_heads(file, arguments)
        config = {**absent, **config}
        rotary = read_rotary(file, config, arguments["max_sequence_length"])
        tied = check_flag(file, config, "tie_word_embeddings")
        more = read_more(file, config, arguments)
        return {**arguments, **rotary, "tied_embeddings": tied, **more}

    def before_write(model: keras.Model, arguments: Arguments) -> tuple[Arguments, dict[str, Any]]:
        # Of layers without windows, if there are any: Gemma's others have their own.
        layers = sorted(
            zip(map(bool, windows_of(model)), _positions(model), strict=True), key=lambda x: x[0]
        )
        rotary = next(positions for _, positions in layers if positions is not None)
        tied = "output_projection" not in {layer.name for layer in model.layers}
        fields = {**_written_rotary(rotary), "tie_word_embeddings": tied, **write_more(model)}
        return {**arguments, "max_sequence_length": rotary.max_sequence_length}, fields

    return ConfigMap(
        model_type,
        required={
            "vocabulary_size": "vocab_size",
            "num_layers": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "hidden_dim": "hidden_size",
            "intermediate_dim": "intermediate_size",
        },
        optional={
            "num_key_value_heads": ("num_key_value_heads", key_heads),
            "head_dim": ("head_dim", None),
            "max_sequence_length": ("max_position_embeddings", 2048),
            "attention_dropout": ("attention_dropout", 0.0),
            "norm_epsilon": ("rms_norm_eps", norm_epsilon),
            "initializer_range": ("initializer_range", 0.02),
        },
        activation=("hidden_act", "silu"),
        after_read=after_read,
        before_write=before_write,
    )


def check_heads(file: Path, arguments: Arguments) -> None:
    """Raises ValueError for numbers of heads that do not work with rotary positions."""
    heads, width = arguments["num_heads"], arguments["hidden_dim"]
    head_dim = arguments.get("head_dim")  # other families have no field for it
    key_heads = arguments.get("num_key_value_heads") or heads
    if heads % key_heads:
        raise ValueError(
            f"{file}: num_attention_heads={heads} is not a multiple of "
            f"num_key_value_heads={key_heads}: all key heads serve equally many query heads"
        )
    head_dim = head_dim or width // heads
    if head_dim % 2:
        raise ValueError(
            f"{file}: heads are {head_dim} wide; rotary positions rotate pairs of numbers, so the "
            "width must be even"
        )


def read_rotary(file: Path, config: Mapping[str, Any], longest: int) -> Arguments:
    """Returns the rotary positions of a file, in the spelling of transformers 4 or 5."""
    parameters = config.get("rope_parameters")
    field = "rope_scaling" if parameters is None else "rope_parameters"
    scaling = config.get(field) or {}
    if not isinstance(scaling, dict):
        raise ValueError(f"{file}: {field}={scaling!r:.100}; expected an object")
    base = scaling.get("rope_theta", config.get("rope_theta", 10_000.0))
    base = float(check_number(file, "rope_theta", base, least=1.0 + 1e-6, below=1e12))
    share = scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if share not in (1.0, None):
        raise ValueError(
            f"{file}: partial_rotary_factor={share!r:.100}; only 1 (whole heads) is supported"
        )
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if "long_factor" in scaling:
        kind = "longrope"  # "su" and "yarn" in the first files of Phi-3
    if kind in ("default", None):
        return {"rotary_base": base}
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise ValueError(
            f"{file}: rope_type={kind!r:.100}; expected one of default, {', '.join(_SCALINGS)}"
        )

    def number(name: str, default: Any = None, least: float = 1e-6) -> float:
        value = scaling.get(name)
        value = default if value is None else value
        if value is None:
            raise ValueError(f"{file}: {field} of the type {kind!r} has no field {name!r}")
        return float(check_number(file, name, value, least=least, below=_MOST_SCALED))

    name = "original_max_position_embeddings"
    original = longest if kind == "dynamic" else scaling.get(name, config.get(name, longest))
    length = check_size(file, name, original)
    default = longest / length if kind == "yarn" else None
    options: dict[str, Any] = {"factor": number("factor", default, least=1.0)}
    for ours, theirs in _SCALINGS[kind].items():
        options[ours] = number(theirs, None if kind == "llama3" else getattr(RotaryScaling, ours))
    if kind == "yarn":
        options |= _yarn(file, scaling, options["factor"], number)
    try:
        options |= {"kind": kind, "original_length": length}
        rotary_scaling = RotaryScaling(**options)
    except ValueError as error:
        raise ValueError(f"{file}: {field}: {error}") from error
    return {"rotary_base": base, "rotary_scaling": rotary_scaling}


def _yarn(
    file: Path, scaling: Mapping[str, Any], factor: float, number: Callable[..., float]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if scaling.get("truncate") is not None:
        options["truncate"] = check_flag(file, scaling, "truncate")
    if scaling.get("attention_factor") is not None:
        options["attention_factor"] = number("attention_factor")
    elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
        over, under = (
            0.1 * number(name) * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim")
        )
        options["attention_factor"] = over / under
    return options


def _written_rotary(rotary: Any) -> dict[str, Any]:
    """Returns the fields of rotary positions, in a form that transformers 4 and 5 both read."""
    scaling = rotary.scaling
    if scaling is None:
        return {"rope_theta": rotary.base, "rope_scaling": None}
    fields = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in ("llama3", "yarn"):
        fields["original_max_position_embeddings"] = scaling.original_length
    for ours, theirs in _SCALINGS[scaling.kind].items():
        fields[theirs] = getattr(scaling, ours)
    if scaling.kind == "yarn":
        fields |= {"attention_factor": scaling.size, "truncate": scaling.truncate}
    return {"rope_theta": rotary.base, "rope_scaling": fields}


def read_windows(
    file: Path, config: Mapping[str, Any], arguments: Arguments
) -> tuple[int | None, ...]:
    """Returns the window of each layer from Qwen's files; () if no layer has one."""
    count = arguments["num_layers"]
    window = config.get("sliding_window")
    if window is None or not check_flag(file, config, "use_sliding_window"):
        window = None
    else:
        window = check_size(file, "sliding_window", window)
    kinds = config.get("layer_types")
    if kinds is None:
        first = check_size(file, "max_window_layers", config.get("max_window_layers", 28), least=0)
        kinds = ["full_attention" if i < first else "sliding_attention" for i in range(count)]
        kinds = kinds if window else ["full_attention"] * count
    names = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in names for k in kinds):
        raise ValueError(
            f"{file}: layer_types={kinds!r:.100}; expected {' or '.join(names)} for each of the "
            f"{count} layers"
        )
    windows = tuple(window if kind == names[1] else None for kind in kinds)
    return windows if any(windows) else ()


def windows_of(model: keras.Model) -> tuple[int | None, ...]:
    """Returns the window of each layer of a model, which counts the token itself."""
    windows = (block.self_attention.window for block in anatomy(model, "blocks").blocks)
    return tuple(None if window is None else window + 1 for window in windows)


def written_windows(model: keras.Model) -> dict[str, Any]:
    """Returns the fields for windows as in Qwen's files.

    Raises:
        ValueError: the windows differ.
    """
    windows = windows_of(model)
    sizes = {window for window in windows if window is not None}
    if len(sizes) > 1:
        raise ValueError(f"windows={windows}: config.json has only one size for all layers")
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {
        "use_sliding_window": bool(sizes),
        "sliding_window": next(iter(sizes), None),
        "max_window_layers": next((i for i, window in enumerate(windows) if window), len(windows)),
        "layer_types": kinds,
    }


@dataclasses.dataclass(frozen=True)
class Traits:
    """What distinguishes the models of these families.

    Attributes:
        has_bias: whether queries, keys and values have biases.
        has_output_bias: whether the attention's output has one.
        has_norms: whether each head's queries and keys have norms.
        has_wide_norms: whether all heads' queries and keys have one norm together.
        has_windows: whether a layer has a window.
        is_rotary: whether all layers have rotary positions.
    """

    has_bias: bool = False
    has_output_bias: bool = False
    has_norms: bool = False
    has_wide_norms: bool = False
    has_windows: bool = False
    is_rotary: bool = True


def traits(model: keras.Model) -> Traits:
    """Returns what distinguishes a model's family from the others."""
    attention = anatomy(model, "blocks").blocks[0].self_attention
    return Traits(
        has_bias=attention.use_bias,
        has_output_bias=attention.use_output_bias,
        has_norms=attention.query_norm is not None and attention.query_key_norm_over == "head",
        has_wide_norms=(
            attention.query_norm is not None and attention.query_key_norm_over == "width"
        ),
        has_windows=any(windows_of(model)),
        is_rotary=all(_positions(model)),
    )


def _positions(model: keras.Model) -> list[Any]:
    """Returns the rotary positions of each layer, or None."""
    return [block.self_attention.positions for block in anatomy(model, "blocks").blocks]


def tokenizer(folder: Folder, lowercase: bool) -> "DescribedTokenizer":
    """Makes the tokenizer from a folder; see `language_tokenizer`."""
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.families.llama.tokenizers import language_tokenizer

    tokenizer = language_tokenizer(folder)
    if tokenizer.end_token_id is None:
        file = folder / "tokenizer_config.json"
        raise ValueError(f"{file}: no eos_token, the token that ends texts: add the field")
    return tokenizer


def family(
    model_type: str,
    start: str,
    name: str,
    fields: ConfigMap,
    accepts: Callable[..., bool],
    *,
    entries: tuple[str, ...],
    gguf: GgufMap | None = None,
) -> Family:
    """Returns a family of such decoders.

    Args:
        model_type: its name in `config.json`.
        start: the prefix of its classes in transformers.
        name: its name in messages.
        fields: from `config_map`.
        accepts: see `Family`.
        entries: the prefix of its names in `models.llama`.
        gguf: see `Family`.
    """
    return Family(
        model_type,
        {entry: factory for entry, factory in MODELS.items() if entry.startswith(entries)},
        name_map(name),
        fields,
        llama,
        tokenizer,
        Writer(
            {
                "generation": f"{start}ForCausalLM",
                "reranking": f"{start}ForCausalLM",
                "embedding": f"{start}Model",
            },
            tokenizer="DescribedTokenizer",
            tokenizer_class="PreTrainedTokenizerFast",
            special_tokens=("bos_token", "eos_token", "pad_token"),
            generation_fields=sampling_fields,
        ),
        parts=("score.*",),
        projection=("lm_head.*",),
        task="generation",
        generates=True,
        trained={"ForCausalLM": ("generation", "reranking")},
        vocabulary_file="tokenizer.json",
        tokenizer_classes=("GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer"),
        accepts=accepts,
        gguf=gguf,
    )


def _read_more(file: Path, config: Mapping[str, Any], arguments: Arguments) -> Arguments:
    return {
        "use_attention_bias": check_flag(file, config, "attention_bias"),
        "use_feed_forward_bias": check_flag(file, config, "mlp_bias"),
    }


def _write_more(model: keras.Model) -> dict[str, Any]:
    block = anatomy(model, "blocks").blocks[0]
    return {
        "attention_bias": block.self_attention.use_bias,
        "mlp_bias": block.feed_forward.use_bias,
    }


def _accepts(model: keras.Model) -> bool:
    return traits(model) in (Traits(), Traits(has_bias=True, has_output_bias=True))


FAMILY: Family = family(
    "llama",
    "Llama",
    "Llama",
    config_map("llama", read_more=_read_more, write_more=_write_more),
    _accepts,
    entries=("llama", "smollm2"),
    gguf=REORDERED,
)
