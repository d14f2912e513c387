"""Options of an Apache RocketMQ cluster, in place of one rocketpy broker.

No error and no `repr` shows a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, endpoints, switch_spec, text

_FILE = "a path, the same on every machine of Spark"
NAME_SERVER = OptionSpec(
    "nameServer",
    None,
    "host:port, or several with semicolons or commas",
    "name servers of an Apache RocketMQ cluster, in place of endpoints",
    endpoints,
)
ACCESS_OPTIONS = (
    OptionSpec("accessKey", None, "a name", "the cluster's user, with secretKey", text),
    OptionSpec("secretKey", None, "a secret", "what proves the user; signs every request", text),
    OptionSpec("securityToken", None, "a secret", "a token that goes with them", text),
    switch_spec("tls", "false", "whether name servers and brokers are spoken to in TLS"),
    OptionSpec(
        "tlsCaFile", None, _FILE, "authorities that servers are verified by, in PEM form", text
    ),
    OptionSpec("tlsCertFile", None, _FILE, "the certificate of this client, in PEM form", text),
    OptionSpec("tlsKeyFile", None, _FILE, "its key, without a password, in PEM form", text),
    switch_spec(
        "tlsVerify", "true", "whether servers must prove who they are; false trusts anybody"
    ),
)
CLUSTER_OPTIONS = (NAME_SERVER, *ACCESS_OPTIONS)
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

    `given` are the options that the user has set, by names in lower case. `only_clusters` names
    further options that a broker of rocketpy does not accept. Raises OptionError.
    """
    taken = {name: values.pop(field_name) for field_name, name in _FIELDS.items()}
    if taken["name_servers"] is None:
        for name in (*(spec.name for spec in CLUSTER_OPTIONS), *only_clusters):
            if name.lower() in given:
                raise OptionError(
                    f"option {name} is for clusters of Apache RocketMQ, which option "
                    f"{NAME_SERVER.name} leads to; leave it out with endpoints"
                )
        return None
    values["endpoints"] = ()
    cluster = ClusterOptions(**taken)  # type: ignore[arg-type]
    _check(cluster, given)
    return cluster


def _check(cluster: ClusterOptions, given: Mapping[str, str]) -> None:
    if (cluster.access_key is None) != (cluster.secret_key is None):
        raise OptionError("options accessKey and secretKey go together; set both, or none")
    if cluster.security_token is not None and cluster.access_key is None:
        raise OptionError("option securityToken needs options accessKey and secretKey; set them")
    if (cluster.tls_cert_file is None) != (cluster.tls_key_file is None):
        raise OptionError("options tlsCertFile and tlsKeyFile go together; set both, or none")
    told = [spec.name for spec in CLUSTER_OPTIONS if spec.name.startswith("tls")]
    for name in told[1:]:
        if not cluster.is_tls and name.lower() in given:
            raise OptionError(f"option {name} is set, but tls is not true; set tls to true")
    if not cluster.is_tls_verified and cluster.tls_ca_file is not None:
        raise OptionError("option tlsVerify is false, so tlsCaFile has no use; leave one out")
