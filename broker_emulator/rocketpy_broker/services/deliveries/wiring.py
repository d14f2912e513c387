"""Wiring of deliveries."""

from __future__ import annotations

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.deliveries.renewals import RenewalService
from rocketpy_broker.services.deliveries.service import DeliveryService
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.receipts.wiring import Receipts
from rocketpy_broker.services.retry.service import SendBackService


def build(
    context: BrokerContext, groups: Groups, receipts: Receipts, retry: SendBackService
) -> DeliveryService:
    """Returns the service of deliveries, whose renewals run while the broker serves."""
    clock = context.clock
    renewals = RenewalService(receipts.acks, groups.configs, groups.clients, clock)

    async def start(scope: TaskScope) -> None:
        scope.start(renewals.run())

    groups.clients.left.add(renewals.left)
    context.master_lifecycle.starts.append(start)
    deliveries = DeliveryService(
        *(context.store, groups.configs, receipts.pops, receipts.acks, retry, renewals),
        *(clock, context.call_clock, context.tasks),
    )
    receipts.pops.abandoned.add(deliveries.release_popped)
    return deliveries
