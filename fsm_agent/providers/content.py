"""Code that the codecs share, for attachments, citations, hosted tools, call ids, counts and log probabilities."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, count
from typing import Any

import pydantic_core

from fsm_agent._internal.structs import decoder_of, differing, is_finite
from fsm_agent.call.effects import Request
from fsm_agent.errors import UsageError
from fsm_agent.messages.hosted_tools import HostedMCP, HostedTool
from fsm_agent.messages.message import (
    PDF,
    Citation,
    Document,
    FunctionCall,
    FunctionResult,
    Message,
    Part,
    Text,
    object_text,
)
from fsm_agent.messages.reply import MOST_TOKENS, TokenLogprob
from fsm_agent.providers.codec import LEFT_OUT, Profile, to_json

# For error messages only; the catalogue's profiles decide.
RUN_BY = {
    "web_search": "anthropic, azure-responses, google, openai, openai-chat (its search models), vertex, xai-responses",
    "code_execution": "anthropic, azure-responses, google, openai, vertex",
    "computer_use": "anthropic, google, openai, vertex",
    "mcp": "anthropic, azure-responses, openai",
}
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")


def untakeable(document: Document, wire: str, right: str) -> UsageError:
    """Return the error for a kind of document that the wire format does not support."""
    return UsageError(f"a document over the wire {wire!r}: expected {right}, got {document!r}")


def file_name(document: Document) -> str:
    """Return the document's name, or a default name."""
    return document.name or f"document.{'pdf' if document.media_type == PDF else 'txt'}"


def in_words(document: Document) -> str | None:
    """Return a text document's name and content as one string, or None for any other document."""
    text = document.text
    return f"{document.name}:\n\n{text}" if document.name and text is not None else text


def text_of(message: Message) -> str:
    """Return the message's text, without the text of function results."""
    return "".join([part.text for part in message.parts if isinstance(part, Text)])


def announced(result: FunctionResult, call_id: str | None) -> str:
    """Return the sentence that introduces a result's attachments when they are sent outside the result."""
    call = f" (call {call_id})" if call_id else ""
    return f"Besides its text, {result.name}{call} returned:"


