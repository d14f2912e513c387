"""LocalBrokers in other processes of their program: forked, spawned, or from a fork server.

Each test runs a program of its own, since a fork of the test process would copy all of pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HEAD = """
import multiprocessing, os, pickle, signal, sys
import rocketpy_broker
from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.client.errors import RefusedError

def send(broker, body):
    broker.send("T", body)
    return [message.text for message in broker.messages("T")]

def refused(call):
    try:
        call()
    except LocalBrokerError as error:
        return str(error)

if __name__ == "__main__":
    broker = LocalBroker().start()
    broker.create_topic("T")
    broker.send("T", "parent")
"""


def said_by(folder: Path, program: str) -> str:
    """Runs a program that has a broker with a topic and a message; returns its output."""
    path = folder / "program.py"
    body = "".join(f"    {line}\n" for line in program.splitlines())
    path.write_text(HEAD + body, encoding="utf-8")
    # The path of a fork server's socket in it has 107 characters at most.
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": temporary, "GRPC_VERBOSITY": "NONE"},
        )
        assert done.returncode == 0, done.stderr
        # Child and helper have left nothing, and nothing of the parent's is left.
        assert list(Path(temporary).glob("rocketpy-*")) == []
    return done.stdout


def test_calls_of_a_forked_process_work(tmp_path: Path) -> None:
    program = """
