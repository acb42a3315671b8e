r"""Reads the sentence in an error of a TensorFlow graph, without the names and frames around it.

The words around it are those of TensorFlow 2.21 (`executor.cc`, `logging_ops.cc`, `error_utils.py`,
`check_ops.py`) and of older releases, which a TF Serving may run.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

# The sources of the nodes that failed: a line that names a node, then the lines of its frames.
_SOURCES = re.compile(
    r"Detected at node .*? defined at \(most recent call last\):\n"
    r'(?:[ \t]*(?:File "[^\n]*|<stack traces unavailable>)?\n)*'
)
_NODE = re.compile(r"^Node: '[^\n]*'\n", re.MULTILINE)
_FIRST_OF_SEVERAL = re.compile(
    r"\d+ root error\(s\) found\.\s*\(0\) [A-Za-z_ ]+: (.*?)\n\s*\(1\) ", re.DOTALL
)
# What follows a sentence: traces, hints, and how to debug a compiler.
_REST = re.compile(
    r"\n\s*(?:Original stack trace|Errors may have originated from|Function call stack:"
    r"|Stack trace for op definition:|Hint: If you want to see|tf2xla conversion failed).*",
    re.DOTALL,
)
_MARKS = re.compile(
    r"\n\t ?\[\[[^\n]*"  # a line of [[{{node a/b}}]], [[{{node a}} = Op[...](c)]], [[a/b/_3]]
    r"|\s*\[\[\{\{[^\n]*?(?:\}\}\]\]|$)"  # the same in a line, perhaps cut off
    r"|\s*\[Op:[^\]\n]*\](?: name: ?\S*)?"  # [Op:MatMul] name: c
    r"| for '\{\{node [^']*'"
    r"|\{\{(?:function_)?node [^}]*\}\} ?"
    r"| on /job:\S+ by allocator \S+"
)
_ASSERTION = "assertion failed: "
# What `tf.debugging.assert_equal` and its like add to a sentence: the tensors that they compare.
_COMPARISON = re.compile(r"\s*\[?Condition x [=<>!]+ (?:y|0) did not hold.*", re.DOTALL)
_EAGER = re.compile(r"Expected '.*?' to be true\. Summarized data: (.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def sentence(message: str) -> str:
    r"""Returns the sentence of a graph's error, or of a message that holds one.

    Args:
        message: `message` of a `tf.errors.OpError`, or what a model server answers.

    >>> sentence("assertion failed: [top_k must not be] [-3]\n\t [[{{node Assert_5/Assert}}]]")
    'top_k must not be -3'
    """
    text = message.removeprefix("Graph execution error:").strip()
    text = _NODE.sub("", _SOURCES.sub("", text))
    if several := _FIRST_OF_SEVERAL.search(text):
        text = several[1]
    text = _MARKS.sub("", _REST.sub("", text)).strip()
    if (start := text.find(_ASSERTION)) >= 0:
        return _asserted(text[start + len(_ASSERTION) :])
    if eager := _EAGER.fullmatch(text):
        items = eager[1].split("\n")
        return " ".join(re.sub(r"""^b(['"])(.*)\1$""", r"\2", item) for item in items)
    return _COMPARISON.sub("", text) or text


def value_error(error: Any, place: str = "") -> ValueError:
    """Returns a graph's refusal of its inputs as a ValueError with only the sentence.

    Args:
        error: a `tf.errors.OpError`.
        place: what was refused, to begin the message with.
    """
    text = sentence(error.message or type(error).__name__)
    return ValueError(f"{place}: {text}" if place else text)


@contextlib.contextmanager
def as_value_errors() -> Iterator[None]:
    """Raises a ValueError with only the sentence where a graph refuses its inputs."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        raise value_error(error) from None


def _asserted(data: str) -> str:
    """Returns the data of an assertion, "[text] [1] [[2 3]]", as "text 1 [2 3]"."""
    message = _COMPARISON.sub("", data).strip()
    text = data if message in ("", "[]") else message  # an assertion may have no sentence
    items = text.strip().removeprefix("[] ").removeprefix("[").removesuffix("]").split("] [")
    return _unescaped(" ".join(items))


def _unescaped(text: str) -> str:
    r"""Undoes `absl::CEscape`, in which TensorFlow quotes strings.

    >>> _unescaped(r"a \'word\', f\303\274nf")
    "a 'word', fünf"
    """

    def byte(escape: "re.Match[bytes]") -> bytes:
        code = escape[1]
        if len(code) == 3:
            return bytes([int(code, 8) % 256])
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(byte, text.encode("utf-8", "replace")).decode("utf-8", "replace")
