"""Checks of streams for which tests write the bytes themselves."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from conformance.codec_conformance import check_any_body, check_any_stream
from conformance.streams import mismatch, outcome
from hypothesis import strategies as st

from fsm_agent.messages import Reply
from fsm_agent.providers import Codec
from support.time_growth import growth

_SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | st.text(max_size=4)
_JUNK = st.sampled_from([b"", b"", b"data: ", b"\xff", b"event: error\n", b"error: x\n", b"\n"])


def _insides(value: Any) -> list[Any]:
    """A JSON value and all that is in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *[found for one in inner for found in _insides(one)]]


@st.composite
def mangled(draw: st.DrawFn, documents: Sequence[Any]) -> list[Any]:
    """Draw some documents of a wire format, in any order, with replaced, added or missing values.

    Args:
        draw: Draws a value.
        documents: Chunks or responses, whose values replace others.
    """
    values = [inside for document in documents for inside in _insides(document)]
    keys = sorted({key for value in values if isinstance(value, dict) for key in value})
    other = _SCALARS | st.sampled_from(values) | st.sampled_from(values).map(lambda value: [value])
    drawn = []
    for _ in range(draw(st.integers(0, 5))):
        document = copy.deepcopy(draw(st.sampled_from(documents)))
        for _ in range(draw(st.integers(0, 3))):
            places = [inside for inside in _insides(document) if isinstance(inside, dict | list) and inside]
            if not places:
                break
            place = draw(st.sampled_from(places))
            key = draw(st.integers(0, len(place) - 1) if isinstance(place, list) else st.sampled_from(sorted(place)))
            match draw(st.sampled_from(["replace", "replace", "add", "remove"])):
                case "replace":
                    place[key] = copy.deepcopy(draw(other))
                case "add" if isinstance(place, dict):
                    place[draw(st.sampled_from(keys))] = copy.deepcopy(draw(other))
                case _:
                    del place[key]
        drawn.append(document)
    return drawn


def check_mangled(
    codec: Codec,
    data: st.DataObject,
    documents: Sequence[Any],
    framed: Callable[[Sequence[Any]], bytes],
    *,
    is_told: bool = True,
) -> list[Any]:
    """Check that every document becomes a reply or a `ProviderError`, whole, streamed, and in pieces.

    Args:
        codec: Reads them.
        data: Draws the documents.
        documents: Documents that the wire format may send.
        framed: Makes a stream of documents.
        is_told: Whether the reply of a stream has to match its deltas.
    """
    said = data.draw(mangled(documents))
    for document in said:
        check_any_body(codec, data.draw(st.sampled_from([200, 200, 400, 529])), json.dumps(document).encode())
    body = data.draw(_JUNK) + framed(said)
    check_any_stream(codec, body, data.draw(st.lists(st.integers(1, 40))))
    found = outcome(codec, body)
    if is_told and found.reply and found.deltas:  # a body that is no stream has none
        assert mismatch(found.reply, found.deltas) is None
    return said


def check_linear(codec: Codec, stream: Callable[[int], bytes], size: int, then: Callable[[Reply], object]) -> None:
    """Check that a stream that grows is read in time that grows no faster.

    Args:
        codec: Reads it.
        stream: The stream of a size.
        size: The smallest; the largest is eight times it.
        then: What is done with the reply, also in linear time.
    """

    def feed(body: bytes) -> None:
        decoder = codec.decoder({})
        for start in range(0, len(body), 4096):
            decoder.feed(body[start : start + 4096])
        then(decoder.finish())

    assert growth(stream, feed, size) < 3
