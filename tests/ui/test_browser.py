"""The page in a real browser: Chromium, driven by Selenium; it makes the screenshots of docs/observing.md.

    python -m pytest -m "" tests/ui/test_browser.py --screenshots docs       # makes them anew

Skipped with a message where there is no Chromium with its driver (Debian: apt install chromium chromium-driver).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import crdt_mor as mor
from crdt_mor.cli.ui.page import html
from crdt_mor.cli.ui.report import lives, report_of
from crdt_mor.cli.ui.server import ServedTable, server
from tests.browser import chromium, faults, said, shown_as, until
from tests.ui.story import items, shop
from tests.ui.tables import TABLES

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


@contextmanager
def served(table: mor.Table) -> Iterator[str]:
    """The address of a server of the page."""
    made = server(ServedTable(table, "shop"), 0)
    Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}/"
    finally:
        made.shutdown()
        made.server_close()


def text(browser: WebDriver, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


def opened(browser: WebDriver, address: str) -> None:
    """Load a page, all of which is drawn, and which has met no error and no rule of its policy."""
    browser.get(address)
    until(browser, lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
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
    browser.execute_script("document.querySelector('#table-conflicts tbody button').click()")
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
    assert "double-click" in text(browser, "#timeline .said")


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
        "const c = document.querySelector('#chart-timeline');"
        "c.emit('plotly_click', {points: [{customdata: c.data[0].customdata[0]}]})"
    )
    until(browser, lambda: text(browser, "#timeline .said").startswith("commit 2, version"))
    assert text(browser, "#commit .said") == "Commit 2"


def test_keys_lead_through_the_bars(browser: WebDriver, table: mor.Table, file: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened(browser, file)
    button = browser.find_element(By.CSS_SELECTOR, "#timeline [data-step=later]")
    bar = "#timeline .said"
    for key, begins in (
        (Keys.ENTER, "commit 2, "),  # the prices begin before the ingest and complete after it
        (Keys.ARROW_RIGHT, "commit 1, "),
        (Keys.ARROW_LEFT, "commit 2, "),
        (Keys.HOME, "commit 2, "),
        (Keys.END, "backfill (1 on simulated), pending since"),
        (Keys.ARROW_DOWN, "backfill (1 on simulated), pending since"),
    ):
        button.send_keys(key)
        until(browser, lambda begins=begins: text(browser, bar).startswith(begins))  # type: ignore[misc]
    assert browser.execute_script("return document.querySelector('#chart-timeline')._fullLayout.shapes.length") == 1


def test_a_commit_shows_its_facts_and_its_rows(browser: WebDriver, table: mor.Table, file: str) -> None:
    with served(table) as address:
        opened(browser, address)
        browser.execute_script("document.querySelector('#table-history tbody button[aria-label=\"commit 1\"]').click()")
        assert "ingest (1 on simulated)" in text(browser, "#commit dl")
        assert browser.execute_script("return document.activeElement.innerText") == "Commit"
        browser.execute_script("document.querySelector('#commit .show').click()")
        until(browser, lambda: "60 inserted" in text(browser, "#commit .rows"))
        assert "price = 1.0, views = 1, note = step 0" in text(browser, "#table-commit tbody tr")
        browser.execute_script(
            "const f = document.querySelector('#commit form'); f.ordinal.value = '9999'; f.requestSubmit()"
        )
        assert "no such commit" in text(browser, "#commit .said")
        assert text(browser, "#commit dl") == text(browser, "#table-commit") == ""
    opened(browser, file)
    assert re.search(r"crdt-mor diff s3://lake/shop \d+ \d+ prints its rows", text(browser, "#commit .rows"))


def test_two_moments_are_compared(browser: WebDriver, table: mor.Table, file: str) -> None:
    ask = (
        "const f = document.querySelector('#compare form'); [f.before.value, f.after.value] = arguments;"
        "f.requestSubmit()"
    )
    with served(table) as address:
        opened(browser, address)
        browser.execute_script(ask, str(table.version - 9), "before-sale")
        until(browser, lambda: "to before-sale: " in text(browser, "#compare .said"))
        assert "→" in text(browser, "#table-compare tbody tr")
        browser.execute_script(ask, "never", "")
        until(browser, lambda: "before=" in text(browser, "#compare .said"))
        assert text(browser, "#table-compare") == ""
    opened(browser, file)
    assert text(browser, "#compare .said").startswith("Use crdt-mor diff s3://lake/shop BEFORE AFTER")


def test_columns_are_found_by_name_type_and_comment(browser: WebDriver) -> None:
    search = "const f = document.querySelector('#columns input'); f.value = arguments[0]; f.oninput()"
    with served(TABLES["wide"]()) as address:
        opened(browser, address)
        assert text(browser, "#columns .said") == "300 columns"
        for asked, found in (("column_29", 9), ("INT64", 300), ("why a_very", 1), ("key", 1), ("nope", 0)):
            browser.execute_script(search, asked)
            assert text(browser, "#columns .said") == f"{found} of 300 columns"
            assert browser.execute_script("return document.querySelectorAll('#columns tbody tr').length") == found


# --- for everybody ----------------------------------------------------------------------------------------------------

VIEWS = {"light": ("light", WIDTH), "dark": ("dark", WIDTH), "phone": ("light", 360)}


@pytest.mark.parametrize("name", TABLES)
def test_everybody_can_use_the_page(browser: WebDriver, name: str) -> None:
    """No rule of axe-core is broken, in light, in dark, and on a phone, where nothing reaches beyond the screen."""
    with served(TABLES[name]()) as address:
        for view, (scheme, width) in VIEWS.items():
            with shown_as(browser, scheme, width, HEIGHT):
                opened(browser, address)
                if name != "empty":
                    browser.execute_script("document.querySelector('#commit .show').click()")
                    until(browser, lambda: text(browser, "#commit .rows") not in ("", "reading …"))
                assert faults(browser) == [], view
                beyond = "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
                assert browser.execute_script(beyond) <= 0, view


def test_axe_finds_what_is_wrong(browser: WebDriver, file: str) -> None:
    """A pale text, a field without a label, and a region that no key scrolls."""
    opened(browser, file)
    browser.execute_script(
        "document.querySelector('h1').style.color = '#999';"
        "const field = document.querySelector('#why [name=key]'); field.parentElement.replaceWith(field);"
        "document.querySelector('#table-history').removeAttribute('tabindex')"
    )
    assert {one.split(":")[0] for one in faults(browser)} >= {"color-contrast", "label"}


def test_states_and_tables_need_no_colors_and_no_eyes(browser: WebDriver, file: str) -> None:
    opened(browser, file)
    states = browser.execute_script("return [...document.querySelectorAll('.sign .state')].map((one) => one.innerText)")
    assert states[0] == "✖\ufe0e Problem"
    assert {one.split()[1] for one in states} == {"Problem", "Note", "Fine"}
    scopes = browser.execute_script("return [...document.querySelectorAll('th')].map((one) => one.scope)")
    assert set(scopes) == {"col"}
    charts = browser.execute_script("return [...document.querySelectorAll('.chart')].map((one) => one.ariaLabel)")
    assert all(re.search(r"\d+ (commits|file groups|moments)", one) for one in charts)
    assert browser.execute_script("return document.querySelectorAll('.main-svg:not([aria-hidden])').length") == 0


def test_the_served_page_tells_a_life_that_has_gone_on(browser: WebDriver) -> None:
    table = shop()
    with served(table) as address:
        opened(browser, address)
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
