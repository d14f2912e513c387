"""A slave's master: its address, configuration and tables.

The address is the option's, or that of broker id 0 at a name server. All requests are RocketMQ's
but four, which RocketMQ's masters refuse: GET_REPLICATION_STATE, GET_PROGRESS_FILE,
GET_STAGED_FILES and READ_STAGED_FILE.
Source: SlaveSynchronize, docs/design/cluster.md sections 4.2 and 4.5.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.settings.properties import parse_properties
from rocketpy_broker.services.slave.errors import (
    MasterFailedError,
    MasterLostError,
    MasterRefusedError,
)
from rocketpy_broker.store.files.recoveries import RECOVERIES_MAX
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import EXCHANGES, Header, RemotingCommand, RemotingError
from rocketpy_proto.remoting.bodies.configs import ReplicationState, StagedFileChanges
from rocketpy_proto.remoting.bodies.routes import ClusterInfo, TextTable
from rocketpy_proto.remoting.fields import decode_body
from rocketpy_proto.remoting.headers import NoFields
from rocketpy_proto.remoting.headers.cluster import (
    ProgressFileRequest,
    ProgressFileResponse,
    StagedFileRequest,
    StagedFilesRequest,
    StagedFilesResponse,
)
from rocketpy_proto.remoting.json_text import parse_json
from rocketpy_proto.texts import PORT_MAX

MASTER_ID = 0
# Each number of this many digits fits in 63 bits.
DIGITS_MAX = 18
STORE_ID = re.compile(r"[0-9a-f]{32}")
RECOVERY_ID = RUN_ID = re.compile(r"[0-9a-f]{16}")
EPOCH_MAX = (1 << 63) - 1
# Begin and end of RocketMQ's log before its first message.
EMPTY_OF_ROCKETMQ = ("-1", "0")
# Decoding JSON of this size takes some 10 ms.
LARGE_BODY_BYTES = 64 << 10


class MasterConnection(Protocol):
    """A connection to a remoting server; all methods raise BrokerError."""

    async def connect(self) -> None:
        """Opens the connection."""

    async def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        """Returns the answer to a request, with any code."""

    def close(self) -> None:
        """Ends the connection."""


# Returns a connection to an address (host:port), which is not open yet.
Connect = Callable[[str], MasterConnection]


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """A master's configuration, and the range of its log; offsets in bytes.

    `state` is None for a broker of RocketMQ.
    """

    properties: Mapping[str, str]
    log_begin: int
    log_end: int
    state: ReplicationState | None

    def number(self, name: str) -> int:
        """Returns a property that is a number. Raises MasterRefusedError."""
        found = _number(self.properties.get(name, ""))
        if found is None:
            text = self.properties.get(name)
            raise MasterRefusedError(f"its property {name} is {text!r:.100}, which is no number")
        return found

    @property
    def ha_port(self) -> int:
        """The port for slaves. Raises MasterRefusedError."""
        port = self.number("haListenPort")
        if not 0 < port <= PORT_MAX:
            raise MasterRefusedError(
                "it has no port for slaves. Start a master of this project with --ha-port"
            )
        return port

    def check(self, broker_name: str, segment_bytes: int) -> None:
        """Raises MasterRefusedError for a broker that cannot be this slave's master."""
        name = self.properties.get("brokerName")
        if name != broker_name:
            raise MasterRefusedError(
                f"it is broker {name!r:.100}, and this slave is {broker_name!r}. Start both with "
                "the same --broker-name"
            )
        self.check_role()
        own = self.number("mappedFileSizeCommitLog")
        if own != segment_bytes:
            raise MasterRefusedError(
                f"its log has segments of {own} bytes, and this slave's has {segment_bytes}. Start "
                f"the slave with --commit-log-segment-bytes {own}"
            )

    @property
    def epoch(self) -> int:
        """The epoch of the master's last promotion; 0 without one, and of RocketMQ's masters."""
        return 0 if self.state is None else self.state.epoch

    def check_epoch(self, own: int) -> None:
        """Raises MasterRefusedError for a master from before a promotion that this store knows.

        RocketMQ's masters have no epoch: the logs decide.
        """
        if self.state is not None and self.epoch < own:
            raise MasterRefusedError(
                f"it is a master of epoch {self.epoch}, and this store knows a promotion of epoch "
                f"{own}: the master has come back. Make it a slave of the promoted broker"
            )

    def check_role(self) -> None:
        """Raises MasterRefusedError for a slave."""
        if self.properties.get("brokerRole") == "SLAVE":
            raise MasterRefusedError("it is a slave itself; name its master instead")


