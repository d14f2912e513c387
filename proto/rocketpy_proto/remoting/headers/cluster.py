"""Headers of requests by brokers, slaves and operators.

Source: docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64

# The most files that a slave reports as not copied.
LACKING_MAX = 100


class RegisterBrokerRequest(Header, frozen=True):
    """REGISTER_BROKER. `body_crc32` has the body CRC's lower 31 bits; 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str
    is_compressed: bool = field(name="compressed", default=False)
    body_crc32: Int32 = 0
    is_acting_master_enabled: bool | None = field(name="enableActingMaster", default=None)
    heartbeat_timeout_ms: Int64 | None = field(name="heartbeatTimeoutMillis", default=None)


class RegisterBrokerResponse(Header, frozen=True):
    """The master's addresses for a slave; both are None for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerRequest(Header, frozen=True):
    """UNREGISTER_BROKER, QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(Header, frozen=True):
    """A comparison of the broker's topics with the name server's record of them."""

    is_changed: bool = field(name="changed")


class BrokerHeartbeatRequest(Header, frozen=True):
    """BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    # RocketMQ's spelling.
    heartbeat_timeout_ms: Int64 | None = field(name="heartbeatTimeoutMills", default=None)
    election_priority: Int32 | None = None


class BrokerNameRequest(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermResponse(Header, frozen=True):
    """The number of changed topics."""

    wipe_topic_count: Int32


class AddWritePermResponse(Header, frozen=True):
    """The number of changed topics."""

    add_topic_count: Int32


class BrokerMemberGroupRequest(Header, frozen=True):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class KVConfigRequest(Header, frozen=True):
    """GET_KV_CONFIG, DELETE_KV_CONFIG."""

    namespace: str
    key: str


class PutKVConfigRequest(Header, frozen=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class KVConfigResponse(Header, frozen=True):
    """GET_KV_CONFIG; a missing key is QUERY_NOT_FOUND."""

    value: str | None = None


class KVNamespaceRequest(Header, frozen=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class BrokerConfigResponse(Header, frozen=True):
    """GET_BROKER_CONFIG: the configuration's version as JSON; the body is Java properties text."""

    version: str | None = None


class ViewBrokerStatsDataRequest(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA: one of RocketMQ's statistics and its key."""

    stats_name: str
    stats_key: str


class StagedFilesRequest(Header, frozen=True):
    """GET_STAGED_FILES: the slave `slave_id` has copies of all changes up to `position`.

    `slave_id` is its broker id, so that a restarted slave is the same one.
    `lacking` names files among them that it could not copy: at most LACKING_MAX, comma-separated.
    `run_id` is that of the last answer. A master without newer changes holds the request.
    """

    slave_id: str
    run_id: str = ""
    position: Int64 = 0
    lacking: str = ""


class StagedFilesResponse(Header, frozen=True):
    """The position after the changes in the body, and the end of the master's log.

    Positions count from 0 in each `run_id`. `is_end` is set if no newer changes follow, and
    `is_start` if these are the first ones.
    """

    run_id: str
    position: Int64
    log_end: Int64
    is_end: bool = True
    is_start: bool = False


class StagedFileRequest(Header, frozen=True):
    """READ_STAGED_FILE: the bytes of a file from `position` on; the answer has none at its end."""

    name: str
    position: Int64
    slave_id: str = ""


class ProgressFileRequest(Header, frozen=True):
    """GET_PROGRESS_FILE: a file of `config/` that only a master saves.

    `version` is that of the slave's copy.
    """

    name: str
    version: str = ""


class ProgressFileResponse(Header, frozen=True):
    """The version of the file in the body; the body is empty if the slave's copy has it.

    `version` is empty if there is no file.
    """

    version: str = ""
