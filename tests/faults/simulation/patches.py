"""Replacements in each simulated broker: no gRPC port, small files, few periodic checks."""

from __future__ import annotations

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.store.config import StoreConfig

SERVICES = "rocketpy_broker.services"


class NoServer:
    """A stand-in for the server: the simulation's clients call services."""

    tls_port: int | None = None

    def __init__(self, *_given: object) -> None:
        pass

    async def start(self, _scope: object) -> int:
        """Starts no listener."""
        return 1

    async def serving(self) -> None:
        """Reports nothing."""

    async def stop(self) -> None:
        """Closes no connection."""

    async def connection_count(self) -> int:
        """Returns 0: there are no connections."""
        return 0


def _small_store(config: BrokerConfig) -> StoreConfig:
    return StoreConfig(
        config.data,
        config.commit_log_segment_bytes,
        config.consume_queue_file_bytes,
        config.flush_disk_type,
        index_slot_count=8,
        index_entry_count_max=200,
        memory_bytes=1 << 30,
        staging_bytes_max=config.staging_bytes_max,
        delay_levels=config.delay_levels,
        clean_policy=config.clean_policy,
    )


async def _no_statistics(_service: object) -> None:
    """Skips statistics, which no client reads here."""


# Names and what takes their place.
STEADY = (
    ("rocketpy_broker.broker.GrpcServer", NoServer),
    ("rocketpy_broker.broker._store_config", _small_store),
    ("rocketpy_broker.broker_services.installed_hooks", list),
    ("rocketpy_broker.store.log.checksums.ALLOCATION_BYTES", 4096),
    # Periodic checks that only cost time here.
    (f"{SERVICES}.observability.statistics.service.StatisticsService.run", _no_statistics),
    ("rocketpy_broker.server.security.users.RELOAD_MS", 3_600_000),
    (f"{SERVICES}.deliveries.renewals.SCAN_MS", 3_600_000),
    (f"{SERVICES}.batches.service.SWEEP_MS", 60_000),
    (f"{SERVICES}.delay.delivery_loop.IDLE_MS_MAX", 3_600_000),
    (f"{SERVICES}.delay.delivery_loop.SLEEP_MS_MAX", 4_000),
    (f"{SERVICES}.delay.delivery_loop.PAUSE_MS_MAX", 4_000),
)
