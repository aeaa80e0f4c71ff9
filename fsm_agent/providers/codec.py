"""The base classes for codecs and decoders, model profiles, and functions that adapt requests to a model.

A codec writes requests, and makes a decoder for each response.  It calls `check_settings`, `taken_settings` and
`offered_functions` to adapt a request to the model, and `merged_body` to add fields that the wire format does not
define.  `adaptations` describes what the codec changed.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from operator import call, is_
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar
from weakref import ref

from msgspec.structs import asdict

from fsm_agent._internal.structs import Value
from fsm_agent.call.effects import TEXT, Request
from fsm_agent.errors import BadReply, ProviderError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from fsm_agent.messages.message import (
    PDF,
    Attachment,
    Document,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
)
from fsm_agent.messages.reply import UNUSED, Finish, OutputMode, Reply, Settings, Usage
from fsm_agent.prompts.output import Output
from fsm_agent.providers.failures import failure, no_object, reported, unreadable
from fsm_agent.providers.schemas import output_in_words
from fsm_agent.providers.sse import EventStream, ServerEvent, read_json, request_id, with_halves

T = TypeVar("T")
D = TypeVar("D", bound="DialogEncoder")
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class DialogEncoder(ABC):
    """Encodes a dialog message by message, each of which has been checked.

    Attributes:
        files_in: The roles of the messages that can contain images and documents.
    """

    files_in: ClassVar[tuple[Role, ...]] = ("user",)

    @abstractmethod
    def add(self, message: Message) -> None:
        """Encode the next message."""


class _EncodedDialog:
    """A dialog that has been encoded, and that may be continued while its messages exist."""

    __slots__ = ("_places", "encoder", "file_bytes", "key", "messages")

    def __init__(self, key: tuple[Any, ...], encoder: Any) -> None:
        self.key = key
        self.encoder = encoder
        self.file_bytes = 0
        self.messages: list[ref[Message]] = []
        self._places: list[Any] = []  # where it is kept; at most one

    def begins(self, key: tuple[Any, ...], messages: Sequence[Message]) -> bool:
        return self.key == key and all(map(is_, map(call, self.messages), messages))

    def keep(self, added: Iterable[Message], place: Any) -> None:
        """Keep the dialog, to which these messages have been added, until one of its messages is gone."""
        places = self._places
        places[:] = [place]

        def forget(_: object) -> None:  # references no dialog, which would be a cycle
            for at in places:
                _encoded.pop(at, None)

        self.messages += [ref(message, forget) for message in added]
        _encoded[place] = self
        if len(_encoded) > _MOST_KEPT:
            for old in [*_encoded][: _MOST_KEPT // 2]:
                _encoded.pop(old, None)


_LONG = 20  # in messages; if shorter dialogs were kept too, 400 concurrent calls would take 15 % longer
_MOST_KEPT = 500
_MOST_FILE_BYTES = 100_000  # the limit for a kept dialog, since dialogs that share a file each hold a base64 copy
_encoded: dict[Any, _EncodedDialog] = {}  # in this OS process, the latest last; see `_place`


def _place(last: Message, provider: str, model: str) -> tuple[int, str, str]:
    """Return the key under which a dialog that ends with this message is kept."""
    return id(last), provider, model


def _take_beginning(key: tuple[Any, ...], messages: Sequence[Message], provider: str, model: str) -> Any:
    """Remove and return the longest kept dialog that these messages continue, or return None."""
    for count in range(len(messages), _LONG - 1, -1):  # shorter ones are not kept
        place = _place(messages[count - 1], provider, model)
        known = _encoded.get(place)
        if known is None or len(known.messages) != count or not known.begins(key, messages):
            continue
        # Another thread may take it too: the one that removes it gets it, unless it has grown meanwhile.
        if _encoded.pop(place, None) is known and len(known.messages) == count:
            return known
    return None


@contextmanager
def encoded_dialog(
    make: Callable[..., D], form: RequestForm, provider: str, model: str, profile: Profile, *options: Any
) -> Iterator[D]:
    """Yield an encoder, ``make(model, profile, *options)``, that has read the dialog.  Use it only inside the block.

    Raises `UsageError` for an image or a document that the model or the wire format does not support.

    Opaque parts from other providers are left out.  Only the provider that made an opaque part can read it, even if
    others use the same wire format.

    Each of a call's requests repeats the messages from the one before.  The encoders for the latest long dialogs
    without large files are therefore kept as long as their messages exist, and continue where they stopped if the same
    messages come again.  Without this, 2,000 rounds took 3.5 times as long.
    """
    messages, words = form.request.messages, form.words
    key = make, words, provider, model, profile, *options
    dialog = _take_beginning(key, messages, provider, model) or _EncodedDialog(key, make(model, profile, *options))
    added = messages[len(dialog.messages) :]
    for message in added if dialog.messages or not words else _with_words(messages, words):
        _check_files(message, dialog.encoder.files_in, model, profile)
        dialog.encoder.add(_without_foreign(message, provider))
        dialog.file_bytes += _file_bytes(message.parts)
    try:
        yield dialog.encoder
    finally:
        if len(messages) >= _LONG and dialog.file_bytes <= _MOST_FILE_BYTES:
            dialog.keep(added, _place(messages[-1], provider, model))


def _with_words(messages: Sequence[Message], words: str) -> list[Message]:
    """Return the messages with ``words`` appended to the system message, or in a new one if there is none."""
    if not messages or messages[0].role != "system":
        return [Message.of("system", words), *messages]
    first = messages[0]
    gap = "\n\n" if first.text.strip() else ""
    return [Message(role="system", parts=(*first.parts, Text(gap + words))), *messages[1:]]


FILES = (Image, Document)  # a tuple, because `isinstance` is slower with a new union each time


def _file_bytes(parts: Iterable[Part]) -> int:
    size = 0
    for part in parts:
        if isinstance(part, FunctionResult):
            size += _file_bytes(part.attachments)
        elif isinstance(part, FILES) and part.data is not None:
            size += len(part.data)
    return size


def _check_files(message: Message, files_in: Collection[Role], model: str, profile: Profile) -> None:
    """Check that the message's role allows its images and documents, and that the model takes them."""
    role = message.role
    files: list[Attachment] = []
    for part in message.parts:
        if role == "tool" and role not in files_in and isinstance(part, Text | Image | Document):
            raise UsageError(f"a message of role 'tool': expected only function results, got {part!r}")
        if isinstance(part, FunctionResult):
            files += part.attachments
        elif isinstance(part, Image | Document):
            if role not in files_in:
                what = f"no {part.kind}, which only a user message can contain"
                raise UsageError(f"a message of role {role!r}: expected {what}, got {part!r}")
            files.append(part)
    for file in files if not profile.images else ():
        if isinstance(file, Image) or file.media_type == PDF:  # models see the pages of a PDF
            what = f"messages without {'images' if isinstance(file, Image) else 'PDFs'}, which it does not support"
            raise UsageError(f"the model {model!r}: expected {what}, got {file!r}")


