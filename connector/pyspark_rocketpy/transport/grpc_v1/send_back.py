"""Send-back of messages, over broken connections and busy brokers.

A call answers for its first messages. The next call takes unanswered messages, and messages refused
by a busy broker. A call is repeated if its answer is lost, so its messages may be sent back twice.
Messages without an answer may or may not be stored when the process dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark_rocketpy.errors import BrokerBusyError, BrokerError
from pyspark_rocketpy.transport.grpc_v1.answers import unusable
from pyspark_rocketpy.transport.grpc_v1.client import check, client_for
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import leaving_other_stores, retries_for
from pyspark_rocketpy.transport.retries import RETRIABLE_ERRORS, RetriableError
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import MessageToSendBack, SentBack
from rocketpy_proto.call_limits import ENTRIES_MAX
from rocketpy_proto.rocketpy.v1 import common_pb2, retry_pb2

# Stored, but not known to be on disk: the message is sent again, as a block is.
_NOT_CONFIRMED = "FLUSH_DISK_TIMEOUT"
_DONE = frozenset({retry_pb2.RETRY, retry_pb2.DEAD_LETTER, retry_pb2.DROPPED})


class SendBackClient:
    """Send-back of messages of one group."""

    def __init__(
        self,
        config: ClientConfig,
        policy: RetryPolicy,
        timeout_ms: int,
        group: str,
        reconsume_times_max: int | None,
    ) -> None:
        self._config = config
        self._retries = retries_for(config, policy)
        self._timeout_ms = timeout_ms
        self._group = group
        self._reconsume_times_max = reconsume_times_max
        self._counts: Counter[int] = Counter()

    def send(self, messages: Sequence[MessageToSendBack]) -> SentBack:
        """Sends all messages back; returns their counts.

        Raises BrokerError for the first refused message, ConnectionFailedError.
        """
        left = list(messages)
        while left:
            now, later = left[:ENTRIES_MAX], left[ENTRIES_MAX:]
            try:
                with leaving_other_stores(self._config):
                    answers = self._answers(now)
            except RETRIABLE_ERRORS as error:
                self._retries.pause(error)
                continue
            busy = self._busy_of(now, answers)
            left = [*busy, *now[len(answers) :], *later]
        return SentBack(
            self._counts[retry_pb2.RETRY],
            self._counts[retry_pb2.DEAD_LETTER],
            self._counts[retry_pb2.DROPPED],
        )

    def _answers(
        self, messages: Sequence[MessageToSendBack]
    ) -> Sequence[retry_pb2.SentBackMessage]:
        """Returns one call's answers, which are for the first messages. Raises as `send`."""
        request = self._request(messages)
        response = client_for(self._config).send_back(request, self._timeout_ms)
        count, count_max = len(response.messages), len(messages)
        if count > count_max:
            raise unusable("SendBack", f"it has {count} messages, limit {count_max}")
        if not count:
            raise BrokerBusyError(
                f"the broker's answer to SendBack has none of {count_max} messages"
            )
        for each in response.messages:
            if not each.status.code and each.to not in _DONE:
                raise unusable(
                    "SendBack", f"a message went to {each.to}, which is not a destination"
                )
        return response.messages

    def _busy_of(
        self,
        messages: Sequence[MessageToSendBack],
        answers: Sequence[retry_pb2.SentBackMessage],
    ) -> list[MessageToSendBack]:
        """Counts the finished messages; waits, and returns the ones that a busy broker refused."""
        busy: list[MessageToSendBack] = []
        last: RetriableError | None = None
        for message, answer in zip(messages, answers, strict=False):
            try:
                _check(answer.status, message)
            except BrokerBusyError as error:
                busy.append(message)
                last = error
            else:
                self._counts[answer.to] += 1
        if len(busy) < len(answers):
            self._retries.succeeded()
        if last is not None:
            self._retries.pause(last)
        return busy

    def _request(self, messages: Sequence[MessageToSendBack]) -> retry_pb2.SendBackRequest:
        return retry_pb2.SendBackRequest(
            consumer_group=self._group,
            messages=[
                retry_pb2.MessageToSendBack(
                    commit_log_offset=each.commit_log_offset,
                    delay_level=each.delay_level,
                    origin_msg_id=each.offset_msg_id,
                    origin_topic=each.topic,
                )
                for each in messages
            ],
            max_reconsume_times=self._reconsume_times_max,
        )


def _check(status: common_pb2.Status, message: MessageToSendBack) -> None:
    """Raises BrokerError, BrokerBusyError."""
    if status.remark.startswith(_NOT_CONFIRMED):
        raise BrokerBusyError(f"{status.remark} (response code {status.code})")
    try:
        check(status)
    except BrokerBusyError:
        raise
    except BrokerError as error:
        place = f"at log offset {message.commit_log_offset}"
        raise BrokerError(f"the message {place} was not sent back: {status.remark}") from error
