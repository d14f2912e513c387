"""docs/reference/commands.md: it lists every command as it is, and all follow the same rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker.cli.broker_client import CONNECTION_NAMES
from rocketpy_broker.cli.commands import app, imported
from rocketpy_broker.cli.reference import Command, leaves, main, renewed
from tests.support.documents import TOP

COMMANDS_PAGE = TOP / "docs" / "reference" / "commands.md"
COMMANDS = [pytest.param(command, id=" ".join(command.words[1:])) for command in leaves()]


def test_the_page_of_commands_is_as_the_commands_are() -> None:
    page = COMMANDS_PAGE.read_text(encoding="utf-8")
    way_out = "run: python -m rocketpy_broker.cli.reference docs/reference/commands.md"
    assert page == renewed(page), way_out


def test_a_page_is_renewed_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- commands begin -->\nold\n<!-- commands end -->\nbehind\n", encoding="utf-8"
    )
    monkeypatch.setattr("sys.argv", ["reference", str(page)])
    main()
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- commands begin -->\n\n### `rocketpy ")
    assert text.endswith("<!-- commands end -->\nbehind\n")
    assert ("\nold\n" in text, "### `rocketpy topic list`" in text) == (False, True)
    with pytest.raises(ValueError, match="lacks a mark: add"):
        renewed("nothing")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does_and_what_its_options_are_for(command: Command) -> None:
    first = command.help.splitlines()[0]
    assert first[0].isupper()
    assert first.endswith(".") or command.help.split("\n\n")[0].endswith(".")
    for parameter in command.parameters():
        assert parameter.info.help, parameter.name


def test_help_shows_each_command_s_own_first_sentence() -> None:
    shown, expected = (
        CliRunner().invoke(group, ["--help"], env={"COLUMNS": "80"}).output.split("Commands:")[1]
        for group in (app, imported())
    )
    assert shown.count("\n") > 10
    assert shown == expected


HEAVY = ["rocketpy_broker.broker", "pandas", "rich.console"]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ([], [*HEAVY, "numpy", "grpc"]),
        (["topic", "list"], [*HEAVY, "numpy", "rocketpy_broker.cli.messages.commands"]),
        (["broker", "status"], HEAVY),
    ],
)
def test_a_command_imports_nothing_that_only_others_need(
    words: list[str], absent: list[str]
) -> None:
    program = (
        "import sys; from rocketpy_broker.cli.commands import app;"
        f"app({[*words, '--help']}, standalone_mode=False);"
        f"print(sorted(sys.modules.keys() & {absent}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# They run until they are stopped.
NEVER_ENDING = {"broker start", "nameserver"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_but_a_start_prints_json(command: Command) -> None:
    has_json = any("`--json`" in parameter.names for parameter in command.parameters())
    assert has_json == (" ".join(command.words[1:]) not in NEVER_ENDING)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_names_the_options_that_help_shows(command: Command) -> None:
    shown = (
        CliRunner()
        .invoke(app, [*command.words[1:], "--help"], env={"COLUMNS": "80"}, prog_name="rocketpy")
        .output
    )
    assert max(map(len, shown.splitlines())) <= 80
    for parameter in command.parameters():
        if not parameter.is_argument:
            for name in parameter.names.split("`")[1::2]:
                assert name in shown, name
    listed = {word.strip(",") for line in command.lines() for word in line.split("`")}
    if any(parameter.name == "endpoint" for parameter in command.parameters()):
        # The section of connections has them once for all commands.
        listed |= {f"--{name.replace('_', '-')}" for name in CONNECTION_NAMES}
    options = {
        word.strip(",[]")
        for line in shown.splitlines()
        if line.startswith("  -")
        for word in line.split()[:3]
        if word.startswith("-")
    }
    assert {part for each in options for part in each.split("/")} <= {*listed, "--help", "-h"}
