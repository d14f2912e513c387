"""Faults planted into the running process: a function or constant replaced by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

PACKAGES = ("rocketpy_broker", "rocketpy_proto", "pyspark_rocketpy", "tests")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in place of `target`, such as `rocketpy_broker.config.BrokerConfig.check`."""

    name: str
    target: str
    with_fault: Callable[[Any], Any]
    noticed_by: tuple[str, ...]


def plant(fault: Fault) -> None:
    """Replaces the target wherever a module of the packages has it under its name."""
    owner_name, _, name = fault.target.rpartition(".")
    owner = resolve_name(owner_name)
    # A property is found in the class, not through it.
    original = vars(owner)[name]
    changed = fault.with_fault(original)
    setattr(owner, name, changed)
    for module_name, module in list(sys.modules.items()):
        is_ours = module_name.split(".")[0] in PACKAGES
        if is_ours and vars(module).get(name) is original:
            setattr(module, name, changed)


def nothing(_original: object) -> Callable[..., None]:
    """Returns a function that does nothing."""
    return lambda *_args, **_kwargs: None


def nothing_awaited(_original: object) -> Callable[..., Any]:
    """Returns a coroutine function that does nothing."""

    async def ended(*_args: object) -> None:
        pass

    return ended


def always(value: object) -> Callable[[object], Callable[..., Any]]:
    """Returns a fault: the function returns `value`."""
    return lambda _original: lambda *_args, **_kwargs: value


def constant(value: object) -> Callable[[object], object]:
    """Returns a fault: the constant is `value`."""
    return lambda _original: value
