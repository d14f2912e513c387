"""Checks of a LocalBroker's options before its process starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocketpy_broker.embedded.process import LocalBrokerError, LocalTls
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.texts import PORT_MAX


def check_ports(ports: Mapping[str, object]) -> None:
    """Raises ParameterIllegalError for a port outside 0 to PORT_MAX; None is accepted."""
    for name, port in ports.items():
        if port is not None and not (is_whole(port) and port in range(PORT_MAX + 1)):
            raise ParameterIllegalError(name, port, f"0 to {PORT_MAX}")


def check_numbers(start_seconds_max: object, commit_log_segment_bytes: object) -> None:
    """Raises ParameterIllegalError for a value of a wrong type, and for a negative time."""
    if not (isinstance(start_seconds_max, int | float) and start_seconds_max >= 0):
        raise ParameterIllegalError("start_seconds_max", start_seconds_max, "a number, 0 or more")
    if not (commit_log_segment_bytes is None or is_whole(commit_log_segment_bytes)):
        name = "commit_log_segment_bytes"
        raise ParameterIllegalError(name, commit_log_segment_bytes, "an int, or None")


def is_whole(value: object) -> bool:
    """True if a value is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def tls_of(tls: object) -> LocalTls | None:
    """Returns the TLS of an option with absolute paths; None for no TLS.

    Raises ParameterIllegalError, LocalBrokerError.
    """
    if isinstance(tls, bool):
        return LocalTls() if tls else None
    if not isinstance(tls, LocalTls):
        raise ParameterIllegalError("tls", tls, "True, False or a LocalTls")
    given = {name: getattr(tls, name) for name in ("certificate", "key", "ca", "client_ca")}
    paths = {
        name: None if path is None else absolute(f"LocalTls.{name}", path)
        for name, path in given.items()
    }
    return replace(tls, **paths)


def absolute(name: str, path: object) -> Path:
    """Returns the absolute path; the program may change its directory later.

    Raises ParameterIllegalError, and LocalBrokerError without a working directory.
    """
    # An empty text is often a variable that is not set. As a path it is the working directory.
    if not isinstance(path, Path | str) or path == "" or "\0" in str(path):
        raise ParameterIllegalError(name, path, "the path of a directory or a file")
    try:
        return Path(path).absolute()
    except OSError as error:
        raise LocalBrokerError(
            f"{name} is relative: {path}. The working directory cannot be read ({error}); give an "
            "absolute path"
        ) from error
