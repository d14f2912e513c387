"""Options of TLS, to a broker of rocketpy and to clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.specs import OptionSpec, switch_spec
from rocketpy_proto.tls import TlsConfig, TlsNames

_FILE = "a path, the same on every Spark machine"
TLS_OPTIONS = (
    switch_spec("tls", "false", "whether connections to name servers and brokers use TLS"),
    OptionSpec(
        "tlsCaFile", None, _FILE, "certificate authorities that verify the servers, in PEM form"
    ),
    OptionSpec("tlsCertFile", None, _FILE, "the client's certificate, in PEM form"),
    OptionSpec(
        "tlsKeyFile", None, _FILE, "the key of tlsCertFile, without a password, in PEM form"
    ),
    OptionSpec(
        "tlsServerName",
        None,
        "a name",
        "the name in the servers' certificates (default: the host of each address)",
    ),
    switch_spec(
        "tlsVerify",
        "true",
        "whether the servers' certificates are verified; false trusts every server",
    ),
)
TLS_NAMES = TlsNames(
    "option tls",
    "option tlsCaFile",
    "options tlsCertFile",
    "tlsKeyFile",
    "option tlsServerName",
)


def tls_of(values: dict[str, Any], given: Mapping[str, str]) -> TlsConfig | None:
    """Moves the options of TLS out of `values`; returns None without TLS.

    `given` are the options that the user has set, by names in lower case. Raises OptionError.
    """
    is_tls, tls = (
        values.pop("tls"),
        TlsConfig(
            values.pop("tls_ca_file"),
            values.pop("tls_cert_file"),
            values.pop("tls_key_file"),
            values.pop("tls_verify"),
            values.pop("tls_server_name"),
        ),
    )
    if (tls.cert_file is None) != (tls.key_file is None):
        raise OptionError("options tlsCertFile and tlsKeyFile go together; set both, or none")
    for spec in TLS_OPTIONS[1:]:
        if not is_tls and spec.name.lower() in given:
            raise OptionError(f"option {spec.name} is set, but tls is not true; set tls to true")
    for name, value in (("tlsCaFile", tls.ca_file), ("tlsServerName", tls.server_name)):
        if not tls.is_verified and value is not None:
            raise OptionError(f"option tlsVerify is false, so {name} has no effect; leave one out")
    if not tls.is_verified and values["endpoints"]:
        raise OptionError(
            "option tlsVerify is false, which is only for clusters of Apache RocketMQ: gRPC always "
            "verifies the broker. Leave it out, and set tlsCaFile to the broker's certificate"
        )
    return tls if is_tls else None
