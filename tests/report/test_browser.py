"""The page in a real browser: what a person would do with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.report.conftest import EVIL, NAMES

PHONE = {"width": 390, "height": 844}
SETTLED = "() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))"  # after scrolling
DESK = {"width": 1280, "height": 900}


class Opened:
    """A page, and whatever it complained of or asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESK, "reduced_motion": "reduce", **options})
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def _refuse(self, dialog: Any) -> None:
        self.complaints.append("a dialog")
        dialog.dismiss()

    def mark(self, number: int, chart: int = 0) -> tuple[float, float]:
        """Where a point of a map is on the screen."""
        mark = self.page.locator("svg.map").nth(chart).locator(".marks use").nth(number)
        mark.evaluate("(node) => node.scrollIntoView({ block: 'center' })")
        self.run(SETTLED)
        box = mark.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    made = Opened(browser, report)
    yield made
    assert made.complaints == []
    assert [url for url in made.asked if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in made.asked) == 1
    made.context.close()


def test_it_opens_without_a_complaint_and_asks_for_nothing(opened: Opened) -> None:
    assert opened.page.locator("h1").inner_text().startswith("dcl on evil")
    assert opened.page.locator("svg.chart").count() >= 14


def test_pointing_at_a_point_shows_its_picture_and_its_name(opened: Opened) -> None:
    tip = opened.page.locator("#tip")
    assert not tip.is_visible()
    opened.page.mouse.move(*opened.mark(3))
    assert tip.is_visible()
    assert "<script>alert(" in tip.inner_text()
    picture = tip.locator(".thumb")
    assert picture.evaluate("node => getComputedStyle(node).backgroundImage").startswith('url("data:image/jpeg')
    assert "<script>alert(" in picture.get_attribute("aria-label")
    opened.page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_clicking_a_point_shows_its_neighbours(opened: Opened) -> None:
    opened.page.mouse.click(*opened.mark(5))
    near = opened.page.locator("[data-near='0']")
    expected = opened.run("JSON.parse(document.getElementById('page-data').textContent).maps[0].near[5]")
    assert near.locator(".thumbs .thumb").count() == len(expected) == 8
    assert opened.page.locator("svg.map .links path").count() == 8
    assert near.locator(".thumb.query").count() == 1
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("svg.map .links path").count() == 0


def test_the_keyboard_goes_from_point_to_point_and_chooses(opened: Opened) -> None:
    opened.page.locator("svg.map").focus()
    opened.page.keyboard.press("ArrowRight")
    first = opened.page.locator("#tip").inner_text()
    opened.page.keyboard.press("ArrowLeft")
    assert opened.page.locator("#tip").inner_text() != first
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("svg.map .links path").count() == 8


def test_a_finger_on_a_point_shows_picture_and_neighbours(browser: Any, report: Path) -> None:
    made = Opened(browser, report, viewport=PHONE, has_touch=True, is_mobile=True)
    made.page.touchscreen.tap(*made.mark(4))
    assert made.page.locator("#tip").is_visible()
    assert made.page.locator("svg.map .links path").count() == 8
    assert made.complaints == []
    made.context.close()


def test_a_class_of_the_legend_is_shown_alone(opened: Opened) -> None:
    button = opened.page.locator(".legend button").first
    assert button.inner_text() in NAMES
    button.click()
    away = opened.page.locator("svg.map use.away").count()
    assert away == opened.run("[...document.querySelectorAll('.marks use')].filter(m => m.dataset.k !== '0').length")
    assert 0 < away < 40
    button.click()
    assert opened.page.locator("svg.map use.away").count() == 0


def test_values_are_read_off_a_curve(opened: Opened) -> None:
    chart = opened.page.locator("svg.chart[data-x]").first
    chart.scroll_into_view_if_needed()
    chart.hover()
    read = opened.page.locator(".read")
    assert read.inner_text().startswith("epoch ")
    assert "loss" in read.inner_text() or "training" in read.inner_text()
    opened.page.mouse.move(5, 5)
    chart.focus()
    opened.page.keyboard.press("ArrowLeft")
    assert read.is_visible()