child = os.fork()
if child == 0:
    try:
        print(send(broker, "child"), flush=True)
        print(broker.lag("T", "none").total, broker.pull("T", "G", 1)[0].text, flush=True)
        print(refused(lambda: broker.send("nowhere", "a")), flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
print([message.text for message in broker.messages("T")], broker.lag("T", "G").total)
broker.stop()
"""
    first, second, third, fourth = said_by(tmp_path, program).splitlines()
    assert first == "['parent', 'child']"
    assert second == "2 parent"
    assert third.startswith("topic 'nowhere' does not exist")
    assert fourth == "['parent', 'child'] 1"


def test_a_client_of_a_forked_process_works_and_leaves_the_parents_alone(tmp_path: Path) -> None:
    program = """
client = rocketpy_broker.connect(broker.endpoint)
client.topics()
child = os.fork()
if child == 0:
    try:
        print(send(client, "child"), flush=True)
        with rocketpy_broker.connect(broker.endpoint) as own:
            print(send(own, "again"), flush=True)
        try:
            client.messages("nowhere")
        except RefusedError as error:
            print(error.is_missing_topic, flush=True)
        client.close()
    finally:
        os._exit(0)
os.waitpid(child, 0)
print(len(client.messages("T")))
client.close()
broker.stop()
"""
    assert said_by(tmp_path, program).splitlines() == [
        "['parent', 'child']",
        "['parent', 'child', 'again']",
        "True",
        "3",
    ]


def test_a_channel_that_is_open_while_its_process_forks_harms_no_call(tmp_path: Path) -> None:
    program = """
from rocketpy_broker.client import topics
from rocketpy_broker.client.connection import BrokerConnection
with BrokerConnection(broker.endpoint) as held:
    topics.list_topics(held)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.starmap(send, [(broker, str(number)) for number in range(4)])
print(sorted(message.text for message in broker.messages("T")))
broker.stop()
"""
    assert said_by(tmp_path, program) == "['0', '1', '2', '3', 'parent']\n"


def test_a_process_of_a_forked_process_has_calls_of_its_own(tmp_path: Path) -> None:
    program = """
def grandchild():
    send(broker, "grandchild")

def child():
    send(broker, "child")
    process = multiprocessing.get_context("fork").Process(target=grandchild)
    process.start()
    process.join()
    send(broker, "child again")

process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print([message.text for message in broker.messages("T")])
broker.stop()
"""
    assert said_by(tmp_path, program) == "['parent', 'child', 'grandchild', 'child again']\n"


def test_a_forked_process_never_ends_the_broker(tmp_path: Path) -> None:
    program = """
def leave(how):
    global broker
    sys.stderr.close()
    if how == "unreferenced":
        del broker
        import gc
        gc.collect()
    elif how == "raised":
        raise KeyError
    elif how != "exit":
        os.kill(os.getpid(), getattr(signal, how))
    sys.exit(0)

broker.stop()
with broker:
    for how in ("exit", "raised", "SIGTERM", "SIGINT", "unreferenced"):
        child = os.fork()
        if child == 0:
            leave(how)
        os.waitpid(child, 0)
        print(len(send(broker, how)), broker.data.exists())
"""
    assert said_by(tmp_path, program).splitlines() == [f"{count} True" for count in range(2, 7)]


def test_a_forked_process_is_refused_what_is_its_parents(tmp_path: Path) -> None:
    program = """
broker_pid = broker.pid
child = os.fork()
if child == 0:
    try:
        for call in (broker.start, broker.stop, broker.kill, broker.restart):
            print(refused(call), flush=True)
        print(broker.pid == broker_pid, isinstance(broker.log_text(), str), flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
print(send(broker, "afterwards"))
broker.stop()
print(os.path.exists(broker.data))
"""
    *refusals, seen, sent, kept = said_by(tmp_path, program).splitlines()
    assert len(refusals) == 4
    for refusal in refusals:
        assert refusal.startswith("the broker belongs to process ")
        assert refusal.endswith("make a LocalBroker of this process's own")
    assert seen == "True True"
    assert (sent, kept) == ("['parent', 'afterwards']", "True")


def test_a_forked_process_can_have_a_broker_of_its_own(tmp_path: Path) -> None:
    program = """
child = os.fork()
if child == 0:
    try:
        with LocalBroker() as own:
            own.create_topic("T")
            print(send(own, "own"), flush=True)
            own.restart()
            print(send(own, "more"), own.data != broker.data, flush=True)
        print(refused(own.topics), flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
print(send(broker, "afterwards"))
broker.stop()
"""
    assert said_by(tmp_path, program).splitlines() == [
        "['own']",
        "['own', 'more'] True",
        "the broker is not running; call start(), or use it in a with statement",
        "['parent', 'afterwards']",
    ]


def test_a_forked_process_sees_that_the_broker_has_stopped(tmp_path: Path) -> None:
    program = """
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.read(reading, 1)
        print(refused(lambda: broker.messages("T")), flush=True)
    finally:
        os._exit(0)
broker.stop()
os.write(writing, b"1")
os.waitpid(child, 0)
"""
    said = said_by(tmp_path, program)
    assert said.startswith("no broker answers at 127.0.0.1:")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pickled_broker_is_a_handle_on_the_same_broker(tmp_path: Path, method: str) -> None:
    program = f"""
with multiprocessing.get_context({method!r}).Pool(1) as pool:
    print(pool.apply(send, (broker, "child")))
    print(pool.apply(refused, (broker.stop,)))
    print(len(pool.apply(broker.messages, ("T",))))
print(send(broker, "afterwards"))
broker.stop()
"""
    first, second, third, fourth = said_by(tmp_path, program).splitlines()
    assert first == "['parent', 'child']"
    assert second.startswith("the broker belongs to process ")
    assert third == "2"
    assert fourth == "['parent', 'child', 'afterwards']"


def test_a_copy_in_the_same_process_leaves_the_broker_alone(tmp_path: Path) -> None:
    program = """
copy = pickle.loads(pickle.dumps(broker))
print(copy.endpoint == broker.endpoint, copy.data == broker.data)
print(refused(copy.stop) is not None, refused(copy.start) is not None)
print(send(copy, "copy"))
del copy
print(send(broker, "afterwards"))
broker.stop()
fresh = pickle.loads(pickle.dumps(LocalBroker(flush="SYNC_FLUSH")))
with fresh:
    print(fresh.topics())
"""
    assert said_by(tmp_path, program).splitlines() == [
        "True True",
        "True True",
        "['parent', 'copy']",
        "['parent', 'copy', 'afterwards']",
        "[]",
    ]


def test_a_forked_process_passes_values_of_its_own_classes(tmp_path: Path) -> None:
    program = """
import datetime, enum
class Topic(str, enum.Enum):
    T = "T"
class Level(enum.IntEnum):
    ONE = 1
class Own(datetime.tzinfo):
    def utcoffset(self, time):
        return datetime.timedelta(0)
child = os.fork()
if child == 0:
    try:
        broker.send(Topic.T, "child", tags=Topic.T, keys=[Topic.T], properties={"a": Topic.T})
        broker.send(Topic.T, "later", delay_level=Level.ONE)
        time = datetime.datetime(2026, 5, 1, tzinfo=Own())
        print(refused(lambda: broker.messages("T", since=time)), flush=True)
        message = broker.messages("T")[-1]
        print(message.text, message.tags, message.keys, message.properties["a"], flush=True)
    finally:
        os._exit(0)
os.waitpid(child, 0)
broker.stop()
"""
    first, second = said_by(tmp_path, program).splitlines()
    assert first.startswith("a forked process cannot pass this on to its helper process: ")
    assert first.endswith("; give plain values")
    assert second == "child T ('T',) T"


def test_a_pool_of_forked_processes_takes_a_client(tmp_path: Path) -> None:
    program = """
with rocketpy_broker.connect(broker.endpoint) as client:
    client.topics()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(len(pool.starmap(send, [(client, str(number)) for number in range(4)])))
    print(len(client.messages("T")))
broker.stop()
"""
    assert said_by(tmp_path, program) == "4\n5\n"


def test_the_clock_stays_ahead_that_a_forked_process_has_moved(tmp_path: Path) -> None:
    program = """
before = broker.now()
child = os.fork()
if child == 0:
    broker.advance_clock(7200)
    os._exit(0)
os.waitpid(child, 0)
for end in (broker.stop, broker.kill):
    end()
    broker.start()
    print((broker.now() - before).total_seconds() >= 7200)
broker.stop()
"""
    assert said_by(tmp_path, program) == "True\nTrue\n"
