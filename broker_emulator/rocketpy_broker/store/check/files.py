"""Check of the store's small files and of unknown files.

The small files are configuration, checkpoint, flushed mark and manifest. The store does not
interpret topics or groups: configuration files are checked only as JSON, in the dialect that
RocketMQ writes. The check only reads.
Source: docs/design/storage.md sections 1, 8 and 11.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.check.faults import CheckContext, Fault, Finding, Note, finding
from rocketpy_broker.store.check.read_only import queue_folder, queue_keys
from rocketpy_broker.store.files.checkpoint import FIELDS, FILE_BYTES
from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.log.file_sequence import Misplaced
from rocketpy_broker.store.queues.table import EMPTIED_NAME
from rocketpy_proto.remoting import RemotingFormatError
from rocketpy_proto.remoting.json_text import parse_json

# Folders and files that RocketMQ or this program creates in a store's directory.
ROOT_NAMES = frozenset(
    {"commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "rocketpy"}
    | {"batchconsumequeue", "consumequeue_ext", "timerwheel", "timerlog", "compaction", "kvStore"}
    | {"abort.bak", "epochFileCheckpoint", "brokerIdentity"}
    | {"rocksdbstore", "consumequeue_rocksdb"}
)
OWN_NAMES = frozenset(
    {"checksums", "flushed", "manifest.json", "quarantine", "recoveries", "staging", "storeId"}
)
# A crash leaves unfinished files with these suffixes; the next start or save overwrites them.
UNFINISHED_SUFFIXES = (".new", ".tmp")
_FIELD_BYTES = 8
FIELD_NAMES = (
    *("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"),
    *("masterFlushed", "confirmPhyOffset", "logicsPhysicalOffset"),
)
_POSITIONS = ("confirmPhyOffset", "logicsPhysicalOffset")
# The position in an error of the JSON parser.
_POSITION = re.compile(r"\(byte (\d+)\)")
_MARK_FLUSHED_OFFSET = 4


def unknown_files(context: CheckContext) -> Iterator[Finding]:
    """Yields unknown files of the store's folders, except the folders of log, index and a queue.

    These have checks of their own.
    """
    folder = context.folder
    for part, names in ((folder, ROOT_NAMES), (folder / "rocketpy", OWN_NAMES)):
        for path in sorted(part.iterdir()) if part.is_dir() else []:
            if path.name not in names:
                yield _incomplete(path) or Note(path, 0, "is not the store's")
    queues = {queue_folder(folder, key) for key in queue_keys(folder)}
    for path in sorted((folder / "consumequeue").glob("*")):
        for inner in sorted(path.iterdir()) if path.is_dir() else [path]:
            if inner not in queues:
                text = "is no queue: its name is no number, or it is no folder"
                yield _incomplete(inner) or Fault(inner, 0, text)


def _incomplete(path: Path) -> Note | None:
    """Returns the note for a file that a crash has left unfinished."""
    if path.suffix not in UNFINISHED_SUFFIXES:
        return None
    return Note(path, 0, "is incomplete: the broker crashed before it was finished")


def misplaced(found: list[Misplaced]) -> Iterator[Finding]:
    """Yields unused files of the log or the checksums. Folders and empty files are only notes."""
    for one in found:
        is_fault = one.path.is_file() and one.path.stat().st_size > 0
        yield finding(one.path, 0, one.reason, is_fault=is_fault)


def configuration(context: CheckContext) -> Iterator[Finding]:
    """Yields JSON files and backups that cannot be read."""
    folder = context.folder / "config"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        incomplete = _incomplete(path)
        if incomplete:
            yield incomplete
        elif path.name.removesuffix(".bak").endswith(".json"):
            problem = _json_problem(path)
            if problem is not None:
                backup = path.with_name(path.name + ".bak")
                has_backup = backup.exists() and _json_problem(backup) is None
                way_out = "; its backup can be read" if has_backup else ""
                yield Fault(path, problem[0], f"is no JSON object ({problem[1]}){way_out}")


def _json_problem(path: Path) -> tuple[int, str] | None:
    """Returns position in bytes and reason; None for a JSON object, also in fastjson's form.

    If keys have no quotes, the position also counts the missing quotes.
    """
    data = path.read_bytes()
    try:
        data.decode()
        content = parse_json(data, "configuration")
    except UnicodeDecodeError as error:
        return error.start, error.reason
    except RemotingFormatError as error:
        found = _POSITION.search(error.reason)
        end = len(data) if "truncated" in error.reason else 0
        position = int(found[1]) if found else end
        return min(position, len(data)), error.reason
    return None if isinstance(content, dict) else (0, "it is of another type")


def deleted_topics(context: CheckContext) -> Iterator[Finding]:
    """Yields marks that cannot be read, or that are not offsets of this log.

    The start after a power cut lowers the marks to the log's end.
    """
    emptied = TopicMarks(context.folder / "config" / EMPTIED_NAME)
    for what, marks in (("deleted", context.deleted), ("emptied", emptied)):
        try:
            marks.load()
        except StoreDirectoryError as error:
            yield Fault(error.path, 0, error.reason)
        for topic, mark in marks.marks.items():
            if not 0 <= mark <= context.log_end:
                text = f"topic {topic} is {what} below {mark}, but the log ends at "
                is_fault = mark < 0 or not context.traces.abnormal
                yield finding(marks.path, 0, f"{text}{context.log_end}", is_fault=is_fault)


def checkpoint(context: CheckContext) -> Iterator[Finding]:
    """Yields faults of the checkpoint, such as times and positions that the log does not have."""
    path = context.folder / "checkpoint"
    data = path.read_bytes() if path.exists() else bytes(FILE_BYTES)
    if len(data) != FILE_BYTES:
        yield Fault(path, 0, f"has {len(data)} bytes instead of {FILE_BYTES}")
        return
    last_ms, log_end = context.last_store_timestamp_ms, context.log_end
    for number, value in enumerate(FIELDS.unpack_from(data)):
        name, is_time = FIELD_NAMES[number], FIELD_NAMES[number].endswith("Timestamp")
        text = f"{name} is {value}"
        if is_time and value > last_ms > 0 and not context.damages:
            text += f", the last record of the log was stored at {last_ms}"
        elif name in _POSITIONS and value > log_end:
            text += f", but the log ends at {log_end}"
        elif not (is_time and value < 0):
            continue
        yield Fault(path, number * _FIELD_BYTES, text)
    rest = data[FIELDS.size :]
    if rest.strip(b"\0"):
        place = FILE_BYTES - len(rest.lstrip(b"\0"))
        yield Fault(path, place, "the bytes after the fields are not zero")


def mark(context: CheckContext) -> Iterator[Finding]:
    """Yields faults of the flushed mark: it must be whole, and not beyond the log."""
    path = context.folder / "rocketpy" / "flushed"
    found = context.traces.mark
    if found is None and path.exists():
        yield Fault(path, 0, "is not whole, or its CRC is wrong")
    if found and context.traces.ours and found.flushed > context.log_end:
        text = f"the log was on disk up to {found.flushed}, but it ends at {context.log_end}"
        yield Fault(path, _MARK_FLUSHED_OFFSET, text)


def manifest(context: CheckContext) -> Iterator[Finding]:
    """Yields faults of the manifest itself. Queues and index compare their files with it."""
    path = context.folder / "rocketpy" / "manifest.json"
    found, mark_found = context.traces.manifest, context.traces.mark
    if found is None and path.exists():
        yield Fault(path, 0, "cannot be read; the next start reads the whole log")
    if found is None or not context.traces.ours:
        return
    is_stale = mark_found is not None and mark_found.clean and found.log_end != mark_found.flushed
    if found.log_end > context.log_end or is_stale:
        text = f"is of a log that ends at {found.log_end}, this one ends at {context.log_end}"
        yield Fault(path, 0, text)
