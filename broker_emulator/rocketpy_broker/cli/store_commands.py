"""`rocketpy store …`: commands on a store's directory while no broker runs on it.

Exit codes: 0 done, 1 faults found or work refused, 2 for what is no store or is in use. Holds no
state.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rocketpy_broker import process
from rocketpy_broker.errors import BrokerError, StoreDirectoryError, StoreLockedError
from rocketpy_broker.store.check import CheckSummary, Fault, Finding, StoreCheck
from rocketpy_broker.store.faults import Advance
from rocketpy_broker.store.read_only import StoreSizes

EXIT_FAULTS, EXIT_NO_STORE = 1, 2
store_app = typer.Typer(
    help="Check, export and import the store of a broker that does not run.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(help="Directory of the store, a broker's --data.")]
SegmentBytes = Annotated[
    int | None,
    typer.Option(min=4096, help="mappedFileSizeCommitLog. Default: as the store was made with."),
]
QueueFileBytes = Annotated[
    int | None,
    typer.Option(min=20, help="mappedFileSizeConsumeQueue. Default: as the store was made with."),
]


@store_app.command()
def check(
    folder: Folder,
    commit_log_segment_bytes: SegmentBytes = None,
    consume_queue_file_bytes: QueueFileBytes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare every file of a store with its log, and change nothing."""
    process.raise_descriptor_limit()
    with _errors():
        sizes = _sizes(folder, commit_log_segment_bytes, consume_queue_file_bytes)
        checking = StoreCheck(folder, sizes)
        with _progress("Reading the log", checking.total_bytes) as advance:
            findings = list(checking.run(advance))
    faults = [found for found in findings if isinstance(found, Fault)]
    if as_json:
        typer.echo(json.dumps(_as_json(findings, checking.summary), indent=2))
    else:
        _show(findings, checking.summary, len(faults))
    if faults:
        raise typer.Exit(EXIT_FAULTS)


def _as_json(findings: list[Finding], summary: CheckSummary) -> dict[str, object]:
    listed: dict[str, list[object]] = {"faults": [], "notes": []}
    for found in findings:
        entry = {"path": str(found.path), "offset": found.offset, "text": found.text}
        listed["faults" if isinstance(found, Fault) else "notes"].append(entry)
    return {
        **listed,
        "records": summary.record_count,
        "queues": summary.queue_count,
        "topics": summary.topic_count,
        "logBytes": summary.log_bytes,
    }


def _show(findings: list[Finding], summary: CheckSummary, fault_count: int) -> None:
    for found in findings:
        kind = "fault" if isinstance(found, Fault) else "note"
        typer.echo(f"{kind}: {found.path} at byte {found.offset}: {found.text}")
    table = Table("records", "queues", "topics", "log bytes", "faults")
    table.add_row(
        str(summary.record_count),
        str(summary.queue_count),
        str(summary.topic_count),
        str(summary.log_bytes),
        str(fault_count),
    )
    Console().print(table)


def _sizes(folder: Path, segment_bytes: int | None, queue_file_bytes: int | None) -> StoreSizes:
    if queue_file_bytes is not None and queue_file_bytes % 20:
        raise typer.BadParameter("--consume-queue-file-bytes must be a multiple of 20")
    return StoreSizes.of(folder, segment_bytes, queue_file_bytes)


@contextmanager
def _errors() -> Iterator[None]:
    """Declared errors become a line and an exit code."""
    try:
        yield
    except (StoreDirectoryError, StoreLockedError) as error:
        typer.echo(f"rocketpy store: {error}", err=True)
        raise typer.Exit(EXIT_NO_STORE) from error
    except (BrokerError, OSError) as error:
        sys.exit(f"rocketpy store: {error}")


@contextmanager
def _progress(what: str, total: int) -> Iterator[Advance]:
    """A bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    remaining = TimeRemainingColumn()
    with Progress(
        *columns, remaining, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)
