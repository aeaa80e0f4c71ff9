"""The choice between two wires of a provider, made before a request: the first that expresses it."""

from __future__ import annotations

from collections.abc import Iterator

from fsm_agent.call.effects import TEXT, Request
from fsm_agent.clients.endpoint import Endpoint
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Settings
from fsm_agent.providers.content import without_hints


def expressed(
    endpoint: Endpoint, request: Request, is_stream: bool, refusal: UsageError
) -> tuple[Endpoint, Request, bytes, tuple[str, ...]]:
    """Return an endpoint for a request that the first wire refuses, the request as sent there, its body, and notes.

    Try the other wire of the provider first.  If it refuses too, leave out the hosted tools that this model lacks, if
    they are hints.

    Args:
        endpoint: The endpoint of the first wire.
        request: The request.
        is_stream: True to have the reply streamed.
        refusal: The error of the first wire.

    Raises:
        UsageError: No wire expresses it, even without hints.
    """
    try:
        other, body, note = over_the_other(endpoint, request, is_stream, refusal)
        return other, request, body, (note,)
    except UsageError:
        ways = [endpoint, endpoint.other] if endpoint.other and not endpoint.provider.is_wire_fixed else [endpoint]
        taken = {kind for way in ways if way is not None for kind in way.profile.hosted_tools}
        rest, notes = without_hints(request, taken)
        if not notes:
            raise
    try:
        return endpoint, rest, _encode(endpoint, rest, is_stream), notes
    except UsageError as error:
        other, body, note = over_the_other(endpoint, rest, is_stream, error)
        return other, rest, body, (note, *notes)


def over_the_other(
    endpoint: Endpoint, request: Request, is_stream: bool, refusal: UsageError
) -> tuple[Endpoint, bytes, str]:
    """Return the endpoint of the other wire, the body of the request there, and a note for the reply.

    Args:
        endpoint: The endpoint of the first wire.
        request: The request, which that wire does not express.
        is_stream: True to have the reply streamed.
        refusal: The error of the first wire.

    Raises:
        UsageError: There is no other wire, or the caller chose the first, or the other does not express it either.
    """
    other = endpoint.other
    if other is None:
        raise refusal
    wire = other.provider.codec.name
    try:
        body = _encode(other, request, is_stream)
    except UsageError as error:
        if str(error) == str(refusal):  # both wires refuse it for the same reason
            raise refusal from None
        raise _neither(endpoint, other, request, (refusal, error)) from None
    if endpoint.provider.is_wire_fixed:
        raise UsageError(f"{refusal}; use the wire {wire!r} of the same provider, which takes it") from None
    return other, body, f"the wire {wire!r} was chosen: {refusal}"


def _encode(endpoint: Endpoint, request: Request, is_stream: bool) -> bytes:
    provider = endpoint.provider
    return provider.codec.encode(
        request, model=endpoint.model, profile=endpoint.profile, stream=is_stream, provider=provider.name
    )


def _neither(
    endpoint: Endpoint, other: Endpoint, request: Request, refusals: tuple[UsageError, UsageError]
) -> UsageError:
    """Return the error of a request that no wire expresses: what is missing, and the wire that has it."""
    wires = {way.provider.codec.name: way for way in (endpoint, other)}
    missing = list[str]()
    for need, settings in _needs(request.settings):
        taking = [name for name, way in wires.items() if _takes(way, request, settings)]
        if not taking:
            missing.append(f"neither wire takes {need}")
        elif len(taking) == 1:
            missing.append(f"only {taking[0]!r} takes {need}")
    if len(missing) < 2:  # settings alone do not explain the refusals
        missing = [f"{name!r}: {refusal}" for name, refusal in zip(wires, refusals, strict=True)]
    name = f"{endpoint.provider.name}:{endpoint.model}"
    return UsageError(f"no wire of {name!r} takes all that is asked for: {'; '.join(missing)}")


def _needs(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Yield each setting that some wires refuse, alone, and how errors name it."""
    for tool in settings.hosted_tools:
        yield repr(tool), Settings(hosted_tools=(tool,))
    if settings.top_logprobs is not None:
        yield f"top_logprobs={settings.top_logprobs!r}", Settings(top_logprobs=settings.top_logprobs)
    if settings.stop:
        yield f"stop={settings.stop!r}", Settings(stop=settings.stop)


def _takes(endpoint: Endpoint, request: Request, settings: Settings) -> bool:
    plain = {"messages": (Message.of("user", "?"),), "functions": (), "tool_choice": "auto", "output": TEXT}
    try:
        _encode(endpoint, request.changed(**plain, settings=settings), False)
    except UsageError:
        return False
    return True
