"""Codecs: the protocol, the profile of a model, adaptations of requests to it, and the base of codecs over JSON.

A codec decides with `choose_form`, `offered_functions` and `taken_settings` what a model does not support, and reports
its decisions with `adaptations`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec.structs import astuple

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.values import Value
from fsm_agent.errors import ProviderError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import TEXT, Request, Settings
from fsm_agent.messages.event import Delta, UsageReported
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import OutputMode, Reply, Usage
from fsm_agent.prompts.output import Output
from fsm_agent.providers.encoding import AFRESH, EncodedJson, Encoding, kept
from fsm_agent.providers.failures import failure, reported, unreadable
from fsm_agent.providers.streams import EventStream, ServerEvent, read_json, with_halves

if TYPE_CHECKING:
    from fsm_agent.providers import schemas
else:
    schemas = deferred("fsm_agent.providers.schemas")  # which loads Pydantic

CHOICES = ("auto", "required", "none")  # values that are not names of functions
SAMPLING = ("temperature", "top_p")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_SEED = frozenset({"seed"})
_ALL = frozenset({*SAMPLING, *_SEED})
_FREE = "tool_choice={choice!r} became 'auto': the model cannot be made to call"
LEFT_OUT = "was left out: the model does not take it here"  # ends the notes of `Codec.adapted` on settings


class Profile(Value, frozen=True, kw_only=True):
    """The capabilities of a model and the names of its fields.  Pure data: override what differs.

    If the model does not support something that a request needs, encoding raises `UsageError`.  Mere preferences are
    replaced instead, and the reply names them: see `adaptations`.

    Examples:
        >>> Profile(native_schema=False, output_mode="prompted").output_mode
        'prompted'
    """

    native_schema: bool = True  # takes a JSON schema for its answer; otherwise the schema is described in words
    schema_with_functions: bool = True  # takes a schema and functions in one request
    output_mode: OutputMode = "native"  # the best way to ask for typed answers; "native" falls back to words
    strict_functions: bool = True  # knows `strict` on functions and schemas
    max_tokens_name: str = "max_tokens"
    least_max_tokens: int = 1  # smaller limits are raised to this
    seed_name: str = "seed"
    system_role: Literal["system", "developer", "user"] = "system"
    # The field for returning reasoning to the model: a key of its message, or "thinking" (content parts); or None.
    reasoning_name: (
        Literal["reasoning_content", "reasoning", "reasoning_details", "thinking", "encrypted_content"] | None
    ) = None
    temperature: bool = True  # and top_p
    stop: bool = True
    images: bool = True  # and PDFs
    logprobs: bool = True
    stream_usage: bool = True  # `stream_options: {include_usage: true}` is understood
    named_tool_choice: bool = True  # False: offer the named function alone, and require a call
    required_tool_choice: bool = True  # False: fall back to "auto"
    user_after_results: bool = True  # takes a user message directly after function results
    call_id_chars: int | None = None  # exact length of call ids, in letters and digits; None: any id is valid
    # "guided": the model does not call functions by itself; the client chooses one and fills it in, step by step.
    function_calls: Literal["native", "guided"] = "native"
    # The provider's own tools that it can use, by kind, with their types on the wire.
    hosted_tools: Mapping[str, str] = {}
    extra_body: Mapping[str, Any] = {}  # sent with every request

    def __hash__(self) -> int:
        return hash(tuple([value for value in astuple(self) if not isinstance(value, Mapping)]))


def wire_name(name: str) -> str:
    """Return the name of a called function in the characters that every API takes.

    A model may have called anything, such as ``functions.add<|channel|>commentary``; with that in the dialog, OpenAI,
    Gemini and Anthropic refuse each later request.  The names of functions that are offered are in these characters.
    """
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


class RequestForm(NamedTuple):
    """A request in the form that a model can take, once the output mode is decided.

    The request keeps its output only in the mode "native"; in the mode "function" a function replaces it.
    """

    request: Request
    mode: OutputMode | None = None  # None: the output is text
    words: str | None = None  # instructions for the system prompt, in the mode "prompted"
    notes: tuple[str, ...] = ()  # deviations from what the prompt or the profile asks for


class Decoder(Protocol):
    """Decodes the bytes of one streamed response into deltas and finally a reply.

    The deltas, and the reply or error, do not depend on how the bytes are split.  An error in the stream does not
    affect the deltas before it.
    """

    @property
    def is_done(self) -> bool:
        """True after the last event of the stream, even if the connection stays open."""

    @property
    def has_failed(self) -> bool:
        """True if the stream reported an error or is not a stream: the rest is ignored, and `finish` raises."""

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes; return the deltas that they complete."""

    def end(self) -> list[Delta]:
        """Take the end of the bytes; return the last deltas."""

    def finish(self) -> Reply:
        """Return the whole reply, at the end of the bytes; raise `ProviderError` if there is none."""


