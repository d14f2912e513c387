"""Wiring of the hooks."""

from __future__ import annotations

from rocketpy_broker.services.hooks.chain import HookChain, installed_hooks


def build() -> HookChain:
    """Returns the chain of all hooks of installed packages."""
    return HookChain(installed_hooks())
