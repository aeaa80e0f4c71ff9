"""What any client of a model does, and the client for the name of a model."""

from __future__ import annotations

from collections.abc import Mapping

from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.network import Network
from fsm_agent.errors import ConfigError
from fsm_agent.providers.catalog import split_model
from fsm_agent.validation import check


def client_for(
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    network: Network | None = None,
    wire: str | None = None,
) -> HttpClient:
    """Return a client of ``provider:model``; ``local:`` and ``local:/path.gguf`` start their server on first use.

    Arguments and errors are those of `HttpClient`.  If the provider has two wires, ``wire`` names the
    one for all requests; by default each request takes the first wire that can express it.

    Examples:
        >>> client_for("openai:gpt-5-mini", api_key="sk-example").name
        'openai:gpt-5-mini'
    """
    check("model", model, isinstance(model, str), "'provider:model'", ConfigError)
    provider, name = split_model(model)
    if wire is not None:
        provider = provider.over(wire)
    return HttpClient(provider, name, api_key=api_key, base_url=base_url, headers=headers, network=network)