def test_hostile_names_are_text_wherever_they_stand(opened: Opened) -> None:
    opened.page.mouse.click(*opened.mark(0))
    assert opened.page.locator("img, main b, main script").count() == 0
    assert EVIL in opened.page.locator(".legend").inner_text()
    assert EVIL in opened.page.content().replace("&lt;", "<").replace("&gt;", ">")
    assert opened.run("document.querySelectorAll('script').length") == 2


@pytest.mark.parametrize("name", ["report", "both"])
def test_nothing_is_wider_than_a_phone(browser: Any, name: str, request: pytest.FixtureRequest) -> None:
    made = Opened(browser, request.getfixturevalue(name), viewport=PHONE, is_mobile=True)
    made.page.mouse.click(*made.mark(2))
    assert made.run("document.documentElement.scrollWidth") <= 390
    assert (
        made.run("Math.min(...[...document.querySelectorAll('svg.chart')].map(c => c.getBoundingClientRect().width))")
        > 300
    )
    made.context.close()


def test_a_table_that_is_wider_than_a_narrow_window_scrolls_and_says_so(browser: Any, report: Path) -> None:
    made = Opened(browser, report, viewport={"width": 420, "height": 844})
    table = "document.querySelector('#scores .scroll')"
    assert made.run(f"{table}.scrollWidth > {table}.clientWidth")
    hint = f"getComputedStyle({table}, '::before').content"
    assert "scroll sideways" in made.run(hint)
    made.page.set_viewport_size(DESK)
    assert made.run(hint) in ("none", "normal")
    made.context.close()


def test_flags_in_code_are_not_broken_at_their_hyphens(browser: Any, report: Path) -> None:
    made = Opened(browser, report, viewport={"width": 420, "height": 844})
    made.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    lines = """[...document.querySelectorAll('#settings .lead code')].map(code => code.getClientRects().length)"""
    assert set(made.run(lines)) == {1}
    assert made.run("document.documentElement.scrollWidth") <= 420
    made.context.close()


CONTRAST = """() => {
  const light = (text) => {
    const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/rgba\\(.*, 0\\)|transparent|color/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const worst = [], texts = "p, dt, dd, h1, h2, h3, td, th, figcaption, li, text, code, nav a, button, strong, small";
  for (const node of document.querySelectorAll(texts)) {
    const style = getComputedStyle(node), svg = node.tagName === "text";
    if (svg && node.classList.contains("on")) continue; // on a cell of its own colour
    const a = light(svg ? style.fill : style.color), b = light(ground(svg ? node.ownerSVGElement.parentElement : node));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    worst.push([ratio, node.className.baseVal ?? node.className, node.textContent.slice(0, 30)]);
  }
  return worst.sort((x, y) => x[0] - y[0])[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_in_dark(browser: Any, both: Path, scheme: str) -> None:
    made = Opened(browser, both, color_scheme=scheme)
    grounds = made.run("getComputedStyle(document.body).backgroundColor").removeprefix("rgb(").rstrip(")").split(",")
    assert (sum(map(int, grounds)) < 200) == (scheme == "dark")
    ratio, kind, text = made.run(CONTRAST)
    assert ratio >= 4.5, (kind, text)
    made.context.close()


def test_a_point_chosen_in_one_run_is_chosen_in_the_other(browser: Any, both: Path) -> None:
    made = Opened(browser, both)
    made.page.mouse.click(*made.mark(7, chart=1))
    titles = [made.page.locator(f"[data-near='{number}'] h4").inner_text() for number in (0, 1)]
    assert titles[0] == titles[1]
    assert made.complaints == []
    made.context.close()


def test_it_prints_without_what_is_for_the_screen(opened: Opened) -> None:
    opened.page.emulate_media(media="print")
    assert not opened.page.locator("nav").is_visible()
    assert not opened.page.locator(".copy").first.is_visible()
    assert len(opened.page.pdf(format="A4")) > 20_000


def test_without_its_script_everything_but_the_answers_is_there(browser: Any, report: Path) -> None:
    made = Opened(browser, report, java_script_enabled=False)
    assert made.page.locator("svg.map .marks use").count() == 40
    assert made.page.locator(".gallery .thumb").count() == 8 * 9
    made.context.close()
