"""The options of a call, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

if TYPE_CHECKING:
    from fsm_agent.agents.driving import After

Deps = TypeVar("Deps")


class _Options(TypedDict, Generic[Deps], total=False):
    """The options of a call that are in no record."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: Deps


class CallOptions(_Options[Deps], total=False):
    """The options of a call; variables of a prompt are none of them."""

    extra: Mapping[str, Any] | None
    run_id: str | None
    after: After
    system_args: Mapping[str, Any] | None
    keep_system: bool


class RestoreOptions(_Options[Deps], total=False):
    """The options of `Agent.restore`."""

    signing_key: str | bytes | None
