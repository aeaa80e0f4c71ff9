"""Clients that send requests to models: over HTTP, by a command, with fallbacks, under a rate limit.

`httpx_clients` holds the connections, `local` the embedded model.  A client sends each request once; the machine
decides about retries.
"""

from fsm_agent.clients.client import client_for, register_client
from fsm_agent.clients.command import CommandClient, JsonFields
from fsm_agent.clients.fallback import FallbackClient
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.network import Network
from fsm_agent.clients.rate_limit import RateLimit, RateLimitedClient
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.runtime.environment import Client

__all__ = [
    "Client",
    "CommandClient",
    "FallbackClient",
    "HttpClient",
    "JsonFields",
    "Network",
    "RateLimit",
    "RateLimitedClient",
    "SyncVerbs",
    "client_for",
    "register_client",
]