class Master:
    """One master, by a connection of its own; each call opens it if necessary."""

    def __init__(self, address: str, connection: MasterConnection) -> None:
        self.address = address
        self._connection = connection
        self._is_open = False

    async def facts(self) -> MasterFacts:
        """Returns the facts. Raises MasterLostError, MasterRefusedError."""
        text = await self._small(RequestCode.GET_BROKER_CONFIG)
        properties = parse_properties(text.decode(errors="replace"))
        return MasterFacts(properties, *await self.log_range(), await self.state())

    async def log_range(self) -> tuple[int, int]:
        """Returns begin and end of the log. Raises MasterLostError, MasterRefusedError."""
        body = await self._small(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = _decoded(lambda: decode_body(TextTable, body)).table
        return log_range_of(table)

    async def state(self) -> ReplicationState | None:
        """Returns the state that RocketMQ's tables lack; None for a broker of RocketMQ.

        Raises MasterLostError, MasterRefusedError.
        """
        answer = await self._ask(RequestCode.GET_REPLICATION_STATE)
        if answer.code != ResponseCode.SUCCESS:
            return None
        body = answer.body
        state: ReplicationState = await _in_thread(
            len(body), lambda: decode_body(ReplicationState, body)
        )
        check_state(state)
        return state

    async def staged_files(
        self, report: StagedFilesRequest
    ) -> tuple[StagedFilesResponse, StagedFileChanges] | None:
        """Returns changes of staging files; None if the master has no such request.

        The master holds the request until there is a change. Raises MasterLostError,
        MasterRefusedError.
        """
        code = RequestCode.GET_STAGED_FILES
        answer = await self._ask(code, report)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        _check_success(code, answer)
        body = answer.body
        changes: StagedFileChanges = await _in_thread(
            len(body), lambda: decode_body(StagedFileChanges, body)
        )
        header: StagedFilesResponse = _decoded(
            lambda: EXCHANGES[code].response.decode(answer.ext_fields)
        )
        if not RUN_ID.fullmatch(header.run_id) or not 0 <= header.position <= EPOCH_MAX:
            raise MasterRefusedError("its list of staging files has an illegal run or position")
        return header, changes

    async def staged_piece(self, slave_id: str, name: str, position: int) -> bytes | None:
        """Returns the bytes of a staging file from `position` on, empty at its end.

        Returns None for a file that has gone. Raises MasterLostError, MasterRefusedError.
        """
        code = RequestCode.READ_STAGED_FILE
        answer = await self._ask(code, StagedFileRequest(name, position, slave_id))
        if answer.code == ResponseCode.MESSAGE_ILLEGAL:
            return None
        _check_success(code, answer)
        return bytes(answer.body)

    async def progress_file(self, name: str, version: str) -> tuple[str, bytes]:
        """Returns version and content of a file; the content is empty if `version` is current.

        Both are empty if there is no file. Raises MasterLostError, MasterRefusedError.
        """
        code = RequestCode.GET_PROGRESS_FILE
        answer = await self._ask(code, ProgressFileRequest(name, version))
        _check_success(code, answer)
        header: ProgressFileResponse = _decoded(
            lambda: EXCHANGES[code].response.decode(answer.ext_fields)
        )
        return header.version, bytes(answer.body)

    async def table(self, code: RequestCode) -> Mapping[str, Any]:
        """Returns the JSON object of a table. Raises MasterLostError, MasterRefusedError."""
        body = bytes((await self._asked(code)).body)
        table: Mapping[str, Any] = await _in_thread(
            len(body), lambda: as_object(parse_json(body, "it is no JSON"))
        )
        return table

    async def text(self, code: RequestCode) -> bytes:
        """Returns the text of a table. Raises MasterLostError, MasterRefusedError."""
        return bytes((await self._asked(code)).body)

    async def _small(self, code: RequestCode) -> bytes:
        body = bytes((await self._asked(code)).body)
        if len(body) > LARGE_BODY_BYTES:
            raise MasterRefusedError(
                f"its answer to {code.name} has {len(body)} bytes, limit {LARGE_BODY_BYTES}"
            )
        return body

    async def _asked(self, code: RequestCode) -> RemotingCommand:
        answer = await self._ask(code)
        _check_success(code, answer)
        return answer

    async def _ask(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        try:
            if not self._is_open:
                await self._connection.connect()
                self._is_open = True
            return await self._connection.ask(code, header or NoFields())
        except (BrokerError, RemotingError) as error:
            self.close()
            raise MasterLostError(f"{self.address}: {error!s:.300}") from error

    def close(self) -> None:
        """Ends the connection."""
        self._is_open = False
        self._connection.close()


class MasterFinder:
    """The search for the master of one broker name."""

    def __init__(self, config: BrokerConfig, connect: Connect) -> None:
        self._config = config
        self._connect = connect

    async def find(self) -> Master:
        """Returns the master, not connected yet. Raises MasterLostError."""
        address = self._config.replication.master
        if address is not None:
            return self._master(address)
        reasons = []
        for name_server in self._config.name_servers:
            try:
                return self._master(await self._found(name_server))
            except (BrokerError, RemotingError) as error:
                reasons.append(f"name server {name_server}: {error!s:.300}")
        raise MasterLostError("; ".join(reasons))

    def _master(self, address: str) -> Master:
        return Master(address, self._connect(address))

    async def _found(self, name_server: str) -> str:
        connection = self._connect(name_server)
        try:
            await connection.connect()
            answer = await connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO, NoFields())
        finally:
            connection.close()
        if answer.code != ResponseCode.SUCCESS:
            raise MasterLostError(f"it refuses the list of brokers: {answer.remark!r:.200}")
        brokers = decode_body(ClusterInfo, answer.body).broker_addr_table
        found = brokers.get(self._config.broker_name)
        if found is None or MASTER_ID not in found.broker_addrs:
            raise MasterLostError(f"it knows no master of broker {self._config.broker_name!r}")
        return found.broker_addrs[MASTER_ID]


def _check_success(code: RequestCode, answer: RemotingCommand) -> None:
    """Raises MasterRefusedError for an answer with another code."""
    if answer.code != ResponseCode.SUCCESS:
        remark = answer.remark or "it gives no reason"
        has_failed = answer.code == ResponseCode.SYSTEM_ERROR
        kind = MasterFailedError if has_failed else MasterRefusedError
        raise kind(f"it refuses {code.name}: {remark!r:.300}")


def _number(text: str) -> int | None:
    """Returns a number of up to DIGITS_MAX digits, or None."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


def log_range_of(table: Mapping[str, str]) -> tuple[int, int]:
    """Returns the log's start and end from a broker's runtime info. Raises MasterRefusedError."""
    texts = table.get("commitLogMinOffset", ""), table.get("commitLogMaxOffset", "")
    if texts == EMPTY_OF_ROCKETMQ:
        return 0, 0
    begin, end = map(_number, texts)
    if begin is None or end is None or begin > end:
        raise MasterRefusedError(
            f"its log begins at {texts[0]!r:.60} and ends at {texts[1]!r:.60}, which is no range"
        )
    return begin, end


def check_state(state: ReplicationState) -> None:
    """Raises MasterRefusedError for values that no master of this project has."""
    marks = (*state.deleted_below.values(), *state.emptied_below.values())
    ends = [end for _, end in state.recoveries]
    if not (
        STORE_ID.fullmatch(state.store_id)
        and len(state.recoveries) <= RECOVERIES_MAX
        and 0 <= state.epoch < EPOCH_MAX
        and all(RECOVERY_ID.fullmatch(recovery_id) for recovery_id, _ in state.recoveries)
        and all(each >= 0 for each in (*marks, *ends))
        and all(0 < epoch <= EPOCH_MAX for epoch in state.epochs.values())
    ):
        raise MasterRefusedError(
            f"its answer to {RequestCode.GET_REPLICATION_STATE.name} has an illegal value"
        )


async def _in_thread(size: int, decode: Callable[[], Any]) -> Any:
    """Returns a decoded body; a thread decodes a large one. Raises MasterRefusedError."""
    if size <= LARGE_BODY_BYTES:
        return _decoded(decode)
    return await asyncio.to_thread(_decoded, decode)


def _decoded(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except (RemotingError, ValueError) as error:
        raise MasterRefusedError(f"its answer cannot be read: {error!s:.300}") from error
