"""The Chinese pages have the code, figures, links and pictures of the English ones."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A page in two languages: headings, both kinds of code, a table, figures, links, a picture, HTML.
ENGLISH = """---
hide: [toc]
---

# Counting

BERT has `num_layers` 12 and 110 million weights; see [Weights](weights.md#a-model), the
[terms](terms.md#heads) and [the paper](https://arxiv.org/abs/1810.04805).

```python
assert 12 * 64 == 768
```

## Heads

![Twelve heads](images/heads.svg)

<img src="images/narrow.svg" alt="A share of 0.970">

| heads | 12 |
|---|---|
| of | 64 |

    12 heads

- a list

  ```bash
  make test
  ```
"""
CHINESE = """# 数一数

BERT 的 `num_layers` 是 12、权重有 1.1 亿个。见[权重](../weights.md#a-model)、[术语](terms.md#头)和
[论文](https://arxiv.org/abs/1810.04805)。

```python
assert 12 * 64 == 768
```

## 头

![十二个头](../images/heads.svg)

<img src="../images/narrow.svg" alt="占 0.970">

| 头 | 12 |
|---|---|
| 每个 | 64 |

    12 heads

- 列表

  ```bash
  make test
  ```
"""


@pytest.fixture
def pages(languages, tmp_path, monkeypatch):
    """Two pages in a repository of their own; returns the differences with a Chinese text."""
    monkeypatch.setattr(languages, "ROOT", tmp_path)
    (tmp_path / "docs/zh").mkdir(parents=True)
    (tmp_path / "docs/page.md").write_text(ENGLISH, "utf-8")
    for name in ("docs/terms.md", "docs/weights.md", "docs/zh/terms.md"):
        (tmp_path / name).touch()

    def differences(chinese):
        (tmp_path / "docs/zh/page.md").write_text(chinese, "utf-8")
        return languages.differences("docs/page.md", "docs/zh/page.md")

    return differences


def test_the_chinese_pages_are_those_of_the_english(languages):
    """If not: python docs/site/languages.py copies the code, and prints what else differs."""
    found = [*languages.pairs()]
    assert ("README.md", "README.zh.md") in found
    assert ("docs/tutorials/transformer.md", "docs/zh/tutorials/transformer.md") in found
    assert [fault for pair in found for fault in languages.differences(*pair)] == []
    for english, chinese in found:
        text = (ROOT / chinese).read_text("utf-8")
        assert languages.with_code_of(english, chinese) == text


def test_the_same_in_other_words_is_no_difference(pages):
    assert pages(CHINESE) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("12 * 64 == 768", "12 * 64 == 767", "数一数"),
        ("make test", "make tests", "头"),
        ("    12 heads", "    13 heads", "头"),
        ("    12 heads\n", "", "头"),
        ("是 12", "是 13", "13"),
        ("1.1 亿", "1.1 万", "11000"),
        ("| 64 |", "| 65 |", "65"),
        ("占 0.970", "占 0.971", "0.971"),
        ("`num_layers`", "`num_heads`", "num_heads"),
        ("heads.svg", "head.svg", "docs/images/head.svg"),
        ("narrow.svg", "wide.svg", "docs/images/wide.svg"),
        ("#a-model", "", "docs/weights.md#a-model"),
        ("1810.04805", "1810.04806", "1810.04806"),
        ("(terms.md#头)", "(../terms.md#heads)", "docs/terms.md, in English"),
        ("## 头", "### 头", "Heads"),
        ("## 头", "## 头\n\n## 尾", "尾"),
        ("## 头", "", "Heads"),
    ],
)
def test_a_drift_is_seen(old, new, said, pages):
    assert CHINESE.count(old) >= 1
    lines = pages(CHINESE.replace(old, new))
    assert all(line.startswith("docs/zh/page.md") for line in lines)
    assert said in "\n".join(lines)


def test_the_command_copies_code_and_nothing_else(languages, pages):
    stale = CHINESE.replace("768", "1").replace("    12 heads", "    .").replace("make test", "")
    pages(stale)
    # The front matter of the English page moves its lines, but not those of the Chinese one.
    assert languages.with_code_of("docs/page.md", "docs/zh/page.md") == CHINESE
    pages(CHINESE.replace("    12 heads\n", ""))
    with pytest.raises(ValueError, match=r"zh/page.md, under '头': 1 blocks .* 2 under 'Heads'"):
        languages.with_code_of("docs/page.md", "docs/zh/page.md")


def test_a_page_in_one_language_is_named_with_the_remedy(languages):
    pytest.importorskip("pathspec")
    pages = {"docs/a.md", "docs/results/b.md", "README.md", "README.zh.md"}
    only = ["/*.md", "/results/"]
    assert languages.without_partner(pages, only) == []
    for pages_now, patterns, parts in (
        (pages - {"README.zh.md"}, only, ["README.md has no partner", "write README.zh.md"]),
        (
            pages,
            ["/*.md"],
            ["docs/results/b.md has", "docs/zh/results/b.md", "english_only in mkdocs"],
        ),
        ({*pages, "docs/zh/c.md"}, only, ["docs/zh/c.md has", "write docs/c.md", "or remove this"]),
        ({*pages, "docs/zh/a.md"}, only, ["docs/a.md has", "docs/zh/a.md", "from english_only"]),
    ):
        [fault] = languages.without_partner(pages_now, patterns)
        assert [part for part in parts if part not in fault] == []


@pytest.fixture(scope="module")
def site():
    """The site's configuration and files, as ProperDocs gives them to the hooks."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="needs the extra docs")
    from mkdocs.config import load_config
    from mkdocs.structure.files import get_files

    config = load_config(str(ROOT / "mkdocs.yml"))
    return config, lambda: get_files(config)


def test_every_page_has_its_partner(site, hooks):
    config, files = site
    pages = [page.src_uri for page in files().documentation_pages()]
    assert hooks.languages.faults(pages, config.extra["english_only"]) == []


@pytest.mark.parametrize("page", ["zh/glossary.md", "glossary.md", "tutorials/transformer.md"])
def test_the_build_fails_on_a_page_without_its_partner(page, site, hooks):
    from mkdocs.exceptions import PluginError

    config, files = site
    remaining = files()
    remaining.remove(remaining.get_file_from_path(page))
    other = hooks.languages.partner_of(f"docs/{page}")
    with pytest.raises(PluginError, match=f"{other} has no partner: write docs/{page}"):
        hooks.on_files(remaining, config)
