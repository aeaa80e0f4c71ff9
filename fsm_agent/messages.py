"""What do people, models and functions say to each other?"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator
from pydantic_core import from_json

from fsm_agent.errors import UsageError

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """What is said in words."""

    text: str
    signature: str | None = field(default=None, repr=False)  # Gemini's thoughtSignature, sent back with this part
    kind: Literal["text"] = field(default="text", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture: its bytes, or where a provider can fetch it.  `Image.of` makes one from anything."""

    data: bytes | None = field(default=None, repr=False)
    url: str | None = None  # http(s) only; a data URL becomes `data`
    media_type: str | None = None  # read off the bytes; None for a URL
    kind: Literal["image"] = field(default="image", repr=False)

    def __post_init__(self) -> None:
        if self.data is None:
            is_whole = self.url is not None and self.url[:8].lower().startswith(("http://", "https://"))
        else:
            is_whole = self.url is None and bool(self.media_type)
        if not is_whole:
            raise UsageError("an Image has data with its media_type, or an http(s) url: Image.of(…) makes either")

    @classmethod
    def of(cls, source: str | bytes | Path) -> Image:
        """An image from a path, its bytes, an http(s) URL or a data URL.

        Raises:
            UsageError: The source is none of these, or its bytes are of no image that providers take.
        """
        scheme = source[:8].lower() if isinstance(source, str) else ""
        if scheme.startswith(("http://", "https://")):
            return cls(url=str(source))
        if isinstance(source, bytes | bytearray):
            data = bytes(source)
        elif scheme.startswith("data:"):
            head, _, body = str(source).partition(",")
            if not head.endswith(";base64"):
                raise UsageError(f"the data URL {head[:60]!r}… is not base64: 'data:image/png;base64,…' would be")
            try:
                data = base64.b64decode(body, validate=True)
            except ValueError as error:
                raise UsageError(f"the data URL {head[:60]!r}… holds no valid base64: {error}") from error
        else:
            try:
                data = Path(source).read_bytes()
            except (OSError, TypeError, ValueError) as error:
                problem = getattr(error, "strerror", None) or error
                raise UsageError(f"no image can be read from {repr(source)[:200]}: {problem}") from error
        media_type = _image_type(data)
        if media_type is None:
            raise UsageError(f"these {len(data)} bytes ({data[:8]!r}…) are no PNG, JPEG, GIF or WebP image")
        return cls(data=data, media_type=media_type)

    def data_url(self) -> str:
        """The image as a URL that carries it, or its own URL."""
        if self.data is None:
            return str(self.url)
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


def _image_type(data: bytes) -> str | None:
    """Media type by the first bytes (signatures: the PNG, JFIF, GIF89a and RIFF/WebP specifications)."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file for the model to read: its bytes, or where a provider can fetch it."""

    data: bytes | None = field(default=None, repr=False)
    url: str | None = None  # http(s) only
    media_type: str = "application/pdf"
    name: str | None = None  # of the file, for the model
    kind: Literal["document"] = field(default="document", repr=False)


Attachment: TypeAlias = Annotated[Image | Document, Discriminator("kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """What a model thought before it spoke, with what its provider wants to have back."""

    text: str = ""
    signature: str | None = None  # opaque; sent back unchanged
    id: str | None = None
    kind: Literal["reasoning"] = field(default="reasoning", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A part that only one wire understands; it is sent back to that wire unchanged and to no other."""

    wire: str  # the codec's name
    data: Any = field(repr=False, hash=False)  # JSON
    provider: str | None = field(default=None, repr=False, compare=False)  # who said it; None: any may have it
    kind: Literal["opaque"] = field(default="opaque", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A model's request to call a function and, once settled, what became of it.

    In a message it is as the model asked; in `CallRecord.round` and `CallResult.function_calls` it is settled.
    """

    name: str
    arguments_json: str  # as the model wrote them: perhaps no JSON at all
    id: str = ""  # ours: "<place of the message in the dialog>.<index>"
    provider_id: str | None = field(default=None, repr=False)  # theirs, sent back with the result
    signature: str | None = field(default=None, repr=False)  # Gemini's thoughtSignature, sent back with the call
    needs_approval: bool = field(default=False, repr=False)
    is_repeated: bool = field(default=False, repr=False)  # the same call succeeded before, so it was not run
    fingerprint: str = field(default="", repr=False)  # equal for equal names and arguments
    result: str | None = None  # what the model was told
    error: str | None = None  # why there is no result; the model was told this instead
    attachments: tuple[Attachment, ...] = field(default=(), repr=False)  # what it returned beside its text
    kind: Literal["function_call"] = field(default="function_call", repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, parsed; empty when they are no JSON object (then `error` says so)."""
        try:
            arguments = from_json(self.arguments_json or "{}")
        except (ValueError, TypeError):  # the latter: half a surrogate pair
            return {}
        return arguments if isinstance(arguments, dict) else {}

    @property
    def is_settled(self) -> bool:
        """Whether the model can be told what became of it."""
        return self.result is not None or self.error is not None

    @property
    def succeeded(self) -> bool:
        """Whether it was run and returned."""
        return self.result is not None and not self.is_repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionResult:
    """The answer to one function call; every call of a message gets exactly one."""

    id: str  # of the `FunctionCall`
    name: str
    text: str
    provider_id: str | None = field(default=None, repr=False)
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()
    kind: Literal["function_result"] = field(default="function_result", repr=False)


Part = Annotated[Text | Image | Document | Reasoning | FunctionCall | FunctionResult | Opaque, Discriminator("kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of a dialog: who says what.  A value: equal when its parts are, never changed."""

    role: Role
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, role: Role, *content: str | Part) -> Message:
        """A message of texts and other parts, in this order."""
        return cls(role=role, parts=tuple([Text(part) if isinstance(part, str) else part for part in content]))

    @property
    def text(self) -> str:
        """All that is said in words (and, of a function, what it returned), joined with nothing between."""
        return "".join([part.text for part in self.parts if isinstance(part, Text | FunctionResult)])

    @property
    def reasoning(self) -> str:
        """All that was thought in words."""
        return "".join([part.text for part in self.parts if isinstance(part, Reasoning)])

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The functions that it asks for, in order."""
        return tuple([part for part in self.parts if isinstance(part, FunctionCall)])
