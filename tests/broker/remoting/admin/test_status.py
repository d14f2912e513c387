"""A broker's figures and configuration by RocketMQ's tools: codes 28, 25, 26, 315 and 907."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.services.settings.properties import parse_properties, properties_text
from rocketpy_broker.store.cleaner import HOUR_MS
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import DataVersion
from rocketpy_proto.remoting import EXCHANGES, PROTOCOL_VERSION, decode_body
from rocketpy_proto.remoting.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    HAClientInfo,
    HARuntimeInfo,
)
from rocketpy_proto.remoting.headers.cluster import ViewBrokerStatsDataRequest
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.broker.remoting.requests import answered, update_topic
from tests.broker.remoting.test_sends_and_pulls import pull, send, send_header
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker

DAY_MS = 24 * HOUR_MS


async def figures(remoting: RemotingBroker) -> dict[str, str]:
    found = await answered(remoting.client, Code.GET_BROKER_RUNTIME_INFO)
    return dict(found.table)


async def properties(remoting: RemotingBroker) -> tuple[dict[str, str], DataVersion]:
    answer = await remoting.client.ask(Code.GET_BROKER_CONFIG)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    header = EXCHANGES[Code.GET_BROKER_CONFIG].response.decode(answer.ext_fields)
    version = decode_body(DataVersion, header.version.encode())
    return parse_properties(bytes(answer.body).decode()), version


async def change(remoting: RemotingBroker, text: str) -> tuple[int, str]:
    """Returns the code and the remark of a change of the configuration."""
    answer = await remoting.client.ask(Code.UPDATE_BROKER_CONFIG, body=text.encode())
    return answer.code, answer.remark or ""


async def test_the_figures_are_the_broker_s(remoting: RemotingBroker, tmp_path: Path) -> None:
    clock, client = remoting.running.clock, remoting.client
    begin_ms = clock.now_ms()
    clock.advance(61_000)
    await update_topic(client)
    sent_ms = clock.now_ms()
    for _ in range(4):
        await send(client, b"x" * 1_000)
    await send(client, b"late", properties="DELAY\x013")
    await pull(client, max_msg_nums=3)
    await client.ask(Code.SEND_MESSAGE, send_header(queue_id=0, topic="TBW102"), b"refused")
    found = await figures(remoting)
    store = remoting.running.broker.store
    expected = {
        "brokerActive": "true",
        "brokerVersion": str(PROTOCOL_VERSION),
        "bootTimestamp": str(begin_ms),
        "runtime": "[ 0 days, 0 hours, 1 minutes, 1 seconds ]",
        "putMessageTimesTotal": "5",
        "putMessageSizeTotal": str(store.positions().log_end),
        "putMessageFailedTimes": "0",
        "putTps": "0.0 0.0 0.0",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(store.positions().log_end),
        "earliestMessageTimeStamp": str(sent_ms),
        "dispatchBehindBytes": "0",
        "msgPutTotalYesterdayMorning": "0",
        "msgPutTotalTodayNow": "5",
        "msgGetTotalTodayNow": "3",
        "scheduleMessageOffset_3": "0,1",
        "sendThreadPoolQueueSize": "0",
        "pageCacheLockTimeMills": "0",
        "timerReadBehind": "0",
        "timerCongestNum": "0",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["brokerVersionDesc"].startswith("rocketpy_")
    assert 0 < float(found["commitLogDiskRatio"]) < 1
    folder = tmp_path / "commitlog"
    assert found[f"commitLogDiskRatio_{folder}"] == found["commitLogDiskRatio"]
    await remoting.sampled()
    found = await figures(remoting)
    for name in ("putTps", "getFoundTps", "getTotalTps", "getTransferredTps", "getTransferedTps"):
        rates = [float(rate) for rate in found[name].split(" ")]
        assert len(rates) == 3
        assert rates[0] > 0


async def test_an_empty_broker_has_all_the_figures_of_cluster_list(
    remoting: RemotingBroker,
) -> None:
    found = await figures(remoting)
    assert found["earliestMessageTimeStamp"] == "-1"
    for name in ("putTps", "getTransferredTps", "getTransferedTps"):
        assert [float(rate) for rate in found[name].split(" ")] == [0.0, 0.0, 0.0]
    whole = ["ThreadPoolQueueSize", "ThreadPoolQueueHeadWaitTimeMills"]
    for name in (f"{pool}{figure}" for pool in ("send", "pull", "ack") for figure in whole):
        assert int(found[name]) == 0


async def test_totals_of_days_change_at_midnight(remoting: RemotingBroker) -> None:
    clock = remoting.running.clock
    await update_topic(remoting.client)

    async def sent(count: int) -> None:
        # A connection that was idle for a day is closed.
        async with remoting.another() as sender:
            for _ in range(count):
                await send(sender, b"x")

    async def days() -> list[int]:
        async with remoting.another() as asker:
            found = (await answered(asker, Code.GET_BROKER_RUNTIME_INFO)).table
        names = ("YesterdayMorning", "TodayMorning", "TodayNow")
        return [int(found[f"msgPutTotal{name}"]) for name in names]

    counts = []
    for count in (2, 3):
        await sent(count)
        clock.advance(DAY_MS)
        await remoting.sampled()
        counts.append(await days())
    await sent(1)
    counts.append(await days())
    assert counts == [[0, 2, 2], [2, 5, 5], [2, 5, 6]]
    # The days without a message count as such.
    clock.advance(3 * DAY_MS)
    await remoting.sampled()
    assert await days() == [6, 6, 6]


async def test_statistics_have_the_windows_of_statsall(remoting: RemotingBroker) -> None:
    client = remoting.client
    await update_topic(client)
    for _ in range(4):
        await send(client, b"x")
    await pull(client, max_msg_nums=4)
    await remoting.sampled()

    async def item(name: str, key: str) -> BrokerStatsData:
        header = ViewBrokerStatsDataRequest(name, key)
        found: BrokerStatsData = await answered(client, Code.VIEW_BROKER_STATS_DATA, header)
        return found

    put = await item("TOPIC_PUT_NUMS", "T")
    assert (put.stats_minute.sum, put.stats_minute.avgpt) == (4, 1.0)
    assert put.stats_minute.tps == pytest.approx(0.4, rel=0.01)
    assert put.stats_day == BrokerStatsItem()
    got = await item("GROUP_GET_NUMS", "T@G")
    assert (got.stats_minute.sum, got.stats_minute.avgpt) == (4, 4.0)
    assert (await item("BROKER_PUT_NUMS", "DefaultCluster")).stats_minute.sum == 4
    assert await item("GROUP_GET_FALL_SIZE", "0@T@G") is not None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NONE", "T"),
        ("TOPIC_PUT_NUMS", "none"),
        ("TOPIC_PUT_NUMS", "T@a@b@c"),
        ("GROUP_GET_FALL_SIZE", "T"),
        ("GROUP_GET_FALL_SIZE", "x@T@G"),
        ("QUEUE_PUT_NUMS", "T@" + "9" * 5_000),
        ("GROUP_GET_NUMS", ""),
    ],
)
async def test_a_statistic_without_events_does_not_exist(
    remoting: RemotingBroker, name: str, key: str
) -> None:
    header = ViewBrokerStatsDataRequest(name, key)
    answer = await remoting.client.ask(Code.VIEW_BROKER_STATS_DATA, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(f"The stats <{name}>")


async def test_a_master_reports_that_it_has_no_slaves(remoting: RemotingBroker) -> None:
    await update_topic(remoting.client)
    await send(remoting.client, b"x")
    found = await answered(remoting.client, Code.GET_BROKER_HA_STATUS)
    log_end = remoting.running.broker.store.positions().log_end
    assert found == HARuntimeInfo(True, log_end, client=HAClientInfo())


async def test_the_configuration_has_rocketmq_s_names(
    remoting: RemotingBroker, tmp_path: Path
) -> None:
    found, version = await properties(remoting)
    assert version.counter == 0
    expected = {
        "brokerName": "broker-a",
        "brokerClusterName": "DefaultCluster",
        "listenPort": str(remoting.running.ready.remoting_port),
        "storePathRootDir": str(tmp_path),
        "brokerPermission": "6",
        "flushDiskType": "ASYNC_FLUSH",
        "fileReservedTime": "72",
        "deleteWhen": "04",
        "diskMaxUsedSpaceRatio": "75",
        "maxMessageSize": "4194304",
        "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "autoCreateTopicEnable": "true",
        "timerMaxDelaySec": "259200",
        "transactionTimeOut": "6000",
    }
    assert {name: found[name] for name in expected} == expected


async def test_the_whole_configuration_is_accepted_back(remoting: RemotingBroker) -> None:
    found, _ = await properties(remoting)
    assert await change(remoting, properties_text(found)) == (ResponseCode.SUCCESS, "")
    assert (await properties(remoting))[1].counter == 0


async def test_the_permission_of_the_broker_changes_at_once(remoting: RemotingBroker) -> None:
    client = remoting.client
    await update_topic(client)
    await send(client, b"x")
    assert (await change(remoting, "brokerPermission=4\n"))[0] == ResponseCode.SUCCESS
    answer = await client.ask(Code.SEND_MESSAGE, send_header(), b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (await pull(client)).code == ResponseCode.SUCCESS
    assert (await change(remoting, "brokerPermission=2"))[0] == ResponseCode.SUCCESS
    await send(client, b"x")
    assert (await pull(client)).code == ResponseCode.NO_PERMISSION
    found, version = await properties(remoting)
    assert (found["brokerPermission"], version.counter) == ("2", 2)


async def test_topics_and_groups_are_created_by_first_use_where_allowed(
    remoting: RemotingBroker,
) -> None:
    client = remoting.client
    await send(client, b"x", topic="first")
    await change(remoting, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")
    answer = await client.ask(Code.SEND_MESSAGE, send_header(topic="second"), b"x")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    answer = await pull(client, topic="first")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await change(remoting, "autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true\n")
    await send(client, b"x", topic="second")
    assert (await pull(client, topic="first")).code == ResponseCode.SUCCESS


async def test_changes_reach_every_service_that_uses_them(remoting: RemotingBroker) -> None:
    text = (
        "fileReservedTime=24\ndeleteWhen=02;14\ndiskMaxUsedSpaceRatio=60\n"
        "cleanFileForciblyEnable=true\nrejectTransactionMessage=true\ntransactionTimeOut=1000\n"
        "transactionCheckMax=3\ntransactionCheckInterval=2000\nenableMixedMessageType=true\n"
    )
    assert await change(remoting, text) == (ResponseCode.SUCCESS, "")
    services, policy = (
        remoting.running.broker.services,
        remoting.running.broker.store.cleaner.policy,
    )
    assert policy.reserved_ms == 24 * HOUR_MS
    assert policy.delete_when_hours == {2, 14}
    assert (policy.used_ratio_max, policy.clean_file_forcibly_enable) == (0.6, True)
    checks = services.transactions.checks
    assert checks.reserved_ms == 24 * HOUR_MS
    for times in (checks.times, services.transactions.service.times):
        assert (times.timeout_ms, times.check_max, times.check_interval_ms) == (1_000, 3, 2_000)
    await update_topic(remoting.client, attributes="+message.type=MIXED")
    half = send_header(properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02")
    answer = await remoting.client.ask(Code.SEND_MESSAGE, half, b"x")
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("brokerName=other", "brokerName"),
        ("flushDiskType=SYNC_FLUSH", "flushDiskType"),
        ("brokerPermission=9", "0 to 7"),
        ("brokerPermission=", "brokerPermission"),
        ("brokerPermission=" + "9" * 5_000, "0 to 7"),
        ("autoCreateTopicEnable=maybe", "true or false"),
        ("deleteWhen=4;24", "deleteWhen"),
        ("diskMaxUsedSpaceRatio=5", "10 to 95"),
        ("fileReservedTime=-1", "fileReservedTime"),
        ("whatever=1", "whatever"),
        ("x" * 70_000, "bytes of the properties"),
    ],
)
async def test_refused_changes_name_the_property_and_change_nothing(
    remoting: RemotingBroker, text: str, named: str
) -> None:
    before = await properties(remoting)
    code, remark = await change(remoting, f"transactionCheckMax=3\n{text}\n")
    assert code == ResponseCode.INVALID_PARAMETER
    assert named in remark
    assert await properties(remoting) == before


async def test_a_restart_begins_with_the_options_of_its_start(start_broker: StartBroker) -> None:
    for _ in range(2):
        async with (
            start_broker(remoting_port=0) as running,
            RemotingBroker.of(running) as remoting,
        ):
            assert (await properties(remoting))[0]["brokerPermission"] == "6"
            await change(remoting, "brokerPermission=4")


def test_properties_are_read_and_written_as_java_does() -> None:
    values = {"path": r"C:\data", "text": " über 𝄞 = : # ! \t\n", "empty": ""}
    written = properties_text(values)
    assert written.isascii()
    assert parse_properties(written) == values
    text = "# comment\r\n! comment\n  a : 1\nb\t2\nc=x\\\n   y\nd\\=e=f\n\nb=3\ng\n"
    assert parse_properties(text) == {"a": "1", "b": "3", "c": "xy", "d=e": "f", "g": ""}


async def test_h03_slaves_get_what_rocketmq_s_tables_lack(remoting: RemotingBroker) -> None:
    store, client = remoting.running.broker.store, remoting.client
    for _ in range(2):
        await update_topic(client)
        await send(client, b"x")
        await client.ask(Code.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))
    end = store.positions().log_end
    await update_topic(client)
    state = await answered(client, Code.GET_REPLICATION_STATE)
    assert (state.store_id, state.deleted_below) == (store.store_id, {"T": end})
    assert state.epochs["T"] == remoting.running.broker.services.topics.epoch("T")
    assert [each[0] for each in state.recoveries] == [store.recoveries.newest_id]
