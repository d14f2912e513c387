"""All pages and actions of the console."""

from __future__ import annotations

from rocketpy_broker.server.http.console.page import Action, Page
from rocketpy_broker.server.http.console.pages import overview, store, topics

PAGES: tuple[Page, ...] = (*overview.PAGES, *topics.PAGES, *store.PAGES)
ACTIONS: tuple[Action, ...] = (*store.ACTIONS,)
