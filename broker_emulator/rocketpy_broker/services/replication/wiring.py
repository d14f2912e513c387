"""Wiring of a master's replication."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.replication.confirmations import Confirmations
from rocketpy_broker.services.replication.lag_report import LagReport
from rocketpy_broker.services.replication.slaves import SlaveTable


@dataclass(frozen=True, slots=True)
class ReplicationServices:
    """The connected slaves of one broker, and the waits for them."""

    slaves: SlaveTable
    confirmations: Confirmations


def build(context: BrokerContext) -> ReplicationServices:
    """Returns the replication services of one broker, and registers their start."""
    store, config, clock = context.store, context.config.replication, context.call_clock
    slaves = SlaveTable(config, lambda: store.positions().log_end)
    confirmations = Confirmations(slaves, clock)
    if config.port is not None:
        report = LagReport(slaves, clock)

        async def start(scope: TaskScope) -> None:
            scope.start(confirmations.run())
            scope.start(report.run())

        context.lifecycle.starts.append(start)
        context.lifecycle.stops.append(confirmations.stop)
    return ReplicationServices(slaves, confirmations)
