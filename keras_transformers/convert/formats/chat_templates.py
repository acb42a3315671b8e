"""Reads and writes chat templates in language models' folders, without running them."""

import logging
import os
from pathlib import Path
from typing import Any

from keras_transformers.convert.folder import Folder
from keras_transformers.tokenizers.chat_templates import CHAT_TEMPLATES, find_chat_template

__all__: list[str] = []

_logger = logging.getLogger(__name__)

FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"


def read_chat_template(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns a folder's `chat_template` option for `pipelines.TextGenerator`.

    It is in chat_template.jinja or, in older folders, in tokenizer_config.json. If there are
    several, the one called "default" is used.

    Raises:
        ValueError: tokenizer_config.json is damaged.
    """
    folder = Folder.at(folder)
    if (folder / FILE).is_file():
        # A file that is not UTF-8 is not a published template.
        return known_template((folder / FILE).read_text("utf-8", "replace"), folder / FILE)
    template = folder.json(_CONFIG, missing_ok=True).get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict)]
        template = next((e.get("template") for e in named if e.get("name") == "default"), None)
    return known_template(template, folder / _CONFIG)


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
