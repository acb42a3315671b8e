"""Opens OpenNMT-tf's checkpoints of Transformers: ckpt-*, vocabularies and configuration.

A checkpoint has only the weights. Other files in the folder, which are only read, have the rest:
`model_description.py` the number of heads and the activation; the configuration (.yml) the names of
the vocabularies, the number of beams and the length penalty.
"""

import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tokenize import TokenInfo
from typing import Any

import keras

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.tf_checkpoint import (
    StoredVariables,
    checkpoint_prefix,
    index_mentions,
)
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.convert.tensors import NamedTensor, assign
from keras_transformers.families.transformer.model import transformer
from keras_transformers.files import may_be_name, read_lines

__all__: list[str] = []

MARK = b"xamples_inputter/"  # in the index of all their checkpoints; see index_mentions
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SOURCES = "examples_inputter/features_inputter/embedding"
_TARGETS = "examples_inputter/labels_inputter/embedding"
_OUTPUT = "decoder/output_layer"
_POSITIONS = 1024  # sinusoids have no end; this many are computed
_LONGEST = 250  # OpenNMT-tf's maximum_decoding_length
_EPSILON = 1e-3  # epsilon of norms, since 2.6
_HEAD_DIM = 64  # in every model of its catalog
_DESCRIPTION = "model_description.py"
_LARGEST_DESCRIPTION = 2**16  # bytes
_CONSTANTS = ([tokenize.NUMBER], [tokenize.STRING])
_LONGEST_VALUE = 20  # tokens
_ENDS = (",", ")", ";", "\n", "")  # tokens after a value
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu", "tanh": "tanh"}
# The parts of a block -> ours. A part has its norm before it, or after it.
_PARTS = {
    "self_attention": "self_attention",
    "attention/0": "cross_attention",
    "ffn": "feed_forward",
}
_LAYERS = {
    "linear_queries": "query",
    "linear_keys": "key",
    "linear_values": "value",
    "linear_output": "output",
    "inner": "intermediate",
    "outer": "output",
}
_BLOCK = re.compile(
    rf"(encoder|decoder)/layers/(\d+)/({'|'.join(_PARTS)})/"
    rf"(?:layer/({'|'.join(_LAYERS)})|(?:input|output)_layer_norm)/(kernel|bias|gamma|beta)"
)
_WHOLE = {
    "encoder/layer_norm": "encoder_norm",
    "decoder/layer_norm": "decoder_norm",
    f"{_OUTPUT}/kernel": "output_projection/kernel",
    f"{_OUTPUT}/bias": "logits/bias",
}
_SETTING = re.compile(r"^\s*(\w+):[ \t]*(['\"]?)([^\s'\"#]+)\2", re.MULTILINE)


def open_opennmt_tf(folder: Folder) -> FoundWeights:
    """Opens a Transformer that OpenNMT-tf 2 trained.

    Args:
        folder: the run's folder, or a checkpoint's prefix in it, with the vocabularies beside it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the model is not a Transformer with sinusoidal positions, or
            no file has its number of heads.
    """
    stored = StoredVariables.open(checkpoint_prefix(folder.path))
    keys = {
        key.removeprefix("model/").removesuffix(_VALUE): key
        for key in stored.shapes
        if key.startswith("model/") and "/.OPTIMIZER_SLOT/" not in key
    }
    shapes = {name: stored.shapes[key] for name, key in keys.items()}
    directory = stored.prefix.parent
    settings = _settings(directory)
    arguments = _arguments(stored.prefix, shapes)
    names = {ours: theirs for theirs in keys for ours in _names(theirs, shapes)}
    arrays = Arrays(
        stored.prefix,
        {ours: shapes[theirs] for ours, theirs in names.items()},
        lambda ours: stored.read(keys[names[ours]]),
    )

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        ours = [NamedTensor(variable.path, (variable,)) for variable in model.weights]
        return assign(ours, arrays, ignore=ignore)

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        # Imported here because it needs TensorFlow, which the weights do not.
        from keras_transformers.tokenizers.opennmt import OpenNMTTokenizer

        by_file = {}
        for side in ("source", "target"):
            file = _vocabulary(directory, settings, side)
            by_file[file] = tokenizer = OpenNMTTokenizer.load(file)
            rows = arguments[f"{'target_' if side == 'target' else ''}vocabulary_size"]
            if tokenizer.vocabulary_size != rows:
                raise ValueError(
                    f"{file}: {tokenizer.vocabulary_size} words with <unk>, but the model has "
                    f"{rows}: use the {side}'s vocabulary that it was trained with"
                )
        return tuple(by_file.values())

    options = {
        "num_beams": _number(int, directory, settings, "beam_width", 1),
        "length_penalty": _number(float, directory, settings, "length_penalty", 0),
        "rules": "opennmt",
        "max_length": _LONGEST,
        "extra_length": None,
    }
    return FoundWeights(
        source=stored.prefix,
        base="translation",
        trained=("translation",),
        build=lambda **changes: transformer(**(arguments | changes)),
        fill=fill,
        tokenizers=tokenizers,
        options=options,
    )


