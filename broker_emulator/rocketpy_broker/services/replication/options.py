"""The options of replication, with the rules between them."""

from __future__ import annotations

from rocketpy_broker.config import SLAVES_MAX, BrokerRole, Replication
from rocketpy_broker.errors import ParameterConflictError, ParameterIllegalError
from rocketpy_broker.services.registration.addresses import host_and_port

SLAVE_ID = 1


def replication_of(
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    broker_id: int | None = None,
    master: str | None = None,
    port: int | None = None,
    in_sync_replicas: int | None = None,
    *,
    has_name_servers: bool,
) -> Replication:
    """Returns the checked replication of a broker.

    Raises ParameterIllegalError, which names the option of `rocketpy broker`.
    """
    found = Replication(role, broker_id or 0, master, port, in_sync_replicas)
    if found.is_slave:
        return _slave(found, broker_id, has_name_servers=has_name_servers)
    for option, given in (("--broker-id", broker_id), ("--master", master)):
        if given is not None:
            conflict = f"--broker-role is {role.value!r}; leave it out: only a SLAVE has it"
            raise ParameterConflictError(option, given, conflict)
    if in_sync_replicas is not None and not 1 <= in_sync_replicas <= SLAVES_MAX + 1:
        accepted = f"1 to {SLAVES_MAX + 1}"
        raise ParameterIllegalError("--in-sync-replicas", in_sync_replicas, accepted)
    if role is BrokerRole.SYNC_MASTER and port is None:
        accepted = "a port, since a SYNC_MASTER waits for slaves"
        raise ParameterIllegalError("--ha-port", port, accepted)
    return found


def _slave(given: Replication, broker_id: int | None, *, has_name_servers: bool) -> Replication:
    """Returns the checked replication of a slave. Raises ParameterIllegalError."""
    broker_id = SLAVE_ID if broker_id is None else broker_id
    if not 1 <= broker_id <= SLAVES_MAX:
        raise ParameterIllegalError("--broker-id", broker_id, f"1 to {SLAVES_MAX}")
    if given.in_sync_replicas is not None:
        conflict = "--broker-role is 'SLAVE'; leave it out: a slave acknowledges no message"
        raise ParameterConflictError("--in-sync-replicas", given.in_sync_replicas, conflict)
    if given.master is not None:
        host_and_port(given.master, "--master")
    elif not has_name_servers:
        accepted = "the master's host:port, or use --name-server, where a slave finds its master"
        raise ParameterIllegalError("--master", given.master, accepted)
    return Replication(given.role, broker_id, given.master, given.port)
