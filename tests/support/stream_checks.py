"""Checks of streams for which tests write the bytes themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from conformance.streams import mismatch, outcome

from fsm_agent.errors import ProviderError
from fsm_agent.messages import Reply
from fsm_agent.providers import Codec
from support.time_growth import growth


def check_told(codec: Codec, body: bytes) -> None:
    """Check that a stream that comes to a reply comes to what its deltas say."""
    found = outcome(codec, body)
    if found.reply and found.deltas:  # a body that is no stream has none
        assert mismatch(found.reply, found.deltas) is None


def check_linear(
    codec: Codec, text: Callable[[int], str], size: int, then: Callable[[Reply], object] | None = None
) -> None:
    """Check that a stream that grows is read in time that grows no faster.

    Args:
        codec: Reads it.
        text: The stream of a size.
        size: The smallest; the largest is eight times it.
        then: What is done with the reply, also in linear time.
    """

    def feed(text: str) -> None:
        decoder, body = codec.decoder({}), text.encode()
        for start in range(0, len(body), 4096):
            decoder.feed(body[start : start + 4096])
        with suppress(ProviderError):
            reply = decoder.finish()
            if then is not None:
                then(reply)

    assert growth(text, feed, size) < 3
