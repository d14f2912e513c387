"""Store administration: single messages, counters and cleaning.

A cleaning on request ignores the hours of scheduled cleaning, but keeps its other rules. Topics
without configuration are removed on request only: a lost `topics.json` must not cost the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from rocketpy_broker.errors import BrokerError, MessageNotExistError, ParameterIllegalError
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services import caller
from rocketpy_broker.services.admin.cleaning_service import CleaningService, waiting_segments
from rocketpy_broker.services.admin.pages import first_page, shown
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.flush.admission import Admission
from rocketpy_broker.services.observability.statistics.speeds import StoreSpeeds
from rocketpy_broker.services.pull.newest_records import newest_records
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.index.file import LOG_END_MAX
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.messages import WalkPosition
from rocketpy_broker.store.statistics import latency_classes, percentile_ms
from rocketpy_proto.counts import counted
from rocketpy_proto.record import Host, decode_offset_message_id, decode_record
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX
from rocketpy_proto.rocketpy.v1 import admin_pb2
from rocketpy_proto.texts import PORT_MAX

logger = logging.getLogger(__name__)
QUERY_COUNT_DEFAULT = 32
QUERY_COUNT_MAX = 64
NO_END_MS = 1 << 60
# Unused topics that the log line names.
UNUSED_NAMED_MAX = 20
# Bytes of records in one response, as by remoting; more would hold the event loop for 50 ms.
ANSWER_BYTES_MAX = 4 << 20


class StoreAdminService:
    """Message queries, counters and cleaning of one store."""

    def __init__(
        self,
        store: MessageStore,
        contents: TopicContents,
        admission: Admission,
        topics: TopicConfigManager,
        cleaning: CleaningService,
        tasks: TaskScope,
        speeds: StoreSpeeds,
    ) -> None:
        self._store = store
        self._contents = contents
        self._admission = admission
        self._topics = topics
        self._cleaning = cleaning
        self._tasks = tasks
        self._speeds = speeds

    async def query_message(
        self, request: admin_pb2.QueryMessageRequest
    ) -> admin_pb2.MessagesResponse:
        """Returns a page of records of `topic` with `key`, or else with `tag`, oldest first.

        They are the newest ones below `before_offset`. 0 selects the defaults of
        `end_timestamp_ms`, `count_max` and `before_offset`. The result has at most
        ANSWER_BYTES_MAX bytes, but at least one found record. Raises TopicNotExistError,
        ParameterIllegalError, StoreReadError.
        """
        self._topics.get(request.topic)
        _check_query(request)
        count = min(request.count_max or QUERY_COUNT_DEFAULT, QUERY_COUNT_MAX)
        messages = self._store.messages
        walk = messages.walk_tag if request.tag else messages.walk_key
        begin_ms, end_ms = request.begin_timestamp_ms, request.end_timestamp_ms or NO_END_MS
        position = WalkPosition(request.before_offset or LOG_END_MAX)
        wanted = request.tag or request.key
        walked = walk(request.topic, wanted, begin_ms, end_ms, count, position)
        found = await newest_records(walked, ANSWER_BYTES_MAX)
        response = _messages(found)
        if position.before is not None:
            # The walk may have passed a record that did not fit.
            oldest = decode_record(found[0]).record.physical_offset if found else position.before
            response.next_before_offset = oldest
        return response

    async def view_message(
        self, request: admin_pb2.ViewMessageRequest
    ) -> admin_pb2.MessagesResponse:
        """Returns the record with that id. Raises ParameterIllegalError, MessageNotExistError.

        RocketMQ checks only the offset in the id, since its client connects to the address in it.
        """
        offset_msg_id = request.offset_msg_id
        try:
            host, physical_offset = decode_offset_message_id(offset_msg_id)
        except ValueError as error:
            accepted = "32 or 56 hexadecimal digits"
            raise ParameterIllegalError("offset_msg_id", offset_msg_id, accepted) from error
        found = self._store.messages.at(physical_offset)
        if found is None:
            raise MessageNotExistError(offset_msg_id, _why_nothing(host))
        record = decode_record(found).record
        if record.store_host != host:
            raise MessageNotExistError(offset_msg_id, _why_nothing(host, record.store_host))
        caller.check_readable(record.topic)
        return _messages([found])

    async def statistics(
        self, request: admin_pb2.GetStoreStatisticsRequest
    ) -> admin_pb2.GetStoreStatisticsResponse:
        """Returns the store's counters, positions and speeds, and a page of topics by name."""
        store, counted, positions = self._store, self._store.statistics, self._store.positions()
        after, include_system = request.topics_after, request.include_system
        page = first_page(
            topic
            for topic in counted.puts
            if topic > after and (include_system or not self._topics.is_internal(topic))
        )
        puts = [(topic, counted.puts[topic]) for topic in page.names]
        steps = counted.put_step_counts
        return admin_pb2.GetStoreStatisticsResponse(
            topics=[
                admin_pb2.TopicStatistics(topic=topic, put_count=put.count, put_bytes=put.bytes)
                for topic, put in puts
            ],
            has_more_topics=page.has_more,
            put_latencies=_buckets(latency_classes(steps)),
            put_latencies_minute=_buckets(latency_classes(self._speeds.minute_step_counts)),
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
            **self._speeds.rates(),
        )

    async def clean_expired_files(self) -> admin_pb2.CleanExpiredFilesResponse:
        """Removes expired log segments at any hour. Raises BrokerError."""
        try:
            removed_count = await self._tasks.finish(self._cleaning.clean(manual=True))
            return admin_pb2.CleanExpiredFilesResponse(
                removed_file_count=removed_count,
                log_begin_offset=self._store.positions().log_begin,
                waiting_segments=waiting_segments(self._store, manual=True),
            )
        except OSError as error:
            raise BrokerError(
                f"cleaning failed ({error.strerror}); check the broker's disk and try again"
            ) from error

    def _unused_topics(self) -> list[str]:
        stored = {queue.topic for queue in self._store.queues()}
        return sorted(topic for topic in stored if not self._topics.exists(topic))

    def name_unused_topics(self) -> None:
        """Logs the topics with queues but no entry in topics.json: no client can read them."""
        unused = self._unused_topics()
        if unused:
            names = ", ".join(repr(topic) for topic in unused[:UNUSED_NAMED_MAX])
            more = ", ..." if len(unused) > UNUSED_NAMED_MAX else ""
            logger.warning(
                "%s queues but no entry in topics.json: %s%s; create each to read its "
                "messages, or remove the messages with `rocketpy clean --unused-topics`",
                counted(len(unused), "topic has", "topics have"),
                names,
                more,
            )

    async def clean_unused_topics(
        self, request: admin_pb2.CleanUnusedTopicsRequest
    ) -> admin_pb2.CleanUnusedTopicsResponse:
        """Removes the queues of topics that are not configured and returns the topic names.

        Raises BrokerError; earlier removals remain.
        """
        if request.dry_run:
            return admin_pb2.CleanUnusedTopicsResponse(topics=map(shown, self._unused_topics()))
        topics = await self._tasks.finish(self._clean_unused_topics())
        return admin_pb2.CleanUnusedTopicsResponse(topics=topics)

    async def _clean_unused_topics(self) -> list[str]:
        unused = self._unused_topics()
        for topic in unused:
            await self._admission.write_over()
            try:
                with self._store.deletions.refusing(topic):
                    await self._contents.remove(topic)
            except OSError as error:
                raise BrokerError(
                    f"the queues of {topic!r} could not be removed ({error.strerror}); try again"
                ) from error
        return unused


