"""Configuration of a cluster from options."""

from __future__ import annotations

from pyspark_rocketpy.options.clusters import ClusterOptions
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts


def cluster_config(options: ClusterOptions, connect_timeout_ms: int) -> ClusterConfig:
    """Returns the name servers, timeouts and access keys of the options.

    `connect_timeout_ms` also limits the wait for the answer to a quick request.
    """
    timeouts = Timeouts(connect_timeout_ms, "connectTimeout")
    access = None
    if options.access_key is not None and options.secret_key is not None:
        access = AccessKeys(options.access_key, options.secret_key, options.security_token)
    return ClusterConfig(options.name_servers, timeouts, timeouts, options.tls, access)
