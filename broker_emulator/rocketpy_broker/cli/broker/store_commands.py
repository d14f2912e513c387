"""`rocketpy store …`: commands on a store's directory without a running broker.

Exit codes: 0 done, 1 faults found or work refused, 2 no store or a store in use.
"""

from __future__ import annotations

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

from rocketpy_broker.cli import output, user_credentials
from rocketpy_broker.cli.broker_client import tls_config
from rocketpy_broker.cli.times import time_option
from rocketpy_broker.config import SigningUser
from rocketpy_broker.errors import BrokerError, StoreDirectoryError, StoreLockedError
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_broker.server.ha.aligner import aligned
from rocketpy_broker.server.remoting.client import RemotingClient
from rocketpy_broker.services.admin.files.store_export import ExportRequest, FileFormat, StoreExport
from rocketpy_broker.services.registration.addresses import host_and_port
from rocketpy_broker.store.check.faults import Advance
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import CheckSummary, Fault, Finding, StoreCheck
from rocketpy_proto.counts import counted

EXIT_FAULTS, EXIT_NO_STORE = 1, 2
store_app = typer.Typer(
    help="Back up a store; check or export the store of a stopped broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(help="Directory of the store, a broker's --data.")]
SegmentBytes = Annotated[
    int | None,
    typer.Option(min=4096, help="mappedFileSizeCommitLog. Default: the size in the store."),
]
QueueFileBytes = Annotated[
    int | None,
    typer.Option(min=20, help="mappedFileSizeConsumeQueue. Default: the size in the store."),
]

BeginTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only messages stored at this time or later, such as 2026-05-01T08:00:00Z.",
    ),
]
EndTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only messages stored before this time.")
]


@store_app.command()
def check(
    folder: Folder,
    commit_log_segment_bytes: SegmentBytes = None,
    consume_queue_file_bytes: QueueFileBytes = None,
    as_json: output.AsJson = False,
) -> None:
    """Compare every file of a store with its log, and change nothing."""
    process_tuning.raise_descriptor_limit()
    with errors():
        sizes = _sizes(folder, commit_log_segment_bytes, consume_queue_file_bytes)
        checking = StoreCheck(folder, sizes)
        with progress("Reading the log", checking.total_bytes) as advance:
            findings = list(checking.run(advance))
    faults = [found for found in findings if isinstance(found, Fault)]
    if as_json:
        output.print_json(_as_json(findings, checking.summary))
    else:
        _show(findings, checking.summary, len(faults))
    if faults:
        raise typer.Exit(EXIT_FAULTS)


@store_app.command("export")
def export_messages(
    folder: Folder,
    topic: Annotated[list[str], typer.Option(help="Topic to export; may be repeated.")],
    out: Annotated[Path, typer.Option(help="A file, or a folder for one file per topic.")],
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    begin_time: BeginTime = None,
    end_time: EndTime = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option(
            "--format",
            help="Format of the files. Default: parquet for a name in .parquet, else arrow.",
        ),
    ] = None,
    commit_log_segment_bytes: SegmentBytes = None,
    consume_queue_file_bytes: QueueFileBytes = None,
    as_json: output.AsJson = False,
) -> None:
    """Write messages of topics to files of Arrow or Parquet."""
    process_tuning.raise_descriptor_limit()
    if not out.is_dir() and not out.parent.is_dir():
        raise typer.BadParameter(f"the folder {out.parent} does not exist", param_hint="--out")
    suffix_format = FileFormat.PARQUET if out.suffix == ".parquet" else FileFormat.ARROW
    request = ExportRequest(
        list(dict.fromkeys(topic)),
        out,
        file_format or suffix_format,
        queue,
        _time_ms(begin_time, "--begin-time"),
        _time_ms(end_time, "--end-time"),
    )
    with errors():
        sizes = _sizes(folder, commit_log_segment_bytes, consume_queue_file_bytes)
        with StoreExport(folder, sizes, request) as export:
            if export.is_crashed:
                text = "its last messages may be missing; first start and stop a broker on it"
                typer.echo(f"rocketpy store: {folder} was not cleanly stopped: {text}", err=True)
            with progress("Exporting", export.message_count) as advance:
                result = export.run(advance)
    if as_json:
        files, count = [str(path) for path in result.paths], result.message_count
        output.print_json({"files": files, "messages": count, "damaged": result.damaged_count})
    else:
        for path in result.paths:
            typer.echo(f"wrote {path}")
        typer.echo(f"exported {counted(result.message_count, 'message')}")
    if result.damaged_count:
        text = f"skipped {counted(result.damaged_count, 'damaged message')}"
        typer.echo(f"rocketpy store: {text}; see `rocketpy store check {folder}`", err=True)
        raise typer.Exit(EXIT_FAULTS)


