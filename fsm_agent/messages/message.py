"""Messages from users, models and functions, their parts, and payloads, which are tasks made of such parts."""

from __future__ import annotations

import base64
import codecs
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, Self, TypeAlias, get_args

from msgspec import field
from msgspec.structs import astuple
from pydantic_core import CoreSchema, core_schema
from pydantic_core import from_json as json_of
from pydantic_core.core_schema import SerializationInfo

from fsm_agent._internal.structs import IS_OLD, Tagged, Value, from_json, schema_of, to_json
from fsm_agent.errors import UsageError, hint
from fsm_agent.validation import invalid, require, safe_repr

MAX_FILE_BYTES = 100_000_000  # more than a request to any provider may hold (November 2026)
MAX_SHOWN_CHARS = 200  # of a path


def is_url(source: object) -> bool:
    """Return whether a value is an http(s) URL."""
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://"))


def is_data_url(source: object) -> bool:
    """Return whether a value is a data URL."""
    return isinstance(source, str) and source[:5].lower() == "data:"


def bytes_of(source: str | bytes | pathlib.Path, what: str) -> bytes:
    """Return the bytes in a file or a data URL, or the bytes that are given.

    Raises:
        UsageError: If the source has another type, or if it is a path to anything but a regular file of at most
            `MAX_FILE_BYTES`.
    """
    if isinstance(source, bytes | bytearray):
        return bytes(source)
    if isinstance(source, str) and is_data_url(source):
        head, _, body = source.partition(",")
        if not head.endswith(";base64"):
            raise UsageError(f"the data URL: expected base64, as in 'data:image/png;base64,…', got {head[:60]!r}…")
        try:
            return base64.b64decode(body, validate=True)
        except ValueError as error:
            raise UsageError(f"the data URL {head[:60]!r}…: expected valid base64: {error}") from error
    try:
        return _read_file(pathlib.Path(source))
    except (OSError, TypeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UsageError(f"no {what} can be read from {shown_source(source)}: {problem}") from error


def _read_file(path: pathlib.Path) -> bytes:
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device or a pipe, which may never end
        raise ValueError("expected a regular file, got a device or a pipe")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"expected at most {MAX_FILE_BYTES} bytes, got more")
    return data


def shown_source(source: object) -> str:
    """Return a source in a form that may appear in a message."""
    return repr(source)[:MAX_SHOWN_CHARS]


def described(source: object, data: bytes) -> str:
    """Describe unexpected bytes: how many there are, how they begin, and which file they come from."""
    is_file = not isinstance(source, bytes | bytearray) and not is_data_url(source)
    return f"{len(data)} bytes ({data[:8]!r}…){f' of {shown_source(source)}' if is_file else ''}"


def url_suffix(url: str) -> str:
    """Return the suffix of the file name in a URL, in lower case, such as ``".pdf"``, or ``""`` if there is none."""
    path = url.partition("://")[2].partition("#")[0].partition("?")[0].partition("/")[2]
    return pathlib.PurePath(path).suffix.lower()


Role = Literal["system", "user", "assistant", "tool"]

PDF = "application/pdf"
_TEXT_TYPES = {  # by the suffix of a file's name; other text is text/plain
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    **dict.fromkeys((".html", ".htm"), "text/html"),
    ".csv": "text/csv",
    ".xml": "text/xml",
    ".json": "application/json",
    ".txt": "text/plain",
}
# Python's names for what is no encoding of files.  The first two take quadratic time, and a data URL may name them.
_NOT_OF_FILES = ("punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined")


class Citation(Value, frozen=True, kw_only=True):
    """A source that a provider cites for text from its model.

    Examples:
        >>> Citation(url="https://example.org", title="A page", quote="It is late.").title
        'A page'
    """

    url: str | None = None
    title: str | None = None  # the title of the page or file
    quote: str | None = None  # the cited text
    start: int | None = None  # the source supports text[start:end] of the `Text`; None if unknown
    end: int | None = None


class Text(Tagged, frozen=True, tag="text"):
    """A piece of plain text.

    Examples:
        >>> Text("Hello").text
        'Hello'
    """

    hidden = ("signature", "annotations")

    text: str
    signature: str | None = None  # Gemini's thoughtSignature, sent back with this part
    annotations: tuple[Citation, ...] = ()


