"""Which sources does a provider name for what its model said?

What is no citation is passed over; what a wire wants to have back is kept elsewhere, as it came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from fsm_agent.messages.message import Citation, Part, Text
from fsm_agent.providers.openai.parts import first_count, text_or_none


def citations(entries: Any) -> tuple[Citation, ...]:
    """Those in a list of Anthropic's, OpenAI's, OpenRouter's or Perplexity's: each has its own names for the same."""
    found = [_citation(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple([citation for citation in found if citation != Citation()])


def cited(parts: Sequence[Part], sources: tuple[Citation, ...]) -> list[Part]:
    """The parts with citations that count in the whole text: on the last text, in places only if there is no other."""
    texts = [(place, part) for place, part in enumerate(parts) if isinstance(part, Text) and part.text]
    if not sources or not texts:
        return list(parts)
    if len(texts) > 1:
        sources = tuple([replace(source, start=None, end=None) for source in sources])
    place, last = texts[-1]
    return [*parts[:place], replace(last, annotations=sources), *parts[place + 1 :]]


def _citation(entry: Any) -> Citation:
    if isinstance(entry, str):
        return Citation(url=text_or_none(entry))
    if not isinstance(entry, Mapping):
        return Citation()
    if isinstance(nested := entry.get("url_citation"), Mapping):  # in chat completions
        entry = nested
    is_found = entry.get("type") == "search_result_location"  # in what the caller found; elsewhere "web" is a source
    return Citation(
        url=_first(entry, "url", *(("source",) if is_found else ())),
        title=_first(entry, "title", "document_title", "filename"),
        quote=_first(entry, "cited_text", "content", "snippet"),
        start=first_count(entry.get("start_index")),
        end=first_count(entry.get("end_index")),
    )


def grounding(metadata: Any, text: str) -> tuple[Citation, ...]:
    """Those in Gemini's ``groundingMetadata``, which counts in bytes of UTF-8, for an answer of this text."""
    return tuple(_grounding(metadata, text)) if isinstance(metadata, Mapping) else ()


def _grounding(metadata: Mapping[str, Any], text: str) -> Iterator[Citation]:
    chunks = [_source(chunk) for chunk in _list(metadata.get("groundingChunks"))]
    supports = [entry for entry in _list(metadata.get("groundingSupports")) if isinstance(entry, Mapping)]
    ends = [0, *accumulate([len(character.encode("utf-8", "surrogatepass")) for character in text])] if supports else []
    for support in supports:
        segment = support.get("segment")
        place = segment if isinstance(segment, Mapping) else {}
        end = first_count(place.get("endIndex"))
        for index in _list(support.get("groundingChunkIndices")):
            source = chunks[index] if type(index) is int and 0 <= index < len(chunks) else None
            if source is not None and end is not None and text:
                start = first_count(place.get("startIndex")) or 0
                yield Citation(**source, start=bisect_left(ends, start), end=min(bisect_left(ends, end), len(text)))
            elif source is not None:
                yield Citation(**source)
    if not supports:
        yield from [Citation(**source) for source in chunks if source is not None]


def _source(chunk: Any) -> dict[str, Any] | None:
    """A page, a place on a map, or a piece of a file."""
    places = chunk.values() if isinstance(chunk, Mapping) else ()
    place = next((place for place in places if isinstance(place, Mapping)), {})
    url, title = _first(place, "uri"), _first(place, "title")
    return {"url": url, "title": title} if url or title else None


def _first(entry: Mapping[str, Any], *names: str) -> str | None:
    return next((text for name in names if (text := text_or_none(entry.get(name))) is not None), None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
