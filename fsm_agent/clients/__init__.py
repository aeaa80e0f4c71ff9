"""Clients that send requests to models: over HTTP, with fallbacks, under a rate limit, from a recording.

`http` holds the connections, `local` the embedded model.  A client sends each request once; the machine decides about
retries.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.clients.client import Client as Client
    from fsm_agent.clients.client import client_for as client_for
    from fsm_agent.clients.command.client import CommandClient as CommandClient
    from fsm_agent.clients.command.output import JsonFields as JsonFields
    from fsm_agent.clients.fallback import FallbackClient as FallbackClient
    from fsm_agent.clients.http_client import HttpClient as HttpClient
    from fsm_agent.clients.network import Network as Network
    from fsm_agent.clients.rate_limit import RateLimit as RateLimit
    from fsm_agent.clients.rate_limited_client import RateLimitedClient as RateLimitedClient
    from fsm_agent.clients.registered import register_client as register_client
    from fsm_agent.clients.sync_verbs import SyncVerbs as SyncVerbs
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "client": "Client client_for",
            "command.client": "CommandClient",
            "command.output": "JsonFields",
            "fallback": "FallbackClient",
            "network": "Network",
            "http_client": "HttpClient",
            "rate_limit": "RateLimit",
            "rate_limited_client": "RateLimitedClient",
            "registered": "register_client",
            "sync_verbs": "SyncVerbs",
        },
    )
