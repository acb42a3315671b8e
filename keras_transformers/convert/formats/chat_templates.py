"""Reads and writes chat templates in language models' folders, without running them."""

import logging
from pathlib import Path
from typing import Any

from keras_transformers.files import read_json
from keras_transformers.tokenizers.chat_templates import CHAT_TEMPLATES, find_chat_template

__all__: list[str] = []

_logger = logging.getLogger(__name__)

FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"


def read_chat_template(folder: Path) -> dict[str, Any]:
    """Returns a folder's `chat_template` option for `pipelines.TextGenerator`.

    It is in chat_template.jinja or, in older folders, in tokenizer_config.json. If there are
    several, the one called "default" is used.

    Raises:
        ValueError: tokenizer_config.json is damaged.
    """
    if (folder / FILE).is_file():
        # A file that is not UTF-8 is not a published template.
        return known_template((folder / FILE).read_text("utf-8", "replace"), folder / FILE)
    file = folder / _CONFIG
    found = read_json(file).get("chat_template") if file.is_file() else None
    if isinstance(found, list):
        named = [each for each in found if isinstance(each, dict)]
        found = next((e.get("template") for e in named if e.get("name") == "default"), None)
    return known_template(found, file)


def known_template(text: Any, file: Path) -> dict[str, Any]:
    """Returns the option for a known template; logs a warning for any other."""
    if text is None:
        return {}
    try:
        find_chat_template(text if isinstance(text, str) else repr(text))
    except ValueError as error:
        _logger.warning("%s: %s", file, error)
        return {}
    return {"chat_template": text}


def write_chat_template(options: dict[str, Any], folder: Path) -> None:
    """Writes the template for transformers, if it was given as text and not by name."""
    text = options.get("chat_template")
    if text is not None and text not in CHAT_TEMPLATES:
        (folder / FILE).write_text(text, "utf-8")
