"""What do all wires say, and refuse, in the same way when a message holds an image or a document?"""

from __future__ import annotations

from fsm_agent.errors import UsageError
from fsm_agent.messages.message import PDF, Document, FunctionResult, Image

MEDIA = (Image, Document)  # for `isinstance`, which is faster with it than with a union made on the spot


def check_visible(part: Image | Document, model: str, *, images: bool) -> None:
    """Refuse what the model cannot see: images, and PDFs, whose pages are images to it.

    Raises:
        UsageError: It takes no ``images``.
    """
    if images or (isinstance(part, Document) and part.media_type != PDF):
        return
    kinds = "PDFs" if part.kind == "document" else "images"
    raise UsageError(f"the model {model!r} takes no {kinds}, and a message holds {part!r}")


def misplaced(part: Image | Document, role: str) -> UsageError:
    """The error for one in a message that can hold none."""
    return UsageError(f"only a user's message can hold {_an(part)}, and {role!r} is none: {part!r}")


def untakeable(document: Document, wire: str, right: str) -> UsageError:
    """The error for a document of a kind that the wire has no word for."""
    return UsageError(f"the wire {wire!r} does not take {document!r}: {right} would be right")


def file_name(document: Document) -> str:
    """The document's name, or one that tells its kind."""
    return document.name or f"document.{'pdf' if document.media_type == PDF else 'txt'}"


def in_words(document: Document) -> str | None:
    """A document that is text, its name in front; None for any other."""
    text = document.text
    return f"{document.name}:\n\n{text}" if document.name and text is not None else text


def announced(result: FunctionResult, call_id: str | None) -> str:
    """What stands before the attachments of a result, where they cannot stand in it."""
    call = f" (call {call_id})" if call_id else ""
    return f"What {result.name}{call} returned beside its text:"


def _an(part: Image | Document) -> str:
    return "an image" if part.kind == "image" else "a document"
