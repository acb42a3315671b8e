"""Which pages are in two languages, and what a page and its partner must share.

    python docs/site/languages.py   # copies the code of the English pages into the Chinese ones

docs/zh/glossary.md is the partner of docs/glossary.md, README.zh.md that of README.md. The Chinese
text is written by hand. Code, figures, links and pictures are those of the English page: the build
of the site and the tests fail where they differ.
"""

import posixpath
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote, urldefrag

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS, CHINESE = "docs", "docs/zh"
_COMMAND = "python docs/site/languages.py"
_READMES = {"README.md": "README.zh.md"}
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_SOURCES = re.compile(r'\b(?:src|srcset|href)="([^"]+)"')  # of pictures and links in HTML
_UNITS = {"million": 10**6, "billion": 10**9, "万": 10**4, "亿": 10**8}
_FIGURE = re.compile(rf"(\d+(?:,\d{{3}})*(?:\.\d+)?)(?:\s*({'|'.join(_UNITS)}))?")


def partner_of(page: str) -> str:
    """Returns the path in the repository of the same page in the other language."""
    readmes = _READMES | {chinese: english for english, chinese in _READMES.items()}
    if page in readmes:
        return readmes[page]
    folder, other = (CHINESE, DOCS) if is_chinese(page) else (DOCS, CHINESE)
    return f"{other}/{page.removeprefix(f'{folder}/')}"


def is_chinese(page: str) -> bool:
    """Returns whether a path in the repository is that of a Chinese page."""
    return page.startswith(f"{CHINESE}/") or page in _READMES.values()


def pairs() -> Iterator[tuple[str, str]]:
    """Yields the English and the Chinese page, for each Chinese page."""
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / CHINESE).rglob("*.md")]
    for page in sorted([*pages, *_READMES.values()]):
        yield partner_of(page), page


def without_partner(pages: set[str], english_only: list[str]) -> list[str]:
    """Returns which pages of a site are in one language only, one line each.

    Args:
        pages: Paths from the root of the repository.
        english_only: Patterns, as in .gitignore, of the pages in docs/ without a Chinese partner.
    """
    from pathspec import GitIgnoreSpec  # here: only the site's build has it for certain

    alone = GitIgnoreSpec.from_lines(english_only)
    messages, setting = [], "english_only in mkdocs.yml"
    for page in sorted(pages):
        other = partner_of(page)
        in_docs = page.startswith(f"{DOCS}/") and not is_chinese(page)
        excused = in_docs and alone.match_file(page.removeprefix(f"{DOCS}/"))
        if other in pages and excused:
            messages.append(f"{page} has the partner {other}: remove it from {setting}")
        elif other not in pages and not excused:
            remedy = f"add it to {setting}" if in_docs else "remove this one"
            messages.append(f"{page} has no partner: write {other}, or {remedy}")
    return messages


def faults(pages: Iterable[str], english_only: list[str]) -> list[str]:
    """Returns what is wrong with the languages of pages in docs/ and of README, one line each.

    Args:
        pages: Paths from docs/.
        english_only: Patterns, as in .gitignore, of the pages without a Chinese partner.
    """
    names = {f"{DOCS}/{page}" for page in pages} | {
        name for pair in _READMES.items() for name in pair if (ROOT / name).is_file()
    }
    if alone := without_partner(names, english_only):
        return alone
    both = sorted(name for name in names if is_chinese(name))
    return [fault for page in both for fault in differences(partner_of(page), page)]


@dataclass
class Section:
    """What stands between two headings."""

    title: str
    level: int
    blocks: list[tuple[int, int]] = field(default_factory=list)  # lines of code, from and to
    code: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # code within the text
    figures: Counter[Decimal] = field(default_factory=Counter)
    links: Counter[str] = field(default_factory=Counter)


def sections(page: str, text: str) -> list[Section]:
    """Splits a page at its headings; links point to the English page where there are two."""
    # Empty lines take the front matter's place, so that lines keep their numbers in the file.
    text = _FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines, parts = text.splitlines(keepends=True), [Section("", 0)]
    tokens = _MARKDOWN.parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            parts.append(Section(token.content, int(before.tag[1])))
        section = parts[-1]
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            section.blocks.append((token.map[0], token.map[1]))
            section.code.append("".join(lines[slice(*token.map)]))
        elif token.type == "html_block":
            section.figures.update(_figures(_SOURCES.sub("", token.content)))
            section.links.update(_target(page, link) for link in _SOURCES.findall(token.content))
        elif token.type == "inline":
            _read_text(token, page, section)
    return parts