class Codec(Protocol):
    """Translates one wire format: values to JSON, bytes to values.  Pure.

    Examples:
        >>> class TestMyCodec(CodecConformance):                     # doctest: +SKIP
        ...     def make(self): return MyCodec()
    """

    name: str

    @abstractmethod
    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of requests, relative to the base URL; it begins with a slash."""

    @abstractmethod
    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key and the version of the API."""

    @abstractmethod
    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        """Return the request's JSON body; raise `UsageError` for what this format or model does not support."""

    @abstractmethod
    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request as `encode` writes it, with the mode in which it asks for the output."""

    @abstractmethod
    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of what `encode` changes or omits because the model does not support it."""

    @abstractmethod
    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return further headers that this request needs; their values are appended to existing ones."""

    @abstractmethod
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a whole response; raise `ProviderError`.  Header names are lower-case."""

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply with calls of hosted tools, or of tools in an extra body, as function calls.

        It is called only for requests with either.  Most codecs recognize such calls without the request.

        Raises:
            BadReply: The model calls something that neither a function nor the provider can answer.
        """
        return reply

    @abstractmethod
    def decoder(self, headers: Mapping[str, str]) -> Decoder:
        """Return a decoder for one streamed response of status 200."""


class JsonCodec(Codec):
    """A codec whose responses are JSON: one document, or the events of a stream.

    A subclass defines `name`, `path`, `headers`, `encode` and `reply_parts`.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> Provider(name="house", codec=PROVIDERS["openai"].codec, base_url="https://models.example.org/v1").name
        'house'
    """

    @abstractmethod
    def reply_parts(self, headers: Mapping[str, str]) -> ReplyParts:
        """Return a collector for the reply of one response."""

    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request as `encode` writes it, with the mode in which it asks for the output."""
        return choose_form(request, profile)

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of the changes to the request that the model needs."""
        return adaptations(self.request_form(request, profile), profile, taken_settings=taken_settings(profile))

    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return {}: most APIs need no more than `headers`."""
        return {}

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a whole response, also if it is a stream that was not requested.

        Raises:
            ProviderError: The response is an error, or not a reply.
        """
        if not 200 <= status < 300:
            raise failure(status, headers, body)
        try:
            document = read_json(body)
        except ValueError:
            if body.lstrip().startswith((b"data:", b"event:", b": ")):
                decoder = self.decoder(headers)
                decoder.feed(body)
                return decoder.finish()
            raise unreadable("expected JSON, got another reply", headers, body) from None
        reply = self.reply_parts(headers)
        reply.take_whole(document)
        reply.end(is_cut=False)
        return reply.finished()

    def decoder(self, headers: Mapping[str, str]) -> ChunkDecoder:
        """Return a decoder for one streamed response of status 200."""
        return ChunkDecoder(self, self.reply_parts(headers), headers)


class ReplyParts(Protocol):
    """A reply that is still arriving.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> parts: ReplyParts = PROVIDERS["openai"].codec.reply_parts()     # doctest: +SKIP
    """

    usage: Usage  # reported so far

    @property
    def is_ended(self) -> bool:
        """True once the received part declares the reply complete; only the usage may be missing."""

    @property
    def is_over(self) -> bool:
        """True once nothing can follow: the reply is there, even if the connection stays open."""

    def take(self, chunk: Any) -> list[Delta]:
        """Take a chunk and return its deltas; raise `ProviderError` if it reports an error or is not a chunk."""

    def take_whole(self, document: Any) -> None:
        """Take a whole response; raise `ProviderError` if it reports an error or is not a response."""

    def end(self, *, is_cut: bool) -> list[Delta]:
        """Take the end of the response; return the deltas that were held back.

        Args:
            is_cut: True if the stream ended without its end marker, although the reply `is_ended`.
        """

    def finished(self) -> Reply:
        """Return the reply; raise `BadReply` if none has arrived."""


class ChunkDecoder:
    """Decodes a stream whose events are JSON chunks; see `Decoder`.

    Args:
        codec: Decodes the body if it is not a stream after all.
        reply: Collects the chunks.
        headers: Headers of the response, with lower-case names.
    """

    def __init__(self, codec: Codec, reply: ReplyParts, headers: Mapping[str, str]) -> None:
        self._codec = codec
        self._reply = reply
        self._headers = headers
        self._events = EventStream()
        self._usage = reply.usage  # as reported last
        self._is_done = False
        self._is_over = False
        self._has_halves = False
        self._error: ProviderError | None = None

    @property
    def is_done(self) -> bool:
        """True after the last event of the stream, or its end marker."""
        return self._is_done

    @property
    def has_failed(self) -> bool:
        """True if `finish` will raise, whatever follows."""
        return self._error is not None

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes; return the deltas that they complete."""
        return self._feed_events(self._events.feed(data))

    def end(self) -> list[Delta]:
        """Take the end of the bytes; return the last deltas."""
        if self._is_over:
            return []
        self._is_over = True
        deltas = self._feed_events(self._events.finish(), is_cut=True)
        if self._error is None and self._reply.is_ended and not self._is_done:
            deltas += self._reply.end(is_cut=True)
        return deltas

    def finish(self) -> Reply:
        """Return the whole reply.

        Raises:
            ProviderError: The stream reported an error, was cut off, or was empty.
        """
        self.end()
        if self._error:
            raise self._error
        if (document := self._events.document) is not None:
            return self._codec.decode(200, self._headers, document)
        if not self._is_done and not self._reply.is_ended:
            problem = "the stream was cut off before the end of the reply"
            raise unreadable(problem, self._headers, self._events.stray)
        reply = self._reply.finished()
        return deepcopy(reply) if self._has_halves else reply  # copying turns each `CutText` into a plain string

    def _feed_events(self, events: Sequence[ServerEvent], *, is_cut: bool = False) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event, data in events:
                if self._is_done or self._error:
                    break
                self._take(event, data, deltas, is_cut)
        except ProviderError as error:
            self._error = error
        self._error = self._error or self._events.error
        return deltas

    def _take(self, event: str, data: bytes, deltas: list[Delta], is_cut: bool) -> None:
        if not data.startswith(b"{"):
            bare = data.strip()
            if bare == b"[DONE]":
                self._is_done = True
                deltas += self._reply.end(is_cut=False)
            if self._is_done or not bare:
                return
        if event == "error":
            raise reported(_json_or_text(data), self._headers)
        try:
            chunk = read_json(data, self._keep_halves)
        except ValueError:
            if is_cut:  # the last event was cut off; the reply may be complete without it
                return
            raise unreadable("expected JSON in a chunk of the stream, got other text", self._headers, data) from None
        deltas += self._reply.take(chunk)
        if self._reply.is_over:
            self._is_done = True
            deltas += self._reply.end(is_cut=False)
        if (usage := self._reply.usage) is not self._usage:
            self._usage = usage
            deltas.append(UsageReported(usage))

    def _keep_halves(self, value: Any) -> Any:
        self._has_halves = True
        return with_halves(value)


