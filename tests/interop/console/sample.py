"""A broker with messages of each kind, and the addresses of the console's pages in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from rocketpy_broker import LocalBroker
from rocketpy_broker.server.http.console.pages.table import PAGES

ORDERS = 60
# A group that reads some orders, and one that has given up two.
SHIPPING, BILLING = "shipping", "billing"
# Addresses in the sample, by the paths of the console's pages.
ADDRESSES = {
    "/": "/",
    "/topics": "/topics",
    "/new/topic": "/new/topic",
    "/topics/{topic}": "/topics/orders",
    "/topics/{topic}/edit": "/topics/orders/edit",
    "/topics/{topic}/send": "/topics/orders/send",
    "/topics/{topic}/empty": "/topics/orders/empty",
    "/topics/{topic}/delete": "/topics/orders/delete",
    "/topics/{topic}/messages": "/topics/orders/messages",
    "/topics/{topic}/queues/{queue_id}/messages/{offset}": "/topics/orders/queues/0/messages/0",
    "/groups": "/groups",
    "/new/group": "/new/group",
    "/groups/{group}": f"/groups/{SHIPPING}",
    "/groups/{group}/edit": f"/groups/{SHIPPING}/edit",
    "/groups/{group}/reset": f"/groups/{SHIPPING}/reset?topic=orders",
    "/groups/{group}/delete": f"/groups/{SHIPPING}/delete",
    "/groups/{group}/dead-letters": f"/groups/{BILLING}/dead-letters",
    "/groups/{group}/dead-letters/{offset}": f"/groups/{BILLING}/dead-letters/0",
    "/groups/{group}/dead-letters/resend": f"/groups/{BILLING}/dead-letters/resend?offset=0",
    "/groups/{group}/dead-letters/{offset}/copy": f"/groups/{BILLING}/dead-letters/0/copy",
    # The level of the sample's reminder.
    "/delayed/{level}": "/delayed/16",
    "/clients": "/clients",
    "/transactions": "/transactions",
    "/store": "/store",
    "/store/clean": "/store/clean",
    "/store/unused-topics": "/store/unused-topics",
}


def present() -> list[str]:
    """Returns the addresses of all pages; a page without one is an error."""
    return [ADDRESSES[page.path] for page in PAGES]


@contextmanager
def sample_broker() -> Iterator[LocalBroker]:
    """Yields a broker with topics, groups with lag, dead letters, delays and a transaction."""
    with LocalBroker(http_port=0) as broker:
        fill(broker)
        yield broker


def fill(broker: LocalBroker) -> None:
    """Creates the contents."""
    for topic, queues in {"orders": 4, "payments": 2, "audit": 1}.items():
        broker.create_topic(topic, queues=queues)
    for number in range(ORDERS):
        order = {"order": number, "shop": f"shop-{number % 5}", "items": [{"sku": number, "n": 2}]}
        broker.send(
            "orders",
            json.dumps(order),
            tags=("new", "paid", "sent")[number % 3],
            keys=f"order-{number}",
            properties={"source": "web"},
            queue_id=number % 4,
        )
    broker.send("payments", [f"payment {number}" for number in range(12)], tags="card")
    broker.send("payments", "a reminder", delay_level=16)
    broker.send("audit", b"\x00\x01\xff\xfe" * 40)
    broker.send_transaction("payments", "a payment under way", "shop")
    for group in (SHIPPING, BILLING):
        broker.create_group(group)
    broker.pull("orders", SHIPPING, 25)
    for message in broker.pull("orders", BILLING, 2):
        broker.send_back(message, BILLING, delay_level=-1)
