"""Options of a cluster: valid combinations, and secrets that are never shown."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.choices import DeliveryGuarantee
from pyspark_rocketpy.options.clusters import ClusterOptions
from pyspark_rocketpy.options.retry_options import RetryOptions
from pyspark_rocketpy.options.values import SinkOptions, SourceOptions
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.remoting.options import cluster_config
from rocketpy_proto.tls import TlsConfig

CLUSTER = {"nameServer": "ns1:9876;ns2:9876", "topic": "T"}
KEYS = {"accessKey": "user", "secretKey": "s3cret-word", "securityToken": "t0ken-word"}


def test_a_name_server_leads_to_a_cluster() -> None:
    options = SourceOptions.parse({**CLUSTER, **KEYS, "tls": "true", "tlsCaFile": "/ca.pem"})
    assert options.endpoints == ()
    assert options.cluster == ClusterOptions(
        *(("ns1:9876", "ns2:9876"), "user", "s3cret-word", "t0ken-word"),
        TlsConfig(ca_file="/ca.pem"),
    )
    assert SinkOptions.parse(CLUSTER).cluster == ClusterOptions(("ns1:9876", "ns2:9876"))
    assert SourceOptions.parse({"endpoints": "h:1", "topic": "T"}).cluster is None


def test_secrets_are_not_shown() -> None:
    options = SourceOptions.parse({**CLUSTER, **KEYS})
    assert options.cluster is not None
    for shown in (options, options.cluster, cluster_config(options.cluster, 1_000)):
        assert "user" in repr(shown)
        assert "s3cret" not in repr(shown)
        assert "t0ken" not in repr(shown)
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_way_to_a_cluster_follows_the_options() -> None:
    parsed = SourceOptions.parse({**CLUSTER, **KEYS, "tls": "true", "tlsVerify": "false"}).cluster
    assert parsed is not None
    config = cluster_config(parsed, 1_000)
    assert config.name_servers == ("ns1:9876", "ns2:9876")
    assert (config.connect.ms, config.connect.option) == (1_000, "connectTimeout")
    assert config.tls is not None
    assert not config.tls.is_verified
    assert config.access is not None
    assert config.access.security_token == "t0ken-word"
    plain = cluster_config(ClusterOptions(("ns:1",)), 1_000)
    assert (plain.tls, plain.access) == (None, None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"endpoints": "h:1"}, "endpoints and nameServer are both set"),
        ({"nameServer": "ns1"}, r"option nameServer is 'ns1'; accepted: host:port"),
        ({"accessKey": "user"}, "accessKey and secretKey go together"),
        ({"secretKey": "s3cret-word"}, "accessKey and secretKey go together"),
        ({"securityToken": "t0ken-word"}, "securityToken needs options accessKey and secretKey"),
        ({"tlsCaFile": "/ca.pem"}, "option tlsCaFile is set, but tls is not true"),
        ({"tlsVerify": "true"}, "option tlsVerify is set, but tls is not true"),
        ({"tls": "true", "tlsKeyFile": "/k"}, "tlsCertFile and tlsKeyFile go together"),
        ({"tls": "true", "tlsVerify": "false", "tlsCaFile": "/ca"}, "so tlsCaFile has no effect"),
        ({"tls": "true", "tlsVerify": "false", "tlsServerName": "h"}, "tlsServerName has no eff"),
    ],
)
def test_options_that_do_not_go_together_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        SourceOptions.parse({**CLUSTER, **given})
    assert "word" not in str(caught.value)


def test_no_address_at_all_is_told_with_both_ways() -> None:
    with pytest.raises(OptionError, match=r"endpoints is missing.*or nameServer, for a cluster"):
        SourceOptions.parse({"topic": "T"})


@pytest.mark.parametrize(
    "name",
    ["pullsInFlightMax", "brokerUnavailableTimeout"],
)
def test_options_of_clusters_are_refused_with_endpoints(name: str) -> None:
    values = {"pullsInFlightMax": "8", "brokerUnavailableTimeout": "1m"}
    options = {"endpoints": "h:1", "topic": "T", name: values.get(name, "s3cret-word")}
    with pytest.raises(OptionError, match=f"option {name} is only for clusters") as caught:
        SourceOptions.parse(options)
    assert "word" not in str(caught.value)


def test_a_broker_with_endpoints_takes_a_user() -> None:
    options = {"endpoints": "h:1", "topic": "T", **KEYS}
    for parsed in (
        SourceOptions.parse(options),
        SinkOptions.parse(options),
        RetryOptions.parse({"endpoints": "h:1", "consumerGroup": "g", **KEYS}),
    ):
        assert (parsed.access_key, parsed.secret_key) == ("user", "s3cret-word")
        assert "s3cret" not in repr(parsed)
        assert "t0ken" not in repr(parsed)
    for transport in (
        GrpcTransport.of_source(SourceOptions.parse(options)),
        GrpcTransport.of_sink(SinkOptions.parse(options)),
    ):
        assert transport.client.secret_key == "s3cret-word"
        assert "s3cret" not in repr(transport)
    cluster = SourceOptions.parse({**CLUSTER, **KEYS})
    assert (cluster.access_key, cluster.secret_key) == (None, None)


@pytest.mark.parametrize("name", ["accessKey", "secretKey", "securityToken"])
def test_half_a_user_is_refused_with_endpoints(name: str) -> None:
    half = {"endpoints": "h:1", name: "s3cret-word"}
    for parse, more in (
        (SourceOptions.parse, {"topic": "T"}),
        (SinkOptions.parse, {"topic": "T"}),
        (RetryOptions.parse, {"consumerGroup": "g"}),
    ):
        with pytest.raises(OptionError, match="options accessKey and secretKey") as caught:
            parse({**half, **more})
        assert "word" not in str(caught.value)


def test_a_cluster_s_sink_delivers_at_least_once() -> None:
    assert SinkOptions.parse(CLUSTER).delivery is DeliveryGuarantee.AT_LEAST_ONCE
    given = {**CLUSTER, "delivery": "at-least-once"}
    assert SinkOptions.parse(given).delivery is DeliveryGuarantee.AT_LEAST_ONCE
    broker = {"endpoints": "h:1", "topic": "T"}
    assert SinkOptions.parse(broker).delivery is DeliveryGuarantee.EXACTLY_ONCE


def test_effectively_once_is_for_clusters_and_has_a_control_topic() -> None:
    given = {**CLUSTER, "delivery": "effectively-once"}
    options = SinkOptions.parse(given)
    assert options.delivery is DeliveryGuarantee.EFFECTIVELY_ONCE
    assert options.control_topic == "rocketpy_control"
    assert SinkOptions.parse({**given, "controlTopic": "c"}).control_topic == "c"
    assert SinkOptions.parse(CLUSTER).control_topic is None
    with pytest.raises(OptionError, match="controlTopic is for delivery effectively-once"):
        SinkOptions.parse({**CLUSTER, "controlTopic": "c"})
    with pytest.raises(OptionError, match="effectively-once, which is only for clusters"):
        SinkOptions.parse({"endpoints": "h:1", "topic": "T", "delivery": "effectively-once"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delivery": "exactly-once"}, "delivery is exactly-once, which a cluster .* cannot do"),
        ({"txnAppId": "a", "txnVersion": "1"}, "txnAppId needs delivery exactly-once"),
    ],
)
def test_what_a_cluster_cannot_promise_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        SinkOptions.parse({**CLUSTER, **given})
