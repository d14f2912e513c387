"""Signatures for access control are RocketMQ's own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rocketpy_proto.remoting import RemotingCommand, UnencodableRemotingError
from rocketpy_proto.remoting.signature import is_signed_by, signature, signed
from tests.unit.remoting.recorded import needs_golden, request

COMMAND = RemotingCommand(
    310, opaque=1, ext_fields={"b": "ProbeT", "a": "PG", "e": "0"}, body=b"hello"
)


def test_a_signature_is_the_one_of_rocketmqs_classes() -> None:
    assert signature({}, b"hello", "secret") == "URIFXAX5RPhXVe/FzYlw4ZTp9Fs="
    command = signed(COMMAND, "user1", "secret1234", "tok")
    assert command.ext_fields["Signature"] == "cyXHePp5G29mIOhdyzVGXNb+fUM="
    assert command.ext_fields["AccessKey"] == "user1"
    assert command.ext_fields["SecurityToken"] == "tok"


@needs_golden
def test_the_signature_of_a_recorded_registration_is_right() -> None:
    command = request("J17_broker_register")
    assert is_signed_by(command, "rootsecret")
    again = signed(replace(command, ext_fields=_unsigned(command)), "root", "rootsecret")
    assert again == command


def _unsigned(command: RemotingCommand) -> dict[str, str]:
    added = {"AccessKey", "Signature"}
    return {name: text for name, text in command.ext_fields.items() if name not in added}


def test_whatever_was_changed_is_found() -> None:
    command = signed(COMMAND, "user1", "secret1234")
    assert is_signed_by(command, "secret1234")
    fields = command.ext_fields
    for other in (
        replace(command, body=b"hellO"),
        replace(command, ext_fields={**fields, "x": "y"}),
        replace(command, ext_fields={**fields, "Signature": "\ud800"}),
        replace(command, ext_fields=_unsigned(command)),
    ):
        assert not is_signed_by(other, "secret1234")
    assert not is_signed_by(command, "secret1235")


def test_names_stand_in_the_order_of_java() -> None:
    # By code points the second would come last; Java compares surrogates.
    fields = {"\uffff": "2", "\U00010000": "1"}
    assert signature(fields, b"", "k") == signature({"a": "1", "b": "2"}, b"", "k")


def test_a_field_that_is_no_unicode_is_declared() -> None:
    for fields in ({"a": "\ud800"}, {"\ud800": "a"}):
        with pytest.raises(UnencodableRemotingError):
            signature(fields, b"", "k")
