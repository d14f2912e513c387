"""A cluster of scripted servers: name servers with routes, and their brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.bodies.routes import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from tests.unit.connector.transport.remoting.scripted_peer import success

TOPIC = "TopicTest"


def route_of(**brokers: str) -> TopicRouteData:
    """Returns a route with two queues at each of these brokers, given by name and address."""
    return TopicRouteData(
        tuple(BrokerData(name, {0: address}, "C") for name, address in brokers.items()),
        tuple(QueueData(name, 2, 2, 6) for name in brokers),
    )


def route_with(name: str, **addresses: str) -> TopicRouteData:
    """Returns a route to a queue of one broker; `id_0` is its master, `id_1` … are its slaves."""
    by_id = {int(key.removeprefix("id_")): address for key, address in addresses.items()}
    return TopicRouteData(
        (BrokerData(name, by_id, "C"),) if by_id else (), (QueueData(name, 1, 1, 6),)
    )


@dataclass
class Knowledge:
    """A name server's answers and received requests."""

    routes: dict[str, TopicRouteData] = field(default_factory=dict)
    asked: list[RemotingCommand] = field(default_factory=list)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        self.asked.append(request)
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = request.ext_fields["topic"]
            if topic in self.routes:
                return success(request, body=self.routes[topic])
            remark = f"No topic route info in name server for the topic: {topic}"
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = [broker for route in self.routes.values() for broker in route.broker_datas]
            return success(request, body=ClusterInfo({one.broker_name: one for one in brokers}))
        return success(request, body=TopicList(tuple(self.routes)))


def refusing(
    code: ResponseCode, remark: str | None = None
) -> Callable[[RemotingCommand], RemotingCommand]:
    """Answers every request with this code."""
    return lambda request: request.answer(code, remark=remark)
