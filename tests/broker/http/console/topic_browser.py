"""A browser of the console's pages: it reads pages through a parser, and posts their forms."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from tests.support.broker.running_broker import RunningBroker

# An en dash stands for an unknown figure.
NONE = "\u2013"
VOID = frozenset({"input", "meta", "link", "br"})


class Parsed(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.fields: dict[str, str] = {}
        self.names: set[str] = set()
        self.rows: list[list[str]] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: set[str] = set()
        self._select = self._area = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= given.keys()
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag == "a":
            self.links.append((given.get("href", ""), ""))
        if tag in {"input", "textarea", "select"}:
            self._take(given)
        if tag == "textarea":
            self._area = given["name"]
        if tag == "option" and "selected" in given:
            self.fields[self._select] = given.get("value", "")
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def _take(self, given: Mapping[str, str]) -> None:
        name = given["name"]
        self.names.add(name)
        self._select = name
        if given.get("type") != "checkbox" or "checked" in given:
            self.fields[name] = given.get("value", "on" if given.get("type") == "checkbox" else "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open)
        if tag == "textarea":
            # A browser drops the first line break.
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = ""
        if "main" in self.open:
            self.texts["main"][-1] += " "

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "a" in self.open:
            target, text = self.links[-1]
            self.links[-1] = target, text + data

    @property
    def text(self) -> str:
        """The text of the page's content, with single blanks."""
        return " ".join(self.texts["main"][0].split())

    def link(self, text: str) -> str:
        """Returns the target of the link with a text."""
        (found,) = {target for target, shown in self.links if shown.strip() == text}
        return found


@dataclass(frozen=True)
class Seen:
    """An answer of the console."""

    status: int
    body: str
    headers: Mapping[str, str]

    @property
    def page(self) -> Parsed:
        """The page, which has one heading of the first level."""
        parsed = Parsed(self.body)
        assert len(parsed.texts["h1"]) == 1
        return parsed

    @property
    def error(self) -> tuple[int, str]:
        """The status of an error page, and its message."""
        assert "alert" in self.body
        return self.status, self.page.text


@dataclass
class Browser:
    """A browser with the cookie of the console, and perhaps a user."""

    running: RunningBroker
    user: tuple[str, str] | None = None
    cookies: dict[str, str] = field(default_factory=dict)

    async def _ask(self, method: str, path: str, **options: Any) -> Seen:
        url = URL(f"http://127.0.0.1:{self.running.ready.http_port}{path}", encoded=True)
        headers = options.pop("headers", {})
        if self.user is not None:
            basic = base64.b64encode(":".join(self.user).encode()).decode()
            headers["Authorization"] = f"Basic {basic}"
        async with (
            aiohttp.ClientSession(cookies=self.cookies) as session,
            session.request(
                method, url, headers=headers, allow_redirects=False, **options
            ) as response,
        ):
            self.cookies |= {name: each.value for name, each in response.cookies.items()}
            return Seen(response.status, await response.text(), response.headers)

    async def get(self, path: str) -> Seen:
        """Returns an answer to a path as it is written."""
        return await self._ask("GET", path)

    async def page(self, path: str) -> Parsed:
        """Returns a page that is no error."""
        seen = await self.get(path)
        assert seen.status == 200, seen.page.text
        return seen.page

    async def post(self, path: str, fields: Mapping[str, str]) -> Seen:
        """Returns the answer to a form with these fields alone."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._ask("POST", path, data=urlencode(fields), headers=kind)

    async def submit(self, path: str, **changes: str) -> Seen:
        """Opens a form, fills in its fields and posts it."""
        page = await self.page(path)
        unknown = changes.keys() - page.names
        assert not unknown, unknown
        fields = {name: value for name, value in page.fields.items() if name in page.names}
        return await self.post(path, {**fields, **changes})

    async def done(self, path: str, **changes: str) -> Parsed:
        """Submits a form that is not refused; returns the page that follows."""
        seen = await self.submit(path, **changes)
        assert seen.status == 303, seen.page.text
        return await self.page(seen.headers["Location"])
