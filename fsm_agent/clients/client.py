"""What any client of a model does, and the client for the name of a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from fsm_agent._internal.instrument import Instrument
from fsm_agent.call.effects import Request
from fsm_agent.errors import ConfigError
from fsm_agent.messages.events import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.runtime.log import LOG
from fsm_agent.validation import check

if TYPE_CHECKING:
    from fsm_agent.clients.http_client import HttpClient
    from fsm_agent.clients.network import Network

REQUESTS_ALLOWED = Instrument("fsm_agent_requests_allowed", True)  # set by `fsm_agent.testing.model_requests`


class Client(Protocol):
    """A client of one model: what agents ask.  Every failure of a request is a `ProviderError`.

    Those of this package are `SyncVerbs`, too, and have `complete` and `stream` for plain code.  ``timeout_s`` bounds
    the request as a whole.  A client may have two more attributes: ``takes_images = False`` if its model takes no
    images, and ``reports_logprobs = False`` if it cannot report log probabilities.

    Examples:
        >>> client: Client = client_for("openai:gpt-5-mini", api_key="sk-example")
        >>> client.name
        'openai:gpt-5-mini'
    """

    @property
    def name(self) -> str:
        """The model, as ``provider:model``."""

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``."""

    def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas, then exactly one `Reply`, last.  Close it to stop early."""

    def close(self) -> None:
        """Close all connections."""

    async def aclose(self) -> None:
        """`close` for asyncio."""


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
    from fsm_agent.clients.http_client import HttpClient
    from fsm_agent.providers.catalog import split_model

    check("model", model, isinstance(model, str), "'provider:model'", ConfigError)
    provider, name = split_model(model)
    if wire is not None:
        provider = provider.over(wire)
    return HttpClient(provider, name, api_key=api_key, base_url=base_url, headers=headers, network=network)


def warn_of_left_out(adapted: Sequence[str], name: str, warned: set[str]) -> None:
    """Log a warning for each option that was left out, once per client.

    Args:
        adapted: The adaptations of the request; see `Reply.adapted`.
        name: The client's name.
        warned: The options that have been logged; new ones are added.
    """
    from fsm_agent.providers.codec import LEFT_OUT  # already loaded: the request has been encoded

    for note in adapted:
        option = note.partition("=")[0].partition(" ")[0]
        if note.endswith(LEFT_OUT) and option not in warned:
            warned.add(option)
            LOG.warning("%s: %s", name, note)
