"""Sends of one message and of batches, and their signatures."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketpy.errors import BrokerBusyError, BrokerError
from pyspark_rocketpy.transport.remoting.cluster.client import cluster_for
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.send.requests import (
    BATCH_MESSAGES_MAX,
    SendBatch,
    SendResult,
    send,
)
from rocketpy_proto.remoting import (
    RemotingCommand,
    RequestCode,
    ResponseCode,
    decode_batch,
    is_signed_by,
)
from rocketpy_proto.remoting.headers.sends import SendMessageResponse
from tests.unit.connector.transport.remoting.cluster.test_queue_requests import (
    QUEUE,
    MakeSetup,
    recorded,
    setup,
)
from tests.unit.connector.transport.remoting.conftest import Clusters, Peers
from tests.unit.connector.transport.remoting.scripted_cluster import (
    Knowledge,
    refusing,
    route_of,
)
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, answering, success
from tests.unit.remoting.recorded import needs_golden, request, response

__all__ = ["setup"]
STORED = SendMessageResponse("AB", 1, 7)
SINGLE = SendBatch(b"body", 1, "")


@needs_golden
def test_a_message_is_sent_as_java_sends_it(setup: MakeSetup) -> None:
    heard: list[RemotingCommand] = []
    cluster = setup(recorded("05_send_v2", heard)).cluster
    java = request("J01_java_send_v2")
    message = SendBatch(java.body, 1, java.ext_fields["i"], int(java.ext_fields["h"]))
    result = send(cluster, QUEUE, message, PATIENT).answer()
    answered = response("05_send_v2").ext_fields
    assert result == SendResult(
        ResponseCode.SUCCESS,
        int(answered["queueId"]),
        int(answered["queueOffset"]),
        (answered["msgId"],),
    )
    asked = heard[0]
    assert (asked.code, asked.body) == (java.code, java.body)
    own = {"b": "GoldT", "e": "0", "g": asked.ext_fields["g"], "n": "broker-p"}
    left_out = {"a", "d", "l"} & java.ext_fields.keys()
    expected = {**java.ext_fields, **own}
    assert {name: asked.ext_fields.get(name) for name in expected.keys() - left_out} == {
        name: value for name, value in expected.items() if name not in left_out
    }


@needs_golden
def test_a_batch_is_sent_as_one_and_has_an_id_for_each(setup: MakeSetup) -> None:
    heard: list[RemotingCommand] = []
    cluster = setup(recorded("07_send_batch", heard)).cluster
    body = request("07_send_batch").body
    count = len(decode_batch(body))
    result = send(cluster, QUEUE, SendBatch(body, count), PATIENT).answer()
    assert heard[0].code == RequestCode.SEND_BATCH_MESSAGE
    assert heard[0].body == body
    assert heard[0].ext_fields["m"] == "true"
    assert result.queue_offset == int(response("07_send_batch").ext_fields["queueOffset"])
    assert len(result.msg_ids) == count


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ],
)
def test_what_is_stored_less_safely_is_stored(setup: MakeSetup, code: ResponseCode) -> None:
    fields = success(RemotingCommand(310, 0), STORED).ext_fields
    cluster = setup(lambda asked: asked.answer(code, ext_fields=fields)).cluster
    result = send(cluster, QUEUE, SINGLE, PATIENT).answer()
    assert result == SendResult(code, 1, 7, ("AB",))


@needs_golden
def test_a_queue_that_is_not_there_is_refused(setup: MakeSetup) -> None:
    cluster = setup(recorded("09_send_bad_queue", [])).cluster
    with pytest.raises(BrokerError, match="response code 29, INVALID_PARAMETER"):
        send(cluster, QUEUE, SINGLE, PATIENT).answer()


def test_a_slave_takes_no_message_now(setup: MakeSetup) -> None:
    remark = "[REJECTREQUEST]system busy, start flow control for a while"
    cluster = setup(refusing(ResponseCode.SYSTEM_BUSY, remark)).cluster
    with pytest.raises(BrokerBusyError, match="REJECTREQUEST"):
        send(cluster, QUEUE, SINGLE, PATIENT).answer()


def test_the_answer_to_the_largest_batch_is_taken(setup: MakeSetup) -> None:
    # As long as ids of IPv6 hosts.
    ids = ",".join(["A" * 56] * BATCH_MESSAGES_MAX)
    cluster = setup(lambda asked: success(asked, SendMessageResponse(ids, 0, 0))).cluster
    largest = SendBatch(b"encoded", BATCH_MESSAGES_MAX)
    result = send(cluster, QUEUE, largest, PATIENT).answer()
    assert len(result.msg_ids) == BATCH_MESSAGES_MAX


SECRETS = ("secret1234", "token5678")


@pytest.mark.parametrize("token", [None, SECRETS[1]])
def test_every_request_is_signed_and_no_secret_shows(
    peers: Peers, clusters: Clusters, token: str | None
) -> None:
    heard: list[RemotingCommand] = []

    def store(asked: RemotingCommand) -> RemotingCommand:
        heard.append(asked)
        return asked.answer(ResponseCode.NO_PERMISSION, remark="check signature failed.")

    names = Knowledge({QUEUE.topic: route_of(**{"broker-p": peers(answering(store)).address})})
    access = AccessKeys("user1", SECRETS[0], token)
    cluster = clusters(peers(answering(names.answer)), access=access)
    call = send(cluster, QUEUE, SendBatch(b"body", 1, "k\x01v\x02"), PATIENT)
    with pytest.raises(BrokerError) as caught:
        call.answer()
    for command in (*heard, *names.asked):
        assert command.ext_fields["AccessKey"] == "user1"
        assert command.ext_fields.get("SecurityToken") == token
        assert is_signed_by(command, SECRETS[0])
    assert "check options accessKey and secretKey" in str(caught.value)
    config = ClusterConfig(("h:1",), PATIENT, PATIENT, access=access)
    shown = f"{caught.value!r} {access} {config!r} {call!r} {cluster!r}"
    assert not [secret for secret in SECRETS if secret in shown]
    assert heard[0].ext_fields["Signature"] not in shown


def test_a_configuration_travels_and_connects_when_it_is_used() -> None:
    config = ClusterConfig(("nowhere:1",), PATIENT, PATIENT, access=AccessKeys("u", "s"))
    travelled = pickle.loads(pickle.dumps(config))
    assert travelled == config
    assert cluster_for(travelled) is cluster_for(config)