@store_app.command()
def align(
    folder: Folder,
    master_endpoint: Annotated[
        str,
        typer.Option("--master", metavar="HOST:PORT", help="The remoting address of the master."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing.")
    ] = False,
    commit_log_segment_bytes: SegmentBytes = None,
    consume_queue_file_bytes: QueueFileBytes = None,
    as_json: output.AsJson = False,
) -> None:
    """Remove the messages of a stopped slave that its master does not have.

    A slave refuses to follow a master if their logs differ. For example, the slave is the old
    master of its master. The removed part of the log is kept in the store's rocketpy/quarantine.
    """
    with errors():
        sizes = _sizes(folder, commit_log_segment_bytes, consume_queue_file_bytes)
        # Beside the search for that segment, at most one segment is compared.
        with progress("Comparing the logs", sizes.segment_bytes) as advance:
            found = aligned(folder, sizes, master_endpoint, _connection, advance, is_dry=dry_run)
    counts = dict(sorted(found.message_counts.items()))
    if as_json:
        kept = [str(path) for path in found.kept]
        output.print_json({"logEnd": found.common_end, "removed": counts, "kept": kept})
        return
    word = "would be removed" if dry_run else "removed"
    for topic, count in counts.items():
        typer.echo(f"{word}: {counted(count, 'message')} of {topic}")
    for path in found.kept:
        typer.echo(f"kept: {path}")
    typer.echo(f"the logs are equal up to offset {found.common_end}")


def _connection(address: str) -> RemotingClient:
    host, port = host_and_port(address)
    given = user_credentials.current_user()
    user = None
    if given.access_key is not None:
        user = SigningUser(given.access_key, given.secret_key or "")
    return RemotingClient(host, port, SystemClock(), tls_config(), user)


def _time_ms(text: str | None, option: str) -> int | None:
    return None if text is None else ms_of_time(time_option(text, option))


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


def show_findings(findings: list[Finding]) -> None:
    """Prints a line for each finding."""
    for found in findings:
        kind = "fault" if isinstance(found, Fault) else "note"
        typer.echo(f"{kind}: {found.path} at byte {found.offset}: {found.text}")


def _show(findings: list[Finding], summary: CheckSummary, fault_count: int) -> None:
    show_findings(findings)
    counts = (summary.record_count, summary.queue_count, summary.topic_count, summary.log_bytes)
    headings = ("records", "queues", "topics", "log bytes", "faults")
    output.print_table(headings, [(*counts, fault_count)])


def _sizes(folder: Path, segment_bytes: int | None, queue_file_bytes: int | None) -> StoreSizes:
    if queue_file_bytes is not None and queue_file_bytes % 20:
        raise typer.BadParameter(
            f"--consume-queue-file-bytes is {queue_file_bytes}; give a multiple of 20"
        )
    return StoreSizes.of(folder, segment_bytes, queue_file_bytes)


@contextmanager
def errors() -> Iterator[None]:
    """Ends the command with a line and an exit code for an error in its block."""
    try:
        with directory_errors():
            yield
    except (BrokerError, OSError) as error:
        sys.exit(f"rocketpy store: {error}")


@contextmanager
def directory_errors() -> Iterator[None]:
    """Ends the command with EXIT_NO_STORE if a directory is no store or is in use."""
    try:
        yield
    except (StoreDirectoryError, StoreLockedError) as error:
        typer.echo(f"rocketpy store: {error}", err=True)
        raise typer.Exit(EXIT_NO_STORE) from error


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Yields a function that advances a progress bar, which only a terminal shows."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    remaining = TimeRemainingColumn()
    with Progress(
        *columns, remaining, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)
