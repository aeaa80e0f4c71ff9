"""Citations: the sources that providers name for their models' answers.

Entries that are not citations are ignored; entries that have to be sent back are kept elsewhere, as received.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from fsm_agent.messages.message import Citation, Part, Text
from fsm_agent.providers.openai.parts import first_count, text_or_none


def citations(entries: Any) -> tuple[Citation, ...]:
    """Return the citations in a list of Anthropic, OpenAI, OpenRouter or Perplexity, each with its own field names."""
    read = [_citation(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple([citation for citation in read if citation != Citation()])


def cited(parts: Sequence[Part], sources: tuple[Citation, ...]) -> list[Part]:
    """Return the parts with citations on the last text, whose offsets are kept only if it is the only text."""
    texts = [(index, part) for index, part in enumerate(parts) if isinstance(part, Text) and part.text]
    if not sources or not texts:
        return list(parts)
    if len(texts) > 1:
        sources = tuple([source.changed(start=None, end=None) for source in sources])
    index, last = texts[-1]
    return [*parts[:index], last.changed(annotations=sources), *parts[index + 1 :]]


def _citation(entry: Any) -> Citation:
    if isinstance(entry, str):
        return Citation(url=text_or_none(entry))
    if not isinstance(entry, Mapping):
        return Citation()
    if isinstance(nested := entry.get("url_citation"), Mapping):  # in chat completions
        entry = nested
    is_search_result = entry.get("type") == "search_result_location"  # elsewhere "source" may be "web"
    return Citation(
        url=_first(entry, "url", *(("source",) if is_search_result else ())),
        title=_first(entry, "title", "document_title", "filename"),
        quote=_first(entry, "cited_text", "content", "snippet"),
        start=first_count(entry.get("start_index")),
        end=first_count(entry.get("end_index")),
    )


def grounding(metadata: Any, text: str) -> tuple[Citation, ...]:
    """Return the citations in Gemini's ``groundingMetadata``, whose offsets count bytes of UTF-8, for this text."""
    return tuple(_grounding(metadata, text)) if isinstance(metadata, Mapping) else ()


def _grounding(metadata: Mapping[str, Any], text: str) -> Iterator[Citation]:
    chunks = [_source(chunk) for chunk in _list(metadata.get("groundingChunks"))]
    supports = [entry for entry in _list(metadata.get("groundingSupports")) if isinstance(entry, Mapping)]
    ends = [0, *accumulate([len(character.encode("utf-8", "surrogatepass")) for character in text])] if supports else []
    for support in supports:
        segment = support.get("segment")
        span = segment if isinstance(segment, Mapping) else {}
        end = first_count(span.get("endIndex"))
        for index in _list(support.get("groundingChunkIndices")):
            source = chunks[index] if type(index) is int and 0 <= index < len(chunks) else None
            if source is not None and end is not None and text:
                start = first_count(span.get("startIndex")) or 0
                yield Citation(**source, start=bisect_left(ends, start), end=min(bisect_left(ends, end), len(text)))
            elif source is not None:
                yield Citation(**source)
    if not supports:
        yield from [Citation(**source) for source in chunks if source is not None]


def _source(chunk: Any) -> dict[str, Any] | None:
    """Return URL and title of a web page, a map entry or a passage of a file; None if there are none."""
    sources = chunk.values() if isinstance(chunk, Mapping) else ()
    source = next((source for source in sources if isinstance(source, Mapping)), {})
    url, title = _first(source, "uri"), _first(source, "title")
    return {"url": url, "title": title} if url or title else None


def _first(entry: Mapping[str, Any], *names: str) -> str | None:
    return next((text for name in names if (text := text_or_none(entry.get(name))) is not None), None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
