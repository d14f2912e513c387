"""Our own files keep the rules of `language`, and each rule finds a text that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.project import language, tidy
from tests.project.tidy import BROKER, Source

Rule = Callable[[Source], Iterator[str]]
PATH = f"{BROKER}/sample.py"
PROTO = "proto/rocketpy/v1/sample.proto"
# One process parses all sources for all rules, as for test_tidy.
pytestmark = pytest.mark.xdist_group("sources")


@pytest.mark.parametrize("rule", language.RULES, ids=lambda rule: rule.__name__)
def test_every_file_that_was_read_keeps_the_rule(rule: Rule) -> None:
    sources = [source for source in tidy.sources(language.TOP) if language.is_read(source)]
    problems = [problem for source in sources for problem in rule(source)]
    assert not problems, "\n".join(["", *problems])


def test_the_packages_were_read() -> None:
    assert not [
        package
        for package in tidy.PACKAGES
        if not language.is_read(Source(f"{package}x/module.py", ""))
    ]


@pytest.mark.parametrize(
    ("rule", "text", "problem"),
    [
        (language.docstring_form, '"""What lives here."""', "begins with 'What'"),
        (language.docstring_form, 'def f():\n    """Return one."""', "begins with 'Return'"),
        (language.docstring_form, 'def f():\n    """The answer."""', "begins with 'The'"),
        (language.plain_words, "x = 1  # whoever asks", "'whoever' names no actor"),
        (language.plain_words, '"""It tells the broker."""', "'tells': returns, reports"),
        (language.plain_words, "# Bytes behind the end.", "'behind': after"),
        (language.sentence_length, f'"""{"A " * 12}cache."""', "'A A A A A' … has 13 words"),
        (language.sentence_length, f'"""A log.\n\n{"It " * 20}is."""', "has 21 words, limit 20"),
        (language.citation, '"""Source: spec/storage.md."""', "is no document of the repository"),
        (language.citation, '"""Counts. Row S13."""', "'Row S13' is no document"),
        (
            language.citation,
            '"""Source: docs/design/storage.md sections 2 and 99.9."""',
            "docs/design/storage.md has no section '99.9'",
        ),
        (language.citation, '"""Source: docs/design/nothing.md."""', "has no section ''"),
    ],
)
def test_a_rule_finds_what_breaks_it(rule: Rule, text: str, problem: str) -> None:
    [found] = list(rule(Source(PATH, text + "\n")))
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        'def f():\n    """Returns one."""',
        'def f():\n    """True if it is one."""',
        'class C:\n    """A cache."""\n\n    @property\n    def p(self):\n        """The size."""',
        '"""Formats. Source: docs/design/storage.md sections 2 and 2.1."""',
        f'"""A cache of `{"a " * 20}`."""',
        f'"""{"A " * 11}log.\n\n{"It " * 19}is.\n\n    {"a table " * 10}\n"""',
        "x = 1  # Code in quotes, `told()`, is no prose.",
    ],
)
def test_plain_text_passes(text: str) -> None:
    for rule in language.RULES:
        assert list(rule(Source(PATH, text + "\n"))) == []


@pytest.mark.parametrize(
    ("rule", "text", "problem"),
    [
        (language.docstring_form, "// What this broker is.", "1: a comment begins with 'What'"),
        (
            language.docstring_form,
            "service S {\n  // The members.\n  rpc List(A) returns (B);\n}",
            "2: an rpc's comment begins with 'The'",
        ),
        (
            language.docstring_form,
            "service S {\n  // The members.\n\n  rpc List(A) returns (B);\n}",
            "4: the rpc List has no comment",
        ),
        (language.plain_words, "// A call.\n// Nobody waits.", "1: 'Nobody' names no actor"),
        (language.plain_words, "// A page of so\n// many topics.", "'so many': the limit's name"),
        (language.plain_words, "  int32 count = 1;  // Queues behind it.", "1: 'behind': after"),
        (language.citation, "// As in spec/storage.md.", "is no document of the repository"),
        (language.noun_name, "", "name the file by a noun"),
    ],
)
def test_a_rule_finds_what_breaks_it_in_a_contract(rule: Rule, text: str, problem: str) -> None:
    path = PROTO.replace("sample", "pulling") if rule is language.noun_name else PROTO
    [found] = list(rule(Source(path, text + "\n")))
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        "service S {\n  // Returns the members.\n  rpc List(A) returns (B);\n}",
        "// The members.\n//\n// A member has an id.\nmessage M {}",
        'option java_package = "https://who";',
        "// 0 matches any `told` epoch.\nint64 topic_epoch = 1;",
    ],
)
def test_a_plain_contract_passes(text: str) -> None:
    for rule in language.RULES:
        assert list(rule(Source(PROTO, text + "\n"))) == []


def test_the_contract_was_read() -> None:
    read = {source.path for source in tidy.sources(language.TOP) if language.is_read(source)}
    assert "proto/rocketpy/v1/broker.proto" in read


def test_a_file_has_a_noun_for_a_name() -> None:
    assert list(language.noun_name(Source(f"{BROKER}/pulling.py", ""))) == [
        f"{BROKER}/pulling.py: name the file by a noun"
    ]
    assert list(language.noun_name(Source(f"{BROKER}/wiring.py", ""))) == []
