"""Pages and actions: their paths, and the functions that work for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from rocketpy_broker.server.http.console.request import PageRequest


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the values for its template come from `values`, which raises BrokerError.

    With `is_form` it begins an action, and a console that only reads has it not.
    """

    path: str
    template: str
    values: Callable[[PageRequest], Awaitable[Mapping[str, object]]]
    is_form: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an action: the path of the next page, and the sentence that it shows.

    `notice` is a key of NOTICES; no text of a request gets into a page this way.
    """

    path: str
    notice: str


@dataclass(frozen=True, slots=True)
class Action:
    """An action that a form posts; `act` raises BrokerError."""

    path: str
    act: Callable[[PageRequest], Awaitable[Done]]


NOTICES: Mapping[str, str] = {
    "cleaned": "The broker has removed what it may remove.",
    "group-changed": "The group is changed.",
    "group-created": "The group is created.",
    "group-deleted": "The group is deleted.",
    "resent": "The messages are sent again. They stay here as dead letters.",
    "resent-copy": "The copy is sent. The dead letter stays here.",
    "resent-partly": "The first messages are sent again. The rest is left: go on here.",
    "reset": "The group's place is moved.",
    "sent": "The message is sent.",
    "topic-changed": "The topic is changed.",
    "topic-created": "The topic is created.",
    "topic-deleted": "The topic is deleted.",
    "topic-emptied": "The topic is empty.",
}
