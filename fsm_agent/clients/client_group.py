"""`ClientGroup`: the base class of clients that pass requests on to other clients."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from fsm_agent.clients.named_clients import named_client
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.runtime.environment import Client, models_of


class ClientGroup(SyncVerbs):
    """A base class for clients that pass requests on to other clients.  It says what the group as a whole can do.

    Args:
        clients: The clients, or models as ``provider:model``.  They are closed when this client is closed.

    Raises:
        ConfigError: If one is neither a client nor a model.
    """

    def __init__(self, clients: Iterable[Client | str]) -> None:
        self._clients = tuple([_client(client, type(self).__name__) for client in clients])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that may reply."""
        return tuple([model for client in self._clients for model in models_of(client)])

    @property
    def environment_defaults(self) -> dict[str, Any]:
        """The defaults of the first client that has any, such as a test double's clock."""
        candidates = (getattr(client, "environment_defaults", None) for client in self._clients)
        return next((defaults for defaults in candidates if defaults), {})

    @property
    def takes_images(self) -> bool:
        """True if one of the clients accepts images."""
        return any(getattr(client, "takes_images", True) for client in self._clients)

    @property
    def reports_logprobs(self) -> bool:
        """True if all of the clients can be asked for log probabilities."""
        return all(getattr(client, "reports_logprobs", True) for client in self._clients)

    def check_available(self) -> None:
        """Check, without sending a request, that at least one client has everything that it needs.

        Raises:
            ConfigError: If no client is available.  The error says what the first client lacks.
        """
        errors: list[UsageError] = []
        for client in self._clients:
            try:
                if (check := getattr(client, "check_available", None)) is not None:
                    check()
                return
            except UsageError as error:
                errors.append(error)
        raise errors[0]

    def close(self) -> None:
        """Close all clients, even if one of them fails to close."""
        with ExitStack() as stack:
            for client in self._clients:
                stack.callback(client.close)

    async def aclose(self) -> None:
        """Async version of `close`."""
        async with AsyncExitStack() as stack:
            for client in self._clients:
                stack.push_async_callback(client.aclose)


def _client(client: Client | str, owner: str) -> Client:
    if isinstance(client, str):
        return named_client(client)
    if not hasattr(client, "acomplete"):
        raise ConfigError(f"{owner}: expected a client, or a model as 'provider:model', got {client!r:.200}")
    return client
