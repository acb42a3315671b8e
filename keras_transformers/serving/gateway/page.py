"""Makes the page at /docs of the OpenAPI description, without anything from elsewhere."""

import json
from collections.abc import Iterator, Mapping
from html import escape

from keras_transformers.dependencies.untyped import Json

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { margin: 0 auto; max-width: 60rem; padding: 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; width: 100% }
td, th { border-bottom: 1px solid #8886; padding: .25rem .75rem .25rem 0; text-align: left;
         vertical-align: top }
code { font: .875rem ui-monospace, monospace }
h2 { border-bottom: 2px solid #8886; margin-top: 3rem }
nav li { display: inline-block; margin-right: 1rem }
nav ul { padding: 0 }
"""
# Keyword of a JSON schema -> how the page says it.
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


def page(description: Mapping[str, Json]) -> str:
    """Returns the page of an OpenAPI description, in HTML."""
    schemas = description["components"]["schemas"]
    routes: dict[str, list[str]] = {}  # API -> its routes
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            (api,) = route.get("tags", ["Others"])
            routes.setdefault(api, []).append(_route(path, method, route))
    title = escape(f"{description['info']['title']} {description['info']['version']}")
    names = [*routes, "Types"]
    links = "".join(f'<li><a href="#{escape(name)}">{escape(name)}</a></li>' for name in names)
    parts = [f"<h1>{title}</h1>", f"<nav><ul>{links}</ul></nav>"]
    for api, sections in routes.items():
        parts += [_heading(2, api), *sections]
    parts.append(_heading(2, "Types"))
    for name, schema in sorted(schemas.items()):
        parts.append(_heading(3, name))
        parts.append(f"<p>{_text(schema.get('description', ''))}</p>")
        parts.append(_fields(schema))
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _route(path: str, method: str, route: Mapping[str, Json]) -> str:
    body = _types(route.get("requestBody", {}))
    rows = [("request", body)] if body else []
    for status, answer in route["responses"].items():
        about = f": {_text(answer['description'])}" if status == "default" else ""
        rows.append(("error" if status == "default" else "answer", _types(answer) + about))
    cells = "".join(f"<tr><th>{name}</th><td>{types}</td></tr>" for name, types in rows)
    about = _text(route.get("description", ""))
    return f"{_heading(3, f'{method.upper()} {path}')}<p>{about}</p><table>{cells}</table>"


def _types(message: Mapping[str, Json]) -> str:
    """Returns the types of the contents of a request or an answer."""
    contents = message.get("content", {}).items()
    return ", ".join(
        f"{_type(content['schema'])} <code>{escape(kind)}</code>"
        for kind, content in contents
        if content.get("schema")
    )


def _fields(schema: Mapping[str, Json]) -> str:
    """Returns the table of an object's fields; the type of anything else."""
    if "properties" not in schema:
        return f"<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td>{_type(field)}</td>"
        f"<td>{'required' if name in required else ''}</td>"
        f"<td>{_text(field.get('description', ''))}</td></tr>"
        for name, field in schema["properties"].items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _type(schema: Mapping[str, Json]) -> str:
    """Returns a schema in words, with a link to each type that has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        kinds = [_type(kind) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return ", ".join([" or ".join(kinds), *_bounds(schema)])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "anything")
    if kind == "array":
        kind = f"list of {_type(schema.get('items', {}))}"
    return ", ".join([kind, *_bounds(schema)])


def _bounds(schema: Mapping[str, Json]) -> Iterator[str]:
    for keyword, words in _BOUNDS.items():
        if keyword in schema:
            yield escape(words.format(f"{schema[keyword]:.16g}"))


def _heading(level: int, text: str) -> str:
    return f'<h{level} id="{escape(text)}">{escape(text)}</h{level}>'


def _text(text: str) -> str:
    """Returns a docstring as HTML; what is between backquotes is code."""
    parts = escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
