"""The services of `rocketpy.v1`, with their gRPC handlers."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.servicers import (
    admin_servicer,
    broker_servicer,
    groups_servicer,
    retry_servicer,
    testing_servicer,
    transactions_servicer,
)
from rocketpy_broker.server.rocketpy_v1.servicers.admin_servicer import AdminServicer, AdminServices
from rocketpy_broker.server.rocketpy_v1.servicers.broker_servicer import (
    BrokerCallServices,
    BrokerServicer,
)
from rocketpy_broker.server.rocketpy_v1.servicers.groups_servicer import (
    GroupServices,
    GroupsServicer,
)
from rocketpy_broker.server.rocketpy_v1.servicers.retry_servicer import RetryServicer, RetryServices
from rocketpy_broker.server.rocketpy_v1.servicers.testing_servicer import (
    TestingServicer,
    TestingServices,
)
from rocketpy_broker.server.rocketpy_v1.servicers.transactions_servicer import TransactionsServicer
from rocketpy_broker.services.transactions.wiring import Transactions
from rocketpy_proto.rocketpy.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class RocketpyV1Services:
    """The services of the protocol; only brokers for tests have `testing`."""

    broker: BrokerCallServices
    admin: AdminServices
    transactions: Transactions
    groups: GroupServices
    retry: RetryServices
    testing: TestingServices | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the services."""
        names = (
            broker_servicer.SERVICE_NAME,
            admin_servicer.SERVICE_NAME,
            transactions_servicer.SERVICE_NAME,
            groups_servicer.SERVICE_NAME,
            retry_servicer.SERVICE_NAME,
        )
        return names if self.testing is None else (*names, testing_servicer.SERVICE_NAME)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns a gRPC handler for each service."""
        service, listing = self.transactions.service, self.transactions.listing
        transactions = TransactionsServicer(service, listing, self.admin.request_bytes_max)
        services = {
            broker_servicer.SERVICE_NAME: BrokerServicer(self.broker).handlers(),
            admin_servicer.SERVICE_NAME: AdminServicer(self.admin).handlers(),
            transactions_servicer.SERVICE_NAME: transactions.handlers(),
            groups_servicer.SERVICE_NAME: GroupsServicer(self.groups).handlers(),
            retry_servicer.SERVICE_NAME: RetryServicer(self.retry).handlers(),
        }
        if self.testing is not None:
            services[testing_servicer.SERVICE_NAME] = TestingServicer(self.testing).handlers()
        return [
            grpc.method_handlers_generic_handler(name, handlers)
            for name, handlers in services.items()
        ]

    def failure(self, error: BrokerError) -> bytes:
        """Returns an encoded response of any method: `status` is the first field of each."""
        response = admin_pb2.CleanExpiredFilesResponse(status=status.failure(error))
        return response.SerializeToString()
