"""Rules of plain English, as CONTRIBUTING lists them.

Each rule takes one source file and yields a sentence for each place that breaks it. It reads the
docstrings, comments and texts of Python files, and the comments of .proto files. `UNREAD` names
the folders that still have to be read with the rules in hand; it only ever gets shorter.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Container, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

from tests.project.tidy import Source, parse

TOP = Path(__file__).parents[2]
UNREAD: tuple[str, ...] = ()
# Strings of these are data more often than texts for readers.
DATA_FOLDERS = ("tests/", "notebooks/", "benchmarks/")

# First words that hide the subject or the verb of a docstring.
QUESTIONS = {"What", "Who", "Whose", "Whom", "Which", "Where", "How", "Let", "Whether", "Whoever"}
# Words that end in s and are no verb.
NO_VERBS = {"This", "Its", "As", "Is", "Has", "Does", "Always", "Was", "Us", "Thus", "Yes", "Less"}
VERB = re.compile(r"(?:[A-Z][a-z]+s|True if)\b")
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
# The most words of a module's first line, and of a sentence in a docstring of the packages.
OPENING_WORDS_MAX, SENTENCE_WORDS_MAX = 12, 20
# File names that end in -ing and are nouns of the field.
NOUNS = {"wiring", "long_polling", "process_tuning", "rebatching", "packaging", "testing"}

_ACTOR_WORDS = re.compile(rf"\b({'|'.join(NO_ACTORS.split())})\b", re.IGNORECASE)
_PLAINER_WORDS = re.compile(rf"\b({'|'.join(PLAINER)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"`[^`]*`")
# An indented paragraph: a drawing or a table.
_DRAWING = re.compile(r"^ {4}.*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.:;!?])\s+|\n\n|\n- ")
# A line of a .proto file: its code, strings included, and its comment.
_PROTO_LINE = re.compile(r"""((?:"[^"]*"|'[^']*'|(?!//).)*)(?://+ ?(.*))?""")
_RPC = re.compile(r"\s*rpc\s+(\w+)")


Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Prose(NamedTuple):
    """A text for readers: its line and its words."""

    line: int
    text: str


class Comment(NamedTuple):
    """Lines of comment of a .proto file as one text, and the code directly after them."""

    prose: Prose
    code: str


@cache
def prose(source: Source) -> tuple[Prose, ...]:
    """Returns each docstring, comment and, of the packages, text of a file."""
    if _is_proto(source):
        return tuple(comment.prose for comment in _proto_comments(source.text))
    tree = parse(source.text)
    documented = list(_docstrings(tree))
    docstrings = [Prose(_line(node), text) for node, text in documented]
    comments = [
        Prose(token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type == tokenize.COMMENT
    ]
    texts = (
        ()
        if source.path.startswith(DATA_FOLDERS)
        else _texts(tree, {text for _, text in documented})
    )
    return (*docstrings, *comments, *texts)


def docstring_form(source: Source) -> Iterator[str]:
    """Yields docstrings that do not begin with a verb, or with a noun for a class or module."""
    if _is_proto(source):
        yield from _proto_form(source)
        return
    for node, text in _docstrings(parse(source.text)):
        first = text.split(None, 1)[0].strip("`.,:")
        place = f"{source.path}:{_line(node)}"
        if first in QUESTIONS and not (first == "Let" and "/cli/" in source.path):
            yield f"{place}: a docstring begins with {first!r}: begin with a noun or a verb"
        elif "/cli/" in source.path:
            continue  # The text of --help.
        elif _is_function(node) and (first in NO_VERBS or not VERB.match(text)):
            yield f"{place}: a function's docstring begins with {first!r}: Returns, Sends, Raises …"


def _proto_form(source: Source) -> Iterator[str]:
    """Yields comments of a .proto file that hide the verb, and an rpc without a comment."""
    documented: set[str] = set()
    for (line, text), code in _proto_comments(source.text):
        first = text.split(None, 1)[0].strip("`.,:")
        place = f"{source.path}:{line}"
        rpc = _RPC.match(code)
        documented |= {rpc[1]} if rpc else set()
        if first in QUESTIONS:
            yield f"{place}: a comment begins with {first!r}: begin with a noun or a verb"
        elif rpc and (first in NO_VERBS or not VERB.match(text)):
            yield f"{place}: an rpc's comment begins with {first!r}: Returns, Appends, Opens …"
    for line, code in enumerate(source.lines, 1):
        if (rpc := _RPC.match(code)) and rpc[1] not in documented:
            yield f"{source.path}:{line}: the rpc {rpc[1]} has no comment"


def plain_words(source: Source) -> Iterator[str]:
    """Yields words that name no actor, and words that have a plainer one."""
    for line, text in prose(source):
        words = _QUOTED.sub("", text)
        for found in _ACTOR_WORDS.findall(words):
            yield f"{source.path}:{line}: {found!r} names no actor: client, caller, broker …"
        for found in _PLAINER_WORDS.findall(words):
            yield f"{source.path}:{line}: {found!r}: {PLAINER[found.lower()]}"


def sentence_length(source: Source) -> Iterator[str]:
    """Yields openings of modules and sentences of docstrings that have too many words."""
    if not source.in_packages:
        return
    for node, text in _docstrings(parse(source.text)):
        words = _DRAWING.sub("", _QUOTED.sub("code", text))
        parts = [(each, SENTENCE_WORDS_MAX) for each in _SENTENCE_END.split(words)]
        if isinstance(node, ast.Module):
            parts.append((words.partition("\n")[0], OPENING_WORDS_MAX))
        for part, limit in parts:
            if (count := len(part.split())) > limit:
                start = " ".join(part.split()[:5])
                yield f"{source.path}:{_line(node)}: {start!r} … has {count} words, limit {limit}"


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
    if stem.endswith("ing") and stem not in NOUNS:
        yield f"{source.path}: name the file by a noun"


def is_read(source: Source) -> bool:
    """True if the file has been read with the rules in hand."""
    is_source = source.is_python or _is_proto(source)
    return is_source and not source.path.startswith(UNREAD)


def _is_proto(source: Source) -> bool:
    return source.path.endswith(".proto")


def _proto_comments(text: str) -> Iterator[Comment]:
    """Yields the comments of a .proto file; consecutive lines of comment are one text."""
    words: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = _PROTO_LINE.match(line)
        code, words_of_line = found.groups() if found else (line, None)
        if words_of_line is not None and not code.strip():
            first = first if words else number
            words.append(words_of_line)
            continue
        if any(words):
            yield Comment(Prose(first, " ".join(words)), code)
        words = []
        if words_of_line:
            yield Comment(Prose(number, words_of_line), "")


def _docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def _texts(tree: ast.Module, docstrings: Container[str]) -> Iterator[Prose]:
    """Yields other strings with a space: errors, log lines and help texts."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and " " in value and inspect.cleandoc(value) not in docstrings:
            yield Prose(_line(node), value)


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
    sentence_length,
    citation,
    noun_name,
)
