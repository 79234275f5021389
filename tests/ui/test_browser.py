"""The page in a real browser: Chromium, driven by Selenium; it makes the screenshots of docs/observing.md.

    python -m pytest -m "" tests/ui/test_browser.py --screenshots docs       # makes them anew

Skipped with a message where there is no Chromium with its driver (Debian: apt install chromium chromium-driver).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import crdt_mor as mor
from crdt_mor.cli.ui.page import html
from crdt_mor.cli.ui.report import lives, report_of
from crdt_mor.cli.ui.server import ServedTable, server
from tests.browser import chromium, said, until
from tests.ui.story import items, shop

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

pytestmark = pytest.mark.slow

WIDTH, HEIGHT = 1180, 920
SHOTS = {"ui.png": "health", "ui-timeline.png": "timeline", "ui-why.png": "why"}
"""Files of docs/, and the section that each begins with."""


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    with chromium(WIDTH, HEIGHT) as running:
        yield running


@pytest.fixture(scope="module")
def table() -> mor.Table:
    return shop()


@pytest.fixture(scope="module")
def file(table: mor.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page as one file, with the life of a key."""
    path = tmp_path_factory.mktemp("page") / "shop.html"
    report = report_of(table, "s3://lake/shop")
    told = {**report, "live": False, "lives": lives(table, ["item-333"], report["conflicts"])}
    path.write_text(html(told), encoding="utf-8")
    return path.as_uri()


