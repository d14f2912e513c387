"""The servicer of statistics, a part of rocketpy.v1.Admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.observability.statistics.service import (
    Item,
    Query,
    StatisticsService,
)
from rocketpy_broker.services.observability.statistics.windows import WINDOWS, Figures
from rocketpy_broker.store.statistics import latency_classes, percentile_ms
from rocketpy_proto.rocketpy.v1 import admin_pb2


class StatisticsServicer:
    """The methods for statistics of the store, topics and groups."""

    def __init__(
        self, store_admin: StoreAdminService, statistics: StatisticsService, bytes_max: int
    ) -> None:
        self._store_admin = store_admin
        self._statistics = statistics
        self._bytes_max = bytes_max

    async def get_store_statistics(
        self, request: admin_pb2.GetStoreStatisticsRequest, _context: status.Context
    ) -> admin_pb2.GetStoreStatisticsResponse:
        """Returns the store's counters, positions and speeds, and a page of topics."""
        counted = self._store_admin.statistics()
        store = self._store_admin.store
        positions, speeds = store.positions(), self._statistics.speeds.speeds()
        page = self._store_admin.put_totals(
            request.topics_after, include_system=request.include_system
        )
        steps = counted.put_step_counts
        return admin_pb2.GetStoreStatisticsResponse(
            status=status.success(),
            topics=[
                admin_pb2.TopicStatistics(topic=topic, put_count=put.count, put_bytes=put.bytes)
                for topic, put in page.totals
            ],
            has_more_topics=page.has_more,
            put_latencies=_buckets(latency_classes(steps)),
            put_latencies_minute=_buckets(
                latency_classes(self._statistics.speeds.minute_step_counts)
            ),
            put_latency_99_ms=percentile_ms(steps, 0.99),
            put_latency_999_ms=percentile_ms(steps, 0.999),
            put_latency_max_ms=int(counted.put_latency_max_ms),
            put_failed_count=counted.put_failed_count,
            get_found_count=counted.get_found_count,
            get_miss_count=counted.get_miss_count,
            get_message_count=counted.get_message_count,
            get_latency_max_ms=int(counted.get_latency_max_ms),
            dispatch_behind_bytes=positions.log_end - positions.dispatched_end,
            flush_behind_bytes=positions.log_end - positions.flushed_end,
            log_begin_offset=positions.log_begin,
            log_end_offset=positions.log_end,
            corrupt_record_count=counted.corrupt_record_count,
            staged_bytes=store.staging.used_bytes,
            staged_bytes_max=store.config.staging_bytes_max,
            put_tps=speeds.put,
            get_found_tps=speeds.found,
            get_miss_tps=speeds.miss,
            get_transferred_tps=speeds.transferred,
        )

    async def get_statistics(
        self, request: admin_pb2.GetStatisticsRequest, _context: status.Context
    ) -> admin_pb2.GetStatisticsResponse:
        """Returns a page of statistics items."""
        query = Query(
            list(request.names),
            request.topic,
            request.consumer_group,
            request.include_system,
            request.cursor,
            request.count_max,
        )
        try:
            page = await self._statistics.page(query)
        except BrokerError as error:
            return admin_pb2.GetStatisticsResponse(status=status.failure(error))
        return admin_pb2.GetStatisticsResponse(
            status=status.success(),
            items=[_item(item) for item in page.items],
            next_cursor=page.next_cursor,
            untracked_count=page.untracked,
        )

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "GetStoreStatistics": self.get_store_statistics,
            "GetStatistics": self.get_statistics,
        }
        return all_bounded(admin_pb2, methods, self._bytes_max)


def _buckets(classes: Mapping[int, int]) -> list[admin_pb2.LatencyBucket]:
    return [
        admin_pb2.LatencyBucket(at_most_ms=bound, count=count) for bound, count in classes.items()
    ]


def _item(item: Item) -> admin_pb2.StatisticsItem:
    windows = zip(WINDOWS, item.windows, strict=False)
    return admin_pb2.StatisticsItem(
        name=item.name,
        key=item.key.text,
        value=item.value,
        times=item.times,
        **{window.name: _window(figures) for window, figures in windows},
    )


def _window(figures: Figures) -> admin_pb2.StatisticsWindow:
    return admin_pb2.StatisticsWindow(sum=figures.sum, tps=figures.tps, avgpt=figures.avgpt)
