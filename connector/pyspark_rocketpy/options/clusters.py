"""Options of an Apache RocketMQ cluster, in place of one rocketpy broker, and of users of both.

No error and no `repr` shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, endpoints, switch_spec

_FILE = "a path, the same on every Spark machine"
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
    switch_spec("tls", "false", "whether connections to name servers and brokers use TLS"),
    OptionSpec(
        "tlsCaFile", None, _FILE, "certificate authorities that verify the servers, in PEM form"
    ),
    OptionSpec("tlsCertFile", None, _FILE, "the client's certificate, in PEM form"),
    OptionSpec(
        "tlsKeyFile", None, _FILE, "the key of tlsCertFile, without a password, in PEM form"
    ),
    switch_spec(
        "tlsVerify",
        "true",
        "whether the servers' certificates are verified; false trusts every server",
    ),
)
CLUSTER_OPTIONS = (NAME_SERVER, *ACCESS_OPTIONS)
_USER_NAMES = frozenset(spec.name for spec in USER_OPTIONS)
_FIELDS = {
    "name_server": "name_servers",
    "access_key": "access_key",
    "secret_key": "secret_key",
    "security_token": "security_token",
    "tls": "is_tls",
    "tls_ca_file": "tls_ca_file",
    "tls_cert_file": "tls_cert_file",
    "tls_key_file": "tls_key_file",
    "tls_verify": "is_tls_verified",
}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Checked options of the connection to a cluster."""

    name_servers: tuple[str, ...]
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    is_tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    is_tls_verified: bool = True


def cluster_of(
    values: dict[str, object], given: Mapping[str, str], only_clusters: Iterable[str]
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
    cluster = ClusterOptions(**taken)  # type: ignore[arg-type]
    _check(cluster, given)
    return cluster


def check_user(values: Mapping[str, object]) -> None:
    """Raises OptionError unless both options of a user are set, or none."""
    if (values["access_key"] is None) != (values["secret_key"] is None):
        raise OptionError("options accessKey and secretKey go together; set both, or none")


def _check(cluster: ClusterOptions, given: Mapping[str, str]) -> None:
    check_user({"access_key": cluster.access_key, "secret_key": cluster.secret_key})
    if cluster.security_token is not None and cluster.access_key is None:
        raise OptionError("option securityToken needs options accessKey and secretKey; set them")
    if (cluster.tls_cert_file is None) != (cluster.tls_key_file is None):
        raise OptionError("options tlsCertFile and tlsKeyFile go together; set both, or none")
    names = [spec.name for spec in CLUSTER_OPTIONS if spec.name.startswith("tls")]
    for name in names[1:]:
        if not cluster.is_tls and name.lower() in given:
            raise OptionError(f"option {name} is set, but tls is not true; set tls to true")
    if not cluster.is_tls_verified and cluster.tls_ca_file is not None:
        raise OptionError("option tlsVerify is false, so tlsCaFile has no effect; leave one out")
