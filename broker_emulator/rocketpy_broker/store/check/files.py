"""Check of the store's small files and of unknown files.

The small files are configuration, checkpoint, flushed mark and manifest. The store does not
interpret topics or groups: configuration files are checked only as JSON, in the dialect that
RocketMQ writes. The check only reads.
Source: docs/design/storage.md sections 1, 8 and 11.1.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.check.faults import CheckContext, Fault, Finding, Note, finding
from rocketpy_broker.store.check.index import IndexView
from rocketpy_broker.store.check.read_only import Misplaced, load_segments, queue_folders
from rocketpy_broker.store.files.checkpoint import FILE_BYTES
from rocketpy_broker.store.files.deleted_topics import DeletedTopics
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.index.service import HEAD
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.crc import body_crc

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
_CHECKPOINT_FIELDS = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
# A string, which is kept, or an integer key without quotes.
_KEYS = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?\d+)(?=\s*:)')
_MARK_FLUSHED_OFFSET = 4


def strangers(context: CheckContext) -> Iterator[Finding]:
    """Yields unknown files. Unknown files of log, index and queues have checks of their own."""
    folder = context.folder
    yield from _unknown(folder, ROOT_NAMES)
    yield from _unknown(folder / "rocketpy", OWN_NAMES)
    queues = {queue.path for queue in queue_folders(folder)}
    for path in sorted((folder / "consumequeue").glob("*")):
        if not path.is_dir():
            yield _stranger(path)
            continue
        for inner in sorted(path.iterdir()):
            if inner not in queues:
                yield _stranger(inner)


def _unknown(folder: Path, names: frozenset[str]) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name not in names:
            is_unfinished = path.suffix in UNFINISHED_SUFFIXES
            text = "was being made when a crash came" if is_unfinished else "is not the store's"
            yield Note(path, 0, text)


def _stranger(path: Path) -> Finding:
    if path.suffix in UNFINISHED_SUFFIXES:
        return Note(path, 0, "was being made when a crash came")
    return Fault(path, 0, "is no queue: its name is not a number, or it is no folder")


def misplaced(found: list[Misplaced]) -> Iterator[Finding]:
    """Yields unused files of the log or the checksums. Folders and empty files are only notes."""
    for one in found:
        is_fault = one.path.is_file() and one.path.stat().st_size > 0
        yield finding(one.path, 0, one.reason, is_fault=is_fault)


def configuration(context: CheckContext) -> Iterator[Finding]:
    """Yields JSON files and backups that cannot be read."""
    folder = context.folder / "config"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.suffix in UNFINISHED_SUFFIXES:
            yield Note(path, 0, "was being made when a crash came")
        elif path.name.removesuffix(".bak").endswith(".json"):
            fault = _json_fault(path)
            if fault is not None:
                yield fault


def _json_fault(path: Path) -> Fault | None:
    data = path.read_bytes()
    backup = path.with_name(path.name + ".bak")
    has_backup = backup.exists() and _json_problem(backup.read_bytes()) is None
    problem = _json_problem(data)
    if problem is None:
        return None
    position, reason = problem
    way_out = "; its backup can be read" if has_backup else ""
    return Fault(path, position, f"is no JSON object ({reason}){way_out}")


def _json_problem(data: bytes) -> tuple[int, str] | None:
    """Returns position in bytes and reason; None for a JSON object, also in fastjson's form."""
    try:
        text = data.decode()
        content = json.loads(_KEYS.sub(_quoted, text))
    except UnicodeDecodeError as error:
        return error.start, error.reason
    except RecursionError:
        return 0, "it is nested too deeply"
    except json.JSONDecodeError as error:
        # Quotes have been added, so the position is computed in the original text.
        return _error_position(data, error), error.msg
    return None if isinstance(content, dict) else (0, "it is of another type")


def _quoted(match: re.Match[str]) -> str:
    key: str | None = match.group(1)
    return match.group(0) if key is None else f'"{key}"'


def _error_position(data: bytes, error: json.JSONDecodeError) -> int:
    lines = data.split(b"\n")[: error.lineno - 1]
    begin = sum(len(line) + 1 for line in lines)
    return min(begin + error.colno - 1, len(data))


def read_deleted_topics(folder: Path) -> dict[str, int]:
    """Returns the marks of deleted topics; none if they cannot be read."""
    deleted = DeletedTopics(folder / "config" / "deletedTopics.json")
    with contextlib.suppress(StoreDirectoryError):
        deleted.load()
    return dict(deleted.marks)


