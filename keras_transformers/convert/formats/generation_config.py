"""Reads how to search for answers: generation_config.json, or config.json without it."""

import logging
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import check_number, check_size, read_config
from keras_transformers.files import read_json

__all__ = ["read_generation_options"]

_logger = logging.getLogger(__name__)

_FILE = "generation_config.json"
_MOST_BEAMS = 1000
# Field -> the values that change nothing in the search here. Others are named in a warning.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "diversity_penalty": (0.0,),
    "do_sample": (False,),
    "early_stopping": (False,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (),
    "repetition_penalty": (1.0,),
    "sequence_bias": (),
    "suppress_tokens": ([],),
}


def read_generation_options(folder: Path) -> dict[str, Any]:
    """Reads a folder's options of `pipelines.Translator`, which then searches as transformers does.

    What the files ask of the search beyond them is named in a warning.

    Args:
        folder: has config.json and perhaps generation_config.json, which then decides alone.

    Returns:
        `rules`, and those of `num_beams`, `length_penalty`, `max_length`, `extra_length`,
        `min_length` and `force_end` that the files give.

    Raises:
        FileNotFoundError: there is no config.json.
        ValueError: a file is damaged, a value is out of range, or the search would have to start or
            end with other tokens than the model's.
    """
    file, config = read_config(folder / "config.json")
    positions = config.get("max_position_embeddings")
    special = {name: config.get(name) for name in ("eos_token_id", "decoder_start_token_id")}
    if (folder / _FILE).is_file():
        file = folder / _FILE
        config = read_json(file)
    for name, own in special.items():
        if own is not None and config.get(name) not in (None, own, [own]):
            raise ValueError(f"{file}: {name}={config[name]!r}, but config.json has {own!r}")
    if config.get("forced_bos_token_id") is not None:
        raise ValueError(
            f"{file}: forced_bos_token_id={config['forced_bos_token_id']!r:.100}; a first token "
            "that is forced is not supported"
        )
    given = {name for name, value in config.items() if value is not None}
    options: dict[str, Any] = {"rules": "transformers"}
    if "num_beams" in given:
        options["num_beams"] = check_size(file, "num_beams", config["num_beams"])
        if options["num_beams"] > _MOST_BEAMS:
            raise ValueError(f"{file}: num_beams={config['num_beams']}; at most {_MOST_BEAMS}")
    for name, start_tokens in (("max_length", 1), ("max_new_tokens", 0)):  # the latter decides
        if name in given:
            length = check_size(file, name, config[name], least=2 + start_tokens)
            options["max_length"] = length - start_tokens
    if "max_length" in options:
        options["extra_length"] = None
        if isinstance(positions, int):
            options["max_length"] = min(options["max_length"], positions)
    if "min_length" in given:
        options["min_length"] = check_size(file, "min_length", config["min_length"], least=0)
    if "length_penalty" in given:
        options["length_penalty"] = check_number(file, "length_penalty", config["length_penalty"])
    if "forced_eos_token_id" in given:
        end, forced = config.get("eos_token_id"), config["forced_eos_token_id"]
        if end is not None and forced not in (end, [end]):
            raise ValueError(
                f"{file}: forced_eos_token_id={forced!r:.100}; only the end token, {end!r:.100}, "
                "is supported"
            )
        options["force_end"] = True
    not_done = [
        f"{name}={config[name]!r:.100}"
        for name, harmless in _NOT_DONE.items()
        if name in given and config[name] not in harmless
    ]
    if not_done:
        _logger.warning("%s: the search here does not know %s", file, ", ".join(not_done))
    return options
