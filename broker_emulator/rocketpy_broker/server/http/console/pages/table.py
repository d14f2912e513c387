"""All pages of the console."""

from __future__ import annotations

from rocketpy_broker.server.http.console.page import Page
from rocketpy_broker.server.http.console.pages import (
    clients,
    dead_letters,
    delayed,
    group_actions,
    groups,
    messages,
    send_form,
    topic_forms,
    topics,
)
from rocketpy_broker.server.http.console.pages.broker_state import overview, store

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *topic_forms.PAGES,
    *topics.PAGES,
    *messages.PAGES,
    *send_form.PAGES,
    *group_actions.PAGES,
    *groups.PAGES,
    *dead_letters.PAGES,
    *delayed.PAGES,
    *clients.PAGES,
    *store.PAGES,
)
