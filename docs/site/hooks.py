"""What the site has besides the pages in docs/: the reference, files that pages link to, languages.

ProperDocs calls these functions, and MkDocs when mike publishes a version; both are imported as
`mkdocs`. See https://properdocs.org/dev-guide/plugins/#events.
"""

import ast
import html
import logging
import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Any

import languages

ROOT = Path(__file__).parents[2]
PACKAGE = "keras_transformers"
_logger = logging.getLogger("mkdocs.hooks")  # with --strict, its warnings fail the build
# Characters of code that fit a window of 1,300 pixels; docs/style.css sets the sizes.
WIDEST_CODE = 95
_BLOCK_OF_CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
CHINESE = "中文"  # the name of the language, and of its part of the navigation
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+")
_JOINT = re.compile(r"(?<=[_./,=(])(?=\w{3})|(?<=[a-z])(?=[A-Z])")  # of names in code
_UPWARDS = re.compile(r"\]\((\.\./[^)#]+)")  # a link to a file of another folder
_DOWN = re.compile(r"\]\(docs/([^)#]+)")  # a link of a file in the repository's root
_COPIES = "repository/"  # where the site has the files outside docs/


def on_config(config: Any) -> None:
    """Adds the reference to the navigation: the names at the top, and a page per room."""
    logging.getLogger("jieba").setLevel("WARNING")  # search's words of Chinese: not its dictionary
    pages = [{room: f"reference/{room}.md"} for room in _rooms()]
    config.nav.append({"Reference": [{PACKAGE: "reference/index.md"}, *pages]})


def on_files(files: Any, config: Any) -> None:
    """Adds the pages of the reference, and the files outside docs/ that pages link to."""
    from mkdocs.exceptions import PluginError  # here: a test reads this file without MkDocs
    from mkdocs.structure.files import File

    uris = [page.src_uri for page in files.documentation_pages()]
    if faults := languages.faults(uris, config.extra["english_only"]):
        raise PluginError("\n".join(faults))
    files.append(File.generated(config, "reference/index.md", content=_top()))
    for room, modules in _rooms().items():
        text = _reference(room, modules)
        files.append(File.generated(config, f"reference/{room}.md", content=text))
    pages = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    links = [_outside(uri, link) for uri, text in pages for link in _UPWARDS.findall(text)]
    for name in sorted({name for name in links if name is not None}):
        path = ROOT / name
        if not path.exists():
            raise PluginError(f"a page links to {name}, which does not exist")
        for file in [path] if path.is_file() else sorted(path.iterdir()):
            place = f"{_COPIES}{file.relative_to(ROOT)}"
            if files.get_file_from_path(place) is None:  # another link may have added it
                files.append(File.generated(config, place, abs_src_path=str(file)))
        if path.is_dir():
            listing = "\n".join(f"- [{file.name}]({file.name})" for file in sorted(path.iterdir()))
            text = f"# {name}\n\n{listing}\n"
            files.append(File.generated(config, f"{_COPIES}{name}/index.md", content=text))


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Points links out of docs/ at the site's copies, and the links of copies back into docs/."""
    uri = page.file.src_uri
    folder = posixpath.dirname(uri) or "."

    def inside(match: re.Match) -> str:
        name = _outside(uri, match[1])
        if name is None:
            return match[0]
        target = f"{_COPIES}{name}{'/index.md' if (ROOT / name).is_dir() else ''}"
        return f"]({posixpath.relpath(target, folder)}"

    def back(match: re.Match) -> str:
        return f"]({posixpath.relpath(match[1], folder)}"

    return _DOWN.sub(back, markdown) if uri.startswith(_COPIES) else _UPWARDS.sub(inside, markdown)


def on_page_content(output: str, *, page: Any, **_: Any) -> str:
    """Warns, which fails the build, of code that would scroll sideways; wraps that of copies."""
    if page.file.src_uri.startswith(_COPIES):
        return output.replace("<pre>", '<pre class="wrapped">')
    for line in wide_lines(output):
        _logger.warning(
            "%s: a line of code takes the room of %d characters, and a window has %d: wrap %s",
            *(page.file.src_uri, columns(line), WIDEST_CODE, line.strip()),
        )
    return output