def _without_foreign(message: Message, provider: str) -> Message:
    if Opaque not in map(type, message.parts):
        return message
    own = [part for part in message.parts if type(part) is not Opaque or part.provider in (None, provider)]
    return message if len(own) == len(message.parts) else message.changed(parts=tuple(own))


def kept(owner: object, make: Callable[..., T], *key: Hashable) -> T:
    """Return ``make(owner, *key)``, cached on ``owner``, which is a function or an output.

    Do not modify the result.
    """
    memo: dict[Hashable, T] | None = vars(owner).get("memo")
    if memo is None:
        memo = vars(owner)["memo"] = {}
    entry = make, *key
    if entry not in memo:
        memo[entry] = make(owner, *key)
    return memo[entry]


def to_json(value: Any) -> bytes:
    """Return a value as JSON encoded in UTF-8.  Half a surrogate pair becomes "?"."""
    try:
        return _encoder.encode(value).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error


CHOICES = ("auto", "required", "none")  # values of `tool_choice` that are not names of functions
SAMPLING = ("temperature", "top_p")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_SEED = frozenset({"seed"})
_ALL = frozenset({*SAMPLING, *_SEED})
_BRIDGE = "an assistant message was inserted between function results and a user message, because the model requires it"
_FREE = "tool_choice={choice!r} became 'auto': the model cannot be forced to call a function"
LEFT_OUT = "was left out: the model does not support it here"  # ends the notes of `Codec.adapted` on settings


