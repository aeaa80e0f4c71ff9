"""Images and documents in messages: checks, errors and texts that all codecs share."""

from __future__ import annotations

from fsm_agent.errors import UsageError
from fsm_agent.messages.message import PDF, Document, FunctionResult, Image

MEDIA = (Image, Document)  # a tuple, because `isinstance` is slower with a new union each time


def check_visible(part: Image | Document, model: str, *, images: bool) -> None:
    """Check that the model can see the part: an image, or a PDF, whose pages are images to it.

    Raises:
        UsageError: The model takes no ``images``.
    """
    if images or (isinstance(part, Document) and part.media_type != PDF):
        return
    kinds = "PDFs" if part.kind == "document" else "images"
    raise UsageError(f"the model {model!r}: expected messages without {kinds}, which it does not take, got {part!r}")


def misplaced(part: Image | Document, role: str) -> UsageError:
    """Return the error for an attachment in a message that cannot hold one."""
    return UsageError(
        f"a message of role {role!r}: expected no {part.kind}, which only a user's message holds, got {part!r}"
    )


def untakeable(document: Document, wire: str, right: str) -> UsageError:
    """Return the error for a document of a kind that the wire format does not support."""
    return UsageError(f"a document over the wire {wire!r}: expected {right}, got {document!r}")


def file_name(document: Document) -> str:
    """Return the document's name, or one made from its kind."""
    return document.name or f"document.{'pdf' if document.media_type == PDF else 'txt'}"


def in_words(document: Document) -> str | None:
    """Return a text document as its name and text; None for any other document."""
    text = document.text
    return f"{document.name}:\n\n{text}" if document.name and text is not None else text


def announced(result: FunctionResult, call_id: str | None) -> str:
    """Return the introduction of a result's attachments, where they cannot be part of it."""
    call = f" (call {call_id})" if call_id else ""
    return f"What {result.name}{call} returned beside its text:"


def _an(part: Image | Document) -> str:
    return "an image" if part.kind == "image" else "a document"
