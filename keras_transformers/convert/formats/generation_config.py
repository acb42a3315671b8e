"""Reads the options of generation: generation_config.json, or else config.json."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import check_number, check_size
from keras_transformers.convert.folder import Folder

__all__: list[str] = []

_logger = logging.getLogger(__name__)

_CONFIG, _FILE = "config.json", "generation_config.json"
_MOST_BEAMS = 1000
_TOP_K = 50  # transformers' default when it samples
_GGUF_SAMPLING = "general.sampling."
_GGUF_READ = ("temp", "top_k", "top_p", "penalty_repeat")
# Field -> the values that have no effect here. Others are named in a warning.
_NOT_KNOWN: dict[str, tuple[Any, ...]] = {
    "begin_suppress_tokens": ([],),
    "diversity_penalty": (0.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1, 1.0),
    "num_beam_groups": (1,),
    "penalty_alpha": (),
    "sequence_bias": (),
    "suppress_tokens": ([],),
}
_NOT_SEARCHED = {
    **_NOT_KNOWN,
    "do_sample": (False,),
    "repetition_penalty": (1.0,),
    "stop_strings": ([],),
}
_NOT_SAMPLED = {
    **_NOT_KNOWN,
    "bad_words_ids": ([],),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "min_p": (0.0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "typical_p": (1.0,),
}


def read_generation_options(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a folder's options for `pipelines.Translator`, to search as transformers does.

    Settings that it does not support are named in a warning.

    Args:
        folder: has config.json and possibly generation_config.json, which takes precedence.

    Returns:
        `rules`, and those of `num_beams`, `length_penalty`, `max_length`, `extra_length`,
        `min_length`, `first_token_id`, `force_end`, `no_repeat_ngram_size` and `early_stopping`
        that the files set.

    Raises:
        FileNotFoundError: there is no config.json.
        ValueError: a file is damaged, a value is out of range, or the search would have to start or
            end with tokens other than the model's.
    """
    folder = Folder.at(folder)
    config = folder.json(_CONFIG)
    positions = config.get("max_position_embeddings")
    special = {name: config.get(name) for name in ("eos_token_id", "decoder_start_token_id")}
    file, config = _generation(folder)
    for name, token_id in special.items():
        if token_id is not None and config.get(name) not in (None, token_id, [token_id]):
            raise ValueError(f"{file}: {name}={config[name]!r}, but config.json has {token_id!r}")
    fields = {name for name, value in config.items() if value is not None}
    options: dict[str, Any] = {"rules": "transformers"}
    if "num_beams" in fields:
        options["num_beams"] = check_size(file, "num_beams", config["num_beams"])
        if options["num_beams"] > _MOST_BEAMS:
            raise ValueError(f"{file}: num_beams={config['num_beams']}; at most {_MOST_BEAMS}")
    for name, start_tokens in (
        ("max_length", 1),
        ("max_new_tokens", 0),
    ):  # the latter wins
        if name in fields:
            length = check_size(file, name, config[name], least=2 + start_tokens)
            options["max_length"] = length - start_tokens
    if "max_length" in options:
        options["extra_length"] = None
        if isinstance(positions, int):
            options["max_length"] = min(options["max_length"], positions)
    if "min_length" in fields:
        options["min_length"] = check_size(file, "min_length", config["min_length"], least=0)
    if "min_new_tokens" in fields:  # wins too, and does not count the end token
        least = check_size(file, "min_new_tokens", config["min_new_tokens"], least=0)
        options["min_length"] = least + 1
    if "no_repeat_ngram_size" in fields:
        options["no_repeat_ngram_size"] = check_size(
            file, "no_repeat_ngram_size", config["no_repeat_ngram_size"], least=0
        )
    if "early_stopping" in fields:
        options["early_stopping"] = config["early_stopping"]
        if not isinstance(config["early_stopping"], bool) and config["early_stopping"] != "never":
            raise ValueError(
                f"{file}: early_stopping={config['early_stopping']!r:.100}; expected true, false "
                "or 'never'"
            )
    if "forced_bos_token_id" in fields:
        options["first_token_id"] = check_size(
            file, "forced_bos_token_id", config["forced_bos_token_id"], least=0
        )
    if "length_penalty" in fields:
        options["length_penalty"] = check_number(file, "length_penalty", config["length_penalty"])
    if "forced_eos_token_id" in fields:
        end, forced = config.get("eos_token_id"), config["forced_eos_token_id"]
        if end is not None and forced not in (end, [end]):
            raise ValueError(
                f"{file}: forced_eos_token_id={forced!r:.100}; only the end token, {end!r:.100}, "
                "is supported"
            )
        options["force_end"] = True
    padding = [[config.get("pad_token_id")]]  # never predicted here
    _name_others(file, config, {**_NOT_SEARCHED, "bad_words_ids": (padding,)})
    return options


