"""Payloads: tasks made of text, images and documents."""

from __future__ import annotations

import pathlib
from typing import Any, Self

from pydantic_core import CoreSchema

from fsm_agent._internal.structs import Value, from_json, schema_of, to_json
from fsm_agent.messages.message import PDF, Document, Image, Message, Text
from fsm_agent.validation import require


class Payload(Value, frozen=True):
    """A task made of text, images and documents: ``Payload.text("What is this?").with_image("cat.png")``.

    Pass one to an agent in place of a string.  Each method returns a new payload, and files are read immediately.  If
    the model accepts no images, the payload's images are left out and a warning is logged.  A `Message` with images, in
    contrast, is sent unchanged or refused.

    Examples:
        >>> task = Payload.text("What is this?").with_image("https://example.org/cat.png")
        >>> len(task.parts)
        2
    """

    parts: tuple[Text | Image | Document, ...] = ()

    def __post_init__(self) -> None:
        is_right = isinstance(self.parts, tuple | list) and all(isinstance(part, _PARTS) for part in self.parts)
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
        """The payload without images, and without PDFs, because models see their pages as images."""
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


_PARTS = (Text, Image, Document)


def _text(text: str) -> Text:
    require("a text of a payload", text, isinstance(text, str), "a string")
    return Text(text)


def _is_seen(part: Text | Image | Document) -> bool:
    return isinstance(part, Image) or (isinstance(part, Document) and part.media_type == PDF)
