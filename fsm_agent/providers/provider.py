"""Providers: the codec, address, key variables and model profiles of each."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from fsm_agent._internal.values import Value
from fsm_agent.errors import ConfigError
from fsm_agent.providers.codec import Codec, Profile

Overrides: TypeAlias = tuple[tuple[str, Mapping[str, Any]], ...]


class Wire(Value, frozen=True, kw_only=True):
    """A wire at the address of a provider: its codec, and the profiles of the models over it.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> Wire(codec=PROVIDERS["openai"].codec).profile.native_schema
        True
    """

    codec: Codec
    profile: Profile = Profile()
    models: Overrides = ()


class Provider(Value, frozen=True, kw_only=True):
    """A named API: its codec, address, key variables, and the profiles of its models.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> house = Provider(name="house", codec=PROVIDERS["openai"].codec, base_url="https://models.example.org/v1")
        >>> house.base_url
        'https://models.example.org/v1'
    """

    hidden = ("headers",)

    name: str
    codec: Codec
    base_url: str | None = None  # None: the caller's or a variable's
    base_url_variable: str | None = None
    base_path: str = ""  # appended to a caller's base URL without a path
    base_path_always: bool = False  # appended to any that does not end in a version, as the provider's own SDK does
    key_variables: tuple[str, ...] = ()  # the first that is set is used; if empty, only `api_key` is
    key_is_optional: bool = False
    key_header: str | None = None  # carries the key as it is, instead of the codec's header
    headers: Mapping[str, str] = {}
    profile: Profile = Profile()
    models: Overrides = ()  # glob patterns of model names and what differs in their profile; later ones win
    other_wire: Wire | None = None  # carries the requests that the codec above does not express
    is_wire_fixed: bool = False  # the codec carries all requests; the other wire is named in errors only
    closes_after_stream: bool = False  # unannounced, so a connection is not reused after a stream
    is_embedded: bool = False  # its server runs in a child process, started when needed

    @property
    def other_way_round(self) -> Provider | None:
        """The same provider with its two wires exchanged; None if it has one."""
        if (other := self.other_wire) is None:
            return None
        first = Wire(codec=self.codec, profile=self.profile, models=self.models)
        return self.changed(codec=other.codec, profile=other.profile, models=other.models, other_wire=first)

    def over(self, wire: str) -> Provider:
        """Return the same provider with all requests on the wire of this name.

        Raises:
            ConfigError: It has no such wire.
        """
        known = [self, *filter(None, [self.other_way_round])]
        for provider in known:
            if provider.codec.name == wire:
                return provider.changed(is_wire_fixed=True)
        names = " or ".join([repr(provider.codec.name) for provider in known])
        raise ConfigError(f"wire of provider {self.name!r}: expected {names}, got {wire!r:.80}")

    def profile_of(self, model: str) -> Profile:
        """Return the profile of ``model``; patterns match it in lower case, also without any prefix up to a slash."""
        name = model.lower()
        bare = name.rpartition("/")[2]
        changes: dict[str, Any] = {}
        for pattern, differs in self.models:
            if fnmatchcase(name, pattern) or fnmatchcase(bare, pattern):
                changes |= differs
        return self.profile.changed(**changes)
