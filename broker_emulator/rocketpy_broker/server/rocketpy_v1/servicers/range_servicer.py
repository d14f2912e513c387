"""The servicer of offset ranges, a part of rocketpy.v1.Broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.pull.key_lookup import KeyLookupService
from rocketpy_broker.services.pull.range_limits import OffsetRange, RangeLimitService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2

_PARTS_A_SLOT = 1_000


class RangeServicer:
    """The methods for keys, bytes and ends of offset ranges.

    An answer covers the first ranges of a request: as many as fit the work time.
    """

    def __init__(
        self, store: MessageStore, limits: RangeLimitService, key_lookup: KeyLookupService
    ) -> None:
        self._store = store
        self._limits = limits
        self._key_lookup = key_lookup

    async def find_keys(self, request: broker_pb2.FindKeysRequest) -> broker_pb2.FindKeysResponse:
        """Returns parts of the ranges, maybe many, that have all messages with the keys."""
        self._store.check_id(request.store_id)
        found = await self._key_lookup.find(_ranges(request.ranges), request.keys)
        response = broker_pb2.FindKeysResponse(range_count=found.range_count)
        for first in range(0, len(found.parts), _PARTS_A_SLOT):
            for part in found.parts[first : first + _PARTS_A_SLOT]:
                topic, queue_id = part.queue
                response.ranges.add(topic=topic, queue_id=queue_id, begin=part.begin, end=part.end)
            await take_slot()
        return response

    async def measure_ranges(
        self, request: broker_pb2.MeasureRangesRequest
    ) -> broker_pb2.MeasureRangesResponse:
        """Returns the bytes of ranges, up to a total maximum."""
        self._store.check_id(request.store_id)
        measures = await self._limits.measure(_ranges(request.ranges), request.bytes_max)
        return broker_pb2.MeasureRangesResponse(
            ranges=[
                broker_pb2.MeasuredRange(
                    end=measure.end,
                    bytes=measure.bytes,
                    offset_count=measure.count,
                    offset_count_left=measure.count_left,
                    first_bytes=measure.first_bytes,
                    first_physical_offset=measure.first_physical_offset,
                )
                for measure in measures
            ],
            goes_on=any(measure.goes_on for measure in measures),
        )

    async def limit_ranges(
        self, request: broker_pb2.LimitRangesRequest
    ) -> broker_pb2.LimitRangesResponse:
        """Returns the ends of ranges, with a maximum of bytes for each."""
        self._store.check_id(request.store_id)
        reached = await self._limits.limit(_ranges(request.ranges), request.bytes_max)
        return broker_pb2.LimitRangesResponse(
            ends=[reach.end for reach in reached],
            bytes=[reach.bytes for reach in reached],
            goes_on=any(reach.goes_on for reach in reached),
        )

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "FindKeys": self.find_keys,
            "MeasureRanges": self.measure_ranges,
            "LimitRanges": self.limit_ranges,
        }
        return all_bounded(broker_pb2, methods, bytes_max)


def _ranges(wanted: Sequence[broker_pb2.OffsetRange]) -> list[OffsetRange]:
    return [
        OffsetRange(QueueKey(part.topic, part.queue_id), part.begin, part.end) for part in wanted
    ]
