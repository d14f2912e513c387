"""The console by keyboard, its themes, its refreshing, and a broker that ends."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from rocketpy_broker import LocalBroker
from tests.interop.console.chromium import Chromium

# The figure `Topics` of the overview.
FIGURE = ".figures > div:nth-of-type(5) dd"
TOPICS = f"document.querySelector('{FIGURE}').innerText"
# Milliseconds of two periods of refreshing.
TWO_PERIODS = 11_000


def test_the_first_key_leads_past_the_menu(browser: Chromium, sample: LocalBroker) -> None:
    browser.open(sample.console_url)
    browser.tab_to("a.skip")
    assert browser.focused.is_displayed()
    assert browser.run("return document.activeElement.getBoundingClientRect().left >= 0")
    browser.press(Keys.ENTER)
    browser.wait("document.activeElement.id === 'main'")


def test_the_keyboard_leads_to_a_list_and_to_one_of_its_topics(
    browser: Chromium, sample: LocalBroker
) -> None:
    browser.open(sample.console_url)
    browser.tab_to("nav a[href='/topics']")
    browser.press(Keys.ENTER)
    browser.wait("location.pathname === '/topics' && document.readyState === 'complete'")
    assert browser.text("[aria-current=page]") == "Topics"
    browser.tab_to("a[href='/topics/orders']")


def test_the_button_changes_the_theme_and_the_browser_keeps_it(
    browser: Chromium, sample: LocalBroker
) -> None:
    browser.open(sample.console_url)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.tab_to("#theme")
    browser.press(Keys.SPACE)
    dark = browser.run(ground)
    assert dark != light
    assert browser.find("#theme").get_attribute("aria-pressed") == "true"
    browser.open(sample.console_url + "topics")
    assert browser.run(ground) == dark
    browser.set_theme("dark")
    browser.find("#theme").click()
    assert browser.run(ground) == light


def test_figures_follow_the_broker_while_the_page_is_seen(
    browser: Chromium, own_broker: LocalBroker
) -> None:
    browser.open(own_broker.console_url)
    before = int(browser.text(FIGURE))
    own_broker.create_topic("one")
    browser.wait(f"{TOPICS} === '{before + 1}'")
    browser.set_hidden(is_hidden=True)
    own_broker.create_topic("two")
    # A timer of the page itself counts the time in which it must not change.
    browser.run(f"window.isOver = false; setTimeout(() => window.isOver = true, {TWO_PERIODS})")
    browser.wait("window.isOver")
    assert int(browser.text(FIGURE)) == before + 1
    browser.set_hidden(is_hidden=False)
    browser.wait(f"{TOPICS} === '{before + 2}'")
    assert browser.complaints() == []


def test_a_refresh_leaves_the_focus_and_the_scroll_where_they_are(
    browser: Chromium, own_broker: LocalBroker
) -> None:
    browser.open(own_broker.console_url)
    browser.set_width(360, 200)
    browser.tab_to("#theme")
    browser.run("window.scrollTo(0, 60)")
    place = browser.run("return window.scrollY")
    before = int(browser.text(FIGURE))
    own_broker.create_topic("one")
    browser.wait(f"{TOPICS} === '{before + 1}'")
    assert browser.focused.get_attribute("id") == "theme"
    assert browser.run("return window.scrollY") == place


def test_a_page_marks_its_figures_as_old_while_the_broker_is_dead(
    browser: Chromium, own_broker: LocalBroker
) -> None:
    browser.open(own_broker.console_url)
    own_broker.kill()
    browser.wait("document.body.classList.contains('stale')")
    shown = browser.run(
        "return getComputedStyle(document.querySelector('main'), '::before').content"
    )
    assert "does not answer" in shown
    assert browser.violations() == []
    assert browser.text(FIGURE)
    own_broker.start()
    browser.wait("!document.body.classList.contains('stale')")
