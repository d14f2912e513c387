"""Proxies of gRPC connections: our rule, compared with gRPC's core by a proxy that records."""

from __future__ import annotations

import os

import grpc
import pytest

from rocketpy_proto.proxies import Proxy, channel_options, is_local, proxy_note, proxy_of
from tests.support.proxies import USER, recording_proxy

PROXY = f"http://{USER}@proxy.corp:3128"


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in list(os.environ):
        if "proxy" in name.lower():
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:8081",
        "127.8.9.1:8081",
        "127.1:8081",
        "0.0.0.0:8081",
        "localhost:8081",
        "LocalHost.:8081",
        "broker.localhost:8081",
        "ip6-localhost:8081",
        "[::1]:8081",
        "[::]:8081",
        "[::ffff:127.0.0.1]:8081",
        "::1",
        "unix:/run/broker",
        "unix-abstract:broker",
        "dns:///localhost:8081",
        "ipv4:127.0.0.1:8081",
        "ipv6:[::1]:8081",
    ],
)
def test_loopback_is_local_by_every_name(endpoint: str) -> None:
    assert is_local(endpoint)
    assert proxy_of(endpoint, {"grpc_proxy": PROXY}) is None


@pytest.mark.parametrize(
    "endpoint",
    ["10.1.2.3:8081", "128.0.0.1:8081", "broker:8081", "localhost.corp:1", "[2001:db8::1]:1"],
)
def test_other_hosts_are_not(endpoint: str) -> None:
    assert not is_local(endpoint)
    assert proxy_of(endpoint, {"http_proxy": PROXY}) == Proxy("proxy.corp:3128", "http_proxy")


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"grpc_proxy": PROXY, "https_proxy": "http://a:1", "http_proxy": "http://b:1"}, PROXY),
        ({"https_proxy": PROXY, "http_proxy": "http://b:1"}, PROXY),
        # An empty variable means no proxy, and hides the other variables.
        ({"grpc_proxy": "", "http_proxy": PROXY}, None),
        # Names that gRPC does not read.
        ({"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "ALL_PROXY": PROXY, "all_proxy": PROXY}, None),
        # URLs that gRPC ignores.
        ({"http_proxy": "https://proxy.corp:3128"}, None),
        ({"http_proxy": "proxy.corp:3128"}, None),
        ({"http_proxy": "http://[proxy"}, None),
    ],
)
def test_the_variables_are_those_that_grpc_reads(
    variables: dict[str, str], wanted: str | None
) -> None:
    found = proxy_of("10.1.2.3:81", variables)
    assert found == (None if wanted is None else Proxy("proxy.corp:3128", next(iter(variables))))


@pytest.mark.parametrize(
    ("endpoint", "exceptions", "is_direct"),
    [
        ("10.1.2.3:81", {"no_proxy": "10.0.0.0/8"}, True),
        ("10.1.2.3:81", {"no_proxy": "11.0.0.0/8"}, False),
        ("10.1.2.3:81", {"no_proxy": "x, 10.1.2.3"}, True),
        ("10.1.2.3:81", {"no_proxy": ""}, False),
        ("a.b.corp:81", {"no_proxy": ".b.corp"}, True),
        ("A.B.corp:81", {"no_proxy": "b.CORP"}, True),
        ("ab.corp:81", {"no_proxy": "b.corp"}, False),
        ("[2001:db8::1]:81", {"no_proxy": "2001:db8::/32"}, True),
        ("broker:81", {"no_grpc_proxy": "x", "no_proxy": "broker"}, False),
        ("broker:81", {"no_grpc_proxy": "broker", "no_proxy": "x"}, True),
        # Beyond gRPC's rule: variables of other programs.
        ("broker:81", {"no_proxy": "*"}, True),
        ("broker:81", {"NO_PROXY": "broker"}, True),
        ("broker:81", {"no_proxy": "x", "NO_PROXY": "broker"}, False),
    ],
)
def test_exceptions(endpoint: str, exceptions: dict[str, str], *, is_direct: bool) -> None:
    assert (proxy_of(endpoint, {"https_proxy": PROXY, **exceptions}) is None) is is_direct


def test_a_direct_way_is_said_to_grpc(no_variables: pytest.MonkeyPatch) -> None:
    no_variables.setenv("http_proxy", PROXY)
    assert channel_options("broker:81") == []
    no_variables.setenv("NO_PROXY", "broker")
    assert channel_options("broker:81") == [("grpc.enable_http_proxy", 0)]


@pytest.mark.parametrize(
    ("endpoint", "exceptions", "is_asked"),
    [
        ("10.255.0.1:81", {}, True),
        ("broker.corp:81", {"no_proxy": "other.corp"}, True),
        ("127.0.0.1:1", {}, False),
        ("localhost:1", {}, False),
        ("[::1]:1", {}, False),
    ],
)
def test_grpc_goes_the_way_that_we_name(
    no_variables: pytest.MonkeyPatch, endpoint: str, exceptions: dict[str, str], *, is_asked: bool
) -> None:
    with recording_proxy() as proxy:
        for name, value in {"http_proxy": proxy.url, **exceptions}.items():
            no_variables.setenv(name, value)
        with grpc.insecure_channel(endpoint, channel_options(endpoint)) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/x/y")
            with pytest.raises(grpc.RpcError):
                call(b"", timeout=30)
    assert set(proxy.asked) == ({f"CONNECT {endpoint} HTTP/1.1"} if is_asked else set())
    assert (proxy.address in proxy_note(endpoint)) is is_asked


def test_an_error_names_proxy_and_variable_and_no_credentials(
    no_variables: pytest.MonkeyPatch,
) -> None:
    no_variables.setenv("https_proxy", PROXY)
    assert proxy_note("10.1.2.3:81") == (
        " through proxy proxy.corp:3128 of environment variable https_proxy "
        "(name the host in no_proxy for a direct way)"
    )
    assert proxy_note("127.0.0.1:81") == ""
