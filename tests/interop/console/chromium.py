"""Chromium without a window, driven by Debian's chromedriver."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.documents import TOP
from tests.support.time_limits import WAIT_SECONDS_MAX

AXE = TOP / ".interop/axe/axe.min.js"
OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
HEIGHT = 900
# Presses of Tab until a part of a page has the focus.
PRESSES_MAX = 60
# Chromium's sandbox refuses to run as root.
AS_ROOT = ("--no-sandbox",)
_AXE_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  found => done(found.violations.map(
    each => `${each.id}: ${each.help}: ` + each.nodes.map(node => node.html).join(" | "))),
  error => done([String(error)]));
"""


class Chromium:
    """A browser with one page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    # --- The page ---

    def open(self, url: str) -> None:
        """Opens a page and waits until it is loaded."""
        self._driver.get(url)

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._driver.current_url

    def find(self, selector: str) -> WebElement:
        """Returns the first element of a CSS selector."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """Returns all elements of a CSS selector."""
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Returns the text of the first element of a CSS selector, as it is seen.

        One script does both: a refresh of the page between them would replace the element.
        """
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def write(self, selector: str, value: str) -> None:
        """Replaces the value of a field."""
        found = self.find(selector)
        found.clear()
        found.send_keys(value)

    def tab_to(self, selector: str) -> None:
        """Presses Tab until the element of a CSS selector has the focus, and shows it."""
        for _ in range(PRESSES_MAX):
            self.press(Keys.TAB)
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                style = self.run("return getComputedStyle(document.activeElement).outlineStyle")
                assert style != "none", f"{selector} does not show the focus"
                return
        raise AssertionError(f"Tab does not reach {selector}")

    def press(self, *keys: str) -> None:
        """Presses keys on the element that has the focus."""
        self._driver.switch_to.active_element.send_keys(*keys)

    @property
    def focused(self) -> WebElement:
        """The element that has the focus."""
        return self._driver.switch_to.active_element

    def run(self, script: str, *arguments: object) -> Any:
        """Runs a function's body in the page and returns its result."""
        return self._driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> None:
        """Waits until an expression is true in the page; a page that is left answers nothing."""
        waiting = WebDriverWait(
            self._driver, WAIT_SECONDS_MAX, ignored_exceptions=[WebDriverException]
        )
        waiting.until(lambda _: self.run(f"return {script}", *arguments), f"never true: {script}")

    def submit(self, selector: str) -> None:
        """Presses a button that leads to another page, and waits for the page."""
        self.run("window.isLeft = false")
        self.find(selector).click()
        self.wait("window.isLeft === undefined && document.readyState === 'complete'")

    # --- The browser's settings ---

    def set_width(self, width: int, height: int = HEIGHT) -> None:
        """Gives the page a size in CSS pixels."""
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def set_theme(self, theme: str) -> None:
        """Sets the system's theme, light or dark."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._command("Emulation.setEmulatedMedia", features=features)

    def set_hidden(self, *, is_hidden: bool) -> None:
        """Makes the page see itself as hidden, as that of another tab."""
        self.run(
            "Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))",
            is_hidden,
        )

    def sign_in(self, authorization: str) -> None:
        """Sends a value of the header Authorization with each request; empty for none."""
        self._command("Network.enable")
        headers = {"Authorization": authorization} if authorization else {}
        self._command("Network.setExtraHTTPHeaders", headers=headers)

    def forget(self) -> None:
        """Removes cookies and stored values, and opens an empty page."""
        self._command("Network.clearBrowserCookies")
        if self.url.startswith("http"):
            self.run("localStorage.clear()")
        self.sign_in("")
        self.open("about:blank")
        self.complaints()

    # --- Findings ---

    def complaints(self) -> list[str]:
        """Returns what the browser has logged since the last call: errors, refused scripts."""
        lines = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(each["message"]) for each in lines]

    def violations(self) -> list[str]:
        """Returns axe-core's violations on the page."""
        self.run(_axe())
        found: list[str] = self._driver.execute_async_script(_AXE_RUN)
        return found

    def overflow(self) -> list[str]:
        """Returns the elements that make the page scroll sideways."""
        found: list[str] = self.run(
            """
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.body.querySelectorAll("*")]
              .filter(each => each.getBoundingClientRect().right > width + 1)
              .map(each => each.outerHTML.slice(0, 200));
            """
        )
        return found

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Returns a picture of the page as PNG; with `whole` beyond its first screen."""
        found = self._command("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def _command(self, name: str, **values: object) -> dict[str, Any]:
        found: dict[str, Any] = self._driver.execute_cdp_cmd(name, values)
        return found


@cache
def _axe() -> str:
    return AXE.read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Yields a browser of its own."""
    options = webdriver.ChromeOptions()
    for each in (*OPTIONS, *(AS_ROOT if os.geteuid() == 0 else ())):
        options.add_argument(each)
    program, service = shutil.which("chromium"), shutil.which("chromedriver")
    # Selenium would download another browser.
    if program is None or service is None:
        raise FileNotFoundError("no Chromium is here; run `make interop`, which installs it")
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(service))
    try:
        driver.set_script_timeout(WAIT_SECONDS_MAX)
        yield Chromium(driver)
    finally:
        driver.quit()
