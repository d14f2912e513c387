"""Messages that RocketMQ's consumers send back: code 36, and sends to retry topics."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, decode_offset_message_id, decode_record
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.sends import ConsumerSendMsgBackRequest
from tests.broker.remoting.test_sends_and_pulls import SEND_CODES, pull, send, send_header
from tests.support.broker.clients.remoting_client import RemotingBroker, connected
from tests.support.broker.retries import DEAD_LETTERS, GROUP, RETRY_TOPIC, set_group
from tests.support.broker.running_broker import StartBroker, until
from tests.unit.remoting import recorded

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


async def sent(remoting: RemotingBroker, **fields: Any) -> int:
    """Sends a message; returns its offset in the log."""
    answer = await send(remoting.client, b"x", **fields)
    return decode_offset_message_id(answer.msg_id)[1]


async def send_back(remoting: RemotingBroker, offset: int, **fields: Any) -> RemotingCommand:
    usual: dict[str, Any] = {"group": GROUP, "delay_level": 0}
    header = ConsumerSendMsgBackRequest(offset, **usual | fields)
    return await remoting.client.ask(Code.CONSUMER_SEND_MSG_BACK, header)


def count(remoting: RemotingBroker, topic: str, queue_id: int = 0) -> int:
    return remoting.running.broker.store.range_of(QueueKey(topic, queue_id)).max_offset


def places(remoting: RemotingBroker) -> tuple[int, int]:
    """Returns the numbers of messages for redelivery and of dead letters."""
    return count(remoting, RETRY_TOPIC), count(remoting, DEAD_LETTERS)


async def last(remoting: RemotingBroker, topic: str) -> Record:
    answer = await pull(
        remoting.client,
        topic=topic,
        consumer_group="reader",
        queue_offset=count(remoting, topic) - 1,
    )
    return decode_record(answer.body).record


async def test_a_message_sent_back_comes_again_after_its_delay(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    offset = await sent(remoting, properties="UNIQ_KEY\x01u\x02")
    answer = await send_back(
        remoting, offset, origin_msg_id="u", origin_topic="T", max_reconsume_times=16
    )
    assert (answer.code, answer.remark, answer.ext_fields) == (ResponseCode.SUCCESS, None, {})
    # The unknown group has been created.
    assert GROUP in remoting.running.broker.services.groups.configs
    remoting.running.clock.advance(10_000)
    await until(lambda: places(remoting) == (1, 0))
    again = await last(remoting, RETRY_TOPIC)
    assert (again.body, again.reconsume_times) == (b"x", 1)
    named = {name: again.properties[name] for name in ("UNIQ_KEY", "RETRY_TOPIC", "DELAY")}
    assert named == {"UNIQ_KEY": "u", "RETRY_TOPIC": "T", "DELAY": "3"}


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"delay_level": 1}, 1),
        ({"delay_level": 5, "max_reconsume_times": 1}, 5),
        ({"delay_level": INT32_MAX}, 18),
        ({"delay_level": -1}, None),
        ({"delay_level": -INT32_MAX}, None),
        ({"max_reconsume_times": 0}, None),
        ({"max_reconsume_times": -1}, None),
        ({"max_reconsume_times": INT32_MAX}, 3),
    ],
)
async def test_the_delay_level_and_the_maximum_decide(
    remoting: RemotingBroker, fields: dict[str, Any], level: int | None
) -> None:
    await remoting.running.create_topic("T")
    answer = await send_back(remoting, await sent(remoting), **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert places(remoting) == (0, level is None)
    if level is not None:
        assert count(remoting, SCHEDULE_TOPIC, level - 1) == 1


async def test_a_message_is_a_dead_letter_after_its_last_redelivery(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    offset = await sent(remoting)
    for number in range(3):
        answer = await send_back(remoting, offset, delay_level=1, max_reconsume_times=2)
        assert answer.code == ResponseCode.SUCCESS
        remoting.running.clock.advance(1_000)
        if number == 2:
            break
        await until(lambda number=number: places(remoting) == (number + 1, 0))  # type: ignore[misc]
        offset = (await last(remoting, RETRY_TOPIC)).physical_offset
    assert places(remoting) == (2, 1)
    assert (await last(remoting, DEAD_LETTERS)).reconsume_times == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": -1}, ResponseCode.SYSTEM_ERROR),
        ({"offset": 1}, ResponseCode.SYSTEM_ERROR),
        ({"offset": INT64_MAX}, ResponseCode.SYSTEM_ERROR),
        ({"group": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"group": "x" * 300}, ResponseCode.INVALID_PARAMETER),
        ({"group": ""}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_send_backs_store_nothing(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    await remoting.running.create_topic("T")
    header = {"offset": await sent(remoting)} | fields
    answer = await send_back(remoting, **header)
    assert answer.code == code, answer.remark
    assert answer.remark
    if "offset" in fields:
        assert answer.remark.startswith(f"look message by offset failed, {fields['offset']}")
    end = remoting.running.broker.store.positions().log_end
    assert end == await sent(remoting)


async def test_an_unknown_group_is_refused_where_none_is_created(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(remoting_port=0, auto_create_subscription_group=False) as running,
        connected(running.ready.remoting_port or 0) as client,
    ):
        remoting = RemotingBroker(running, client)
        await running.create_topic("T")
        answer = await send_back(remoting, await sent(remoting))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_without_retry_queues_drops_the_message(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    await set_group(remoting.running, retry_queue_nums=0)
    answer = await send_back(remoting, await sent(remoting))
    assert answer.code == ResponseCode.SUCCESS
    assert RETRY_TOPIC not in remoting.running.broker.services.topics


@pytest.mark.parametrize(("is_unit_mode", "flag"), [(True, 2), (False, 0)])
async def test_unit_mode_marks_a_new_retry_topic(
    remoting: RemotingBroker, is_unit_mode: bool, flag: int
) -> None:
    await remoting.running.create_topic("T")
    await send_back(remoting, await sent(remoting), is_unit_mode=is_unit_mode)
    assert remoting.running.broker.services.topics.get(RETRY_TOPIC).topic_sys_flag == flag


@recorded.needs_golden
async def test_javas_send_back_is_understood(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("ProbeJ")
    command = recorded.request("J05_java_send_back")
    key = command.ext_fields["originMsgId"]
    offset = await sent(remoting, topic="ProbeJ", properties=f"UNIQ_KEY\x01{key}\x02")
    fields = dict(command.ext_fields) | {"offset": str(offset)}
    remoting.client.tell(msgspec.structs.replace(command, ext_fields=fields))
    answer = await remoting.client.next()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    remoting.running.clock.advance(10_000)
    await until(lambda: count(remoting, "%RETRY%JCG") == 1)


async def test_the_id_of_a_batch_names_its_messages(remoting: RemotingBroker) -> None:
    """Covers a message with two unique keys: the last one counts, as for Java's clients."""
    await remoting.running.create_topic("T")
    offset = await sent(remoting, properties="UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02")
    answer = await send_back(remoting, offset, origin_msg_id="batch", origin_topic="T")
    assert answer.code == ResponseCode.SUCCESS, answer.remark