def _read_text(token: Token, page: str, section: Section) -> None:
    prose = ""
    for child in token.children or ():
        if child.type == "code_inline":
            section.names.add(child.content)
        elif child.type in ("link_open", "image"):
            link = child.attrGet("href") or child.attrGet("src")
            section.links[_target(page, str(link))] += 1
        prose += child.content if child.type in ("text", "image") else " "
    section.figures.update(_figures(prose))


def _figures(text: str) -> Iterator[Decimal]:
    """Yields the numbers of a text: 110 million is 1.1 亿."""
    for number, unit in _FIGURE.findall(text):
        yield Decimal(number.replace(",", "")) * _UNITS.get(unit, 1)


def _target(page: str, link: str) -> str:
    """Returns where a link leads: a path from the root, without the heading if it is translated."""
    path, heading = urldefrag(unquote(link))
    if ":" in path:
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    english = partner_of(target) if is_chinese(target) else target
    if english.endswith(".md") and (ROOT / partner_of(english)).is_file():
        # A Chinese page leads to the English text of its own page only.
        foreign = is_chinese(page) and not is_chinese(target) and partner_of(page) != target
        return f"{english}, in English" if foreign else english
    return f"{english}#{heading}" if heading else english


def differences(english: str, chinese: str) -> list[str]:
    """Returns where two partners differ in what they share, one line each."""
    ours, theirs = (sections(page, (ROOT / page).read_text("utf-8")) for page in (chinese, english))
    levels = [[section.level for section in page] for page in (ours, theirs)]
    if levels[0] != levels[1]:
        first = next(
            (n for n, (a, b) in enumerate(zip(*levels, strict=False)) if a != b),
            min(map(len, levels)),
        )
        titles = [page[first].title if first < len(page) else "(end)" for page in (ours, theirs)]
        return [f"{chinese} has the heading {titles[0]!r} where {english} has {titles[1]!r}"]
    messages = []
    for our, their in zip(ours, theirs, strict=True):
        place = f"{chinese}, under {our.title!r}:"
        if our.code != their.code:
            messages.append(f"{place} other code than in {english}; run {_COMMAND}")
        for what, mine, yours in (
            ("names", Counter(our.names), Counter(their.names)),
            ("figures", our.figures, their.figures),
            ("links", our.links, their.links),
        ):
            for more, side in ((yours - mine, "only in"), (mine - yours, "not in")):
                if more:
                    values = ", ".join(map(str, more.elements()))
                    messages.append(f"{place} {what} {side} {english}: {values}")
    return messages


def with_code_of(english: str, chinese: str) -> str:
    """Returns the text of a Chinese page with the English page's blocks of code.

    Raises:
        ValueError: A section has another number of blocks.
    """
    texts = [(ROOT / page).read_text("utf-8") for page in (chinese, english)]
    ours, theirs = (
        sections(page, text) for page, text in zip((chinese, english), texts, strict=True)
    )
    lines = texts[0].splitlines(keepends=True)
    for our, their in reversed([*zip(ours, theirs, strict=False)]):
        if len(our.blocks) != len(their.blocks):
            raise ValueError(
                f"{chinese}, under {our.title!r}: {len(our.blocks)} blocks of code, but "
                f"{len(their.blocks)} under {their.title!r} of {english}; add an empty block for "
                "each that is new"
            )
        for (start, end), code in reversed([*zip(our.blocks, their.code, strict=True)]):
            lines[start:end] = [code]
    return "".join(lines)


def main() -> None:
    """Copies the code, and prints what else differs; the exit status is 1 if something does."""
    messages = []
    for english, chinese in pairs():
        try:
            text = with_code_of(english, chinese)
        except (OSError, ValueError) as error:
            messages.append(str(error))
            continue
        (ROOT / chinese).write_text(text, "utf-8")
        messages += differences(english, chinese)
    print(
        "\n".join(messages) or "The Chinese pages have the code, figures and links of the English."
    )
    sys.exit(bool(messages))


if __name__ == "__main__":
    main()
