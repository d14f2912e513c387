"""A service that uses RocketMQ's SDK for Python: it writes orders and reads alerts.

    python sdk_service.py orders ENDPOINT FIRST COUNT
    python sdk_service.py alerts ENDPOINT

The notebook sdk_alerts.py runs it. The SDK and rocketpy both define the messages of RocketMQ's gRPC
interface, so this program imports nothing of rocketpy.
"""

from __future__ import annotations

import json
import sys

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

CUSTOMERS = 10
# The first order is of 2026-01-01 at midnight; one follows each minute.
BEGIN_SECONDS, MINUTE_SECONDS = 1_767_225_600, 60
WAIT_SECONDS, INVISIBLE_SECONDS = 5, 60


def configuration(endpoint: str) -> ClientConfiguration:
    """Returns the configuration of a client; a broker with users needs keys in Credentials."""
    return ClientConfiguration(endpoint, Credentials(), "", 30)


def order(number: int) -> Message:
    """Returns an order. The orders of a customer are a message group: they keep their order."""
    customer = f"customer-{number % CUSTOMERS}"
    content = {
        "customer": customer,
        "cents": number * 7_919 % 10_000,
        "seconds": BEGIN_SECONDS + number * MINUTE_SECONDS,
    }
    message = Message()
    message.topic, message.tag, message.keys = "orders", "paid", f"order-{number}"
    message.body = json.dumps(content).encode()
    message.message_group = customer
    return message


def write_orders(endpoint: str, first: int, count: int) -> None:
    """Sends orders and waits for each acknowledgement."""
    producer = Producer(configuration(endpoint), ("orders",))
    producer.startup()
    for number in range(first, first + count):
        producer.send(order(number))
    producer.shutdown()
    print(f"{count} orders sent")


def read_alerts(endpoint: str) -> None:
    """Prints each alert as a line of JSON and acknowledges it; ends after WAIT_SECONDS without."""
    topics = {"alerts": FilterExpression("spending")}
    consumer = SimpleConsumer(configuration(endpoint), "alerting", topics, WAIT_SECONDS)
    consumer.startup()
    while messages := consumer.receive(32, INVISIBLE_SECONDS):
        for message in messages:
            content = json.loads(message.body)
            print(json.dumps({"keys": sorted(message.keys), "tag": message.tag, **content}))
            consumer.ack(message)
    consumer.shutdown()


if __name__ == "__main__":
    command, address, *numbers = sys.argv[1:]
    if command == "orders":
        write_orders(address, *map(int, numbers))
    else:
        read_alerts(address)
