"""Lets the reference show "Example:" in a docstring as code; Griffe knows "Examples:" alone."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Changes the docstring of one object of the package."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
