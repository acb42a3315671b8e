"""The pictures that explain Transformers: drawn by today's code, legible on a phone, on a page."""

import functools
import itertools
import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from checks import contrast

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs/site"
IMAGES = ROOT / "docs/images"
NUMBER = re.compile(r"(?<![\w#])-?\d+(?:\.\d+)?")
LOADED = {"alignment"}  # from an export, which takes seconds to load
COLUMN = 328  # pixels for a picture on a page of 360
SVG = "{http://www.w3.org/2000/svg}"

sys.path.insert(0, str(SITE))
from drawing import SHADE, Drawing  # noqa: E402
from pictures import PICTURES  # noqa: E402

sys.path.remove(str(SITE))


def read(name):
    return (IMAGES / f"{name}.svg").read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LOADED)) for name in PICTURES],
)
def test_a_picture_is_what_the_code_draws(name):
    """If not: python docs/site/pictures.py. A fraction's last digit may be rounded differently."""
    committed, today = read(name), str(PICTURES[name]())
    assert NUMBER.sub("", committed) == NUMBER.sub("", today)
    for one, other in zip(NUMBER.findall(committed), NUMBER.findall(today), strict=True):
        digits = max(len(number.partition(".")[2]) for number in (one, other))
        assert one == other or abs(float(one) - float(other)) < 1.5 * 10**-digits < 1


@pytest.fixture(scope="module")
def alternatives():
    """Name of a picture -> what the pages say instead of it."""
    found = {name: [] for name in PICTURES}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for words, name in re.findall(
            r"!\[((?:[^][]|\[[^][]*\])*)\]\([^)]*?(\w+)\.svg\)", page.read_text("utf-8")
        ):
            if name in found:
                found[name].append((page, words))
    return found


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_on_a_page_which_says_its_numbers(name, alternatives):
    svg = ElementTree.fromstring(read(name))
    shown = {*numbers(" ".join("".join(text.itertext()) for text in svg.iter(f"{SVG}text")))}
    assert alternatives[name]
    for page, words in alternatives[name]:
        assert words, page
        assert numbers(words) - shown == set(), page


def numbers(text):
    return {float(number) for number in NUMBER.findall(text.replace(",", ""))}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_legible_on_a_phone(name):
    svg = ElementTree.fromstring(read(name))
    *_, width, height = map(float, svg.get("viewBox").split())
    sheet = svg.find(f"{SVG}style").text
    sizes = {float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", sheet)}
    assert min(sizes) * COLUMN / width >= 11
    assert "prefers-color-scheme: dark" in sheet
    assert svg.find(f"{SVG}title").text == svg.get("aria-label")
    assert list(faults(svg, width, height)) == []


def test_faults_of_layout_are_found():
    drawing = Drawing(100, "a title")
    drawing.words(20, 20, "far too long to start here")
    drawing.words(200, 20, "one")
    drawing.words(205, 24, "other")
    drawing.node((100, 60), (20, 20), "wide words")
    drawing.words(200, 60, "crossed")
    drawing.line([(200, 50), (200, 80)])
    drawing.line([(300, 40), (300, 80)])
    drawing.node((300, 60), (60, 30), "above it")
    found = list(faults(ElementTree.fromstring(str(drawing)), 340, 100))
    assert [fault.partition(": ")[0] for fault in found] == [
        "outside", "overlap", "crosses a box", "crosses a line",
    ]  # fmt: skip


def test_text_has_contrast_on_every_fill():
    """At least 4.5 to 1, also on cells that are shaded by a weight of 1."""
    for scheme in (0, 1):
        (ink,) = re.findall(r"text \{ fill: (#\w+)", "\n".join(Drawing(1, "a").rules(scheme)))
        paper = Drawing.colors["page"][scheme]
        for name, colors in Drawing.colors.items():
            color = colors[scheme]
            if name in ("blue", "orange", "green"):
                color = mixed(color, paper, SHADE)
            assert contrast(ink, color) >= 4.5, (name, scheme)


def mixed(color, paper, share):
    """A colour on paper, with an opacity."""
    parts = [[int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (color, paper)]
    return "#" + "".join(
        f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(*parts, strict=True)
    )


def faults(svg, width, height):
    """Yields what a reader cannot read: text that leaves the picture or crosses something."""
    boxes, rings, lines, texts = [], [], [], []
    for order, node in enumerate(list(svg)):
        if node.tag == f"{SVG}rect" and node.get("class") != "page":
            x, y, w, h = (float(node.get(key)) for key in ("x", "y", "width", "height"))
            boxes.append((order, (x, y, x + w, y + h)))
        elif node.tag == f"{SVG}circle":
            x, y, r = (float(node.get(key)) for key in ("cx", "cy", "r"))
            rings.append((order, (x, y, r)))
        elif node.tag == f"{SVG}path":
            points = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", node.get("d"))
            points = [(float(x), float(y)) for x, y in points]
            lines += [(order, pair) for pair in itertools.pairwise(points)]
        elif node.tag == f"{SVG}text":
            texts.append((extent(node), "".join(node.itertext())))
    for number, (place, words) in enumerate(texts):
        left, top, right, bottom = place
        if min(left, top) < 0 or right > width or bottom > height:
            yield f"outside: {words!r} at {place}"
        for other, others in texts[number + 1 :]:
            if meet(place, other):
                yield f"overlap: {words!r} and {others!r}"
        around = [order for order, box in boxes if within(place, box)]
        ground = max(around, default=-1)  # what lies below it is hidden
        for order, box in boxes:
            if order > ground and meet(place, box):
                yield f"crosses a box: {words!r} and {box}"
        for order, ring in rings:
            if order > ground and touches(place, ring):
                yield f"crosses a ring: {words!r} and {ring}"
        for order, ends in lines:
            if order > ground and passes(ends, place):
                yield f"crosses a line: {words!r} and {ends}"


@functools.cache
def letters(weight):
    font = FT2Font(findfont(FontProperties("DejaVu Sans", weight=weight)))
    font.set_size(12, 72)
    return font


def extent(node):
    """The left, upper, right and lower edge of a text, in the wide letters of DejaVu Sans."""
    style = (node.get("class") or "").split()
    font = letters("bold" if "bold" in style else "normal")
    font.set_text("".join(node.itertext()))
    width = font.get_width_height()[0] / 64
    if turned := node.get("transform"):
        x, y = map(float, re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", turned)[0])
        return x - 9, y - width, x + 2, y
    x, y = float(node.get("x")), float(node.get("y"))
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[node.get("text-anchor")]
    return left, y - 9, left + width, y + 2


def meet(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def within(one, other):
    return other[0] <= one[0] and other[1] <= one[1] and one[2] <= other[2] and one[3] <= other[3]


def touches(box, ring):
    """Whether a circle passes through a box."""
    x, y, radius = ring
    across, down = (box[0] - x, box[2] - x), (box[1] - y, box[3] - y)
    near = math.hypot(*(0 if a < 0 < b else min(abs(a), abs(b)) for a, b in (across, down)))
    far = math.hypot(*(max(abs(a), abs(b)) for a, b in (across, down)))
    return near < radius < far


def passes(ends, box):
    """Whether a straight line passes through a box."""
    (x, y), (to_x, to_y) = ends
    return any(
        box[0] < x + share * (to_x - x) < box[2] and box[1] < y + share * (to_y - y) < box[3]
        for share in (step / 200 for step in range(201))
    )
