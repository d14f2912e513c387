"""One shape: the JSON of the commands is the JSON of the API."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import ProxyHandler, build_opener

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.statistics_commands import STATISTICS
from rocketpy_broker.cli.topics.views import TOPICS
from rocketpy_broker.client import statistics, topics
from rocketpy_broker.contract_json import json_of
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.shell import run


def test_a_topic_has_the_same_json_in_a_command() -> None:
    config = admin_pb2.TopicConfig(
        topic="orders",
        read_queue_nums=4,
        write_queue_nums=3,
        perm=6,
        attributes={"message.type": "FIFO", "cleanup.policy": "DELETE"},
        order=True,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
    )
    assert output.json_of(TOPICS, topics._topic(config)) == json_of(config)


def test_a_statistic_has_the_same_json_in_a_command() -> None:
    window = admin_pb2.StatisticsWindow(sum=3, tps=0.5, avgpt=1.5)
    item = admin_pb2.StatisticsItem(
        name="TOPIC_PUT_NUMS",
        key="orders",
        value=9,
        times=6,
        minute=window,
        hour=window,
        day=window,
    )
    assert output.json_of(STATISTICS, statistics._statistic(item)) == json_of(item)


def test_commands_of_several_methods_have_the_keys_of_each() -> None:
    with LocalBroker(http_port=0) as broker:
        broker.create_topic("orders", queues=1)
        broker.send("orders", "a")
        broker.create_group("billing", retry_max_times=3)
        broker.reset_group("orders", "billing", 1)

        def of(*words: str) -> Any:
            return json.loads(run(broker, *words, "--json").stdout)

        status = of("broker", "status")
        assert {*_get(broker, "/broker"), *_get(broker, "/broker/status")} <= status.keys()
        counters = _get(broker, "/broker/counters").keys() - status.keys()
        assert counters == {"topics", "hasMoreTopics", "putLatencies", "putLatenciesMinute"}
        group = of("group", "describe", "billing")
        assert _get(broker, "/groups/billing").items() <= group.items()
        assert group["topics"] == _get(broker, "/groups/billing/topics")["topics"]
        assert group["clients"] == _get(broker, "/groups/billing/clients")
        topic = of("topic", "describe", "orders")
        assert _get(broker, "/topics/orders").items() <= topic.items()
        assert topic["queues"] == _get(broker, "/topics/orders/queues")["queues"]
        assert topic["groups"] == _get(broker, "/topics/orders/groups")["groups"]


def _get(broker: LocalBroker, path: str) -> Any:
    opener = build_opener(ProxyHandler({}))
    with opener.open(f"http://{broker.http_endpoint}/api/v1{path}") as answer:
        return json.load(answer)