def _buckets(classes: Mapping[int, int]) -> list[admin_pb2.LatencyBucket]:
    return [
        admin_pb2.LatencyBucket(at_most_ms=bound, count=count) for bound, count in classes.items()
    ]


def _check_query(request: admin_pb2.QueryMessageRequest) -> None:
    """Raises ParameterIllegalError."""
    key, tag = request.key, request.tag
    begin_ms, end_ms, count_max = (
        request.begin_timestamp_ms,
        request.end_timestamp_ms,
        request.count_max,
    )
    if key and tag:
        raise ParameterIllegalError("tag", tag, "none beside a key")
    if not (key or tag):
        accepted = "a key, or the unique id of a message; or give a tag"
        raise ParameterIllegalError("key", key, accepted)
    for name, value in (("key", key), ("tag", tag)):
        if len(value) > PROPERTIES_BYTES_MAX:
            raise ParameterIllegalError(name, value, f"up to {PROPERTIES_BYTES_MAX} characters")
    if begin_ms < 0:
        raise ParameterIllegalError("begin_timestamp_ms", begin_ms, "0 or more")
    if end_ms < 0 or (end_ms and end_ms < begin_ms):
        accepted = f"0 for no end, or {begin_ms} and more"
        raise ParameterIllegalError("end_timestamp_ms", end_ms, accepted)
    if count_max < 0:
        raise ParameterIllegalError("count_max", count_max, f"0 to {QUERY_COUNT_MAX}")
    if request.before_offset < 0:
        raise ParameterIllegalError("before_offset", request.before_offset, "0 or more")


def _messages(records: Sequence[bytes | memoryview]) -> admin_pb2.MessagesResponse:
    sizes = np.array([len(record) for record in records], ">i4")
    return admin_pb2.MessagesResponse(record_sizes=sizes.tobytes(), records=b"".join(records))


def _why_nothing(host: Host, stored_at: Host | None = None) -> str:
    """Returns why no message has an id with address `host`.

    `stored_at` is the store host of the message at the id's offset.
    """
    if not 0 < host.port <= PORT_MAX:
        return "it may be a msgId; query its topic with it as the key"
    if stored_at is not None:
        return (
            f"it is of the broker at {host}, but the message at its offset here was stored at "
            f"{stored_at}. Query the other broker"
        )
    return f"it names the broker at {host}; the message may be cleaned, or another broker has it"
