"""Configuration of a cluster from options."""

from __future__ import annotations

from pyspark_rocketpy.options.clusters import ClusterOptions
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.net.streams import TlsConfig


def cluster_config(options: ClusterOptions, connect_timeout_ms: int) -> ClusterConfig:
    """Returns the name servers, timeouts and access keys of the options.

    `connect_timeout_ms` also limits the answer to a request without much work.
    """
    timeouts = Timeouts(connect_timeout_ms, "connectTimeout")
    tls = TlsConfig(
        options.tls_ca_file,
        options.tls_cert_file,
        options.tls_key_file,
        options.is_tls_verified,
    )
    access = None
    if options.access_key is not None and options.secret_key is not None:
        access = AccessKeys(options.access_key, options.secret_key, options.security_token)
    return ClusterConfig(
        options.name_servers, timeouts, timeouts, tls if options.is_tls else None, access
    )