# --- Sends to retry topics ---


@pytest.mark.parametrize("code", SEND_CODES)
@pytest.mark.parametrize(
    ("times", "times_max", "is_dead"),
    [
        (2, None, False),
        (3, None, True),
        (3, 3, False),
        (4, 3, True),
        (1, 0, True),
        (1, -1, True),
        (INT32_MAX - 1, INT32_MAX, True),
        (0, INT32_MAX, False),
    ],
)
async def test_a_send_above_its_maximum_is_a_dead_letter(
    remoting: RemotingBroker, code: Code, times: int, times_max: int | None, is_dead: bool
) -> None:
    await set_group(remoting.running, retry_max_times=2)
    answer = await remoting.client.ask(
        code,
        send_header(topic=RETRY_TOPIC, reconsume_times=times, max_reconsume_times=times_max),
        b"x",
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert places(remoting) == (not is_dead, is_dead)
    record = await last(remoting, DEAD_LETTERS if is_dead else RETRY_TOPIC)
    assert record.reconsume_times == times
    assert "MAX_RECONSUME_TIMES" not in record.properties


async def test_the_header_replaces_a_maximum_among_the_properties(
    remoting: RemotingBroker,
) -> None:
    await sent(
        remoting,
        topic=RETRY_TOPIC,
        reconsume_times=5,
        max_reconsume_times=9,
        properties="MAX_RECONSUME_TIMES\x011",
    )
    assert places(remoting) == (1, 0)


async def test_a_maximum_has_no_meaning_for_other_topics(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    await sent(remoting, reconsume_times=5, max_reconsume_times=1)
    record = await last(remoting, "T")
    assert (record.reconsume_times, "MAX_RECONSUME_TIMES" in record.properties) == (5, False)


async def test_a_retry_with_a_delay_level_waits_first(remoting: RemotingBroker) -> None:
    """Covers the send of a client after a failed send-back."""
    await sent(
        remoting,
        topic=RETRY_TOPIC,
        reconsume_times=1,
        max_reconsume_times=16,
        properties="RETRY_TOPIC\x01T\x02DELAY\x014\x02",
    )
    assert places(remoting) == (0, 0)
    remoting.running.clock.advance(30_000)
    await until(lambda: places(remoting) == (1, 0))
    assert (await last(remoting, RETRY_TOPIC)).properties["RETRY_TOPIC"] == "T"
