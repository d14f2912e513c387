"""Options of an Apache RocketMQ cluster, and of users.

No error and no `repr` shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, endpoints
from rocketpy_proto.tls import TlsConfig

NAME_SERVER = OptionSpec(
    "nameServer",
    None,
    "host:port, several separated by semicolons or commas",
    "name servers of an Apache RocketMQ cluster, in place of endpoints",
    endpoints,
)
ACCESS_OPTIONS = (
    OptionSpec("accessKey", None, "a name", "the user at the broker or cluster; needs secretKey"),
    OptionSpec("secretKey", None, "a secret", "the user's secret; signs every request"),
    OptionSpec(
        "securityToken",
        None,
        "a secret",
        "a session token for accessKey and secretKey; only clusters get it",
    ),
)
_FIELDS = {
    "name_server": "name_servers",
    "access_key": "access_key",
    "secret_key": "secret_key",
    "security_token": "security_token",
}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Checked options of the connection to a cluster."""

    name_servers: tuple[str, ...]
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: TlsConfig | None = None


def cluster_of(
    values: dict[str, object],
    given: Mapping[str, str],
    only_clusters: Iterable[str],
    tls: TlsConfig | None,
) -> ClusterOptions | None:
    """Moves the cluster's options out of `values`; returns None if endpoints are set.

    Fields `access_key` and `secret_key` of `values` are then the user at the broker. A broker of
    rocketpy issues no session tokens, and its bearer tokens have no place for one.
    `given` are the options that the user has set, by names in lower case. `only_clusters` names
    further options that a broker of rocketpy does not accept. Raises OptionError.
    """
    taken = {name: values.pop(field_name) for field_name, name in _FIELDS.items()}
    check_user(taken)
    if taken["name_servers"] is None:
        for name in (NAME_SERVER.name, *only_clusters):
            if name.lower() in given:
                raise OptionError(
                    f"option {name} is only for clusters of Apache RocketMQ (option "
                    f"{NAME_SERVER.name}); leave it out with endpoints"
                )
        values |= {name: taken[name] for name in ("access_key", "secret_key")}
        return None
    values |= {"endpoints": (), "access_key": None, "secret_key": None}
    return ClusterOptions(**taken, tls=tls)  # type: ignore[arg-type]


def check_user(values: Mapping[str, object]) -> None:
    """Raises OptionError for accessKey or secretKey alone, or for securityToken without them."""
    if (values["access_key"] is None) != (values["secret_key"] is None):
        raise OptionError("options accessKey and secretKey go together; set both, or none")
    if values["security_token"] is not None and values["access_key"] is None:
        raise OptionError("option securityToken needs options accessKey and secretKey; set them")
