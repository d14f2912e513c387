"""Times that commands take: one form for all, with a zone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker.cli.commands import app


@pytest.mark.parametrize("option", ["--begin-time", "--end-time"])
@pytest.mark.parametrize(
    ("time", "fault"),
    [
        ("yesterday", "'yesterday' is no time; write it like 2026-05-01T08:00:00Z"),
        ("2026-05-01T08:00:00", "'2026-05-01T08:00:00' has no time zone; end it with Z, or with"),
        ("2026-05-01", "'2026-05-01' has no time zone"),
    ],
)
def test_a_time_of_an_export_has_the_form_of_all_commands(
    tmp_path: Path, option: str, time: str, fault: str
) -> None:
    words = ["store", "export", str(tmp_path), "--topic", "A", "--out", str(tmp_path / "a.arrow")]
    refused = CliRunner().invoke(app, [*words, option, time])
    assert refused.exit_code == 2
    assert fault in " ".join(refused.output.split())
