"""RocketMQ's SDK for Python under load, in an environment of its own.

Requests and answers are lines of JSON; `sdk_client.py` is the other side. The SDK's generated
modules clash with the ones of rocketpy, so this program imports nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer

Request = Mapping[str, Any]
REQUEST_SECONDS = 30
AWAIT_SECONDS = 5
INVISIBLE_SECONDS = 300
BATCH = 32
WARM_UP = 100


class Stopwatch(MessageListener):  # type: ignore[misc]
    """A listener that measures the time since the send, which the body names."""

    def __init__(self) -> None:
        self.micros: list[int] = []

    def consume(self, message: Message) -> ConsumeResult:
        """Returns success."""
        self.micros.append((time.time_ns() - int(message.body[:20])) // 1_000)
        return ConsumeResult.SUCCESS


class Program:
    """A producer for each topic, and the requests to them and to consumers."""

    def __init__(self, endpoints: str, access_key: str, secret_key: str) -> None:
        keys = Credentials(access_key, secret_key)
        self._configuration = ClientConfiguration(endpoints, keys, "", REQUEST_SECONDS)
        self._producers: dict[str, Producer] = {}

    def answer(self, request: Request) -> object:
        """Returns the answer to a request."""
        return getattr(self, f"do_{request['do']}")(request, request["topic"])

    def do_send(self, request: Request, topic: str) -> object:
        """Sends messages, some at a time, and waits for every acknowledgement."""
        producer, space = self._producer(topic), threading.Semaphore(request["inFlight"])
        body, futures = b"x" * request["bodyBytes"], []
        for _ in range(request["count"]):
            space.acquire()
            futures.append(producer.send_async(_message(topic, body)))
            futures[-1].add_done_callback(lambda _: space.release())
        for each in futures:
            each.result()
        return {}

    def do_listen(self, request: Request, topic: str) -> object:
        """Sends at an even pace to a push consumer; returns the sorted times in microseconds."""
        producer, watch, group = self._producer(topic), Stopwatch(), request["group"]
        consumer = PushConsumer(self._configuration, group, watch, {topic: FilterExpression()})
        consumer.startup()
        # Warms up both, and waits until the consumer has its queues.
        for _ in range(WARM_UP):
            producer.send(_message(topic, _now()))
        _until(lambda: len(watch.micros) >= WARM_UP)
        watch.micros.clear()
        begin = time.perf_counter()
        for number in range(request["count"]):
            time.sleep(max(begin + number * request["paceMicros"] / 1e6 - time.perf_counter(), 0))
            producer.send_async(_message(topic, _now()))
        _until(lambda: len(watch.micros) >= request["count"])
        consumer.shutdown()
        return {"micros": sorted(watch.micros)}

    def do_consume(self, request: Request, topic: str) -> object:
        """Receives and acknowledges messages by several threads, then once more.

        Returns the numbers of messages and of deliveries, and the seconds to the last message.
        """
        group, count = request["group"], request["count"]
        consumer = SimpleConsumer(
            self._configuration, group, {topic: FilterExpression()}, AWAIT_SECONDS
        )
        consumer.startup()
        seen: list[str] = []
        begin = end = time.perf_counter()

        def receive() -> None:
            nonlocal end
            messages = consumer.receive(BATCH, INVISIBLE_SECONDS) or []
            for each in messages:
                consumer.ack(each)
            seen.extend(each.message_id for each in messages)
            end = time.perf_counter() if messages else end

        def work(_number: int) -> None:
            while len(seen) < count:
                receive()

        with ThreadPoolExecutor(request["threads"], initializer=_set_event_loop) as threads:
            list(threads.map(work, range(request["threads"])))
        seconds = end - begin
        receive()
        consumer.shutdown()
        return {"messages": len(set(seen)), "deliveries": len(seen), "seconds": seconds}

    def _producer(self, topic: str) -> Producer:
        if topic not in self._producers:
            self._producers[topic] = Producer(self._configuration, (topic,))
            self._producers[topic].startup()
        return self._producers[topic]


def _message(topic: str, body: bytes) -> Message:
    message = Message()
    message.topic, message.body = topic, body
    return message


def _now() -> bytes:
    return b"%020d" % time.time_ns()


def _set_event_loop() -> None:
    """Gives a thread the event loop that the SDK's calls look for."""
    asyncio.set_event_loop(asyncio.new_event_loop())


def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.05)


def main() -> None:
    """Answers requests until the input ends."""
    answers = sys.stdout
    # Prints of the SDK must not be taken for answers.
    sys.stdout = sys.stderr
    program = Program(*sys.argv[1:])
    for line in sys.stdin:
        try:
            answer = program.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