class Profile(Value, frozen=True, kw_only=True):
    """A model's capabilities, and the names of its request fields.  Override the fields that differ.

    If a request needs something that the model does not support, encoding raises `UsageError`.  Mere preferences are
    dropped or replaced, and the reply reports this.

    Examples:
        >>> Profile(native_schema=False, output_mode="prompted").output_mode
        'prompted'
    """

    native_schema: bool = True  # takes a JSON schema for the answer; otherwise the prompt describes it
    schema_with_functions: bool = True  # takes a schema and functions in one request
    output_mode: OutputMode = "native"  # how to ask for typed answers; "native" falls back to "prompted"
    strict_functions: bool = True  # accepts `strict` on functions and schemas
    max_tokens_name: str = "max_tokens"
    least_max_tokens: int = 1  # smaller limits are raised to this
    seed_name: str = "seed"
    system_role: Literal["system", "developer", "user"] = "system"
    # The field that returns reasoning to the model: a key of the message, "thinking" (content parts) or None.
    reasoning_name: (
        Literal["reasoning_content", "reasoning", "reasoning_details", "thinking", "encrypted_content"] | None
    ) = None
    temperature: bool = True  # takes temperature and top_p
    stop: bool = True
    images: bool = True  # takes images and PDFs
    logprobs: bool = True
    samples_while_reasoning: bool = True  # `temperature` and `logprobs` also hold while it reasons
    stream_usage: bool = True  # accepts `stream_options: {include_usage: true}`
    named_tool_choice: bool = True  # otherwise only the named function is offered, and a call is required
    required_tool_choice: bool = True  # otherwise "auto" is used
    # The efforts at which it takes functions: any, only "none" or unset, or only "none".
    functions_at_effort: Literal["any", "unset", "none"] = "any"
    parallel_choice: bool = True  # can be told whether to call functions in parallel
    user_after_results: bool = True  # takes a user message directly after function results
    call_id_chars: int | None = None  # the exact length of call ids, in letters and digits; None if any id is valid
    # "guided": the model cannot call functions alone; the client has it choose one and fill it in, step by step.
    function_calls: Literal["native", "guided"] = "native"
    # The provider's tools that the model can use: their types on the wire, by kind.
    hosted_tools: Mapping[str, str] = {}
    extra_body: Mapping[str, Any] = {}  # sent with every request


P = TypeVar("P", bound=Profile)


def profile_as(kind: type[P], profile: Profile) -> P:
    """Return a profile of this kind, with the kind's defaults for the fields that the given profile lacks."""
    return profile if isinstance(profile, kind) else kind(**asdict(profile))


def profile_for(settings: Settings, profile: Profile) -> Profile:
    """Return the profile that holds with these settings."""
    if profile.samples_while_reasoning or settings.reasoning_effort in (None, "none"):
        return profile
    return profile.changed(temperature=False, logprobs=False)


def wire_name(name: str) -> str:
    """Return a called function's name in characters that every API accepts.

    Models sometimes call names such as ``functions.add<|channel|>commentary``.  OpenAI, Gemini and Anthropic refuse
    every later request whose dialog contains such a name.
    """
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


class RequestForm(NamedTuple):
    """A request in the form that a model takes, with a definite output mode.

    The request keeps its output only in "native" mode.  In "function" mode, a function takes the output's place.
    """

    request: Request
    mode: OutputMode | None = None  # None if the output is text
    words: str | None = None  # instructions for the system prompt, in "prompted" mode
    notes: tuple[str, ...] = ()  # deviations from what the prompt or the profile asks for, in words


