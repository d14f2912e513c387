"""Wiring of flushes."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.services.replication.wiring import ReplicationServices


@dataclass(frozen=True, slots=True)
class FlushServices:
    """The services for flushes and for work on the store's files."""

    group_commit: GroupCommit
    store_files: StoreFiles


def build(context: BrokerContext, replication: ReplicationServices) -> FlushServices:
    """Returns the flush services of one broker, and registers their start and close."""
    config = context.config
    group_commit = GroupCommit(
        context.store,
        context.call_clock,
        config.flush_disk_type,
        config.flush_times,
        replication.confirmations,
    )
    interval_ms = config.flush_times.derived_interval_ms
    store_files = StoreFiles(context.store, context.call_clock, interval_ms)

    async def start(scope: TaskScope) -> None:
        scope.start(group_commit.run())
        scope.start(store_files.run())

    context.lifecycle.starts.append(start)
    closes = [group_commit.close, store_files.close, group_commit.admission.close]
    context.lifecycle.closes.extend(closes)
    return FlushServices(group_commit, store_files)
