"""Users of brokers in tests, and requests that they sign."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.server.security.users import UserTable
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.bearer_token import bearer_token
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.record import decode_offset_message_id
from rocketpy_proto.remoting import EXCHANGES, Header, RemotingCommand, signed
from rocketpy_proto.remoting.headers.sends import SendMessageRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import RunningBroker, StartBroker

MINUTE_MS = 60_000
SECRETS = {
    name: f"secret-of-{name}-0123456789" for name in ("admin", "writer", "reader", "monitor")
}
TOPIC, OTHER, GROUP = "orders-eu", "invoices", "readers"


def user(access_key: str, **fields: Any) -> admin_pb2.User:
    """Returns a user with its usual secret key."""
    fields.setdefault("secret_key", SECRETS.get(access_key, f"secret-of-{access_key}"))
    return admin_pb2.User(access_key=access_key, **fields)


USERS = (
    user("admin", role="admin"),
    user("writer", topic_permissions={"orders*": "PUB"}),
    user("reader", topic_permissions={TOPIC: "SUB"}, group_permissions={GROUP: "SUB"}),
    user("monitor", role="monitor"),
)


def users_path(folder: Path) -> Path:
    """Returns the file of the users of a broker with its data in `folder`."""
    return folder / "config" / "users.json"


def write_users(path: Path, *users: admin_pb2.User) -> None:
    """Writes a users file, as `rocketpy user add` does."""
    table = UserTable(path)
    table.load()
    for each in users:
        table.update_now(each, create=True)


def bearer(text: str) -> list[tuple[str, str]]:
    """Returns the metadata of a call with a token."""
    return [("authorization", f"Bearer {text}")]


@dataclass
class Secured:
    """A broker with users, and requests in the name of one."""

    running: RunningBroker
    remoting: RemotingBroker

    def metadata(self, access_key: str, secret_key: str | None = None) -> list[tuple[str, str]]:
        """Returns the metadata of a call of a user, with a token for four minutes."""
        expiry_ms = self.running.clock.now_ms() + 4 * MINUTE_MS
        return bearer(bearer_token(access_key, secret_key or SECRETS[access_key], expiry_ms))

    async def append(self, topic: str, metadata: Any) -> int:
        """Sends a message by rocketpy.v1; returns the code of the answer."""
        block = wire_block(topic, [b"x"])
        request = broker_pb2.AppendRequest(
            topic=topic, queue_id=0, records=block.records, record_sizes=block.record_sizes
        )
        call = self.running.data.Append(iter([request]), metadata=metadata)
        answer: broker_pb2.AppendResponse = await call.read()
        return answer.status.code

    def command(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Any:
        """Returns an unsigned remoting request."""
        fields = {} if header is None else EXCHANGES[code].request.encode(header)
        self.remoting.client.opaque += 1
        return RemotingCommand(code, self.remoting.client.opaque, ext_fields=fields, body=body)

    async def answer(self, command: RemotingCommand) -> RemotingCommand:
        """Returns the answer to a remoting request."""
        self.remoting.client.tell(command)
        while not (answer := await self.remoting.client.next()).is_response:
            pass
        return answer

    async def ask(
        self,
        access_key: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Returns the answer to a user's remoting request."""
        command = self.command(code, header, body)
        return await self.answer(signed(command, access_key, SECRETS[access_key]))

    def count(self, topic: str) -> int:
        """Returns the number of messages in a topic's first queue."""
        return self.running.broker.store.range_of(QueueKey(topic, 0)).max_offset


async def sent_message(secured: Secured, name: str) -> str:
    """Returns the offset message id of a new message of a topic."""
    header = SendMessageRequest("producers", name, 0, 1_700_000_000_000)
    answer = await secured.ask("admin", RequestCode.SEND_MESSAGE, header, b"secret")
    form = EXCHANGES[RequestCode.SEND_MESSAGE].response
    return str(form.decode(answer.ext_fields).msg_id)


async def sent_offset(secured: Secured, name: str) -> int:
    """Returns the offset in the log of a new message of a topic."""
    return decode_offset_message_id(await sent_message(secured, name))[1]


@asynccontextmanager
async def secured_broker(start_broker: StartBroker, **options: Any) -> AsyncIterator[Secured]:
    """Yields a broker with users that are in its file already, and two topics."""
    async with (
        start_broker(remoting_port=0, **options) as running,
        RemotingBroker.of(running) as remoting,
    ):
        secured = Secured(running, remoting)
        for topic in (TOPIC, OTHER):
            config = admin_pb2.TopicConfig(
                topic=topic, read_queue_nums=1, write_queue_nums=1, perm=6
            )
            request = admin_pb2.UpdateTopicRequest(config=config)
            metadata = secured.metadata("admin")
            answer = await running.admin.UpdateTopic(request, metadata=metadata)
            assert answer.status.code == 0, answer.status.remark
        yield secured


@pytest.fixture
async def secured(start_broker: StartBroker, tmp_path: Path) -> AsyncIterator[Secured]:
    """Yields a broker with USERS."""
    write_users(users_path(tmp_path), *USERS)
    async with secured_broker(start_broker) as found:
        yield found