def _json_or_text(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def choose_form(
    request: Request, profile: Profile, *, takes: Callable[[Output], bool] | None = None, can_force: bool = True
) -> RequestForm:
    """Decide how to ask the model for the output.

    The prompt's mode takes precedence over the profile's.  A schema that the model does not take is described in words.

    Args:
        request: The request.
        profile: The capabilities of the model.
        takes: Returns whether the wire can express the schema of an output; None: it can express all.
        can_force: False if the model cannot be made to call a function in this request.
    """
    output = request.output
    if output.is_text:
        return RequestForm(request)
    mode, problem = _mode(request, profile, takes)
    notes = (f"the schema was told in words: {problem}",) if problem else ()
    if mode == "native":
        return RequestForm(request, mode)
    if mode == "prompted":
        words = kept(output, schemas.output_in_words, bool(request.functions))
        return RequestForm(request.changed(output=TEXT), mode, words, notes)
    if request.functions and request.tool_choice not in (
        "auto",
        "none",
    ):  # the chosen function first; a later request asks for the answer
        return RequestForm(request.changed(output=TEXT), mode)
    functions = () if request.tool_choice == "none" else request.functions
    choice = "required" if can_force else "auto"
    notes = () if can_force else (_FREE.format(choice="required"),)
    changes = {"output": TEXT, "functions": (*functions, output.function), "tool_choice": choice}
    return RequestForm(request.changed(**changes), mode, notes=notes)


def _mode(request: Request, profile: Profile, takes: Callable[[Output], bool] | None) -> tuple[OutputMode, str]:
    """Return the mode, and the reason if it is not the one that was asked for."""
    wanted, output = request.mode or profile.output_mode, request.output
    if output.schema is None and wanted != "prompted":
        return "prompted", f"{output.name} has no JSON schema"
    if wanted != "native":
        return wanted, ""
    if profile.native_schema and not profile.schema_with_functions and request.functions:
        return "prompted", "the model does not take it beside functions"
    if not profile.native_schema or (takes is not None and not takes(output)):
        return "prompted", "the model does not take it"
    return "native", ""


def check_settings(settings: Settings, model: str, profile: Profile) -> None:
    """Check for settings that the model does not support and that have no substitute.

    Raises:
        UsageError: One is set.
    """
    if settings.top_logprobs is not None and not profile.logprobs:
        raise UsageError(
            f"top_logprobs: expected None, since the model {model!r} reports no logprobs, got {settings.top_logprobs!r}"
        )
    if settings.stop and not profile.stop:
        raise UsageError(
            f"stop: expected none, since the model {model!r} takes no stop sequences, got {settings.stop!r:.200}"
        )


def taken_settings(profile: Profile) -> frozenset[str]:
    """Return the sampling settings that the model takes; the others are omitted."""
    return _ALL if profile.temperature else _SEED


def offered_functions(request: Request, profile: Profile) -> tuple[tuple[Function, ...], str]:
    """Return the functions to offer, and the choice among them: 'auto', 'required', 'none' or a name.

    Raises:
        UsageError: No function of the request has this name.
    """
    functions, choice = request.functions, request.tool_choice
    if choice not in CHOICES:
        chosen = tuple([function for function in functions if function.name == choice])
        if not chosen:
            names = ", ".join([repr(function.name) for function in functions])
            right = f"'auto', 'required', 'none' or the name of a function ({names or 'none is offered'})"
            raise UsageError(f"tool_choice: expected {right}, got {choice!r:.80}")
        if profile.named_tool_choice:
            return functions, choice
        functions, choice = chosen, "required"
    return functions, choice if profile.required_tool_choice or choice != "required" else "auto"


def _has_user_after_results(messages: Iterable[Message]) -> bool:
    return ("tool", "user") in pairwise([message.role for message in messages])


def adaptations(form: RequestForm, profile: Profile, *, taken_settings: Collection[str]) -> tuple[str, ...]:
    """Return a description of each adaptation of the request.

    Args:
        form: The request, and how it asks for the output.
        profile: The capabilities of the model.
        taken_settings: The sampling settings that its codec sends.
    """
    request = form.request
    choice = request.tool_choice
    bridges = not profile.user_after_results and _has_user_after_results(request.messages)
    if not bridges and not form.notes and choice == "auto" and len(taken_settings) == len(_ALL):
        return ()  # the common case, before any further work
    notes = []
    if bridges:
        notes.append("a word of the model's was put between results and a user's message: it takes no other order")
    notes += form.notes
    for name in (*SAMPLING, "seed"):
        if name not in taken_settings and (value := getattr(request.settings, name)) is not None:
            notes.append(f"{name}={value!r} {LEFT_OUT}")
    if choice != "auto" and (request.functions or request.settings.hosted_tools):
        functions, offered = offered_functions(request, profile)
        if len(functions) < len(request.functions):
            notes.append(f"{choice!r} was the only function offered: the model takes no function's name")
        if offered == "auto":
            notes.append(_FREE.format(choice=choice))
    return tuple(notes)


def merged(body: Mapping[str, Any], *extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``body`` with ``extras``: objects are merged by key, all else is replaced; no argument is modified."""
    whole = dict(body)
    for extra in extras:
        for key, value in extra.items():
            known = whole.get(key)
            if isinstance(value, Mapping):
                known = known.values[0] if isinstance(known, EncodedJson) else known
                value = merged(known, value) if isinstance(known, Mapping) else value
            whole[key] = value
    return whole