def wide_lines(output: str) -> list[str]:
    """Returns the lines in a page's blocks of code that are wider than `WIDEST_CODE`."""
    blocks = [html.unescape(_TAG.sub("", block)) for block in _BLOCK_OF_CODE.findall(output)]
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if columns(line) > WIDEST_CODE]


def columns(line: str) -> int:
    """Returns how many characters' room a line takes: a Chinese character takes two."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in line)


def on_page_context(context: Any, *, page: Any, config: Any, nav: Any) -> Any:
    """Gives a page the navigation and the theme's words in its language, and links to both."""
    from mkdocs.structure.nav import Navigation

    uri = f"docs/{page.file.src_uri}"
    chinese = languages.is_chinese(uri)
    [section] = (item for item in nav if item.title == CHINESE)
    home = section.children[0] if chinese else nav.homepage
    items = section.children if chinese else [item for item in nav if item is not section]
    context["nav"] = Navigation(items, nav.pages)
    context["nav"].homepage = home
    # A page without a partner leads to the other language's first page.
    urls = {f"docs/{other.file.src_uri}": other.url for other in nav.pages}
    other = urls.get(languages.partner_of(uri), section.children[0].url)
    links = (other, page.url) if chinese else (page.url, other)
    config.theme["language"] = "zh" if chinese else "en"
    config.extra["alternate"] = [
        {"name": name, "lang": lang, "link": link}
        for name, lang, link in zip(("English", CHINESE), ("en", "zh"), links, strict=True)
    ]
    return context


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Lets code in tables break at its joints, and names the search dialog for screen readers."""
    dialog = 'data-md-component="search" role="dialog"'
    label = "搜索" if languages.is_chinese(f"docs/{page.file.src_uri}") else "Search"
    output = output.replace(dialog, f'{dialog} aria-label="{label}"')
    return _CELL.sub(lambda cell: _CODE.sub(_with_breaks, cell[0]), output)


def _with_breaks(code: re.Match) -> str:
    return _JOINT.sub("<wbr>", code[0])


def _outside(page: str, link: str) -> str | None:
    """Returns the path in the repository that a page links to; None if that is a page too."""
    name = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if name.startswith("docs/") else name


def _rooms() -> dict[str, dict[str, list[str]]]:
    """Returns room -> module -> its public names, without importing anything."""
    rooms: dict[str, dict[str, list[str]]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names = _public_names(path)
        if parts[1] != "__init__" and names:
            rooms.setdefault(parts[1], {})[".".join(parts)] = names
    return rooms


def _public_names(path: Path) -> list[str]:
    """Returns a module's `__all__`, without importing it."""
    names = _value(ast.parse(path.read_text("utf-8")).body, "__all__")
    return [] if names is None else list(ast.literal_eval(names))


def _value(body: list[ast.stmt], name: str) -> ast.expr | None:
    """Returns what a module assigns to a name."""
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


def _top() -> str:
    """Returns the page of the names that the package itself has, with where they are described."""
    names = _value(ast.parse((ROOT / PACKAGE / "__init__.py").read_text("utf-8")).body, "_NAMES")
    assert names is not None
    lines = [f"# {PACKAGE}", "", "After `import keras_transformers as kt`:", ""]
    for name, module in ast.literal_eval(names).items():
        lines.append(f"- [`kt.{name}`][{PACKAGE}.{module}.{name}]")
    lines += [
        "- `kt.bert_base` and the other [models](../models.md): the builder of their family, which",
        "  [families](families.md) describes, with other defaults",
        "- `kt.heads`, `kt.pipelines` and `kt.results`: what [the tasks](tasks.md) hold",
        "- the other rooms, a page each: `kt.layers`, `kt.data` and so on",
    ]
    return "\n".join(lines) + "\n"


def _reference(room: str, modules: dict[str, list[str]]) -> str:
    lines = [f"# {PACKAGE}.{room}", ""]
    for module, names in modules.items():
        lines += [f"## {module.removeprefix(f'{PACKAGE}.')}", ""]
        for name in names:
            lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)
