"""All pages and actions of the console."""

from __future__ import annotations

from rocketpy_broker.server.http.console.page import Action, Page
from rocketpy_broker.server.http.console.pages import overview, topics

PAGES: tuple[Page, ...] = (*overview.PAGES, *topics.PAGES)
ACTIONS: tuple[Action, ...] = ()
