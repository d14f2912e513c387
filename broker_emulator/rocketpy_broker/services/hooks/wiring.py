"""Builds the room of hooks. Holds no state."""

from __future__ import annotations

from rocketpy_broker.services.hooks.chain import HookChain, installed_hooks


def build() -> HookChain:
    """Returns the hooks that are installed beside the broker."""
    return HookChain(installed_hooks())