class Codec(ABC):
    """The base class for codecs.  A codec encodes requests in one wire format and makes decoders for the replies.

    It does no I/O.  A subclass defines `name`, `path`, `headers`, `encode` and `decoder`.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> Provider(name="house", codec=PROVIDERS["openai"].codec, base_url="https://models.example.org/v1").name
        'house'
    """

    name: str

    @abstractmethod
    def path(self, model: str, *, stream: bool) -> str:
        """Return the path for requests, relative to the base URL.  It begins with a slash."""

    @abstractmethod
    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key and the API version."""

    @abstractmethod
    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        """Return the request's body.

        Args:
            request: The request.
            model: The model's name.
            profile: The model's capabilities.
            stream: Whether to ask for a streamed reply.
            provider: The provider's name.  Opaque parts from other providers are omitted.

        Raises:
            UsageError: If the request needs something that the wire format or the model does not support.
        """

    @abstractmethod
    def decoder(self, headers: Mapping[str, str]) -> Decoder:
        """Return a decoder for one response with status 200.  Header names are lower-case."""

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a complete response or in a stream that was not requested.

        Raises:
            ProviderError: If the response is an error or is not a reply.
        """
        if not 200 <= status < 300:
            raise failure(status, headers, body)
        return self.decoder(headers).read(body)

    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request in the form in which `encode` writes it, including the output mode."""
        return choose_form(request, profile)

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return a description of each thing that `encode` changes or omits because the model does not support it."""
        taken = self.taken_settings(request.settings, profile)
        return adaptations(self.request_form(request, profile), profile, taken_settings=taken)

    def taken_settings(self, settings: Settings, profile: Profile) -> frozenset[str]:
        """Return the sampling settings that `encode` sends.  The others are omitted."""
        return taken_settings(profile_for(settings, profile))

    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return the additional headers for this request.  Their values are appended to those of existing headers."""
        return {}

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply, with some calls converted to function calls: those whose meaning depends on the request.

        The client calls this only for requests with hosted tools or an extra body.

        Raises:
            BadReply: If the model makes a call that neither a function nor the provider can handle.
        """
        return reply


def choose_form(
    request: Request, profile: Profile, *, takes: Callable[[Output], bool] | None = None, can_force: bool = True
) -> RequestForm:
    """Decide how to ask the model for the output.

    The mode in the prompt takes precedence over the one in the profile.  A schema that the model does not accept is
    described in words.

    Args:
        request: The request.
        profile: The model's capabilities.
        takes: A function that returns whether the wire format can express an output's schema; by default, it can
            express every schema.
        can_force: Whether the request can force a function call.
    """
    output = request.output
    if output.is_text:
        return RequestForm(request)
    mode, problem = _mode(request, profile, takes)
    notes = (f"the schema was described in words: {problem}",) if problem else ()
    if mode == "native":
        return RequestForm(request, mode)
    if mode == "prompted":
        words = kept(output, output_in_words, bool(request.functions))
        return RequestForm(request.changed(output=TEXT), mode, words, notes)
    if request.functions and request.tool_choice not in ("auto", "none"):
        # the chosen function first; a later request asks for the answer
        return RequestForm(request.changed(output=TEXT), mode)
    functions = () if request.tool_choice == "none" else request.functions
    choice = "required" if can_force else "auto"
    notes = () if can_force else (_FREE.format(choice="required"),)
    changes = {"output": TEXT, "functions": (*functions, output.function), "tool_choice": choice}
    return RequestForm(request.changed(**changes), mode, notes=notes)


def _mode(request: Request, profile: Profile, takes: Callable[[Output], bool] | None) -> tuple[OutputMode, str]:
    """Return `(mode, reason)`: the mode, and why it differs from the requested one, or "" if it does not."""
    wanted, output = request.mode or profile.output_mode, request.output
    if output.schema is None and wanted != "prompted":
        return "prompted", f"{output.name} has no JSON schema"
    if wanted != "native":
        return wanted, ""
    if profile.native_schema and not profile.schema_with_functions and request.functions:
        return "prompted", "the model does not accept a schema together with functions"
    if not profile.native_schema or (takes is not None and not takes(output)):
        return "prompted", "the model does not accept this schema"
    return "native", ""


def check_settings(settings: Settings, model: str, profile: Profile) -> None:
    """Check that the model supports the settings for which there is no substitute.

    Raises:
        UsageError: If ``top_logprobs`` or ``stop`` is set but the model does not support it.

    Examples:
        >>> check_settings(Settings(stop=("END",)), "small", Profile())
        >>> try:
        ...     check_settings(Settings(stop=("END",)), "small", Profile(stop=False))
        ... except UsageError as error:
        ...     print(error)
        stop: expected none, since the model 'small' does not support stop sequences, got ('END',)
    """
    if settings.top_logprobs is not None and not profile_for(settings, profile).logprobs:
        when = " while it reasons (reasoning_effort)" if profile.logprobs else ""
        raise UsageError(
            f"top_logprobs: expected None, since the model {model!r} reports no logprobs{when}, got"
            f" {settings.top_logprobs!r}"
        )
    if settings.stop and not profile.stop:
        raise UsageError(
            f"stop: expected none, since the model {model!r} does not support stop sequences, got"
            f" {settings.stop!r:.200}"
        )


