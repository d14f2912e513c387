"""Options of an Apache RocketMQ cluster, in place of one rocketpy broker, and of users of both.

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
USER_OPTIONS = (
    OptionSpec("accessKey", None, "a name", "the user at the broker or cluster; needs secretKey"),
    OptionSpec("secretKey", None, "a secret", "the user's secret; signs every request"),
)
ACCESS_OPTIONS = (
    *USER_OPTIONS,
    OptionSpec(
        "securityToken",
        None,
        "a secret",
        "a session token for accessKey and secretKey, of clusters only",
    ),
)
CLUSTER_OPTIONS = (NAME_SERVER, *ACCESS_OPTIONS)
_USER_NAMES = frozenset(spec.name for spec in USER_OPTIONS)
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

    Fields `access_key` and `secret_key` of `values` are then the user at the broker.
    `given` are the options that the user has set, by names in lower case. `only_clusters` names
    further options that a broker of rocketpy does not accept. Raises OptionError.
    """
    taken = {name: values.pop(field_name) for field_name, name in _FIELDS.items()}
    if taken["name_servers"] is None:
        for name in (*(spec.name for spec in CLUSTER_OPTIONS), *only_clusters):
            if name.lower() in given and name not in _USER_NAMES:
                raise OptionError(
                    f"option {name} is only for clusters of Apache RocketMQ (option "
                    f"{NAME_SERVER.name}); leave it out with endpoints"
                )
        values |= {name: taken[name] for name in ("access_key", "secret_key")}
        check_user(values)
        return None
    values |= {"endpoints": (), "access_key": None, "secret_key": None}
    cluster = ClusterOptions(**taken, tls=tls)  # type: ignore[arg-type]
    _check(cluster)
    return cluster


def check_user(values: Mapping[str, object]) -> None:
    """Raises OptionError unless both options of a user are set, or none."""
    if (values["access_key"] is None) != (values["secret_key"] is None):
        raise OptionError("options accessKey and secretKey go together; set both, or none")


def _check(cluster: ClusterOptions) -> None:
    check_user({"access_key": cluster.access_key, "secret_key": cluster.secret_key})
    if cluster.security_token is not None and cluster.access_key is None:
        raise OptionError("option securityToken needs options accessKey and secretKey; set them")
