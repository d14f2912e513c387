"""One shape: the JSON of the commands is the JSON of the API."""

from __future__ import annotations

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.statistics_commands import STATISTICS
from rocketpy_broker.cli.topics.views import TOPICS
from rocketpy_broker.client import statistics, topics
from rocketpy_broker.contract_json import json_of
from rocketpy_proto.rocketpy.v1 import admin_pb2


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