def check_effort(settings: Settings, model: str, *, reasons: bool, stops: bool, known: Collection[str] | None) -> None:
    """Check that the model can reason with this effort, or can be told not to reason.

    Args:
        settings: The settings.
        model: The model's name.
        reasons: Whether the model can reason.
        stops: Whether the model can be told not to reason.
        known: The known efforts, or None if the wire takes any word.
    """
    effort, right = settings.reasoning_effort, ""
    if effort == "none" and reasons and not stops:
        right = f"'low' or more, since the model {model!r} always reasons"
    elif effort not in (None, "none") and not reasons:
        right = f"None, since the model {model!r} does not reason"
    elif effort not in (None, "none") and known is not None and effort not in known:
        right = " or ".join(map(repr, known))
    if right:
        raise UsageError(f"reasoning_effort: expected {right}, got {effort!r:.80}")


def taken_settings(profile: Profile) -> frozenset[str]:
    """Return the sampling settings that the model accepts.  The others are omitted.

    Examples:
        >>> sorted(taken_settings(Profile())), sorted(taken_settings(Profile(temperature=False)))
        (['seed', 'temperature', 'top_p'], ['seed'])
    """
    return _ALL if profile.temperature else _SEED


def offered_functions(request: Request, profile: Profile) -> tuple[tuple[Function, ...], str]:
    """Return `(functions, choice)`: the functions to offer, and the tool choice ('auto', 'required', 'none' or a name).

    Raises:
        UsageError: If the choice names a function that is not in the request.

    Examples:
        >>> def look() -> str:
        ...     return "nothing"
        >>> model = Script("Nothing.")
        >>> result = Agent(model, functions=[look]).call("Find it.", args={"tool_choice": "look"})
        >>> functions, choice = offered_functions(model.requests[0], Profile(named_tool_choice=False))
        >>> [function.name for function in functions], choice
        (['look'], 'required')
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
    """Return a description of each way in which the request was adapted."""
    request = form.request
    choice = request.tool_choice
    notes = list(form.notes)
    if not profile.user_after_results and _has_user_after_results(request.messages):
        notes.insert(0, _BRIDGE)
    ignored = {name: getattr(request.settings, name) for name in (*SAMPLING, "seed") if name not in taken_settings}
    notes += [f"{name}={value!r} {LEFT_OUT}" for name, value in ignored.items() if value is not None]
    parallel = request.settings.parallel_function_calls
    if parallel is not None and request.functions and not profile.parallel_choice:
        notes.append(f"parallel_function_calls={parallel} {LEFT_OUT}")
    if choice != "auto" and (request.functions or request.settings.hosted_tools):
        functions, offered = offered_functions(request, profile)
        if len(functions) < len(request.functions):
            notes.append(f"{choice!r} was the only function offered: the model cannot be told which function to call")
        if offered == "auto":
            notes.append(_FREE.format(choice=choice))
    return tuple(notes)


def merged_body(body: Mapping[str, Any], *extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``body`` with ``extras`` merged into it.

    Objects are merged by key; other values are replaced.  The arguments are not modified.

    Examples:
        >>> merged_body({"options": {"seed": 1}}, {"options": {"top_k": 5}})
        {'options': {'seed': 1, 'top_k': 5}}
    """
    whole = dict(body)
    for extra in extras:
        for key, value in extra.items():
            known = whole.get(key)
            if isinstance(value, Mapping):
                value = merged_body(known, value) if isinstance(known, Mapping) else value
            whole[key] = value
    return whole