def text(browser: WebDriver, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


def opened(browser: WebDriver, address: str) -> None:
    """Load a page, all of which is drawn, and which has met no error and no rule of its policy."""
    browser.get(address)
    until(browser, lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
    until(browser, lambda: browser.execute_script("return document.querySelectorAll('.main-svg').length") >= 4)
    assert said(browser) == []


def bars(browser: WebDriver) -> int:
    return int(browser.execute_script("return document.querySelectorAll('#chart-timeline .point path').length"))


def test_the_file_shows_every_section(browser: WebDriver, table: mor.Table, file: str) -> None:
    opened(browser, file)
    assert text(browser, "h1") == "shop"
    assert "stuck writer" in text(browser, ".sign.wrong")
    assert "400" in text(browser, "#overview dl")
    assert bars(browser) == table.history().num_rows + table.inspect.pending().num_rows
    for section in ("groups", "conflicts", "history"):
        assert browser.execute_script(f"return document.querySelectorAll('#table-{section} tbody tr').length") > 0
    assert "compaction due" in text(browser, "#upkeep ul")
    assert "○ id = item-333" in text(browser, "#why ol")


def test_a_conflict_leads_to_the_life_of_its_key(browser: WebDriver, file: str) -> None:
    opened(browser, file)
    key = text(browser, "#table-conflicts tbody td")
    browser.execute_script("document.querySelector('#table-conflicts tbody a').click()")
    until(browser, lambda: f"the history of {key}" in text(browser, "#why .said"))
    told = text(browser, "#why ol")
    assert "merged by counter/1" in told
    assert "because" in told


def test_the_buttons_of_charts_are_those_that_lead_nowhere_else(browser: WebDriver, file: str) -> None:
    opened(browser, file)
    titles = browser.execute_script(
        "return [...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    )
    assert set(titles) <= {
        "Zoom",
        "Pan",
        "Zoom in",
        "Zoom out",
        "Autoscale",
        "Download plot as a PNG",
        "Download plot as a png",
    }
    assert browser.execute_script("return document.querySelectorAll('main a[href]:not([href^=\"#\"])').length") == 0


def test_a_write_that_has_been_under_way_for_long_does_not_hide_the_commits(browser: WebDriver, tmp_path: Path) -> None:
    table = shop()
    report = report_of(table, "shop")
    for row in report["timeline"]["pending"]:
        row["since"] = row["since"].replace(year=2022)
    (tmp_path / "long.html").write_text(html({**report, "live": False, "lives": []}), encoding="utf-8")
    opened(browser, (tmp_path / "long.html").as_uri())
    first = browser.execute_script("return document.querySelector('#chart-timeline')._fullLayout.xaxis.range[0]")
    assert str(first).startswith("2023-11-14")
    assert "double-click" in text(browser, "#commit")


def test_a_drag_zooms_the_timeline_and_a_click_tells_a_commit(browser: WebDriver, file: str) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    opened(browser, file)
    area: Any = browser.find_element(By.CSS_SELECTOR, "#chart-timeline .nsewdrag")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    span = "const a = document.querySelector('#chart-timeline')._fullLayout.xaxis; return a.range.map(a.r2l)"

    def shown() -> float:
        first, last = browser.execute_script(span)
        return float(last - first)

    before = shown()
    ActionChains(browser).move_to_element_with_offset(area, -200, 0).click_and_hold().move_by_offset(
        200, 0
    ).release().perform()
    until(browser, lambda: shown() < before / 3)
    browser.execute_script(
        "document.querySelector('#chart-timeline').emit('plotly_click', {points: [{customdata: 'x'}]})"
    )
    until(browser, lambda: text(browser, "#commit") == "x")


def test_the_served_page_tells_a_life_that_has_gone_on(browser: WebDriver) -> None:
    table = shop()
    made = server(ServedTable(table, "shop"), 0)
    Thread(target=made.serve_forever, daemon=True).start()
    try:
        opened(browser, f"http://127.0.0.1:{made.server_port}/")
        table.upsert(items(0, 1, 99.5, 4), commit_info={"application": "hand"})
        browser.execute_script(
            "const f = document.querySelector('#why form'); f.key.value = 'item-000'; f.column.value = 'price';"
            "f.requestSubmit()"
        )
        until(browser, lambda: "by hand" in text(browser, "#why ol"))
        assert "○ price = 99.5" in text(browser, "#why ol")
        browser.execute_script(
            "const f = document.querySelector('#why form'); f.column.value = ''; f.as_of.value = 'never';"
            "f.requestSubmit()"
        )
        until(browser, lambda: "as_of" in text(browser, "#why .said"))
        assert text(browser, "#why ol") == "", "the life of before is gone"
        browser.execute_script(
            "const f = document.querySelector('#why form'); f.as_of.value = '2023-11-14 22:13'; f.requestSubmit()"
        )
        until(browser, lambda: "wrote this key, as of 2023-11-14 22:13" in text(browser, "#why .said"))
        assert said(browser) == []
    finally:
        made.shutdown()
        made.server_close()


def test_texts_of_the_table_are_texts_on_the_page(browser: WebDriver, tmp_path: Path) -> None:
    """No element of theirs is made, in tables, charts, facts or lives, and no script of theirs runs."""
    table, evil = shop(), "<img src=x onerror='window.harmed=1'><b>bold</b>"
    with table.transaction(commit_info={"application": evil, "message": evil}) as one:
        one.upsert(items(0, 1, 1.0, 1).set_column(0, "id", [[evil]]))
        with table.transaction(commit_info={"application": evil}) as other:
            other.upsert(items(0, 1, 2.0, 1).set_column(0, "id", [[evil]]).set_column(3, "note", [[evil]]))
    report = report_of(table, evil)
    made = html({**report, "live": False, "lives": lives(table, [evil], report["conflicts"])})
    (tmp_path / "evil.html").write_text(made, encoding="utf-8")
    opened(browser, (tmp_path / "evil.html").as_uri())
    assert browser.execute_script("return window.harmed === undefined")
    assert browser.execute_script("return document.querySelectorAll('main img, #why b, td b').length") == 0
    assert evil in text(browser, "#table-history")
    assert evil in text(browser, "#why ol")


def test_screenshots(browser: WebDriver, file: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each shows its section; with `--screenshots docs` they become those of the guide."""
    chosen = request.config.getoption("--screenshots")
    folder = tmp_path if chosen is None else Path(chosen)
    opened(browser, file)
    for name, section in SHOTS.items():
        browser.execute_script(f"document.getElementById('{section}').scrollIntoView()")
        assert browser.save_screenshot(str(folder / name))
        assert (folder / name).stat().st_size > 20_000, "a blank page is smaller"
