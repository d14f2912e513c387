"""Wiring of retries."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.retry.send_service import SendService
from rocketpy_broker.services.retry.service import SendBackService
from rocketpy_broker.services.retry.targets import RetryTargets
from rocketpy_broker.services.send.append_service import AppendService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Retry:
    """Services for send-backs, and for sends that may go to a retry topic."""

    send_backs: SendBackService
    sends: SendService


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    schedule: DelaySchedule,
    appends: AppendService,
) -> Retry:
    """Returns the retry services of one broker."""
    targets = RetryTargets(topics, groups.configs, groups.retry_topics, context.clock)
    send_backs = SendBackService(
        context.store, targets, appends, schedule, flush.group_commit, context.clock
    )
    return Retry(send_backs, SendService(appends, targets, groups.locks))