ATTACH = "attach"  # in a serialization context: a function that takes an image or document and returns words for it


class _File(Tagged, frozen=True, kw_only=True):
    """A part with contents, given as bytes or as an address from which a provider can fetch them."""

    hidden = ("data",)

    data: bytes | None = None
    url: str | None = None  # http(s) only; a data URL becomes `data`
    media_type: str | None = None

    def __post_init__(self) -> None:
        is_whole = is_url(self.url) if self.data is None else self.url is None and bool(self.media_type)
        if not is_whole:
            kind = type(self).__name__
            raise UsageError(f"{kind}: expected data with its media_type, or an http(s) url; use {kind}.of(…)")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        def shown(file: Any, info: SerializationInfo) -> Any:
            attach = info.context.get(ATTACH) if isinstance(info.context, Mapping) else None
            return json_of(to_json(file)) if attach is None else attach(file)

        return {
            **schema_of(cls, lambda text: from_json(text, cls), to_json),
            "serialization": core_schema.plain_serializer_function_ser_schema(shown, info_arg=True, when_used="json"),
        }

    def data_url(self) -> str:
        """Return the contents as a data URL, or the http(s) URL."""
        if self.data is None:
            return str(self.url)
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


class Image(_File, frozen=True, kw_only=True, tag="image"):
    """An image, given as bytes or as an address from which a provider can fetch it.

    `Image.of` makes one from any source.  The media type is determined from the bytes, and is None for a URL.

    Examples:
        >>> Image(url="https://example.org/cat.png").url
        'https://example.org/cat.png'
        >>> Image.of("https://example.org/cat.png").url
        'https://example.org/cat.png'
    """

    @classmethod
    def of(cls, source: str | bytes | pathlib.Path) -> Image:
        """Return an image from a path, bytes, an http(s) URL or a data URL.

        Raises:
            UsageError: If the source has another type, or if the bytes are not an image of a type that providers
                accept.
        """
        if is_url(source):
            return cls(url=str(source))
        data = bytes_of(source, "image")
        media_type = _image_type(data)
        if media_type is None:
            raise UsageError(f"the image: expected a PNG, JPEG, GIF or WebP image, got {described(source, data)}")
        return cls(data=data, media_type=media_type)


