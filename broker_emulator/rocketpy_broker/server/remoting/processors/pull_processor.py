"""Pulls of RocketMQ's clients.

The pull service yields several parts; the answer has the first one.
Source: PullMessageProcessor, docs/design/remoting.md section 2.5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.tasks import Prompt
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.services.pull.service import PullAnswer, PullService
from rocketpy_broker.store.values import GetMessageStatus, QueueKey
from rocketpy_proto.model import EVERYTHING, TAG
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.pulls import (
    CLASS_FILTER,
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessageRequest,
    PullMessageResponse,
)

# Values of maxMsgBytes that ask for large answers. Two defaults do not: Java's push consumers of
# 5.x send 256 KiB, and its pull consumers the largest int.
LARGE_ANSWERS = range((256 << 10) + 1, (1 << 31) - 1)


class PullProcessor:
    """The processor of pulls."""

    def __init__(self, pulls: PullService, config: BrokerConfig) -> None:
        self._pulls = pulls
        self._wait_ms_max = config.limits.pull_wait_ms_max

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {Code.PULL_MESSAGE: self._pull, Code.LITE_PULL_MESSAGE: self._pull}

    def _pull(self, request: Request) -> Prompt[RemotingCommand]:
        return Prompt(self._pulled(request))

    async def _pulled(self, request: Request) -> RemotingCommand:
        header: PullMessageRequest = request.header
        async with contextlib.aclosing(self._pulls.pull(self._request(request))) as answers:
            async for answer in answers:
                if header.queue_offset < 0:
                    return _moved(request, answer)
                return _answer(request, answer)
        raise AssertionError("a pull has an answer")

    def _request(self, request: Request) -> PullRequest:
        header: PullMessageRequest = request.header
        has_filter = bool(header.sys_flag & SUBSCRIPTION)
        is_held = header.sys_flag & SUSPEND and header.queue_offset >= 0
        wait_ms = request.held_ms(header.suspend_timeout_ms) if is_held else 0
        is_committing = header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0
        bytes_max = header.max_msg_bytes or 0
        return PullRequest(
            QueueKey(header.topic, header.queue_id),
            max(header.queue_offset, 0),
            wait_ms_max=min(max(wait_ms, 0), self._wait_ms_max),
            filter_text=_filter_text(header) if has_filter else FilterText(),
            consumer_group=header.consumer_group,
            commit_offset=header.commit_offset if is_committing else None,
            registered_subscription=not has_filter,
            sub_version=header.sub_version,
            class_filter=bool(header.sys_flag & CLASS_FILTER),
            count_max=max(header.max_msg_nums, 1),
            response_bytes_max=bytes_max if bytes_max in LARGE_ANSWERS else 0,
        )


def _filter_text(header: PullMessageRequest) -> FilterText:
    kind = header.expression_type or TAG
    return FilterText(kind, header.subscription or (EVERYTHING if kind == TAG else ""))


def _answer(request: Request, answer: PullAnswer) -> RemotingCommand:
    result = answer.result
    body = b"".join(result.parts) if answer.code is ResponseCode.SUCCESS else b""
    return request.answer(
        PullMessageResponse(
            answer.suggested_broker_id, result.next_offset, result.min_offset, result.max_offset
        ),
        body=body,
        code=answer.code,
        remark=result.status.name,
    )


def _moved(request: Request, answer: PullAnswer) -> RemotingCommand:
    """Returns the answer to a pull before offset 0: it continues at the first message."""
    result = answer.result
    return request.answer(
        PullMessageResponse(
            answer.suggested_broker_id, result.min_offset, result.min_offset, result.max_offset
        ),
        code=ResponseCode.PULL_OFFSET_MOVED,
        remark=GetMessageStatus.OFFSET_TOO_SMALL.name,
    )
