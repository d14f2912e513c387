"""Requests that only a slave of this project makes.

The slave copies tables, progress and staged files. RocketMQ's brokers refuse such requests.
Source: docs/design/cluster.md section 4.6.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from rocketpy_broker.errors import ParameterIllegalError, StagedIllegalError
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.tables import AnswerSize, encode_large
from rocketpy_broker.services.batches.staged_files import CopyReport, StagedFiles
from rocketpy_broker.services.slave.progress_files import FILES, TIMER
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.files.promotion import PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.file import LOST_ERRNOS
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import FRAME_BYTES_MAX, RemotingCommand
from rocketpy_proto.remoting.bodies import configs
from rocketpy_proto.remoting.headers.cluster import (
    LACKING_MAX,
    ProgressFileRequest,
    ProgressFileResponse,
    StagedFileRequest,
    StagedFilesRequest,
    StagedFilesResponse,
)

PIECE_BYTES = 1 << 20
SLAVE_ID_CHARACTERS = 20


class ReplicationProcessor:
    """The processor of a slave's requests."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, files: StagedFiles) -> None:
        self._store = store
        self._topics = topics
        self._files = files

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.GET_REPLICATION_STATE: self._state,
            Code.GET_PROGRESS_FILE: self._progress_file,
            Code.GET_STAGED_FILES: self._staged_files,
            Code.READ_STAGED_FILE: self._staged_file,
        }

    async def _state(self, request: Request) -> RemotingCommand:
        store = self._store
        deleted, emptied = store.topic_marks
        epochs = {topic: each.epoch for topic, each in self._topics.copy().items() if each.epoch}
        state = configs.ReplicationState(
            store.store_id,
            dict(deleted),
            dict(emptied),
            epochs,
            tuple(store.recoveries.known),
            PromotionFile(store.config.folder).epoch,
        )
        return request.answer(body=await encode_large(state))

    async def _progress_file(self, request: Request) -> RemotingCommand:
        header: ProgressFileRequest = request.header
        if header.name not in (TIMER, *FILES):
            raise ParameterIllegalError("name", header.name[:100], ", ".join((TIMER, *FILES)))
        path = self._store.config.folder / "config" / header.name
        version, content = await asyncio.to_thread(_content, path, header.version)
        AnswerSize().add(len(content))
        return request.answer(ProgressFileResponse(version), body=content)

    async def _staged_files(self, request: Request) -> RemotingCommand:
        header: StagedFilesRequest = request.header
        lacking = frozenset(filter(None, header.lacking.split(",")))
        if len(lacking) > LACKING_MAX:
            raise ParameterIllegalError("lacking", len(lacking), f"{LACKING_MAX} or fewer")
        slave_id = header.slave_id[:SLAVE_ID_CHARACTERS]
        report = CopyReport(slave_id, header.run_id, header.position, lacking)
        found = await self._files.changes(report)
        body = configs.StagedFileChanges(
            tuple(
                configs.StagedFileChange(each.name, each.fingerprint, each.is_removed)
                for each in found.changes
            )
        )
        log_end = self._store.positions().log_end
        return request.answer(
            StagedFilesResponse(
                found.run_id, found.position, log_end, found.is_end, found.is_start
            ),
            body=await encode_large(body),
        )

    async def _staged_file(self, request: Request) -> RemotingCommand:
        header: StagedFileRequest = request.header
        self._files.note_activity(header.slave_id)
        if not self._files.has(header.name) or header.position < 0:
            raise _missing(header.name)
        path = self._store.staging.folder / header.name
        try:
            piece = await asyncio.to_thread(_piece, path, header.position)
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            # The file stays unreadable, so the commit of its batch fails, too.
            raise _missing(header.name) from error
        return request.answer(body=piece)


def _content(path: Path, known: str) -> tuple[str, bytes]:
    """Returns a file's version and content; no content for the known version or a large file.

    Blocks.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            version = f"{status.st_mtime_ns}-{status.st_size}"
            is_large = status.st_size > FRAME_BYTES_MAX // 2
            return (version, b"" if version == known or is_large else file.read(status.st_size))
    except FileNotFoundError:
        return "", b""


def _missing(name: str) -> StagedIllegalError:
    return StagedIllegalError(f"there is no staging file {name!r:.60}")


def _piece(path: Path, position: int) -> bytes:
    """Returns the next bytes of a file. Blocks. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(descriptor, PIECE_BYTES, position)
    finally:
        os.close(descriptor)
