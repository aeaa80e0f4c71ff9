"""Are the pictures of a value separate parts, before its text?"""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from fsm_agent import Document, Image, UsageError
from fsm_agent.messages import Text
from fsm_agent.prompts import PromptField, prompt_parts, prompt_text

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"


class Page(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    title: str
    cover: Image | None = None


class Report(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    before: str
    photo: Annotated[bytes, PromptField(image=True)]
    page: Page
    scans: list[Image]
    close_up: Annotated[bytes | None, PromptField(target="Vision", image=True)] = None
    secret: Annotated[Image | None, PromptField(skip=True)] = None
    draft: Annotated[Image | None, Field(exclude=True)] = None
    paper: Document | None = None


def report() -> Report:
    scans = [Image.of(JPEG), Image.of("https://x.example/a.png")]
    page = Page(title="One", cover=Image.of(JPEG))
    paper = Document.of(b"text")
    hidden = Image.of(PNG)
    return Report(
        before="b", photo=PNG, page=page, scans=scans, close_up=JPEG, secret=hidden, draft=hidden, paper=paper
    )  # fmt: skip


def test_pictures_come_first_in_the_order_of_the_fields():
    value = report()
    pictures = (Image.of(PNG), Image.of(JPEG), *value.scans)
    paper = Document.of(b"text")
    text = "before: b\npage:\n  title: One"
    assert prompt_parts(value) == (*pictures, paper, Text(text))
    assert prompt_text(value) == text
    assert prompt_parts(value, "Vision") == (*pictures, Image.of(JPEG), paper, Text(text))


def test_without_a_text_there_is_no_part_of_it():
    class Photo(BaseModel):
        photo: Annotated[bytes | None, PromptField(image=True)]

    assert prompt_parts(Photo(photo=PNG)) == (Image.of(PNG),)
    assert prompt_parts(Photo(photo=None)) == ()
    assert prompt_parts([Image.of(PNG)]) == (Image.of(PNG),)
    assert prompt_parts("words") == (Text("words"),)


def test_what_is_no_picture_is_refused():
    class Photo(BaseModel):
        photo: Annotated[bytes, PromptField(image=True)]

    with pytest.raises(UsageError, match="WebP image"):
        prompt_parts(Photo(photo=b"nothing"))
