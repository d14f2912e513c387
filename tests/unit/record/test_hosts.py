"""Hosts and message ids as text and as bytes."""

from __future__ import annotations

import pytest

from rocketpy_proto.record import Host, decode_offset_message_id


@pytest.mark.parametrize("text", ["1.2.3.4:10911", "[::1]:0", "[2001:db8::2]:65535"])
def test_a_host_is_written_as_it_was_parsed(text: str) -> None:
    host = Host.parse(text)
    assert str(host) == text
    assert Host.from_bytes(host.to_bytes()) == host


@pytest.mark.parametrize("text", ["1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "host:1"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Host.parse(text)


@pytest.mark.parametrize("message_id", ["", "0A", "zz", "0A" * 17])
def test_what_is_no_offset_message_id_is_refused(message_id: str) -> None:
    with pytest.raises(ValueError):
        decode_offset_message_id(message_id)