def read_sampling_options(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a folder's options for `pipelines.TextGenerator`, which then decodes as its files say.

    As in transformers, it samples only if `do_sample` is true, from 50 tokens if the files set no
    `top_k`. Settings that it does not support are named in a warning.

    Args:
        folder: has config.json and possibly generation_config.json, which takes precedence.

    Returns:
        Those of `max_length`, `repetition_penalty`, `stop` and `also_end_token_ids` that the files
        set; and, to sample, `top_k` and those of `temperature` and `top_p` that they set.

    Raises:
        FileNotFoundError: there is no config.json.
        ValueError: a file is damaged, or a value is out of range.
    """
    folder = Folder.at(folder)
    size = folder.json(_CONFIG).get("vocab_size")
    file, config = _generation(folder)
    fields = {name for name, value in config.items() if value is not None}
    options: dict[str, Any] = {}
    if config.get("do_sample"):
        for name in ("temperature", "top_p"):
            if name in fields:
                options[name] = check_number(file, name, config[name], least=1e-6)
        top_k = config["top_k"] if "top_k" in fields else _TOP_K
        top_k = check_size(file, "top_k", top_k, least=0)
        options["top_k"] = top_k if not isinstance(size, int) or top_k < size else 0
    if "repetition_penalty" in fields:
        options["repetition_penalty"] = check_number(
            file, "repetition_penalty", config["repetition_penalty"], least=1e-6
        )
    if stops := config.get("stop_strings"):
        stops = [stops] if isinstance(stops, str) else stops
        if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
            raise ValueError(f"{file}: stop_strings={stops!r:.100}; expected a list of strings")
        options["stop"] = stops
    named, ends = _end_tokens(folder)
    if len(ends) > 1:
        options["also_end_token_ids"] = [
            check_size(named, "eos_token_id", end, least=0) for end in ends
        ]
    others = dict(_NOT_SAMPLED)
    if "max_new_tokens" in fields:
        options["max_length"] = check_size(file, "max_new_tokens", config["max_new_tokens"])
    else:
        others["max_length"] = ()  # it counts the prompt's tokens too
    _name_others(file, config, others)
    return options


def gguf_sampling_options(fields: Mapping[str, Any], file: Path, num_tokens: int) -> dict[str, Any]:
    """Reads a GGUF file's options for `pipelines.TextGenerator`.

    llama.cpp's converter copies them from generation_config.json (llama.cpp, pull request 17120).
    Settings that are not supported are named in a warning.

    Args:
        fields: the file's metadata.
        file: its name, for messages.
        num_tokens: the size of the vocabulary.

    Returns:
        Those of `temperature`, `top_k`, `top_p` and `repetition_penalty` that the file sets, with
        `top_k` if it samples.

    Raises:
        ValueError: a value is out of range.
    """
    settings = {
        name.removeprefix(_GGUF_SAMPLING): value
        for name, value in fields.items()
        if name.startswith(_GGUF_SAMPLING)
    }

    def number(name: str, least: float) -> float:
        return check_number(file, f"{_GGUF_SAMPLING}{name}", settings[name], least=least)

    options: dict[str, Any] = {}
    if "penalty_repeat" in settings:
        options["repetition_penalty"] = number("penalty_repeat", 1e-6)
    if "temp" not in settings or number("temp", 0.0) > 0:  # 0 is greedy
        if "temp" in settings:
            options["temperature"] = number("temp", 0.0)
        if "top_p" in settings:
            options["top_p"] = number("top_p", 1e-6)
        if "top_k" in settings:
            top_k = check_size(file, f"{_GGUF_SAMPLING}top_k", settings["top_k"], least=0)
            options["top_k"] = top_k if top_k < num_tokens else 0
    others = {name: settings[name] for name in settings if name not in _GGUF_READ}
    _name_others(file, others, {"min_p": (0.0,)} | {name: () for name in others if name != "min_p"})
    return options


def check_end_token(folder: Folder, end_token_id: int) -> None:
    """Raises ValueError if a folder's texts never end with this token of the vocabulary."""
    file, ends = _end_tokens(folder)
    if ends and end_token_id not in ends:
        raise ValueError(
            f"{file}: eos_token_id={ends!r:.100}, but the tokenizer ends texts with "
            f"{end_token_id}: one of the two belongs to another model"
        )


def _end_tokens(folder: Folder) -> tuple[Path, list[int]]:
    """Returns the tokens that end texts, and the file that names them."""
    size = folder.json(_CONFIG).get("vocab_size")
    file, config = _generation(folder)
    if config.get("eos_token_id") is None:
        file, config = folder / _CONFIG, folder.json(_CONFIG)
    named = config.get("eos_token_id")
    ends = [] if named is None else named if isinstance(named, list) else [named]
    # Configurations of small vocabularies often keep the default, an id of OpenAI's.
    return file, [end for end in ends if not isinstance(size, int) or end in range(size)]


def _generation(folder: Folder) -> tuple[Path, dict[str, Any]]:
    """Returns the file with the generation options, and its contents."""
    name = _FILE if (folder / _FILE).is_file() else _CONFIG
    return folder / name, folder.json(name)


def _name_others(
    file: Path, config: Mapping[str, Any], harmless: Mapping[str, tuple[Any, ...]]
) -> None:
    """Warns of fields with unsupported values."""
    unsupported = [
        f"{name}={config[name]!r:.100}"
        for name, values in sorted(harmless.items())
        if config.get(name) is not None and config[name] not in values
    ]
    if unsupported:
        _logger.warning("%s: the search here does not support %s", file, ", ".join(unsupported))
