"""Rules of plain English for docstrings and comments, as CONTRIBUTING lists them.

Each rule takes one source file and yields a sentence for each place that breaks it. `UNREAD` names
the folders that still have to be read with the rules in hand; it only ever gets shorter.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

from tests.tidy import Source, parse

TOP = Path(__file__).parents[1]
UNREAD: tuple[str, ...] = ("notebooks/",)

# First words that hide the subject or the verb of a docstring.
QUESTIONS = {"What", "Who", "Whose", "Whom", "Which", "Where", "How", "Let", "Whether", "Whoever"}
# Words that end in s and are no verb.
NO_VERBS = {"This", "Its", "As", "Is", "Has", "Does", "Always", "Was", "Us", "Thus", "Yes", "Less"}
VERB = re.compile(r"(?:[A-Z][a-z]+s|Does|Is not|True if)\b")
# No actor is named by these.
NO_ACTORS = "who whom whoever somebody anybody nobody everybody everyone others those"
# Words with a plainer one beside them.
PLAINER = {
    "tell": "return, report, notify or log",
    "tells": "returns, reports, notifies or logs",
    "telling": "reporting",
    "told": "reported, notified or logged",
    "behind": "after",
    "anew": "again",
    "for ever": "until stopped",
    "comes to be": "is created",
    "come to be": "are created",
    "made again": "recreated or rebuilt",
    "gets to know": "is notified",
    "get to know": "are notified",
    "let go": "wake or release",
    "lets go": "wakes or releases",
    "gets on": "makes progress",
    "get on": "make progress",
    "so many": "the limit's name",
    "so much": "the limit's name",
    "so long": "the limit's name",
    "in silence": "silently",
    "the begin": "the start",
    "its begin": "its start",
    "holds no state": "nothing: say where there is state",
}
# Documents that are no part of the repository, and ids of its plan.
ELSEWHERE = re.compile(r"\bspec/\w+|\b[Rr]ows? [A-Z]{1,2}\d+|\bseed_systems\b|\barchitecture\.md §")
# "docs/design/storage.md sections 2.1, 3 and 4.2", which may be broken over lines.
CITED = re.compile(r"(docs/design/\w+\.md)((?:,?\s+(?:sections?|and|to|\d+(?:\.\d+)*)\b,?)*)")
SECTION = re.compile(r"\d+(?:\.\d+)*")
# File names that end in -ing and are nouns of the field.
NOUNS = {"wiring", "long_polling", "process_tuning", "rebatching", "packaging"}

_ACTOR_WORDS = re.compile(rf"\b({'|'.join(NO_ACTORS.split())})\b", re.IGNORECASE)
_PLAINER_WORDS = re.compile(rf"\b({'|'.join(PLAINER)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"`[^`]*`")


Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Prose(NamedTuple):
    """A text for readers: its line and its words."""

    line: int
    text: str


def prose(source: Source) -> Iterator[Prose]:
    """Yields each docstring and comment of a Python file."""
    tree = parse(source.text)
    for node, text in _docstrings(tree):
        yield Prose(_line(node), text)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(token.start[0], token.string.lstrip("# "))


def docstring_form(source: Source) -> Iterator[str]:
    """Yields docstrings that do not begin with a verb, or with a noun for a class or module."""
    for node, text in _docstrings(parse(source.text)):
        first = text.split(None, 1)[0].strip("`.,:")
        place = f"{source.path}:{_line(node)}"
        if first in QUESTIONS and not (first == "Let" and "/cli/" in source.path):
            yield f"{place}: a docstring begins with {first!r}: begin with a noun or a verb"
        elif "/cli/" in source.path:
            continue  # The text of --help.
        elif _is_function(node) and (first in NO_VERBS or not VERB.match(text)):
            yield f"{place}: a function's docstring begins with {first!r}: Returns, Sends, Raises …"


def plain_words(source: Source) -> Iterator[str]:
    """Yields words that name no actor, and words that have a plainer one."""
    for line, text in prose(source):
        words = _QUOTED.sub("", text)
        for found in _ACTOR_WORDS.findall(words):
            yield f"{source.path}:{line}: {found!r} names no actor: client, caller, broker …"
        for found in _PLAINER_WORDS.findall(words):
            yield f"{source.path}:{line}: {found!r}: {PLAINER[found.lower()]}"


def citation(source: Source) -> Iterator[str]:
    """Yields documents that a reader cannot open, and sections that are not there."""
    for line, text in prose(source):
        for found in ELSEWHERE.findall(text):
            yield f"{source.path}:{line}: {found!r} is no document of the repository"
        for document, numbers in CITED.findall(text):
            for missing in sorted({"", *SECTION.findall(numbers)} - sections(document)):
                yield f"{source.path}:{line}: {document} has no section {missing!r}"


@cache
def sections(document: str) -> set[str]:
    """Returns the numbers of a document's sections; "" for the document itself if it exists."""
    path = TOP / document
    if not path.exists():
        return set()
    text = path.read_text(encoding="utf-8")
    return {"", *re.findall(r"^#+ (\d+(?:\.\d+)*)\b", text, re.MULTILINE)}


def noun_name(source: Source) -> Iterator[str]:
    """Yields a file whose name is no noun."""
    stem = PurePosixPath(source.path).stem.removeprefix("test_")
    if stem.endswith("ing") and stem.removeprefix("consume_") not in NOUNS:
        yield f"{source.path}: name the file by a noun"


def is_read(source: Source) -> bool:
    """True if the file has been read with the rules in hand."""
    return source.is_python and not source.path.startswith(UNREAD)


def _docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def _is_function(node: ast.AST) -> bool:
    """True if the node is a function that is called as one: a property is named as its value."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
        isinstance(each, ast.Name) and each.id.endswith("property") for each in node.decorator_list
    )


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


RULES: tuple[Callable[[Source], Iterator[str]], ...] = (
    docstring_form,
    plain_words,
    citation,
    noun_name,
)