def _arguments(prefix: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Returns the arguments of `transformer`; ValueError if it cannot build the model."""
    if not any(name.startswith("encoder/layers/0/self_attention/") for name in shapes):
        raise ValueError(
            f"{prefix}: not a Transformer but another OpenNMT-tf model, such as a recurrent one, "
            "which is not supported: serve its SavedModel, which onmt-main export writes"
        )
    if any("relative_position" in name for name in shapes):
        raise ValueError(
            f"{prefix}: relative positions (maximum_relative_position) are not supported: serve "
            "its SavedModel, which onmt-main export writes"
        )
    unknown = [name for name in shapes if not list(_names(name, shapes))]
    if unknown or len(shapes.get(_SOURCES, ())) != 2:
        raise ValueError(
            f"{prefix}: not a Transformer of a known form: "
            f"{', '.join(sorted(unknown)[:3]) or _SOURCES}"
        )
    size, hidden_dim = shapes[_SOURCES]
    count = {
        side: len({name.split("/")[2] for name in shapes if name.startswith(f"{side}/layers/")})
        for side in ("encoder", "decoder")
    }
    described = _described(prefix.parent / _DESCRIPTION)
    num_heads = described.get("num_heads") or hidden_dim // _HEAD_DIM
    if "num_heads" not in described and hidden_dim % _HEAD_DIM:
        raise ValueError(
            f"{prefix}: no file says how many heads its layers of width {hidden_dim} have: copy "
            f"the run's {_DESCRIPTION} beside it, or write one with a line such as "
            "num_heads = 8"
        )
    return {
        "vocabulary_size": size,
        "target_vocabulary_size": shapes.get(_TARGETS, (size,))[0],
        "num_encoder_layers": count["encoder"],
        "num_decoder_layers": count["decoder"],
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": shapes["encoder/layers/0/ffn/layer/inner/bias"][0],
        "max_sequence_length": _POSITIONS,
        "weight_tying": _tying(shapes),
        "positions": "sinusoidal_opennmt",
        "norm_position": "pre" if "encoder/layer_norm/gamma" in shapes else "post",
        "activation": described.get("ffn_activation", "relu"),
        "use_output_bias": f"{_OUTPUT}/bias" in shapes,
        "norm_epsilon": _EPSILON,
    }


def _tying(shapes: Mapping[str, tuple[int, ...]]) -> str:
    if f"{_OUTPUT}/kernel" in shapes:
        return "none"
    return "decoder" if _TARGETS in shapes else "all"


def _names(theirs: str, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yields the paths of our variables with the values of a variable."""
    module, _, last = theirs.rpartition("/")
    if theirs == _SOURCES:
        shared = _tying(shapes) == "all"
        yield f"{'' if shared else 'source_'}token_embedding/embeddings"
        if not shared and _TARGETS not in shapes:  # embeddings are shared, but not with the logits
            yield "target_token_embedding/embeddings"
    elif theirs == _TARGETS:
        yield "target_token_embedding/embeddings"
    elif theirs in _WHOLE:
        yield _WHOLE[theirs]
    elif module in _WHOLE:
        yield f"{_WHOLE[module]}/{last}"
    elif match := _BLOCK.fullmatch(theirs):
        side, number, part, layer, variable = match.groups()
        ours = f"{_PARTS[part]}/{_LAYERS[layer]}" if layer else f"{_PARTS[part]}_norm"
        yield f"{side}_layer_{number}/{ours}/{variable}"


def _described(file: Path) -> dict[str, Any]:
    """Reads a model's description for options of its layers; nothing in it is run.

    It is read as Python's tokens, not as a syntax tree: expressions nested thousands deep would
    exhaust the stack.

    Raises:
        ValueError: it is not Python, or has an unknown activation.
    """
    if not file.is_file():
        return {}
    if file.stat().st_size > _LARGEST_DESCRIPTION:
        raise ValueError(
            f"{file} has more than {_LARGEST_DESCRIPTION} bytes, too many for a description: write "
            "one with a line such as num_heads = 8"
        )
    options: dict[str, Any] = {}
    for place, name, value in _options(file):
        text = "".join(token.string for token in value)
        if name == "num_heads" and [token.type for token in value] in _CONSTANTS:
            if not text.isdecimal() or len(text) > 9 or int(text) < 1:
                raise ValueError(f"{place}: num_heads={text:.100}; expected a number")
            options[name] = int(text)
        elif name == "ffn_activation":
            activation = text.rpartition(".")[2].strip("'\"")
            if "(" in text or activation not in _ACTIVATIONS:
                raise ValueError(
                    f"{place}: ffn_activation={text:.100}; expected one of "
                    f"{', '.join(_ACTIVATIONS)}"
                )
            options[name] = _ACTIVATIONS[activation]
    return options


def _options(file: Path) -> Iterator[tuple[str, str, list[TokenInfo]]]:
    """Yields the place, the name and the value of each keyword or assignment in a Python file."""
    tokens = _tokens(file)
    for number in range(1, len(tokens)):
        name, is_attribute = tokens[number - 1], number > 1 and tokens[number - 2].string == "."
        if tokens[number].string == "=" and name.type == tokenize.NAME and not is_attribute:
            rest = tokens[number + 1 : number + 1 + _LONGEST_VALUE]
            value = list(itertools.takewhile(lambda token: token.string not in _ENDS, rest))
            yield f"{file}:{name.start[0]}", name.string, value


def _tokens(file: Path) -> list[TokenInfo]:
    lines = (f"{line}\n" for line in read_lines(file))
    tokens: list[TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.ERRORTOKEN and not token.string.isspace():
                raise SyntaxError(f"unexpected {token.string!r:.20}")
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                # Python 3.12 gives each token of a line its own copy of the line.
                tokens.append(token._replace(line=""))
    except (tokenize.TokenError, SyntaxError) as error:
        line = tokens[-1].end[0] if tokens else 1
        raise ValueError(f"{file}:{line}: not a description in Python ({error.args[0]})") from error
    return tokens


def _settings(folder: Path) -> dict[str, str]:
    """Returns the settings in a folder's configurations, from any section."""
    return {
        match[1]: match[3]
        for file in sorted(folder.glob("*.y*ml"))
        for match in _SETTING.finditer(file.read_text("utf-8", errors="replace"))
    }


def _number(
    kind: type[int] | type[float],
    folder: Path,
    settings: Mapping[str, str],
    name: str,
    default: int,
) -> int | float:
    """Returns a setting that is a number; ValueError if it is anything else."""
    try:
        return kind(settings.get(name, default))
    except ValueError:
        raise ValueError(
            f"{folder}: its .yml has {name}: {settings[name]}, which is not a number: correct it"
        ) from None


def _vocabulary(folder: Path, settings: Mapping[str, str], side: str) -> Path:
    """Returns the file of a side's vocabulary; FileNotFoundError if it is not in the folder."""
    named = settings.get(f"{side}_vocabulary")
    if named is None:
        raise FileNotFoundError(
            f"{folder} has no configuration (.yml) with {side}_vocabulary: copy the run's there, "
            "and the vocabularies that it names"
        )
    if not may_be_name(Path(named).name):
        raise ValueError(
            f"{folder}: its .yml has {side}_vocabulary: {named!r:.100}, not a file's name"
        )
    file = folder / Path(named).name
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is missing: copy the vocabulary {named}, which the run's configuration names, "
            "there"
        )
    return file


def _recognises(folder: Folder) -> bool:
    return index_mentions(folder.path, MARK)


FORMAT = Format(
    "OpenNMT-tf's ckpt-* of a Transformer, with its .yml and vocabularies",
    _recognises,
    open_opennmt_tf,
)
