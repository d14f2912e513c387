"""`rocketpy store backup`: a consistent copy of a store.

Exit codes: 0 done; 1 refused, or a complete copy with faults; 2 no store, a store in use, or an
existing target. The store may be a running broker's. The command removes an unfinished copy; after
a crash the next backup removes it.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.store_commands import (
    EXIT_FAULTS,
    EXIT_NO_STORE,
    directory_errors,
    errors,
    progress,
    show_findings,
)
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, asking
from rocketpy_broker.client.brokers import backup_store, broker_status
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.errors import StoreLockedError
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.store.backup.offline import StoppedStore, check_apart
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.backup.target import BackupTarget, BackupTargetError
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, Finding, StoreCheck
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

PATHS_MAX = 2


def backup(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[SOURCE] DEST",
            help="DEST: a new directory for the copy. SOURCE: the store of a stopped broker.",
        ),
    ],
    endpoint: Annotated[
        str,
        typer.Option(
            help="host:port of the broker; unused with SOURCE.", envvar="ROCKETPY_ENDPOINT"
        ),
    ] = DEFAULT_ENDPOINT,
    new_store_id: Annotated[
        bool,
        typer.Option(
            "--new-store-id",
            help="Give the copy a store id of its own: brokers can serve both stores.",
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare every file with the log.")
    ] = True,
    as_json: output.AsJson = False,
) -> None:
    """Copy the store of a running or a stopped broker; sends and pulls go on."""
    if len(paths) > PATHS_MAX:
        raise typer.BadParameter(
            f"{len(paths)} paths are given; give [SOURCE] DEST, quoted if a name has spaces",
            param_hint="paths",
        )
    process_tuning.raise_descriptor_limit()
    finish = Finish(new_store_id=new_store_id, check=check)
    target = BackupTarget(paths[-1])
    if len(paths) == PATHS_MAX:
        with errors(), target:
            _copy_stopped(paths[0], target)
            findings = finish.run(target)
    else:
        # An interrupt ends the command in `asking`, after the target was removed.
        with errors(), asking(endpoint) as connection, directory_errors(), target:
            _copy_served(connection, target)
            findings = finish.run(target)
    _print_result(target, findings, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Finish:
    """The last steps of a backup, before the copy gets its name."""

    new_store_id: bool
    check: bool

    def run(self, target: BackupTarget) -> list[Finding]:
        """Finishes the copy; returns the faults of the check. Raises the target's errors."""
        if self.new_store_id:
            target.generate_store_id()
        findings = _checked(target) if self.check else []
        target.finish()
        return findings


def _copy_stopped(source: Path, target: BackupTarget) -> None:
    try:
        check_apart(source, target.folder)
        with StoppedStore(source) as store, progress("Copying", store.total_bytes) as advance:
            store.copy(target, advance)
    except StoreLockedError as error:
        typer.echo(
            f"rocketpy store: {source} is in use by a running broker; name its --endpoint in place "
            "of SOURCE",
            err=True,
        )
        raise typer.Exit(EXIT_NO_STORE) from error


def _copy_served(connection: BrokerConnection, target: BackupTarget) -> None:
    """Copies a running broker's store. Raises BackupTargetError, OSError.

    A refusal of the broker ends the command.
    """
    for each in broker_status(connection).directories:
        if each.role == "store" and Path(each.path).is_dir():
            check_apart(Path(each.path), target.folder)
    responses = backup_store(connection)
    start = next(responses, admin_pb2.BackupStoreResponse())
    with progress("Copying", start.total_bytes) as advance:
        for response in itertools.chain([start], responses):
            if response.is_start:
                # The broker may start the copy again; the pieces before that are void.
                start = response
                target.begin(start.total_bytes)
            for piece in response.pieces:
                target.write(_piece(piece))
                advance(len(piece.data))
            if response.is_complete:
                break
        else:
            raise BackupTargetError("the broker ended the backup too early; start the backup again")
    target.leave_as_stopped(start.log_end, start.commit_log_segment_bytes)
    target.note_end(start.log_end)


def _piece(message: admin_pb2.BackupPiece) -> Piece:
    path = os.fsdecode(message.path)
    return Piece(path, message.offset, message.data, message.file_bytes, message.modified_ns)


def _checked(target: BackupTarget) -> list[Finding]:
    target.allow_read()
    checking = StoreCheck(target.unfinished, StoreSizes.of(target.unfinished))
    with progress("Checking", checking.total_bytes) as advance:
        return [found for found in checking.run(advance) if isinstance(found, Fault)]


def _print_result(target: BackupTarget, findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        faults = [{"path": str(one.path), "text": one.text} for one in findings]
        folder, count = str(target.folder), target.copied_bytes
        output.print_json({"folder": folder, "copiedBytes": count, "faults": faults})
    else:
        show_findings(findings)
        typer.echo(f"copied {counted(target.copied_bytes, 'byte')} to {target.folder}")
    if findings:
        typer.echo(
            f"rocketpy store: the copy has {counted(len(findings), 'fault')}, from its source or "
            "from its disk; run `rocketpy store check` on both",
            err=True,
        )
        raise typer.Exit(EXIT_FAULTS)
