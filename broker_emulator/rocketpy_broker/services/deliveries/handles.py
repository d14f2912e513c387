"""Handles of deliveries: opaque texts that clients return.

A handle is a receipt and a seal. The seal is a hash of the receipt, its group and its topic, keyed
with the store's id. So a handle of another store, group or topic, or a made-up one, is refused
before anything is read. Handles stay valid over a restart. State in memory: the last handles that
were acknowledged or replaced; a restart forgets them.
Source: ReceiptHandle, docs/design/grpc_v2_semantics.md section 9.
"""

from __future__ import annotations

import hmac
import re
from collections import OrderedDict
from hashlib import blake2b

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.receipts.handle import (
    SEPARATOR,
    MessageGoneError,
    Receipt,
    ReceiptIllegalError,
    real_topic,
)
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode

HANDLE_CHARACTERS_MAX = 512
SEAL_BYTES = 8
KNOWN_MAX = 50_000
_SEAL = f"[0-9a-f]{{{2 * SEAL_BYTES}}}"
_FORM = re.compile(rf"([0-9]{{1,18}} ){{4}}[012] \S+( [0-9]{{1,18}}){{2}} {_SEAL}")


class HandleInvalidError(BrokerError):
    """A handle that cannot be acknowledged or changed: its delivery is unknown or has ended."""

    code = ResponseCode.MESSAGE_ILLEGAL

    def __init__(self, handle: str, reason: str) -> None:
        super().__init__(
            f"receipt handle {handle!r:.200} {reason}. Use the handle of the message's last "
            "receive or change"
        )


class ForeignHandleError(HandleInvalidError):
    """A handle of another store, group or topic, or one with a forged part."""


class HandleSet:
    """The last handles of one kind, up to KNOWN_MAX."""

    def __init__(self) -> None:
        self._handles: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, handle: str) -> bool:
        return handle in self._handles

    def add(self, handle: str) -> None:
        """Adds a handle; drops the oldest one above the limit."""
        self._handles[handle] = None
        if len(self._handles) > KNOWN_MAX:
            self._handles.popitem(last=False)

    def discard(self, handle: str) -> None:
        """Removes a handle, if it is there."""
        self._handles.pop(handle, None)


class Handles:
    """The handles of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.acknowledged = HandleSet()
        self.replaced = HandleSet()

    def text(self, group: str, topic: str, receipt: Receipt) -> str:
        """Returns the handle of a receipt; `topic` is the topic that the client named."""
        text = str(receipt)
        return text + SEPARATOR + self._seal(group, topic, text)

    def receipt(self, group: str, topic: str, handle: str) -> tuple[QueueKey, Receipt]:
        """Returns the queue and the receipt of a handle.

        Raises HandleInvalidError; ForeignHandleError for one with the form of a handle.
        """
        text, _, seal = handle[: HANDLE_CHARACTERS_MAX + 1].rpartition(SEPARATOR)
        is_own = hmac.compare_digest(seal.encode(), self._seal(group, topic, text).encode())
        if len(handle) > HANDLE_CHARACTERS_MAX or not is_own:
            reason = f"is not of a delivery of topic {topic!r:.130} to group {group!r:.130}"
            has_form = _FORM.fullmatch(handle)
            raise (ForeignHandleError if has_form else HandleInvalidError)(handle, reason)
        receipt = Receipt.parse(text)
        return QueueKey(real_topic(receipt.kind, group, topic), receipt.queue_id), receipt

    def _seal(self, group: str, topic: str, text: str) -> str:
        key = self._store.store_id.encode()[: blake2b.MAX_KEY_SIZE]
        sealed = f"{group}\0{topic}\0{text}".encode()
        return blake2b(sealed, digest_size=SEAL_BYTES, key=key).hexdigest()


def as_invalid(handle: str, error: BrokerError | None) -> BrokerError | None:
    """Returns the error for a client: a message that is gone makes its handle invalid."""
    if isinstance(error, (MessageGoneError, ReceiptIllegalError)):
        return HandleInvalidError(handle, f"has no effect: {error.remark}")
    return error
