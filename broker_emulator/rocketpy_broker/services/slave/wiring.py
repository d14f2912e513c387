"""Wiring of a slave."""

from __future__ import annotations

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.slave.config_sync import ConfigSync
from rocketpy_broker.services.slave.log_sync import LogSync, OpenStream
from rocketpy_broker.services.slave.master import Connect, MasterFinder
from rocketpy_broker.services.slave.progress_files import begin_progress
from rocketpy_broker.services.slave.staging_sync import StagingSync
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    offsets: Offsets,
    connect: Connect,
    open_stream: OpenStream,
) -> SlaveState | None:
    """Builds the services of a slave, which follows its master while it serves; None for a master.

    `connect` and `open_stream` open connections to the master.
    """
    config, store, clock = context.config, context.store, context.call_clock
    if not config.replication.is_slave:
        return None
    state = SlaveState()
    master = config.replication.master or f"(broker {config.broker_name} at the name servers)"
    store.slave_refusal = f"this broker is a slave: send to its master {master}"
    finder = MasterFinder(config, connect)
    log_sync = LogSync(config, store, flush, finder, open_stream, state, clock)
    config_sync = ConfigSync(
        *(config, store, flush.store_files, topics, groups, offsets.committed),
        *(connect, state, clock),
    )
    staging_sync = StagingSync(config, store, connect, state, clock)

    async def start(scope: TaskScope) -> None:
        scope.start(log_sync.run())
        scope.start(config_sync.run())
        scope.start(staging_sync.run())

    context.lifecycle.loads.append(lambda: begin_progress(config.config_folder))
    context.lifecycle.starts.append(start)
    return state
