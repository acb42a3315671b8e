"""The page in a real browser: every view answers, and nothing leaves the machine."""

import functools
import re
import shutil

import pytest
import tiny

from keras_transformers.explorer import subjects
from keras_transformers.explorer.application import explorer_server
from keras_transformers.serving.server.settings import model_settings

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install -e .[dev]"
)
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra dev")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt install chromium"),
]
TASKS = (*tiny.TASKS,)
TEXTS = {
    "translation": {"text": "Hund"},
    "generation": {"prompt": "two dogs"},
    "tagging": {"text": "a good film"},
    "multiple_choice": {"text": "a good film", "choices": "good\ntwo dogs"},
}


@pytest.fixture(scope="module")
def address():
    exports = {
        "exported_talker": tiny.exported_talker(),
        "exported_embedder": tiny.exported("embedding"),
    }
    found = [subjects.of_pipeline(task, tiny.pipeline(task)) for task in TASKS]
    export = subjects._open(tiny.exported("translation"))
    settings = model_settings(f"exported={tiny.exported('translation').parent}")
    found.append(subjects.Subject("exported", export.about, {}, settings))
    found.append(subjects.of_pipeline("talker", tiny.talker()))
    for name, folder in exports.items():
        export = subjects._open(folder)
        found.append(
            subjects.Subject(name, export.about, {}, model_settings(f"{name}={folder.parent}"))
        )
    with explorer_server(found, host="127.0.0.1", port=0) as server:
        assert server.wait_until_loaded(120)
        yield f"http://127.0.0.1:{server.rest_port}/"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser, address):
    """A page that fails the test if it logs an error or asks another machine for anything."""
    faults = []
    context = browser.new_context(locale="en-GB", viewport={"width": 1100, "height": 800})
    page = context.new_page()
    page.faults, page.address = faults, address
    page.set_default_timeout(60_000)
    page.on("console", lambda said: said.type == "error" and faults.append(said.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: (
            request.url.startswith((address, "data:", "blob:")) or faults.append(request.url)
        ),
    )
    page.goto(address)
    page.wait_for_selector("#panel[data-shown]")
    yield page
    context.close()
    assert not faults


def shown(page, act):
    """Acts, and waits until the page has drawn what came of it."""
    before = page.get_attribute("#panel", "data-shown")
    act()
    page.wait_for_function(
        "before => document.getElementById('panel').dataset.shown !== before", arg=before
    )


def serious_faults(page):
    found = axe.Axe().run(page).response["violations"]
    return [
        (each["id"], each["nodes"][0]["html"])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def choose(page, task):
    if page.input_value("#model") != task:
        shown(page, lambda: page.select_option("#model", task))
    for name, text in TEXTS.get(task, {}).items():
        page.fill(f"#input-{name}", text)
    if task in TEXTS:
        shown(page, lambda: page.click("#inputs button[type=submit]"))


@pytest.mark.parametrize("task", TASKS)
def test_every_view_answers(page, task):
    choose(page, task)
    names = page.locator("[role=tab]").evaluate_all("tabs => tabs.map(tab => tab.id)")
    assert "tab-answer" in names
    for name in names:
        if page.get_attribute(f"#{name}", "aria-selected") != "true":
            shown(page, functools.partial(page.click, f"#{name}"))
        assert page.locator("#panel .error").count() == 0, page.inner_text("#panel")
        assert page.locator("#panel").inner_text().strip(), name


def test_an_export_answers_through_the_servers_api(page):
    with page.expect_request("**/v1/models/exported:predict") as request:
        shown(page, lambda: page.select_option("#model", "exported"))
    assert '"serving_default"' in request.value.post_data
    assert page.locator("#panel table").count() == 1  # its alignment, from the signature `attend`
    assert page.locator("[role=tab]").count() == 1


def test_attention_follows_the_keyboard(page):
    choose(page, "classification")
    shown(page, lambda: page.click("#tab-attention"))
    first = page.locator("#keys").evaluate("keys => keys.textContent")
    before = page.locator("#keys .token").evaluate_all(
        "tokens => tokens.map(each => each.style.backgroundColor)"
    )
    page.locator("#queries button").nth(1).focus()
    page.keyboard.press("Tab")
    pressed = page.locator("#queries button").evaluate_all(
        "all => all.map(each => each.getAttribute('aria-pressed'))"
    )
    assert pressed.index("true") == 2
    assert page.locator("#keys").evaluate("keys => keys.textContent") == first
    after = page.locator("#keys .token").evaluate_all(
        "tokens => tokens.map(each => each.style.backgroundColor)"
    )
    assert before != after
    page.locator("#tab-attention").focus()
    shown(page, lambda: page.keyboard.press("ArrowRight"))
    assert page.evaluate("document.activeElement.id") == "tab-qkv"


def test_a_head_is_shown_step_by_step_with_the_keyboard(page):
    choose(page, "classification")
    page.fill("#input-text", "a good film")
    shown(page, lambda: page.click("#tab-qkv"))
    table = page.locator("#panel table.qkv")
    assert page.locator("#queries button").all_inner_texts() == [
        *("[CLS]", "a", "good", "film", "[SEP]")
    ]
    assert table.locator("tbody tr").count() == 7  # the query, its keys, their sum
    titles = ["", "k", "q \u00d7 k", "q · k", "score (÷ √4)", "softmax", "v", "softmax \u00d7 v"]
    for step in range(5):
        assert page.inner_text("#caption").startswith(f"{step + 1}.")
        visible = [each for each in table.locator("th[scope=col]").all() if each.is_visible()]
        assert [each.inner_text() for each in visible] == titles[: (2, 3, 5, 6, 8)[step]]
        page.focus(".steps input")
        page.keyboard.press("ArrowRight")
    assert page.locator("#context").is_visible()
    shares = [float(each.split()[0]) for each in table.inner_text().split("\t") if "%" in each]
    assert abs(sum(shares) - 100) < 0.5
    before = table.inner_text()
    page.locator("#queries button").nth(1).focus()
    assert table.inner_text() != before
    before = table.inner_text()
    page.get_by_label("Head").select_option("2")
    page.wait_for_function(
        "before => document.querySelector('table.qkv').innerText !== before", arg=before
    )
    assert page.inner_text("#caption").startswith("5.")  # the step stays


def test_decoding_plays_and_pauses(page):
    choose(page, "translation")
    shown(page, lambda: page.click("#tab-decoding"))
    written = page.locator("#written .token")
    assert written.count() == 1
    inputs = page.locator("#decoder .token").count()
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.querySelectorAll('#written .token').length === 3")
    page.get_by_role("button", name="Pause").click()
    assert page.locator("#decoder .token").count() == inputs + 2
    # What is written in a step is what the next one reads last.
    assert page.locator("#decoder .token").last.inner_text() == written.nth(1).inner_text()
    page.get_by_role("button", name="Back").click()
    assert written.count() == 2
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.new')).animationName") == "arrive"
    )


def test_less_motion_leaves_the_steps_to_the_reader(page):
    page.emulate_media(reduced_motion="reduce")
    choose(page, "translation")
    shown(page, lambda: page.click("#tab-decoding"))
    assert page.get_by_role("button", name="Play").count() == 0
    page.get_by_role("button", name="Forward").click()
    assert page.locator("#written .token").count() == 2
    assert page.evaluate("getComputedStyle(document.querySelector('.new')).animationName") == "none"


def test_a_pair_is_read_as_one_sequence(page):
    visit(page, "model=next_sentence&view=inputs&text=a+good+film&text_b=bad")
    cards = page.locator(".inputs li")
    assert [each.split("\n")[0] for each in cards.all_inner_texts()] == [
        *("[CLS]", "a", "good", "film", "[SEP]", "bad", "[SEP]")
    ]
    assert "segment A" in cards.nth(4).inner_text()
    assert "segment B" in cards.nth(5).inner_text()
    assert "position 5" in cards.nth(5).inner_text()
    assert cards.nth(5).locator("canvas").count() == 4


def test_generation_goes_token_by_token_and_back(page):
    choose(page, "generation")
    shown(page, lambda: page.click("#tab-next"))
    before = page.inner_text("#generated")
    page.locator("#panel .tokens button").first.click()
    page.wait_for_function(
        "before => document.getElementById('generated').innerText !== before", arg=before
    )
    page.get_by_role("button", name="Back").click()
    page.wait_for_function(
        "before => document.getElementById('generated').innerText === before", arg=before
    )


def test_the_tree_of_parameters_opens_down_to_each_matrix(page):
    choose(page, "classification")
    shown(page, lambda: page.click("#tab-parameters"))
    total = tiny.pipeline("classification").model.count_params()
    assert f"{total:,}" in page.inner_text("#panel")
    page.get_by_text("encoder_layer_0").click()
    page.get_by_text("feed_forward:").click()
    page.get_by_text("intermediate", exact=False).first.click()
    page.wait_for_selector("text=/8 . 32/")


def test_bad_input_is_an_error_that_says_what_to_do(page):
    choose(page, "generation")
    page.fill("#input-prompt", "two dogs are near the shore " * 9)
    shown(page, lambda: page.click("#tab-attention"))
    assert "positions" in page.inner_text("#panel .error")
    page.faults.pop()  # Chromium logs the status 400


def visit(page, fragment):
    """Opens the page anew at an address, as someone would to whom it was sent."""
    page.goto("about:blank")
    page.goto(f"{page.address}#{fragment}")
    page.wait_for_selector("#panel[data-shown]")


def test_an_address_shows_the_same_to_others(page, browser):
    choose(page, "classification")
    page.fill("#input-text", "a very bad & long film, 100 % #bad")
    shown(page, lambda: page.click("#tab-tokens"))
    panel, address = page.inner_text("#panel"), page.url
    visit(page, address.partition("#")[2])
    assert page.input_value("#model") == "classification"
    assert page.get_attribute("#tab-tokens", "aria-selected") == "true"
    assert page.input_value("#input-text") == "a very bad & long film, 100 % #bad"
    assert page.inner_text("#panel") == panel
    # Another address in the same tab; lists come back line by line.
    texts = "text=a+good+film&choices=good%0Atwo+dogs"
    shown(page, lambda: page.evaluate(f"location.hash = 'model=multiple_choice&{texts}'"))
    assert page.input_value("#input-choices") == "good\ntwo dogs"
    assert page.locator("#panel .bars").count() == 1


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("model=nobody", "unknown model: nobody; available: classification"),
        ("model=__proto__&view=answer", "unknown model: __proto__"),
        ("model=", "unknown model: ;"),
        ("model=tagging&view=beams", "unknown tab: beams; available: answer"),
        ("model=tagging&view=constructor", "unknown tab: constructor"),
        ("model=tagging&question=a", "unknown text: question; available: text"),
        ("%E0%A4%A&&&===%", "unknown text"),
        ("model=<img src=x onerror=alert(1)>", "unknown model: <img src=x"),
    ],
)
def test_a_wrong_address_is_explained_and_the_page_still_works(page, fragment, said):
    visit(page, fragment)
    assert said in page.inner_text("#panel [role=alert]")
    shown(page, lambda: page.select_option("#model", "regression"))
    assert page.locator("#panel .error").count() == 0


