"""All pages and actions of the console."""

from __future__ import annotations

from rocketpy_broker.server.http.console.page import Action, Page
from rocketpy_broker.server.http.console.pages import (
    messages,
    overview,
    send_form,
    store,
    topic_forms,
    topics,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    # Before the pages of topics: `/topics/new` is a form.
    *topic_forms.PAGES,
    *topics.PAGES,
    *messages.PAGES,
    *send_form.PAGES,
    *store.PAGES,
)
ACTIONS: tuple[Action, ...] = (*topic_forms.ACTIONS, *send_form.ACTIONS, *store.ACTIONS)
