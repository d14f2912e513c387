"""Pages and their actions, with paths and functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from rocketpy_broker.server.http.api.calls import RefusedCallError
from rocketpy_broker.server.http.console.request import PageRequest


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an action: the path of the next page, and the sentence that it shows.

    `notice` is a key of NOTICES; no text of a request gets into a page this way.
    """

    path: str
    notice: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the values for its template come from `values`, which may raise BrokerError.

    With `act` the page is a form, which is posted to the same path; a read-only console lacks the
    page. `act` may raise BrokerError. The form is then shown again with the error and its fields,
    which replace its query.
    """

    path: str
    template: str
    values: Callable[[PageRequest], Awaitable[Mapping[str, object]]]
    act: Callable[[PageRequest], Awaitable[Done]] | None = None


# The key, in the values of a page, of an error in its query.
REFUSAL = "refusal"


class PartlyDoneError(RefusedCallError):
    """An action that failed after it had done a part; `left` are the fields of the rest."""

    def __init__(self, code: int, remark: str, left: Mapping[str, list[str]]) -> None:
        super().__init__(code, remark)
        self.left = left


@dataclass(frozen=True, slots=True)
class Entered:
    """The fields of a refused form, for the same form; a form that was not sent has none."""

    fields: Mapping[str, str] | None = None

    def text(self, name: str, default: object = "") -> object:
        """Returns the text of a field; the default for a form that was not sent."""
        return default if self.fields is None else self.fields.get(name, "")

    def is_on(self, name: str, default: bool = False) -> bool:
        """True if a box is checked; the default for a form that was not sent."""
        return default if self.fields is None else name in self.fields


NOTICES: Mapping[str, str] = {
    "cleaned": "The broker has removed what it may remove.",
    "group-changed": "The group is changed.",
    "group-created": "The group is created.",
    "group-deleted": "The group is deleted.",
    "resent": "The messages are sent again. They stay here as dead letters.",
    "resent-copy": "The copy is sent. The dead letter stays here.",
    "resent-partly": "The first messages are sent again. The rest is left: go on here.",
    "reset": "The group's offsets are reset.",
    "sent": "The message is sent.",
    "topic-changed": "The topic is changed.",
    "topic-created": "The topic is created.",
    "topic-deleted": "The topic is deleted.",
    "topic-emptied": "The topic is empty.",
}
