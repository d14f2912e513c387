"""Wiring of pop consumption."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.pull.wiring import PullServices
from rocketpy_broker.services.receipts.ack_service import AckService
from rocketpy_broker.services.receipts.assignment.modes import MessageRequestModes
from rocketpy_broker.services.receipts.assignment.service import AssignmentService
from rocketpy_broker.services.receipts.order_table import OrderTable
from rocketpy_broker.services.receipts.ordered import OrderedPops
from rocketpy_broker.services.receipts.pop_service import PopService
from rocketpy_broker.services.receipts.positions import PopPositions
from rocketpy_broker.services.receipts.revive import ReviveQueue
from rocketpy_broker.services.receipts.revive_log import ReviveLog
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Receipts:
    """The services of pop consumption."""

    pops: PopService
    acks: AckService
    assignments: AssignmentService
    modes: MessageRequestModes
    revives: list[ReviveQueue]


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    long_polling: LongPolling,
    delay: Delay,
    offsets: Offsets,
    pull: PullServices,
) -> Receipts:
    """Returns the services of pop consumption, whose revives run while the broker serves."""
    config, clock, store, lifecycle = (
        context.config,
        context.clock,
        context.store,
        context.master_lifecycle,
    )
    group_commit, invisible_ms_max = flush.group_commit, config.timer_delay_ms_max
    log = ReviveLog(store, delay.schedule, clock, config)
    positions = PopPositions(store, topics, offsets, log)
    order_table = OrderTable(config.config_folder, clock)
    ordered = OrderedPops(order_table, positions, log, long_polling.calls, clock)
    revives = [
        ReviveQueue(
            *(queue, log, store, topics, groups.configs, offsets.committed, delay.timer),
            *(group_commit, long_polling.tasks, clock),
        )
        for queue in log.queues
    ]
    pops = PopService(
        *(store, topics, pull.checks, pull.pulls, positions, ordered, log, long_polling.calls),
        *(group_commit, clock, config.broker_name, invisible_ms_max),
    )
    acks = AckService(
        store, topics, groups.configs, log, ordered, group_commit, clock, invisible_ms_max
    )
    modes = MessageRequestModes(config.config_folder, clock, config.limits.clients.groups_max)
    assignments = AssignmentService(topics, groups.clients, modes, config.broker_name)

    def load() -> None:
        positions.load()
        for revive in revives:
            revive.load()

    async def start(scope: TaskScope) -> None:
        for revive in revives:
            scope.start(revive.run())

    def close() -> None:
        for revive in revives:
            revive.commit_flushed()
        positions.close()

    offsets.committed.resetting.add(positions.commit_all)
    lifecycle.loads.extend([load, modes.load, order_table.load])
    lifecycle.starts.append(start)
    lifecycle.tables.extend([Saver(positions), Saver(order_table), modes.saver])
    lifecycle.clean_closes.append(close)
    return Receipts(pops, acks, assignments, modes, revives)