class Deltas:
    """The deltas of a reply that a decoder has found, in order, until they are taken.

    Empty texts are no deltas.

    Attributes:
        calls: The number of function calls that have begun.
    """

    __slots__ = ("_found", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._found: list[Delta] = []

    def say(self, kind: type[Text] | type[Reasoning], text: str) -> None:
        """Add a piece of the answer or of the reasoning."""
        if text:
            self._found.append(TextDelta(text) if kind is Text else ReasoningDelta(text))

    def begin_call(self, name: str, id: str | None) -> int:
        """Begin a function call and return its index."""
        self._found.append(FunctionCallStarted(self.calls, name, id))
        self.calls += 1
        return self.calls - 1

    def add_arguments(self, index: int, text: str) -> None:
        """Add a piece of a call's arguments."""
        if text:
            self._found.append(ArgumentsDelta(index, text))

    def complete_call(self, index: int) -> None:
        """Say that a call's arguments are complete."""
        self._found.append(FunctionCallCompleted(index))

    def report(self, usage: Usage) -> None:
        """Report all counts so far."""
        self._found.append(UsageReported(usage))

    def take(self) -> list[Delta]:
        """Remove and return the deltas."""
        taken, self._found = self._found, []
        return taken


class Decoder(ABC):
    """Decodes one response with status 200: a complete body with `read`, or a stream with `feed`, `end` and `finish`.

    The result does not depend on how the bytes of a stream are split.

    A subclass defines `take` and `reply`, adds to `deltas`, and sets `is_ended`.  It raises `reported_error` if the
    service reports an error, and `bad_reply` for anything that it cannot read.  Depending on the wire format, it also
    overrides `take_whole`, `take_other`, `take_held` and `close`, and sets `is_over`.

    Args:
        headers: The response's headers, with lower-case names.

    Attributes:
        deltas: The deltas for the caller of `feed` or `end`.
        is_whole: True if the response is one JSON object, not a stream.
        usage: The usage reported so far.
        model: The model's name, as reported.
        response_id: The provider's id for the response.
        is_ended: True once the provider has reported that the reply is complete, so that only the usage may still be
            missing.
        is_over: True once nothing more can follow, even if the connection stays open.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> PROVIDERS["openai-chat"].codec.decoder({}).is_done
        False
    """

    usage: Usage = UNUSED
    model: str | None = None
    response_id: str | None = None
    is_whole: bool = False
    is_ended: bool = False
    is_over: bool = False

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.deltas = Deltas()
        self._events = EventStream()
        self._told = self.usage  # the usage reported last
        self._counts: dict[str, Any] = {}  # as the service names them
        self._is_done = False
        self._has_no_more = False
        self._body = b""  # if it is no stream
        self._has_halves = False
        self._error: ProviderError | None = None
        self._whole: Reply | None = None  # from a body that is no stream

    @abstractmethod
    def take(self, chunk: dict[str, Any]) -> None:
        """Read the JSON of one event.

        Raises:
            ProviderError: If the JSON reports an error or is not an event.
        """

    def take_whole(self, document: dict[str, Any]) -> None:
        """Read the JSON of a complete response.

        Raises:
            ProviderError: If the JSON reports an error or is not a response.
        """
        self.take(document)

    def take_other(self, document: Any) -> None:
        """Read the JSON of a complete response that is not an object.

        Raises:
            ProviderError: If the JSON reports an error, or the wire format has no such responses.
        """
        raise no_object(document, self.headers)

    def take_held(self) -> None:  # noqa: B027  # most wire formats hold nothing back
        """Read the data that was held back in case better data followed.  This is called when nothing more will follow.

        Raises:
            ProviderError: See `take`.
        """

    def close(self, *, is_cut: bool) -> None:  # noqa: B027
        """End the response, and add the deltas that were held back.

        Args:
            is_cut: True if the stream ended without its end marker, although the reply `is_ended`.
        """

    @abstractmethod
    def reply(self) -> Reply:
        """Return the reply.  Subclasses make it with `reply_of`.

        Raises:
            BadReply: If no reply has arrived.
        """

    def reply_of(self, parts: Iterable[Part], finish: Finish | None, **fields: Any) -> Reply:
        """Return a reply with these parts, this finish reason, and the reported usage, model and ids."""
        return Reply(
            message=Message(role="assistant", parts=tuple(parts)),
            usage=self.usage,
            finish=finish,
            model=self.model,
            response_id=self.response_id,
            request_id=request_id(self.headers),
            **fields,
        )

    def reported_error(self, document: Any) -> ProviderError:
        """Return the error that the service reports in an event or a response, whether JSON or text."""
        return reported(document, self.headers)

    def no_answer(self) -> BadReply:
        """Return the error for a response without an answer.  The error shows the beginning of the body."""
        return self.bad_reply("the reply has no answer", self._body)

    def bad_reply(self, problem: str, body: bytes = b"") -> BadReply:
        """Return the error for a response without a readable reply.  The error shows the beginning of ``body``."""
        return unreadable(problem, self.headers, body)

    def take_usage(self, counts: Any, usage_of: Callable[[Mapping[str, Any]], Usage]) -> None:
        """Read the service's newest counts, if any, and set `usage` to all counts so far.

        A later report may omit a count that an earlier one contained, or report it as 0.
        """
        if type(counts) is dict and counts:
            _take_newer(self._counts, counts)
            if (usage := usage_of(self._counts)) != self.usage:
                self.usage = usage

    @property
    def is_done(self) -> bool:
        """True after the stream's last event or end marker, even if the connection stays open."""
        return self._is_done

    @property
    def has_failed(self) -> bool:
        """True if the stream reported an error or is not a stream.

        The rest is then ignored and `finish` raises an error.
        """
        return self._error is not None

    def read(self, body: bytes) -> Reply:
        """Return the reply in a complete body, which may also be a stream.

        Raises:
            ProviderError: If the body is an error or is not a reply.
        """
        try:
            document = read_json(body)
        except ValueError:
            if body.lstrip().startswith((b"data:", b"event:", b": ")):
                self.feed(body)
                return self.finish()
            got = "another reply" if body.strip() else "an empty body"
            raise self.bad_reply(f"expected JSON, got {got}", body) from None
        self.is_whole, self._body = isinstance(document, dict), body
        if self.is_whole:
            self.take_whole(document)
        else:
            self.take_other(document)
        self.take_held()
        self.close(is_cut=False)
        self.deltas.take()  # the reply has them all
        return self.reply()

    def feed(self, data: bytes) -> list[Delta]:
        """Read the next bytes and return the deltas that they complete."""
        self._take_events(self._events.feed(data))
        return self.deltas.take()

    def end(self) -> list[Delta]:
        """Return the last deltas.  Call this once all bytes have been read."""
        if not self._has_no_more:
            self._has_no_more = True
            self._take_events(self._events.finish(), is_cut=True)
            if self._error is None and self.is_ended and not self._is_done:
                self.close(is_cut=True)
        return self.deltas.take()

    def finish(self) -> Reply:
        """Return the whole reply.  Call this once all bytes have been read.

        Raises:
            ProviderError: If the stream reported an error, was cut off or was empty.
        """
        self.end()
        if self._error:
            raise self._error
        if (document := self._events.document) is not None:  # no event was taken
            self._whole = self._whole or self.read(document)
            return self._whole
        if not self._is_done and not self.is_ended:
            problem = "the stream was cut off before the end of the reply"
            raise self.bad_reply(problem, self._events.stray)
        reply = self.reply()
        return deepcopy(reply) if self._has_halves else reply  # copying turns each `CutText` into a plain string

    def _take_events(self, events: Sequence[ServerEvent], *, is_cut: bool = False) -> None:
        try:
            for event, data in events:
                if self._is_done or self._error:
                    break
                self._take_event(event, data, is_cut)
            if is_cut and not self._is_done and not self._error:
                self.take_held()
        except ProviderError as error:
            self._error = error
        self._error = self._error or self._events.error

    def _take_event(self, event: str, data: bytes, is_cut: bool) -> None:
        if not data.startswith(b"{"):
            bare = data.strip()
            if bare == b"[DONE]":
                self._is_done = True
                self.take_held()
                self.close(is_cut=False)
            if self._is_done or not bare or bare.startswith(b":"):  # some proxies send comments as data
                return
        if event == "error":
            raise self.reported_error(_json_or_text(data))
        try:
            chunk = read_json(data, self._keep_halves)
        except ValueError:
            if is_cut:  # the last event was cut off; the reply may be complete without it
                return
            raise self.bad_reply("expected JSON in a chunk of the stream, got other text", data) from None
        if type(chunk) is not dict:
            raise no_object(chunk, self.headers)
        self.take(chunk)
        if self.is_over:
            self._is_done = True
            self.close(is_cut=False)
        if (usage := self.usage) is not self._told:
            self._told = usage
            self.deltas.report(usage)

    def _keep_halves(self, value: Any) -> Any:
        self._has_halves = True
        return with_halves(value)


def _take_newer(counts: dict[str, Any], newer: Mapping[str, Any]) -> None:
    for name, value in newer.items():
        known = counts.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _take_newer(known, value)
        elif value or (not known and value is not None):
            counts[name] = value


def _json_or_text(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        return data.decode("utf-8", "replace")
