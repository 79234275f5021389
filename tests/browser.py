"""A real browser for tests of pages: Chromium, driven by Selenium; skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.npm import folder

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

FLAGS = "headless=new no-sandbox disable-gpu disable-dev-shm-usage disable-background-networking hide-scrollbars"


@contextmanager
def chromium(width: int, height: int) -> Iterator[WebDriver]:
    """A browser with a window of that size, ended behind the block."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium with chromedriver on this machine: apt install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in [*FLAGS.split(), f"window-size={width},{height}", "force-color-profile=srgb"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield running
    finally:
        running.quit()


@contextmanager
def shown_as(browser: WebDriver, scheme: str, width: int, height: int) -> Iterator[None]:
    """Show pages in a color scheme, light or dark, and in a window of that size, until the block ends."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    _ask(browser, "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    _ask(browser, "Emulation.setDeviceMetricsOverride", **size)
    try:
        yield
    finally:
        _ask(browser, "Emulation.setEmulatedMedia", features=[])
        _ask(browser, "Emulation.clearDeviceMetricsOverride")


def _ask(browser: WebDriver, command: str, **arguments: object) -> None:
    browser.execute_cdp_cmd(command, arguments)


def faults(browser: WebDriver) -> list[str]:
    """Return what axe-core, a checker for the accessibility of pages, finds on the page: rule, advice, element."""
    script = folder("axe-core") / "axe.min.js"
    if not script.exists():
        pytest.skip("no axe-core on this machine: python -m tests.npm axe-core")
    browser.execute_script(script.read_text("utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document, {rules: {'target-size': {enabled: true}}}).then(done)"
    )
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]
    ]


def until(browser: WebDriver, holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: holds())


def said(browser: WebDriver) -> list[object]:
    """What the browser's console has had to say since it was asked last: errors, and what a page's policy forbade."""
    log: list[object] = browser.get_log("browser")  # type: ignore[attr-defined]  # Chromium's driver has it
    return log
