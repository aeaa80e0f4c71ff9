"""Clients by name: `client_for`, and `register_client` for your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fsm_agent._internal.registry import Registry, source_of
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.network import Network
from fsm_agent.errors import ConfigError
from fsm_agent.providers.catalog import PROVIDERS, check_name, split_model
from fsm_agent.runtime.environment import Client
from fsm_agent.validation import require


def client_for(
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    network: Network | None = None,
    wire: str | None = None,
) -> HttpClient:
    """Return a client for ``provider:model``.

    ``local:`` and ``local:/path.gguf`` start a server when the client is first used.  For the other arguments and the
    errors, see `HttpClient`.  If the provider has two wires, ``wire`` names the one that all requests use.  By default,
    each request uses the first wire that can express it.

    Examples:
        >>> client_for("openai:gpt-5-mini", api_key="sk-example").name
        'openai:gpt-5-mini'
    """
    require("model", model, isinstance(model, str), "'provider:model'", ConfigError)
    provider, name = split_model(model)
    if wire is not None:
        provider = provider.over(wire)
    return HttpClient(provider, name, api_key=api_key, base_url=base_url, headers=headers, network=network)


MakeClient: TypeAlias = Callable[..., Client]
CLIENTS: Registry[MakeClient] = Registry("client", ConfigError, source=source_of)


def register_client(name: str, make: MakeClient, *, overwrite: bool = False) -> None:
    """Register a kind of client in this OS process.  ``Agent("name:model")`` then uses ``make("model")``.

    Args:
        name: The part before the colon: lower-case letters, digits, ``-``, ``_`` and ``.``.
        make: A function that is called with the text after the colon and with the options from a configuration's
            ``client`` table.
        overwrite: Whether to replace a client with this name.

    Raises:
        ConfigError: If the name is invalid, or already taken by a client or a provider.

    Examples:
        >>> register_client("shop-example", lambda model: Script("Hi."), overwrite=True)
        >>> Agent("shop-example:small").call("Hello").output
        'Hi.'
    """
    require("make of a client", make, callable(make), "a function of the model's name", ConfigError)
    check_name("client", name)
    if name in PROVIDERS:
        raise ConfigError(
            f"the name of a client: expected a new one, got that of the provider {name!r}; choose another"
        )
    CLIENTS.register(name, make, overwrite=overwrite)


def named_client(model: str, **options: Any) -> Client:
    """Return the client for ``provider:model`` or ``client:model``, made with these options.

    Raises:
        ConfigError: If the provider or client is unknown.
    """
    prefix, colon, rest = model.partition(":")
    if colon and prefix in CLIENTS:
        made = CLIENTS[prefix](rest, **options)
        is_client = hasattr(made, "acomplete") and hasattr(made, "name")
        require(f"the return value of make of the client {prefix!r}", made, is_client, "a Client", ConfigError)
        return made
    if colon and CLIENTS and prefix not in PROVIDERS:
        known = Registry("provider or client", ConfigError, {**PROVIDERS, **CLIENTS})
        known.find(prefix)
    return client_for(model, **options)
