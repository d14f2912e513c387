"""Wiring of batches."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.batches.commit_check import CommitCheck
from rocketpy_broker.services.batches.ledger import BatchLedger
from rocketpy_broker.services.batches.roll_forward import RollForward
from rocketpy_broker.services.batches.service import BatchService
from rocketpy_broker.services.batches.staged_files import StagedFiles
from rocketpy_broker.services.batches.staging_service import StagingService
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.replication.wiring import ReplicationServices
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Batches:
    """The services that stage blocks and commit batches."""

    staging: StagingService
    commits: BatchService
    saver: Saver
    files: StagedFiles


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    replication: ReplicationServices,
    flush: FlushServices,
    sends: SendService,
) -> Batches:
    """Builds the batch services of one broker.

    Batches that an earlier run decided are rolled forward while the broker serves clients.
    """
    config, clock, store = context.config, context.clock, context.store
    ledger = BatchLedger(
        config.config_folder,
        clock,
        lambda: store.flushed_end,
        config.writer_idle_ms_max,
        config.single_writer_idle_ms_max,
    )
    files = StagedFiles(replication.slaves, context.call_clock)
    staging = StagingService(store, sends, ledger, clock, config, files)
    roll_forward = RollForward(store, sends, staging, clock)
    check = CommitCheck(store, topics, staging, files)
    commits = BatchService(
        store, staging, check, roll_forward, ledger, flush.group_commit, clock, config.limits
    )

    saver = Saver(ledger)

    async def start(scope: TaskScope) -> None:
        await commits.recover(scope.start)
        # The log may be cut below the saved offset. A later start would skip new decisions there.
        await saver.save()
        scope.start(commits.run())

    context.master_lifecycle.loads.append(ledger.load)
    context.master_lifecycle.starts.append(start)
    context.master_lifecycle.tables.append(saver)
    context.lifecycle.closes.append(staging.close)
    context.lifecycle.stops.append(files.stop)
    return Batches(staging, commits, saver, files)
