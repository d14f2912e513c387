"""Wiring of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.check_service import CheckService
from rocketpy_broker.services.transactions.messages import TransactionMessages
from rocketpy_broker.services.transactions.open_transactions import TransactionListing
from rocketpy_broker.services.transactions.progress import TransactionProgress
from rocketpy_broker.services.transactions.service import TransactionService
from rocketpy_broker.services.transactions.table import TransactionTable


@dataclass(frozen=True, slots=True)
class Transactions:
    """The services that end, list and check transactions."""

    service: TransactionService
    listing: TransactionListing
    checks: CheckService


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    delay: Delay,
    offsets: Offsets,
) -> Transactions:
    """Builds the transactions of one broker."""
    config, clock, store, lifecycle = (
        context.config,
        context.clock,
        context.store,
        context.master_lifecycle,
    )
    table = TransactionTable()
    messages = TransactionMessages(store, delay.schedule, clock)
    progress = TransactionProgress(config.config_folder, store, offsets.committed, messages, table)
    service = TransactionService(
        store,
        topics,
        messages,
        table,
        progress,
        flush.group_commit,
        clock,
        config.transactions,
    )
    checks = CheckService(
        store,
        topics,
        messages,
        table,
        progress,
        flush.group_commit,
        clock,
        config.transactions,
        config.clean_policy.reserved_ms,
        groups.clients.notify_one_producer,
    )

    def configure(changed: BrokerConfig) -> None:
        service.times = checks.times = changed.transactions
        checks.reserved_ms = changed.clean_policy.reserved_ms

    async def start(scope: TaskScope) -> None:
        progress.write_ops()
        scope.start(checks.run())

    context.config_changed.add(configure)
    lifecycle.loads.extend([progress.load, checks.load])
    lifecycle.starts.append(start)
    lifecycle.tables.append(Saver(progress))
    lifecycle.clean_closes.append(progress.close)
    return Transactions(service, TransactionListing(store, messages, table), checks)