def test_a_search_finds_the_nearest_lines(page):
    lines = "bad%0Aa+good+film%0A%0Avery"
    visit(page, f"model=embedding&view=search&question=a+good+film&lines={lines}")
    lines = page.locator("#nearest li")
    assert lines.count() == 3
    tokens = lines.first.locator(".token").all_inner_texts()
    assert tokens == ["a", "good", "film"]
    assert "1.000" in lines.first.inner_text()
    page.fill("#input-lines", "")
    page.focus("#input-lines")
    shown(page, lambda: page.keyboard.press("Control+Enter"))
    assert "at least one line" in page.inner_text("#panel .error")
    page.faults.pop()  # Chromium logs the status 400


def test_an_export_is_searched_through_the_servers_api(page):
    fragment = "view=search&question=a+good+film&lines=bad%0Aa+good+film%0Avery"
    visit(page, f"model=embedding&{fragment}")
    scores = page.locator("#nearest .found").all_inner_texts()
    visit(page, f"model=exported_embedder&{fragment}")
    assert page.locator("#nearest .found").all_inner_texts() == scores
    assert "a good film" in page.locator("#nearest li").first.inner_text()


@pytest.mark.parametrize("model", ["talker", "exported_talker"])
def test_a_conversation_goes_on_by_keyboard(page, model):
    visit(page, f"model={model}&view=chat")
    said = []
    for message in ("abc", "and?"):
        page.fill("#input-message", message)
        page.focus("#input-message")
        shown(page, lambda: page.keyboard.press("Control+Enter"))
        said.append({"role": "user", "content": message})
        answer = tiny.talker().chat(said, max_length=100, top_k=1).text
        said.append({"role": "assistant", "content": answer})
        assert page.input_value("#input-message") == ""
    texts = page.locator("#chat li").evaluate_all(
        "all => all.map(each => each.querySelector('p').textContent)"
    )
    assert texts == [each["content"] for each in said]
    shown(page, lambda: page.click("#tab-answer"))
    shown(page, lambda: page.click("#tab-chat"))
    assert page.locator("#chat li").count() == 4  # kept
    shown(page, lambda: page.get_by_role("button", name="Start again").click())
    assert page.locator("#chat li").count() == 0
    page.fill("#input-message", "abc " * 200)
    shown(page, lambda: page.click("#inputs button[type=submit]"))
    assert "positions" in page.inner_text("#panel .error")
    assert page.input_value("#input-message").startswith("abc")  # to be shortened
    page.faults.pop()  # Chromium logs the status 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "task",
    [
        *("classification", "embedding", "translation", "image_classification", "talker"),
        "next_sentence",
    ],
)
def test_axe_finds_no_serious_fault(page, scheme, task):
    page.emulate_media(color_scheme=scheme)
    choose(page, task)
    for name in page.locator("[role=tab]").evaluate_all("tabs => tabs.map(tab => tab.id)"):
        if page.get_attribute(f"#{name}", "aria-selected") != "true":
            shown(page, functools.partial(page.click, f"#{name}"))
        assert not serious_faults(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault_in_a_conversation_and_in_an_error(page, scheme):
    page.emulate_media(color_scheme=scheme)
    visit(page, "model=talker&view=chat&message=abc")
    assert page.locator("#chat li").count() == 2
    assert not serious_faults(page)
    visit(page, "model=nobody")
    assert not serious_faults(page)


def test_it_speaks_chinese_and_fits_a_phone(browser, address):
    context = browser.new_context(locale="zh-CN", viewport={"width": 360, "height": 700})
    page = context.new_page()
    page.address = address
    page.goto(address)
    page.wait_for_selector("#panel[data-shown]")
    assert page.inner_text("#tab-answer") == "回答"
    for task in TASKS:
        choose(page, task)
        assert not re.search("[a-z]", page.inner_text("#about")), task
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    views = (
        *("model=embedding&view=search", "model=talker&view=chat&message=abc"),
        *("model=next_sentence&view=inputs", "model=translation&view=decoding&text=Hund"),
        *("model=translation&view=qkv&text=Hund", "model=generation&view=qkv"),
    )
    for view in views:
        visit(page, view)
        assert page.locator("#panel .error").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shown(page, lambda: page.click("#language"))
    assert page.inner_text("#tab-answer") == "Answer"
    context.close()
