"""Our own files keep the rules of `language`, and each rule finds a text that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import language, tidy
from tests.tidy import BROKER, Source

Rule = Callable[[Source], Iterator[str]]
PATH = f"{BROKER}/sample.py"


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
        "x = 1  # Code in quotes, `told()`, is no prose.",
    ],
)
def test_plain_text_passes(text: str) -> None:
    for rule in language.RULES:
        assert list(rule(Source(PATH, text + "\n"))) == []


def test_a_file_has_a_noun_for_a_name() -> None:
    assert list(language.noun_name(Source(f"{BROKER}/pulling.py", ""))) == [
        f"{BROKER}/pulling.py: name the file by a noun"
    ]
    assert list(language.noun_name(Source(f"{BROKER}/wiring.py", ""))) == []