def citations(entries: Any) -> tuple[Citation, ...]:
    """Return the citations in a list from Anthropic, OpenAI, OpenRouter or Perplexity."""
    read = [_citation(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple([citation for citation in read if citation != Citation()])


def cited(parts: Sequence[Part], sources: tuple[Citation, ...]) -> list[Part]:
    """Return the parts, with the citations attached to the last text.

    Offsets are kept only if there is a single text.
    """
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
    """Return the citations in Gemini's ``groundingMetadata`` for this text.  Its offsets are in UTF-8 bytes."""
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
    sources = chunk.values() if isinstance(chunk, Mapping) else ()
    source = next((source for source in sources if isinstance(source, Mapping)), {})
    url, title = _first(source, "uri"), _first(source, "title")
    return {"url": url, "title": title} if url or title else None


def _first(entry: Mapping[str, Any], *names: str) -> str | None:
    return next((text for name in names if (text := text_or_none(entry.get(name))) is not None), None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def wire_type(tool: HostedTool, *, model: str, wire: str, profile: Profile) -> str:
    """Return the type that the tool has on the wire."""
    if tool.kind not in profile.hosted_tools:
        raise UsageError(
            f"the provider of the model {model!r} does not run {tool!r} over the wire {wire!r}; "
            f"use one that does: {RUN_BY[tool.kind]}"
        )
    return profile.hosted_tools[tool.kind]


def without_hints(request: Request, taken: Collection[str]) -> tuple[Request, tuple[str, ...]]:
    """Return `(request, notes)`: the request without the hosted tools that the model lacks, and a note on each.

    Hosted tools are only hints, so that models can share prompts.  MCP servers are always kept.
    """
    tools = request.settings.hosted_tools
    lacking = [tool for tool in tools if not isinstance(tool, HostedMCP) and tool.kind not in taken]
    if not lacking:
        return request, ()
    left = tuple([tool for tool in tools if tool not in lacking])
    settings = request.settings.changed(hosted_tools=left)
    return request.changed(settings=settings), tuple([f"{tool!r} {LEFT_OUT}" for tool in lacking])


def set_options(tool: HostedTool, *supported: str, type_: str, wire: str) -> dict[str, Any]:
    """Return the options that differ from their defaults."""
    options = differing(tool)
    if unknown := [name for name in options if name not in supported]:
        name = unknown[0]
        shown = f"{name}={options[name]!r}" if name not in tool.hidden else name
        raise UsageError(
            f"the tool {type_!r} of the wire {wire!r} has no option {shown}, which {tool!r} sets; leave it out"
        )
    return options


def call_id(part: FunctionCall | FunctionResult) -> str:
    """Return the key that matches a call and its result in a dialog."""
    return part.provider_id or f"call_{part.id.replace('.', '_')}"


class CallIds:
    """Makes call ids that are unique in a dialog, and the same for a call and its result.

    Some services restart their numbering with every reply, or give two calls in one reply the same id.

    Args:
        most: The maximum length of ids, in characters.
        exactly: The exact length of ids, in letters and digits.
        is_plain: Whether ids may have only letters, digits, "_" and "-".
    """

    def __init__(self, *, most: int | None = None, exactly: int | None = None, is_plain: bool = False) -> None:
        self._most = most
        self._exactly = exactly
        self._is_plain = is_plain
        self._used = set[str]()
        self._answered = set[str]()
        self._ids: dict[tuple[str, str], list[str]] = {}  # in order, by what a call and its result share

    def of_call(self, call: FunctionCall) -> str:
        """Return the id for the dialog's next call."""
        id = self._wished(call)
        if id in self._used or not self._fits(id):
            made = (f"call{n:0{self._exactly - 4}}" if self._exactly else f"call_{n}" for n in count(len(self._used)))
            id = next(id for id in made if id not in self._used)
        self._used.add(id)
        for key in _keys(call):
            self._ids.setdefault(key, []).append(id)
        return id

    def of_result(self, result: FunctionResult) -> str:
        """Return the id of the call that this result answers: the first one without a result, or else the last one."""
        for key in _keys(result):
            if ids := self._ids.get(key):
                while len(ids) > 1 and ids[0] in self._answered:
                    del ids[0]
                self._answered.add(ids[0])
                return ids[0]
        return self._wished(result)

    def _wished(self, part: FunctionCall | FunctionResult) -> str:
        return _NOT_PLAIN.sub("_", call_id(part)) if self._is_plain else call_id(part)

    def _fits(self, id: str) -> bool:
        if self._exactly is not None:
            return re.fullmatch(r"[A-Za-z0-9]+", id) is not None and len(id) == self._exactly
        return self._most is None or len(id) <= self._most


def _keys(part: FunctionCall | FunctionResult) -> list[tuple[str, str]]:
    """Return the keys that match a call and its result, the most reliable first."""
    shared = call_id(part)
    return [(shared, part.id), (shared, ""), ("", part.id)] if part.id else [(shared, "")]


# The user's turn before a dialog that the assistant begins: services refuse a dialog whose first turn is not a user's.
OPENING = "(The conversation begins.)"
_DECODER = json.JSONDecoder(strict=False)


def streamed_arguments(text: str) -> str:
    """Join the pieces of a call's arguments, leaving out what some gateways put around them.

    Such additions are a placeholder, such as ``null`` or an empty object, or the same object once more.
    """
    if not text:
        return text
    try:
        pydantic_core.from_json(text)
    except ValueError:
        return _only_object(text) or text
    return text


def _only_object(row: str) -> str | None:
    """Return the text of the only non-empty object in a series of JSON documents, or None if there is anything else."""
    found: tuple[Any, str] | None = None
    at = 0
    try:
        while (at := next((n for n in range(at, len(row)) if not row[n].isspace()), len(row))) < len(row):
            value, end = _DECODER.raw_decode(row, at)
            if value not in (None, {}, ""):
                if not isinstance(value, dict) or (found and value != found[0]):
                    return None
                found = found or (value, row[at:end])
            at = end
    except (ValueError, RecursionError):  # not a row of documents
        return None
    return found[1] if found else "{}"


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that some text contains, or None if it contains anything else."""
    try:
        pydantic_core.from_json(text)  # limits the depth
        found: dict[str, Any] = decoder_of(dict[str, Any]).decode(text)  # refuses NaN, and 1e999, which is infinity
    except (ValueError, TypeError):  # TypeError: half a surrogate pair
        return None
    return found


def arguments_object(text: str) -> dict[str, Any]:
    """Return arguments as a JSON object, even if the model wrote something else."""
    arguments = json_object(object_text(text))
    return {"invalid_arguments": text} if arguments is None else arguments


def arguments_text(text: str) -> str:
    """Return arguments as the text of a JSON object.

    Services refuse the whole dialog if they cannot parse the arguments.
    """
    whole = object_text(text)
    return whole if json_object(whole) is not None else to_json({"invalid_arguments": text}).decode()


def as_text(value: Any) -> str:
    """Return a function's arguments as text, even if the service sent parsed JSON."""
    return value if isinstance(value, str) else "" if value is None else pydantic_core.to_json(value).decode()


def object_at(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object at a key, or {} if there is none."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


class FirstChoice:
    """The one choice that is read from those that a service sends: the one with index 0, or else the first.

    Choices may arrive in any order, whole or in pieces.

    Attributes:
        has_begun: True once a piece of the choice has arrived.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._index: Any = None
        self._held: list[tuple[Any, Mapping[str, Any]]] = []

    def has(self, piece: Mapping[str, Any], index: Any) -> bool:
        """Return whether a piece belongs to the choice, as a piece without an index always does.

        While the choice has not begun, pieces with an index other than 0 are held.
        """
        if index is not None and index != self._index:
            if self._index is not None:
                return False
            if index != 0 and not self.has_begun:
                self._held.append((index, piece))
                return False
            self._index = index
        self.has_begun = True
        return True

    def take_held(self) -> list[Mapping[str, Any]]:
        """Begin the choice that was held first, and return its pieces, or [] if a choice has already begun."""
        if self.has_begun or not self._held:
            return []
        self._index = self._held[0][0]
        return [piece for index, piece in self._held if index == self._index]


def text_or_none(value: Any) -> str | None:
    """Return ``value`` if it is a non-empty string, otherwise None."""
    return value if isinstance(value, str) and value else None


def first_count(*values: Any) -> int | None:
    """Return the first token count among the values, or None if there is none.  Some services send floats."""
    for value in values:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int and 0 <= value <= MOST_TOKENS:
            return value
    return None


def token_logprobs(entries: Any) -> Iterator[TokenLogprob]:
    """Yield the tokens in a list of log probabilities.  Invalid entries are skipped."""
    for entry in entries if isinstance(entries, list) else ():
        for likely in likely_tokens([entry], "logprob"):
            yield TokenLogprob(*likely, tuple(likely_tokens(entry.get("top_logprobs"), "logprob")))


def likely_tokens(entries: Any, name: str) -> Iterator[tuple[str, float]]:
    """Yield `(token, logprob)` for each valid entry in a list, with the log probability from its field ``name``."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("token"), str) and is_finite(entry.get(name)):
            yield entry["token"], float(entry[name])
