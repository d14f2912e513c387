"""Guessed secret keys: each further attempt waits, and other users do not."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.security.attempts import (
    ENTRIES_MAX,
    FORGET_MS,
    HOST,
    PAIR,
    USER,
    WAIT_MS_MAX,
    WAITING_MAX,
    WAITING_OF_HOST,
    Attempts,
    host_of,
)
from rocketpy_broker.server.security.errors import TooManyAttemptsError
from rocketpy_proto.bearer_token import bearer_token
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import signed
from rocketpy_proto.remoting.headers.sends import ConsumerSendMsgBackRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.clients.users import (
    GROUP,
    MINUTE_MS,
    OTHER,
    SECRETS,
    TOPIC,
    Secured,
    bearer,
    sent_offset,
)
from tests.support.broker.running_broker import until

REFUSED = ResponseCode.UNAUTHENTICATED
LOCAL = "ipv4:127.0.0.1"


def fail(found: Attempts, count: int, access_key: str = "alice", host: str = "h") -> None:
    for _ in range(count):
        found.failed(access_key, host)


def test_n09_the_wait_grows_with_each_failure() -> None:
    clock = ManualClock()
    found = Attempts(clock)
    fail(found, PAIR.free - 1)
    assert found.wait_ms("alice", "h") == 0
    waits = []
    for _ in range(10):
        found.failed("alice", "h")
        waits.append(found.wait_ms("alice", "h"))
        clock.advance(int(waits[-1]))
    assert waits[:4] == [100, 200, 400, 800]
    assert waits[-1] == PAIR.delay_ms_max
    assert found.wait_ms("alice", "another host") == 0
    found.succeeded("alice", "h")
    assert found.wait_ms("alice", "h") == 0


def test_n09_attempts_at_a_time_are_no_faster() -> None:
    found = Attempts(ManualClock())
    fail(found, PAIR.free + 7)
    delay_ms = found.wait_ms("alice", "h")
    assert delay_ms == 12_800
    assert found.wait_ms("alice", "h") == 2 * delay_ms
    with pytest.raises(TooManyAttemptsError, match="try again in 30 seconds"):
        found.wait_ms("alice", "h")


def test_n09_one_users_failures_delay_others_of_the_address_little() -> None:
    found = Attempts(ManualClock())
    fail(found, 1_000)
    assert 0 < found.wait_ms("bob", "h") <= HOST.delay_ms_max
    assert 0 < found.wait_ms("alice", "another host") <= USER.delay_ms_max
    assert found.wait_ms("bob", "another host") == 0


def test_n09_an_attacked_user_does_not_wait_where_it_has_signed_in() -> None:
    clock = ManualClock()
    found = Attempts(clock)
    found.succeeded("alice", "home")
    for number in range(USER.free + 1):
        found.failed("alice", f"h{number}")
    for number in range(int(WAIT_MS_MAX / USER.delay_ms_max)):
        assert found.wait_ms("alice", f"new{number}") > 0
    with pytest.raises(TooManyAttemptsError):
        found.wait_ms("alice", "another")
    assert found.wait_ms("alice", "home") == 0
    # A guess there waits, as before, and does not sign in the user.
    fail(found, PAIR.free + 10, host="home")
    assert found.wait_ms("alice", "home") == PAIR.delay_ms_max
    for number in range(ENTRIES_MAX + 1):
        found.succeeded("alice", f"own{number}")
    with pytest.raises(TooManyAttemptsError):
        found.wait_ms("alice", "own0")
    assert found.wait_ms("alice", f"own{ENTRIES_MAX}") == 0


def test_n09_a_user_at_a_new_address_does_not_wait_for_guesses_elsewhere() -> None:
    found = Attempts(ManualClock())
    for number in range(USER.free + 1):
        found.failed("alice", f"h{number}")
    # Addresses that have failed before take all turns of the next half minute.
    for number in range(int(WAIT_MS_MAX / USER.delay_ms_max)):
        assert found.wait_ms("alice", f"h{number % USER.free}") > 0
    with pytest.raises(TooManyAttemptsError):
        found.wait_ms("alice", "h0")
    assert 0 < found.wait_ms("alice", "new") <= USER.delay_ms_max
    # The failure of a new address counts, and its next attempt waits after all attempts before it.
    found.failed("alice", "new")
    with pytest.raises(TooManyAttemptsError):
        found.wait_ms("alice", "new")


def test_n09_one_address_takes_a_share_of_the_attempts_that_wait() -> None:
    found = Attempts(ManualClock())
    for host in ("h", "other"):
        fail(found, PAIR.free, host=host)
    with ExitStack() as waiting:
        for _ in range(WAITING_OF_HOST):
            waiting.enter_context(found.waits("h"))
        with pytest.raises(TooManyAttemptsError, match=r"try again in 1 second$"):
            found.wait_ms("alice", "h")
        assert found.wait_ms("alice", "other") > 0
    assert found.waiting == 0
    assert found.wait_ms("alice", "h") > 0


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:50212", "ipv4:10.0.0.7"),
        ("ipv6:%5B2001:db8:1:2:a::7%5D:50212", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:b::8]:50212", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "ipv6:fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:1", "ipv6:10.0.0.7"),
        ("http:2001:db8:1:2:c::9:", "http:2001:db8:1:2::/64"),
        ("http:10.0.0.7:", "http:10.0.0.7"),
        ("in-process", "in-process"),
    ],
)
def test_n09_addresses_that_one_host_may_have_are_one(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_n09_failures_are_forgotten() -> None:
    clock = ManualClock()
    found = Attempts(clock)
    fail(found, 100)
    clock.advance(FORGET_MS + 1)
    assert found.wait_ms("alice", "h") == 0
    fail(found, 1)
    assert found.wait_ms("alice", "h") == 0


def test_n09_failures_of_many_users_and_addresses_are_bounded() -> None:
    found = Attempts(ManualClock())
    for number in range(ENTRIES_MAX):
        found.failed(f"user-{number}", f"host-{number}")
    assert len(found) == ENTRIES_MAX


def test_n09_attempts_of_many_addresses_that_wait_are_bounded() -> None:
    found = Attempts(ManualClock())
    fail(found, PAIR.free)
    with ExitStack() as waiting:
        for number in range(WAITING_MAX - 1):
            waiting.enter_context(found.waits(f"host-{number}"))
        assert found.wait_ms("alice", "h") > 0
        with found.waits("h"), pytest.raises(TooManyAttemptsError):
            found.wait_ms("alice", "h")
        assert found.wait_ms("alice", "h") > 0


async def test_n09_a_guess_waits_by_the_clock_and_the_broker_serves_others(
    secured: Secured,
) -> None:
    control, clock = secured.running.broker.services.access, secured.running.clock
    wrong = bearer(bearer_token("writer", "a-wrong-secret", clock.now_ms() + MINUTE_MS))
    for _ in range(PAIR.free):
        assert await secured.append(TOPIC, wrong) == REFUSED
    guess = asyncio.ensure_future(secured.append(TOPIC, wrong))
    await until(lambda: control.attempts.waiting == 1)
    # Another user of the same address, and a user of remoting.
    assert await secured.append(TOPIC, secured.metadata("admin")) == 0
    assert (await secured.ask("monitor", Code.GET_BROKER_RUNTIME_INFO)).code == 0
    assert not guess.done()
    clock.advance(100)
    assert await guess == REFUSED
    # The right secret key waits, too: otherwise a guess would know at once.
    right = asyncio.ensure_future(secured.append(TOPIC, secured.metadata("writer")))
    await until(lambda: control.attempts.waiting == 1)
    clock.advance(200)
    assert await right == 0
    assert await secured.append(TOPIC, secured.metadata("writer")) == 0


async def test_n09_a_guess_by_remoting_waits_and_holds_no_other_request(secured: Secured) -> None:
    control, clock = secured.running.broker.services.access, secured.running.clock
    for _ in range(PAIR.free):
        command = signed(secured.command(Code.GET_BROKER_RUNTIME_INFO), "monitor", "wrong-secret")
        assert (await secured.answer(command)).code == ResponseCode.NO_PERMISSION
    late = secured.command(Code.GET_BROKER_RUNTIME_INFO)
    secured.remoting.client.tell(signed(late, "monitor", SECRETS["monitor"]))
    await until(lambda: control.attempts.waiting == 1)
    answer = await secured.ask("admin", Code.GET_BROKER_RUNTIME_INFO)
    assert (answer.code, answer.opaque) == (0, late.opaque + 1)
    clock.advance(100)
    answer = await secured.remoting.client.next()
    assert (answer.code, answer.opaque) == (0, late.opaque)


async def test_n09_too_many_guesses_are_refused_at_once(secured: Secured) -> None:
    control = secured.running.broker.services.access
    fail(control.attempts, 100, "writer", "ipv4:127.0.0.1")
    waiting: list[asyncio.Future[int]] = []
    while len(waiting) * PAIR.delay_ms_max <= WAIT_MS_MAX - PAIR.delay_ms_max:
        waiting.append(asyncio.ensure_future(secured.append(TOPIC, secured.metadata("writer"))))
        await until(lambda: control.attempts.waiting == len(waiting))
    info = await secured.running.admin.GetBrokerInfo(
        admin_pb2.GetBrokerInfoRequest(), metadata=secured.metadata("writer")
    )
    assert info.status.code == REFUSED
    assert "too many attempts have failed" in info.status.remark
    secured.running.clock.advance(WAIT_MS_MAX)
    assert [await each for each in waiting] == [0]


async def test_n09_a_request_that_waited_is_one_of_its_own_user(secured: Secured) -> None:
    control, clock = secured.running.broker.services.access, secured.running.clock
    # The connection serves an admin first, which may read all topics.
    theirs = await sent_offset(secured, OTHER)
    fail(control.attempts, PAIR.free, "reader", LOCAL)
    header = ConsumerSendMsgBackRequest(theirs, GROUP, -1)
    back = secured.command(Code.CONSUMER_SEND_MSG_BACK, header)
    secured.remoting.client.tell(signed(back, "reader", SECRETS["reader"]))
    await until(lambda: control.attempts.waiting == 1)
    clock.advance(100)
    answer = await secured.remoting.client.next()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "may not read" in (answer.remark or "")


async def test_n09_failures_of_others_delay_no_connection_that_has_signed_in(
    secured: Secured,
) -> None:
    control, clock = secured.running.broker.services.access, secured.running.clock
    code = Code.GET_BROKER_RUNTIME_INFO
    assert (await secured.ask("monitor", code)).code == 0
    for host in (LOCAL, "another host"):
        fail(control.attempts, 1_000, "monitor", host)
    for _ in range(3):
        assert (await secured.ask("monitor", code)).code == 0
    wrong = signed(secured.command(code), "monitor", "wrong-secret")
    assert (await secured.answer(wrong)).code == ResponseCode.NO_PERMISSION
    for host in (LOCAL, "127.0.0.1"):
        fail(control.attempts, PAIR.free, "monitor", host)
    secured.remoting.client.tell(signed(secured.command(code), "monitor", SECRETS["monitor"]))
    await until(lambda: control.attempts.waiting == 1)
    clock.advance(WAIT_MS_MAX)
    assert (await secured.remoting.client.next()).code == 0
