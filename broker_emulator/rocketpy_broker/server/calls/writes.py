"""The calls that only a master serves.

They change messages, topics or groups. A slave takes heartbeats, offset commits and changes of
users, and cleans its own files. It keeps no transactions, popped messages or exactly-once batches,
so calls about these are here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocketpy_proto.model.codes import RequestCode as Code

ROCKETPY_V1 = frozenset(
    {
        "Broker/Append",
        "Broker/StageBlocks",
        "Broker/CommitBatch",
        "Broker/QueryBatch",
        "Broker/AbortBatch",
        "Broker/RecallMessage",
        "Admin/UpdateTopic",
        "Admin/DeleteTopic",
        "Admin/EmptyTopic",
        "Admin/CleanUnusedTopics",
        "Groups/UpdateGroup",
        "Groups/DeleteGroup",
        "Groups/ResetOffsets",
        "Transactions/EndTransaction",
        "Retry/SendBack",
        "Testing/ForgetWriters",
    }
)
APACHE_V2 = frozenset(
    {
        "SendMessage",
        "ReceiveMessage",
        "AckMessage",
        "ChangeInvisibleDuration",
        "ForwardMessageToDeadLetterQueue",
        "EndTransaction",
        "RecallMessage",
    }
)
REMOTING = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.RECALL_MESSAGE,
        Code.END_TRANSACTION,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.BATCH_ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.CLEAN_UNUSED_TOPIC,
    }
)


def checked(
    processors: Mapping[int, Callable[[Any], Any]], check: Callable[[], None]
) -> Mapping[int, Callable[[Any], Any]]:
    """Returns processors of remoting that call `check` before each request that writes."""

    def with_check(processor: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def process(request: Any) -> Any:
            check()
            return processor(request)

        return process

    return {
        code: with_check(each) if code in REMOTING else each for code, each in processors.items()
    }
