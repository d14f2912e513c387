"""All pages and actions of the console."""

from __future__ import annotations

from rocketpy_broker.server.http.console.page import Action, Page
from rocketpy_broker.server.http.console.pages import (
    clients,
    dead_letters,
    group_actions,
    groups,
    overview,
    topics,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *topics.PAGES,
    *group_actions.PAGES,
    *groups.PAGES,
    *dead_letters.PAGES,
    *clients.PAGES,
)
ACTIONS: tuple[Action, ...] = (*group_actions.ACTIONS, *dead_letters.ACTIONS)