def deleted_topics(context: CheckContext) -> Iterator[Finding]:
    """Yields marks that cannot be read, or that are not offsets of this log."""
    path = context.folder / "config" / "deletedTopics.json"
    deleted = DeletedTopics(path)
    try:
        deleted.load()
    except StoreDirectoryError as error:
        yield Fault(error.path, 0, error.reason)
    for topic, mark in deleted.marks.items():
        if not 0 <= mark <= context.log_end:
            text = f"topic {topic} is deleted below {mark}, but the log ends at {context.log_end}"
            yield Fault(path, 0, text)


def checkpoint(context: CheckContext) -> Iterator[Finding]:
    """Yields timestamps and positions that the log does not have."""
    path = context.folder / "checkpoint"
    if not path.exists():
        return
    data = path.read_bytes()
    if len(data) != FILE_BYTES:
        yield Fault(path, 0, f"has {len(data)} bytes instead of {FILE_BYTES}")
        return
    fields = struct.unpack_from(">qqqqqq", data)
    last_ms = context.last_store_timestamp_ms
    for number, (name, value) in enumerate(zip(_CHECKPOINT_FIELDS, fields, strict=False)):
        place = number * _FIELD_BYTES
        if value < 0:
            yield Fault(path, place, f"{name} is {value}")
        elif value > last_ms > 0 and not context.damages:
            text = f"{name} is {value}, the last record of the log was stored at {last_ms}"
            yield Fault(path, place, text)
    for number, name in ((4, "confirmPhyOffset"), (5, "logicsPhysicalOffset")):
        if fields[number] > context.log_end:
            text = f"{name} is {fields[number]}, but the log ends at {context.log_end}"
            yield Fault(path, number * _FIELD_BYTES, text)
    rest = data[6 * _FIELD_BYTES :]
    if rest.strip(b"\0"):
        place = FILE_BYTES - len(rest.lstrip(b"\0"))
        yield Fault(path, place, "behind the fields is something that is not zero")


def mark(context: CheckContext) -> Iterator[Finding]:
    """Yields faults of the flushed mark: it must be whole, and not beyond the log."""
    path = context.folder / "rocketpy" / "flushed"
    found = context.traces.mark
    if found is None:
        if path.exists():
            yield Fault(path, 0, "is not whole, or its CRC is wrong")
        return
    if not context.traces.ours:
        return
    if found.flushed > context.log_end:
        text = f"the log was on disk up to {found.flushed}, but it ends at {context.log_end}"
        yield Fault(path, _MARK_FLUSHED_OFFSET, text)


def manifest(context: CheckContext, index: list[IndexView]) -> Iterator[Finding]:
    """Yields differences of queues and index from the manifest, if it belongs to this log."""
    path = context.folder / "rocketpy" / "manifest.json"
    found = context.traces.manifest
    if found is None:
        if path.exists():
            yield Fault(path, 0, "cannot be read; the next start reads the whole log")
        return
    if not context.traces.ours:
        return
    mark_found = context.traces.mark
    is_stale = mark_found is not None and mark_found.clean and found.log_end != mark_found.flushed
    if found.log_end > context.log_end or is_stale:
        text = f"is of a log that ends at {found.log_end}, this one ends at {context.log_end}"
        yield Fault(path, 0, text)
    for key, prefixes in found.queues.items():
        if context.deleted_below.get(key.topic, -1) >= found.log_end:
            continue
        folder = context.folder / "consumequeue" / key.topic / str(key.queue_id)
        yield from _queue_prefixes(context, folder, prefixes)
    yield from _index_prefixes(context, index, found)


def _index_prefixes(
    context: CheckContext, index: list[IndexView], found: Manifest
) -> Iterator[Finding]:
    views = {view.path.name: view for view in index}
    # Heads are compared with the entries, which contain the same values.
    for name, prefix in found.index.items():
        if name.endswith(HEAD):
            continue
        file = context.folder / "index" / name
        if name not in views:
            yield Fault(file, 0, "is missing, though the manifest names it")
        elif views[name].prefix(found.log_end) != prefix:
            yield Fault(file, 0, "differs from what the manifest says of it")


def _queue_prefixes(
    context: CheckContext, folder: Path, prefixes: Mapping[str, FilePrefix]
) -> Iterator[Finding]:
    loaded = load_segments(folder, context.sizes.queue_file_bytes)
    views = {segment.path.name: segment.view for segment in loaded.segments}
    for name, prefix in prefixes.items():
        if name not in views:
            # Another broker may have deleted the topic.
            text = "is missing, though the manifest names it"
            yield finding(folder / name, 0, text, is_fault=not context.went_on)
        elif body_crc(views[name][: prefix.length]) != prefix.crc:
            yield Fault(folder / name, 0, "differs from what the manifest says of it")
    for segment in loaded.segments:
        segment.close()