class Document(_File, frozen=True, kw_only=True, tag="document"):
    """A file for the model to read, given as bytes or as an address from which a provider can fetch it.

    `Document.of` makes one from a PDF or from text.  For other files that a provider reads, such as a spreadsheet, pass
    ``data`` and ``media_type``.  For text, ``data`` is UTF-8.

    Examples:
        >>> Document.of(b"%PDF-1.7", name="bill.pdf").name
        'bill.pdf'
    """

    media_type: str = PDF
    name: str | None = None  # the file's name, which the model sees

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data is not None and self.is_text and not IS_OLD.get():
            try:
                self.data.decode()
            except UnicodeDecodeError as error:
                what = f"expected UTF-8 for {self.media_type!r}, got {described(b'', self.data)}: {error.reason}"
                raise UsageError(f"Document.data: {what}; use Document.of(…, encoding=…)") from None

    @classmethod
    def of(
        cls, source: str | bytes | pathlib.Path, *, name: str | None = None, encoding: str | None = None
    ) -> Document:
        """Return a document from a path, bytes, an http(s) URL or a data URL.

        The bytes show whether it is a PDF or text.  The data URL or the name's suffix shows whether text is Markdown,
        CSV, HTML, XML or JSON.  A URL counts as a PDF unless its suffix says otherwise.

        Args:
            source: The document, or its address.
            name: The file's name, which the model sees; by default, the name in the path.
            encoding: The encoding of the text, such as ``"cp1252"``.  The default is the charset in a data URL, UTF-16
                if the text begins with its byte order mark, and UTF-8 otherwise.  The document holds UTF-8.

        Raises:
            UsageError: If the source has another type, if it is neither a PDF nor text, or if the encoding is wrong.
        """
        if is_url(source):
            return cls(url=str(source), media_type=_TEXT_TYPES.get(url_suffix(str(source)), PDF), name=name)
        data = bytes_of(source, "document")
        declared = ""
        if isinstance(source, str) and is_data_url(source):
            declared, *parameters = [part.strip().lower() for part in source[5:200].partition(",")[0].split(";")]
            charsets = [part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")]
            encoding = encoding or next(iter(charsets), None)
        elif name is None and isinstance(source, str | pathlib.Path):
            name = pathlib.Path(source).name
        if data.startswith(b"%PDF-"):
            return cls(data=data, name=name)
        text = _as_utf8(data, encoding)
        if not text:
            right = f"a PDF or text in {encoding or 'UTF-8'}"
            remedy = "" if encoding else "; for other text, pass encoding= of Document.of"
            raise UsageError(f"the document: expected {right}, got {described(source, data)}{remedy}")
        of_name = _TEXT_TYPES.get(pathlib.PurePath(name or "").suffix.lower(), "text/plain")
        return cls(data=text, media_type=declared if declared in _TEXT_TYPES.values() else of_name, name=name)

    @property
    def is_text(self) -> bool:
        """True if the document is text, even if its contents are not loaded."""
        return self.media_type.startswith("text/") or self.media_type in _TEXT_TYPES.values()

    @property
    def text(self) -> str | None:
        """The contents as text, or None if the document is not text or is not loaded.

        In a document that an earlier release stored, U+FFFD takes the place of bytes that are not UTF-8.
        """
        return self.data.decode("utf-8-sig", "replace") if self.is_text and self.data is not None else None


def _as_utf8(data: bytes, encoding: str | None) -> bytes | None:
    """Return text as UTF-8, or None if the data is not text in this encoding."""
    if encoding is None and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        if codecs.lookup(encoding or "utf-8").name in _NOT_OF_FILES:
            raise LookupError(encoding)
        text = data.decode(encoding or "utf-8").encode()
    except UnicodeError:
        return None
    except (LookupError, TypeError, ValueError):
        raise invalid("encoding", encoding, "a text encoding that Python knows, such as 'cp1252'") from None
    return None if b"\0" in text else text  # UTF-8 may hold it, but no text does


def _image_type(data: bytes) -> str | None:
    """Return an image's media type, as read from its first bytes.

    The signatures come from the PNG, JFIF, GIF89a and RIFF/WebP specifications.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


Attachment: TypeAlias = Image | Document
"""A file that a message can carry in addition to text.

Examples:
    >>> picture: Attachment = Image(url="https://example.org/cat.png")
    >>> picture.url
    'https://example.org/cat.png'
"""


class Reasoning(Tagged, frozen=True, kw_only=True, tag="reasoning"):
    """A model's reasoning before its answer, with data that must be sent back to its provider.

    Examples:
        >>> Reasoning(text="17 + 25: 17 + 20 is 37 …").text
        '17 + 25: 17 + 20 is 37 …'
    """

    text: str = ""
    signature: str | None = None  # opaque data, sent back unchanged
    id: str | None = None


class Opaque(Tagged, frozen=True, kw_only=True, tag="opaque"):
    """A part that only one wire (a provider's message format) can express.  It is sent back only over that wire.

    Examples:
        >>> Opaque(wire="openai-chat", data={"kind": "special"}).wire
        'openai-chat'
    """

    hidden = ("data", "provider")

    wire: str  # the codec's name
    data: Any  # the data as JSON
    provider: str | None = None  # its origin, which is not compared; None sends it to any provider of this wire

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return self.wire == other.wire and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.wire)


class FunctionCall(Tagged, frozen=True, kw_only=True, tag="function_call"):
    """A model's request to call a function and, once there is one, the outcome.

    In a message, it is only the request; in `CallRecord.round` and `CallResult.function_calls`, it may have an outcome.

    Examples:
        >>> request = function_call("add", a=17, b=25)
        >>> request.name, request.arguments
        ('add', {'a': 17, 'b': 25})
    """

    hidden = (
        "provider_id",
        "signature",
        "needs_approval",
        "version",
        "was_run",
        "is_cached",
        "is_repeated",
        "is_denied",
        "round",
        "fingerprint",
        "attachments",
        "duration_s",
    )

    name: str
    arguments_json: str  # the arguments as the model wrote them, which may be invalid JSON
    id: str = ""  # our id: "<index of the message in the dialog>.<index of the call>"
    provider_id: str | None = None  # the provider's id, sent back with the result
    signature: str | None = None  # Gemini's thoughtSignature, sent back with the call
    needs_approval: bool = False
    version: str = ""  # the function's version
    was_run: bool = False  # False if it was settled without an outcome of the function
    is_cached: bool = False  # not run, because a cached result was still valid
    is_repeated: bool = False  # not run, because an equal call ran before; see `Function.repeatable`
    is_denied: bool = False  # not run, because approval was denied
    round: int = 0  # the agent call's round, from 1; 0 in a message
    fingerprint: str = ""  # identifies the name and arguments
    result: str | None = None  # the text for the model
    error: str | None = None  # why there is no result; the model sees this text instead
    attachments: tuple[Attachment, ...] = ()  # files returned with the text
    duration_s: float = 0.0  # how long it ran, with retries; not compared; 0 if it did not run or was not timed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionCall):
            return NotImplemented
        return astuple(self)[:-1] == astuple(other)[:-1]  # the duration is last

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments, or an empty dictionary if they are not a JSON object."""
        try:
            arguments = json_of(object_text(self.arguments_json))
        except (ValueError, TypeError):  # TypeError for half a surrogate pair
            return {}
        return arguments if isinstance(arguments, dict) else {}

    @property
    def is_settled(self) -> bool:
        """True if the call has a result or an error for the model."""
        return self.result is not None or self.error is not None

    @property
    def succeeded(self) -> bool:
        """True if the call has a result and does not repeat an earlier call."""
        return self.result is not None and not self.is_repeated


class FunctionResult(Tagged, frozen=True, kw_only=True, tag="function_result"):
    """The response to a function call.  Each call in a message gets exactly one.

    Examples:
        >>> FunctionResult(id="1.0", name="add", text="42").is_error
        False
    """

    hidden = ("provider_id",)

    id: str  # the id of the `FunctionCall`
    name: str
    text: str
    provider_id: str | None = None
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()


ChatDict: TypeAlias = Mapping[str, Any]  # a message in the form of OpenAI's chat completions; see `chat_dicts`
Part: TypeAlias = Text | Image | Document | Reasoning | FunctionCall | FunctionResult | Opaque
"""A part of a message.

Examples:
    >>> part: Part = Text("Hello")
    >>> Message.of("user", "Hello").parts == (part,)
    True
"""


class Message(Value, frozen=True, kw_only=True, weakref=True):
    """An entry in a dialog, with a role and parts.  Messages are immutable and compared by value.

    Examples:
        >>> message = Message.of("user", "Hello")
        >>> message.role, message.text
        ('user', 'Hello')
    """

    hidden = ("extra",)

    role: Role
    parts: tuple[Part, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # the ``extra`` of the call that added the message

    def __hash__(self) -> int:
        return hash((self.role, self.parts))

    @classmethod
    def of(cls, role: Role, *content: str | Part) -> Message:
        """Return a message made from strings and other parts, in the given order.

        Raises:
            UsageError: If there is no such role, or if a part has another type.
        """
        if role not in _ROLES:
            raise _unknown_role("the role of a message", role)
        parts: list[Part] = []
        for part in content:
            if isinstance(part, str):
                parts.append(Text(part))
            elif isinstance(part, _PARTS):
                parts.append(part)
            else:
                raise invalid("a part of a message", part, "a string, or a part such as Image.of(…)")
        return cls(role=role, parts=tuple(parts))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return schema_of(cls, lambda text: from_json(text, cls), to_json)

    @property
    def text(self) -> str:
        """All text, including the text of function results, concatenated."""
        return "".join([part.text for part in self.parts if isinstance(part, _WORDED)])

    @property
    def reasoning(self) -> str:
        """All reasoning text."""
        return "".join([part.text for part in self.parts if isinstance(part, Reasoning)])

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The functions that the message requests, in order."""
        return tuple([part for part in self.parts if isinstance(part, FunctionCall)])


def object_text(arguments_json: str) -> str:
    """Return a call's arguments as the JSON object that the model meant.

    If there are no arguments, some models write nothing or ``null``.  Some services write the object as a JSON string.
    """
    if arguments_json.startswith("{"):
        return arguments_json
    text = arguments_json.strip()
    if text in ("", "null"):
        return "{}"
    if text.startswith('"'):
        with suppress(ValueError):
            inner: str = from_json(text, str)
            return inner if inner.lstrip().startswith("{") else arguments_json
    return arguments_json


def check_messages(messages: Sequence[Any]) -> None:
    """Check that the parts of messages have the declared types.  Items that are not a `Message` are ignored.

    Messages are checked when a caller passes them, not when they are made, because most of them are made by models and
    functions.

    Raises:
        UsageError: If a message is wrong.  The error names the index of the first one.
    """
    check_roles(messages)
    for index, message in enumerate(messages):
        if type(message) is not Message:
            continue
        if type(message.parts) is not tuple:
            raise invalid(f"messages[{index}].parts", message.parts, f"a tuple of parts, as {_MADE} makes it")
        for part in message.parts:
            if type(part) not in _PARTS:
                raise invalid(f"a part of messages[{index}]", part, f"a part such as Text(…), as {_MADE} makes it")


def check_roles(messages: Sequence[Any]) -> None:
    """Check the roles of messages.

    Raises:
        UsageError: If a role does not exist.  The error names the index of the first one.
    """
    for index, message in enumerate(messages):
        if type(message) is Message and message.role not in _ROLES:
            raise _unknown_role(f"messages[{index}].role", message.role)


def unpaired(messages: Iterable[Message], start: int = 0) -> str | None:
    """Return a description of the first function call without a result, or result without a call, or None.

    Services refuse such dialogs without saying which message is wrong.  The messages before ``start`` are known to be
    right.
    """
    calls: list[FunctionCall] = []  # without results, of the newest message that is not a result
    for index, message in islice(enumerate(messages), start, None):
        if message.role != "tool":
            if calls:
                break
            calls = [*message.function_calls] if message.role == "assistant" else []
            continue
        for part in message.parts:
            if isinstance(part, FunctionResult):
                found = next((call for call in calls if _belongs(part, call)), None)
                if found is None:
                    return f"the result {_shown(part)} in messages[{index}], which belongs to no call before it"
                calls.remove(found)
    return f"the call {_shown(calls[0])} without a result" if calls else None


def _belongs(result: FunctionResult, call: FunctionCall) -> bool:
    return (result.provider_id or result.id) == (call.provider_id or call.id) or result.id == call.id != ""


def _shown(part: FunctionCall | FunctionResult) -> str:
    return f"{part.provider_id or part.id!r:.80} of {part.name!r:.80}"


def _unknown_role(where: str, role: object) -> UsageError:
    return UsageError(f"{where}: unknown role {safe_repr(role)}{hint(str(role)[:MAX_SHOWN_CHARS], _ROLES)}")


_WORDED = (Text, FunctionResult)
_MADE = "Message.of('user', 'a text', Image.of(…))"
_PARTS = (Text, Image, Document, Reasoning, FunctionCall, FunctionResult, Opaque)
_ROLES = get_args(Role)


class HistorySummary(Value, frozen=True):
    """A summary that replaces the beginning of the dialog in requests."""

    covers: int = 0  # how many messages of the dialog it replaces; 0 before the first summary
    text: str = ""
    made_at: int = -1  # the length of the dialog when it was made, or -1
    failed_at: int = -1  # the length of the dialog when the next summary failed, or -1

    def inherited(self, shift: int = 0) -> HistorySummary | None:
        """Return the summary for the dialog's next call, or None if there is none yet.

        Args:
            shift: How many messages were added at the beginning.
        """
        return HistorySummary(self.covers + shift, self.text) if self.covers else None


def renumbered(messages: Iterable[Message], start: int = 0) -> list[Message]:
    """Return the messages with unique ids, made from positions, for function calls and their results."""
    found = list[Message]()
    ids = dict[str, str]()  # of the round
    for index, message in enumerate(messages, start):
        if message.role == "tool":
            found.append(_replace_ids(message, ids))
            continue
        calls = message.function_calls
        ids = {call.id: f"{index}.{number}" for number, call in enumerate(calls)}
        found.append(_replace_ids(message, ids))
    return found


def _replace_ids(message: Message, ids: dict[str, str]) -> Message:
    if all(old == new for old, new in ids.items()):
        return message
    return message.changed(parts=tuple([_replace_id(part, ids) for part in message.parts]))


def _replace_id(part: Part, ids: dict[str, str]) -> Part:
    if isinstance(part, FunctionCall | FunctionResult) and (new := ids.get(part.id, part.id)) != part.id:
        return part.changed(id=new)
    return part


class Payload(Value, frozen=True):
    """A task made up of text, images and documents: ``Payload.text("What is this?").with_image("cat.png")``.

    Pass one to an agent in place of a string.  Each method returns a new payload, and files are read immediately.  If
    the model accepts no images, the payload's images are left out and a warning is logged.  A `Message` with images, in
    contrast, is sent unchanged or rejected.

    Examples:
        >>> task = Payload.text("What is this?").with_image("https://example.org/cat.png")
        >>> len(task.parts)
        2
    """

    parts: tuple[Text | Image | Document, ...] = ()

    def __post_init__(self) -> None:
        is_right = isinstance(self.parts, tuple | list) and all(isinstance(part, _OF_TASKS) for part in self.parts)
        right = "a tuple of parts; use Payload.text('…').with_image('cat.png')"
        require("parts of a payload", self.parts, is_right, right)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return schema_of(cls, lambda text: from_json(text, cls), to_json)

    @classmethod
    def text(cls, text: str) -> Self:
        """Return a payload with only this text."""
        return cls().with_text(text)

    def with_text(self, text: str) -> Self:
        """Return a payload with this text at its end."""
        return self._with(_text(text))

    def prepend_text(self, text: str) -> Self:
        """Return a payload with this text at its beginning."""
        return type(self)((_text(text), *self.parts))

    def with_image(self, source: str | pathlib.Path | Image) -> Self:
        """Return a payload with an image at its end.

        Args:
            source: A path, an http(s) URL, a data URL, or an `Image`.

        Raises:
            UsageError: If the file does not exist, or if it is not a PNG, JPEG, GIF or WebP image.
        """
        return self._with(source if isinstance(source, Image) else Image.of(source))

    def with_image_data(self, data: bytes) -> Self:
        """Return a payload with an image at its end, made from these bytes.

        Raises:
            UsageError: If the bytes are not a PNG, JPEG, GIF or WebP image.
        """
        require("data of an image", data, isinstance(data, bytes | bytearray), "bytes (with_image takes a path)")
        return self._with(Image.of(data))

    def with_document(self, source: str | bytes | pathlib.Path | Document, *, name: str | None = None) -> Self:
        """Return a payload with a PDF or a text file at its end.

        Args:
            source: A path, bytes, an http(s) URL, a data URL, or a `Document`.
            name: The file's name, which the model sees; by default, the name in the path.

        Raises:
            UsageError: If the file does not exist, or if it is neither a PDF nor text.
        """
        if isinstance(source, Document):
            return self._with(source if name is None else source.changed(name=name))
        return self._with(Document.of(source, name=name))

    def _with(self, part: Text | Image | Document) -> Self:
        return type(self)((*self.parts, part))

    @property
    def has_images(self) -> bool:
        """True if there is an image."""
        return any(isinstance(part, Image) for part in self.parts)

    @property
    def is_text_only(self) -> bool:
        """True if there is only text."""
        return all(isinstance(part, Text) for part in self.parts)

    def to_text(self) -> str:
        """Return the text parts, joined by line breaks."""
        return "\n".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def without_images(self) -> Self:
        """The payload without images, and without PDFs, whose pages models see as images."""
        return type(self)(tuple([part for part in self.parts if not _is_seen(part)]))

    @property
    def message(self) -> Message:
        """The user's message, with adjacent text parts joined by line breaks.

        Raises:
            UsageError: If the payload is empty.
        """
        joined: list[Text | Image | Document] = []
        for part in self.parts:
            if isinstance(part, Text) and joined and isinstance(before := joined[-1], Text):
                joined[-1] = Text(f"{before.text}\n{part.text}")
            else:
                joined.append(part)
        is_something = not self.is_text_only or bool(self.to_text().strip())
        require("the task", self, is_something, "a payload with an image or with text that asks for something")
        return Message(role="user", parts=tuple(joined))


_OF_TASKS = (Text, Image, Document)


def _text(text: str) -> Text:
    require("a text of a payload", text, isinstance(text, str), "a string")
    return Text(text)


def _is_seen(part: Text | Image | Document) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.media_type == PDF)
