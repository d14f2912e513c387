"""Names that tests still replace beside the clock, the disk, the socket and the surroundings.

The lists only get shorter. A new test injects the clock, plants faults of the disk (see
tests/support/store/disk_calls.py) or speaks through a socket, and looks at answers, logs and files.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from tests.project.tidy import Source, parse

# The clock, the disk, the socket, and what surrounds the process.
FREE = (
    *("clock.*", "*.sleep_ms", "*.monotonic_ms", "scheduler.pause"),
    *("os.*", "durable.*", "fcntl.*", "Path.*", "message_store.used_ratio"),
    "socket.*",
    *("sys.*", "modules.*", "tempfile.*", "*.Popen", "Popen.*", "resource.*", "ctypes.*"),
    *("pyspark.*", "display.*"),
)
# A constant lowered, so that a test is quick.
LIMITS = """
_shares.connection_max _topic_bytes._bytes_max admission.BULK_UNDISPATCHED_MAX
admission.BULK_UNFLUSHED_BYTES_MAX answers.BODIES_BYTES_MAX
attempts.WAITING_MAX
buffer_limiter.UNREAD_BYTES_MAX buffer_limiter.UNREAD_BYTES_MAX
candidates.SCAN_UNITS_MAX candidates.SCAN_UNITS_MAX candidates.SCAN_UNITS_MAX
check_service.WAITING_HALVES_MAX checksums.ALLOCATION_BYTES checksums.ALLOCATION_BYTES
connection_module.CLOSE_SECONDS_MAX
dispatch.SLICE_KEYS dispatch.WAITING_KEYS_MAX
group_list.REGISTRATIONS_PER_PAGE incomplete_requests.PEERS_MAX
index_file.REBUILD_ENTRIES jobs.CONNECTION_JOBS_MAX jobs.DISCARDED_MAX
jobs.ENDED_MAX key_lookup.GAP_MAX key_lookup.limit lag.PLACES_KEPT_MAX lag.READS_MAX
left_work.MESSAGES_MAX left_work.MESSAGES_OF_CONNECTION matching_reader.READ_BYTES
matching_reader.READ_BYTES message_lines.COPIED_BYTES_MAX message_lines.LINE_BYTES_MAX
message_store.FRAME_BYTES message_store.FRAME_BYTES offset_processor.BODY_BYTES_MAX
open_transactions.COUNT_MAX pop_service.POLLING_MAX
queue_lookup.RANGE_UNITS_MAX queue_lookup.RANGE_UNITS_MAX queue_lookup.RANGE_UNITS_MAX
queue_lookup.RANGE_UNITS_MAX render_notebooks.PAGES render_notebooks.SOURCES renewals.COUNT_MAX
renewals.DUE_MAX renewals.OF_CLIENT_MAX renewals.RENEWED_MS_MAX renewals.RENEWED_MS_MAX
response_buffer.STEPS response_buffer.UNREAD_BYTES_LIMIT response_buffer.UNREAD_BYTES_LIMIT
rocketmq_export.ROLL_COUNT_MAX rocketmq_export.SLOT_UNITS rocketmq_export.SLOT_UNITS
rocketmq_export.bound roll_forward.JOINED_BYTES_MAX roll_forward.JOINED_BYTES_MAX
server.CONNECTIONS_MAX service.CALL_BYTES_MAX service.QUEUES_A_SLOT service_module.SAMPLES_A_SLOT
store_admin_service.ANSWER_BYTES_MAX table.PASSED_A_STEP work_time.WORK_MS_MAX
"""
# A function that waits, fails or is counted, or an attribute that is set.
OTHERS = """
CheckService.__init__ LogCopy._store MessageStore.append MessageStore.append SegmentQueue.begin
_channel._run_channel_spin_thread endpoint.check_site name.replacement
name.replacement owner.name processors.decode_compressed store._damaged
"""
REPLACERS = {"setattr", "setitem", "delattr", "delitem", "patch", "object"}


def replaced_names(sources: Iterable[Source]) -> Counter[str]:
    """Returns how often tests replace each name, as `owner.name`."""
    names = (name for source in sources for name in _names(source))
    return Counter(name for name in names if not any(fnmatchcase(name, each) for each in FREE))


def _names(source: Source) -> Iterator[str]:
    if not source.is_python or not source.path.startswith("tests/"):
        return
    for node in ast.walk(parse(source.text)):
        match node:
            case ast.Call(func=ast.Attribute(value=by, attr=how), args=[owner, *more]):
                if how in REPLACERS and ast.unparse(by) != "object":
                    yield ".".join([*map(_text, [owner, *more])][: 1 if _is_text(owner) else 2])
            case ast.Assign(targets=[ast.Attribute(value=owner, attr=name)]):
                if name.startswith("_") and ast.unparse(owner) not in {"self", "cls"}:
                    yield f"{_text(owner)}.{name}"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.JoinedStr)


def _text(node: ast.expr) -> str:
    """Returns the last part of a dotted name, or the last two of a text that names a place."""
    if isinstance(node, ast.Constant):
        return ".".join(str(node.value).split(".")[-2:])
    return ast.unparse(node).strip("'\")").split(".")[-1]
