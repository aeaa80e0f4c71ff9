"""Clients that send requests to models: over HTTP, by a command, with fallbacks, or under a rate limit.

A client sends each request once.  The state machine of a call decides when to retry.
"""

import fsm_agent.providers  # before its modules; see CONTRIBUTING.md
import fsm_agent.runtime  # before its modules; see CONTRIBUTING.md
from fsm_agent.clients.command import CommandClient, JsonFields
from fsm_agent.clients.fallback import FallbackClient
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.named_clients import client_for, register_client
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
