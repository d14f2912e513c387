"""F16: popped messages of a directory that changes hands, from our broker to RocketMQ's and back.

Each broker delivers what the other one has left unacknowledged, with one more delivery.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.services.receipts.handle import pop_retry_topic
from tests.interop.handover.clients import RocketMQBroker, check_clean
from tests.interop.remoting.clients import until
from tests.interop.remoting.pops import Popped, Pops, times_of
from tests.interop.rocketmq import V5, V5_3
from tests.support.time_limits import WAIT_SECONDS_MAX

GROUP, TOPIC, IN_ORDER, ORDERED_TOPIC = "poppers", "T", "ordered-poppers", "O"
INVISIBLE_MS, HELD_MS, SHORT_MS = 3_000, 600_000, 1_000
# Until the revive of a message, after its invisible time.
REVIVE_SECONDS = 5
# RocketMQ's broker loses what it has not saved at a kill.
CONF = {"flushConsumerOffsetInterval": 500}
OURS, THEIRS = "ours", "theirs"


@dataclass(frozen=True)
class Groups:
    """A group that pops, and one that pops in order."""

    free: Pops
    ordered: Pops


@contextmanager
def groups_at(address: str) -> Iterator[Groups]:
    free = Pops(address, GROUP, TOPIC)
    ordered = Pops(address, IN_ORDER, ORDERED_TOPIC, is_ordered=True)
    try:
        yield Groups(free, ordered)
    finally:
        free.close()
        ordered.close()


def use(pops: Pops, word: str, left_ms: int) -> dict[str, Popped]:
    """Sends and pops messages, acknowledges one and changes some; returns the receipts."""
    kinds = ["acked", "held", "renewed", "late"]
    pops.send([f"{word} {kind}" for kind in kinds])
    found = pops.until_popped([f"{word} {kind}" for kind in kinds], HELD_MS)
    assert times_of(found) == Counter((f"{word} {kind}", 0) for kind in kinds)
    popped = {each.body.split()[1]: each for each in found}
    pops.ack(popped["acked"])
    popped["held"] = pops.change(popped["held"], HELD_MS)
    pops.send([f"{word} left"])
    assert times_of(pops.until_popped([f"{word} left"], left_ms)) == {(f"{word} left", 0): 1}
    return popped


def take_over(pops: Pops, popped: dict[str, Popped], *left: str) -> dict[str, Popped]:
    """Uses receipts of the other broker; returns what comes again: `left`, and one of them."""
    pops.ack(popped["late"])
    pops.change(popped["renewed"], SHORT_MS)
    wanted = [popped["renewed"].body, *left]
    again = pops.until_popped(wanted, HELD_MS)
    assert times_of(again) == Counter((body, 1) for body in wanted)
    return {each.body: each for each in again}


def until_saved(folder: Path, group: str, topic: str, offset: int) -> None:
    """Waits until a group's offset is in the file: at a kill RocketMQ loses later ones."""
    path = folder / "config" / "consumerOffset.json"

    def saved() -> str:
        text = path.read_text("utf-8") if path.exists() else ""
        # Some versions write no quotes around numbers.
        found = re.search(rf'"{re.escape(topic)}@{group}":\s*{{\s*"?0"?:\s*(\d+)', text)
        return found[1] if found else ""

    until(lambda: saved() == str(offset), saved)


@pytest.mark.timeout(2 * WAIT_SECONDS_MAX)
@pytest.mark.parametrize(
    ("version", "killed"), [(V5_3, THEIRS), (V5, OURS)], ids=[f"{V5_3}-killed", f"{V5}-stopped"]
)
def test_f16_popped_messages_change_hands_in_both_directions(
    tmp_path: Path, version: str, killed: str
) -> None:
    # After a kill a broker of the other kind repeats what had come again before.
    left_ms = {OURS: INVISIBLE_MS, THEIRS: INVISIBLE_MS, killed: HELD_MS}
    is_ours_killed = killed == OURS
    folder = tmp_path / "store"
    broker = LocalBroker(folder, commit_log_segment_bytes=1 << 30)
    with broker, groups_at(broker.remoting_endpoint) as groups:
        for topic in (TOPIC, ORDERED_TOPIC):
            broker.create_topic(topic, 1)
        ours = use(groups.free, OURS, left_ms[OURS])
        groups.ordered.send(["o-1", "o-2", "o-3"])
        groups.ordered.ack(groups.ordered.until_popped(["o-1"], INVISIBLE_MS)[0])
        if is_ours_killed:
            until_saved(folder, GROUP, TOPIC, 5)
            until_saved(folder, IN_ORDER, ORDERED_TOPIC, 1)
            broker.kill()
    with RocketMQBroker(folder, version, **CONF) as rocketmq:
        with groups_at(rocketmq.address) as groups:
            again = take_over(groups.free, ours, *([] if is_ours_killed else ["ours left"]))
            groups.free.ack(again["ours renewed"])
            theirs = use(groups.free, THEIRS, left_ms[THEIRS])
            rest = groups.ordered.until_popped(["o-2", "o-3"], INVISIBLE_MS)
            assert [each.body for each in rest] == ["o-2", "o-3"]
            if not is_ours_killed:
                assert [each.times for each in rest] == [1, 1]
            groups.ordered.ack(rest[0])
        if is_ours_killed:
            rocketmq.stop()
        else:
            until_saved(folder, GROUP, TOPIC, 10)
            until_saved(folder, GROUP, pop_retry_topic(GROUP, TOPIC), 2)
            until_saved(folder, IN_ORDER, ORDERED_TOPIC, 2)
            rocketmq.kill()
    with broker, groups_at(broker.remoting_endpoint) as groups:
        again = take_over(groups.free, theirs, *(["theirs left"] if is_ours_killed else []))
        for each in again.values():
            groups.free.ack(each)
        (third,) = groups.ordered.until_popped(["o-3"], INVISIBLE_MS)
        groups.ordered.ack(third)
        broker.advance_clock(HELD_MS / 1_000 + REVIVE_SECONDS)
        last = {"ours held": 1, "theirs held": 1, "ours left": 1}
        last |= {} if is_ours_killed else {"ours left": 2, "theirs left": 1}
        found = groups.free.until_popped(last, HELD_MS)
        assert times_of(found) == Counter(last.items())
        for each in found:
            groups.free.ack(each)
        broker.advance_clock(HELD_MS / 1_000 + REVIVE_SECONDS)
        assert groups.free.pop(INVISIBLE_MS) + groups.ordered.pop(INVISIBLE_MS) == []
    check_clean(folder)
