"""Are attachments of a message, or of a function's result, written in every wire format as its provider documents?"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support.copies import replace

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message
from fsm_agent.providers import (
    AnthropicCodec,
    AnthropicProfile,
    Codec,
    GeminiCodec,
    GeminiProfile,
    OpenAIChatCodec,
    OpenAIResponsesCodec,
    Profile,
    providers,
)

PDF = Document.of(b"%PDF-1.7", name="a.pdf")
UNNAMED = Document.of(b"%PDF-1.7")
NOTES = Document.of(b"# Hi", name="notes.md")
WORDS = Document.of(b"# Hi")
LINK = Document.of("https://x/y.pdf")
PAGE = Document.of("https://x/y.html", name="page")
SHEET = Document(data=b"PK", media_type="application/vnd.ms-excel", name="a.xls")
PICTURE = Image.of(b"\x89PNG\r\n\x1a\n")
GIF = Image.of(b"GIF89a")

CHAT, RESPONSES, ANTHROPIC, GEMINI = OpenAIChatCodec(), OpenAIResponsesCodec(), AnthropicCodec(), GeminiCodec()
WIRES: dict[Codec, tuple[str, Profile]] = {
    CHAT: ("messages", Profile()),
    RESPONSES: ("input", Profile()),
    ANTHROPIC: ("messages", AnthropicProfile()),
    GEMINI: ("contents", GeminiProfile()),
}
OLD_GEMINI = GeminiProfile(media_in_results=False)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


PDF_64, NOTES_64, PNG_64 = b64(b"%PDF-1.7"), b64(b"# Hi"), b64(PICTURE.data or b"")
PDF_URL, PNG_URL = f"data:application/pdf;base64,{PDF_64}", f"data:image/png;base64,{PNG_64}"


def told(codec: Codec, *messages: Message, profile: Profile | None = None) -> list[Any]:
    key, usual = WIRES[codec]
    body = json.loads(codec.encode(Request(messages=messages), model="m1", profile=profile or usual, stream=False))
    said: list[Any] = body[key]
    return said


@pytest.mark.parametrize(
    ("codec", "document", "said"),
    [
        (CHAT, PDF, [{"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}]),
        (CHAT, UNNAMED, [{"type": "file", "file": {"filename": "document.pdf", "file_data": PDF_URL}}]),
        (CHAT, NOTES, [{"type": "text", "text": "notes.md:\n\n# Hi"}]),
        (CHAT, WORDS, [{"type": "text", "text": "# Hi"}]),
        (RESPONSES, PDF, [{"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL}]),
        (
            RESPONSES,
            NOTES,
            [{"type": "input_file", "filename": "notes.md", "file_data": f"data:text/markdown;base64,{NOTES_64}"}],
        ),
        (
            RESPONSES,
            WORDS,
            [{"type": "input_file", "filename": "document.txt", "file_data": f"data:text/plain;base64,{NOTES_64}"}],
        ),
        (RESPONSES, LINK, [{"type": "input_file", "file_url": "https://x/y.pdf"}]),
        (
            ANTHROPIC,
            PDF,
            [
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_64},
                    "title": "a.pdf",
                }
            ],
        ),
        (
            ANTHROPIC,
            NOTES,
            [
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "# Hi"},
                    "title": "notes.md",
                }
            ],
        ),
        (ANTHROPIC, LINK, [{"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}]),
        (GEMINI, PDF, [{"text": "a.pdf:"}, {"inlineData": {"mimeType": "application/pdf", "data": PDF_64}}]),
        (GEMINI, NOTES, [{"text": "notes.md:"}, {"inlineData": {"mimeType": "text/plain", "data": NOTES_64}}]),
        (GEMINI, LINK, [{"fileData": {"fileUri": "https://x/y.pdf", "mimeType": "application/pdf"}}]),
        (GEMINI, PAGE, [{"text": "page:"}, {"fileData": {"fileUri": "https://x/y.html", "mimeType": "text/plain"}}]),
    ],
)
def test_document_of_a_user(codec: Codec, document: Document, said: list[Any]) -> None:
    (entry,) = told(codec, Message.of("user", document))
    assert entry["role"] == "user"
    assert entry["parts" if codec is GEMINI else "content"] == said


def test_document_that_a_wire_has_no_word_for_is_named() -> None:
    for codec, document in [(CHAT, LINK), (CHAT, PAGE), (CHAT, SHEET), (ANTHROPIC, PAGE), (ANTHROPIC, SHEET)]:
        with pytest.raises(UsageError, match=rf"'{codec.name}'.*Document"):
            told(codec, Message.of("user", document))


@pytest.mark.parametrize("codec", WIRES, ids=lambda codec: codec.name)
def test_model_that_sees_nothing_can_still_read(codec: Codec) -> None:
    blind = replace(WIRES[codec][1], images=False)
    assert told(codec, Message.of("user", NOTES), profile=blind) == told(codec, Message.of("user", NOTES))
    for part, kinds in ((PDF, "PDFs"), (LINK, "PDFs"), (PICTURE, "images")):
        problem = f"'m1': .*{kinds}.*{type(part).__name__}"
        result = FunctionResult(id="1.0", name="f", text="", attachments=(part,))
        for message in (Message.of("user", part), Message.of("tool", result)):
            with pytest.raises(UsageError, match=problem):
                told(codec, message, profile=blind)


@pytest.mark.parametrize("codec", WIRES, ids=lambda codec: codec.name)
def test_file_in_a_message_that_holds_none_is_refused(codec: Codec) -> None:
    roles: tuple[Any, ...] = ("system",) if codec is GEMINI else ("system", "assistant", "tool")  # or takes it anywhere
    for role in roles:
        for part in (PDF, PICTURE, *(["2"] if role == "tool" else [])):
            with pytest.raises(UsageError, match=f"'{role}'"):
                told(codec, Message.of("user", "hi"), Message.of(role, part))


def call(id: str) -> FunctionCall:
    return FunctionCall(id=id, name="look", arguments_json="{}", provider_id=f"c{id[-1]}")


def returned(id: str, text: str, *attachments: Image | Document, is_error: bool = False) -> FunctionResult:
    return FunctionResult(
        id=id, name="look", text=text, provider_id=f"c{id[-1]}", attachments=attachments, is_error=is_error
    )


ASKED = (Message.of("user", "hi"), Message.of("assistant", call("1.0"), call("1.1")))
ONE, TWO = returned("1.0", "two of them", PICTURE, PDF), returned("1.1", "", NOTES)
AFTER = Message.of("user", "so?")


def rounds(*results: FunctionResult) -> list[tuple[Message, ...]]:
    """The results in one message, and in one each."""
    return [
        (*ASKED, Message.of("tool", *results), AFTER),
        (*ASKED, *[Message.of("tool", result) for result in results], AFTER),
    ]


SHOWN = "Besides its text, look (call {}) returned:"


def test_chat_tells_attachments_behind_all_results_of_a_round() -> None:
    together, messages = rounds(ONE, TWO)
    assert told(CHAT, *together) == told(CHAT, *messages)
    beside = {
        "role": "user",
        "content": [
            {"type": "text", "text": SHOWN.format("c0")},
            {"type": "image_url", "image_url": {"url": PNG_URL}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
            {"type": "text", "text": SHOWN.format("c1")},
            {"type": "text", "text": "notes.md:\n\n# Hi"},
        ],
    }
    *_, first, second, third, fourth = told(CHAT, *messages)
    assert [first, second] == [
        {"role": "tool", "tool_call_id": "c0", "content": "two of them"},
        {"role": "tool", "tool_call_id": "c1", "content": "{}"},
    ]
    assert third == beside
    assert fourth == {"role": "user", "content": "so?"}
    assert told(CHAT, *messages[:-1])[-1] == beside


@pytest.mark.parametrize("codec", [CHAT, GEMINI], ids=lambda codec: codec.name)
def test_each_round_has_its_own_attachments(codec: Codec) -> None:
    again = Message.of("assistant", call("3.0"))
    later = Message.of("tool", returned("3.0", "2", GIF))
    said = told(codec, *ASKED, Message.of("tool", returned("1.0", "1", GIF)), again, later)
    roles = (
        ["tool", "user", "assistant", "tool", "user"] if codec is CHAT else ["user", "user", "model", "user", "user"]
    )
    assert [entry["role"] for entry in said[2:]] == roles
    assert [str(entry).count("image/gif") for entry in said[2:]] == [0, 1, 0, 0, 1]


def test_responses_tells_attachments_in_the_output() -> None:
    together, messages = rounds(ONE, TWO)
    assert told(RESPONSES, *together) == told(RESPONSES, *messages)
    notes = {"type": "input_file", "filename": "notes.md", "file_data": f"data:text/markdown;base64,{NOTES_64}"}
    assert told(RESPONSES, *messages)[3:5] == [
        {
            "type": "function_call_output",
            "call_id": "c0",
            "output": [
                {"type": "input_text", "text": "two of them"},
                {"type": "input_image", "detail": "auto", "image_url": PNG_URL},
                {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
            ],
        },
        {"type": "function_call_output", "call_id": "c1", "output": [notes]},
    ]


def test_anthropic_tells_attachments_in_the_result() -> None:
    together, messages = rounds(ONE, TWO)
    assert told(ANTHROPIC, *together) == told(ANTHROPIC, *messages)
    text = {"type": "text", "media_type": "text/plain", "data": "# Hi"}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF_64}
    assert told(ANTHROPIC, *messages)[2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c0",
            "content": [
                {"type": "text", "text": "two of them"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_64}},
                {"type": "document", "source": pdf, "title": "a.pdf"},
            ],
        },
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "document", "source": text, "title": "notes.md"}],
        },
        {"type": "text", "text": "so?"},
    ]


def test_anthropic_tells_what_came_with_an_error_behind_the_results() -> None:
    together, messages = rounds(returned("1.0", "no", GIF, is_error=True), returned("1.1", "2"))
    assert told(ANTHROPIC, *together) == told(ANTHROPIC, *messages)
    assert told(ANTHROPIC, *messages)[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c0", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
        {"type": "text", "text": SHOWN.format("c0")},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": b64(b"GIF89a")}},
        {"type": "text", "text": "so?"},
    ]


def test_gemini_tells_attachments_in_the_result() -> None:
    together, messages = rounds(ONE, TWO)
    assert told(GEMINI, *together) == told(GEMINI, *messages)
    assert told(GEMINI, *messages)[2]["parts"] == [
        {
            "functionResponse": {
                "name": "look",
                "response": {"output": "two of them"},
                "parts": [
                    {"inlineData": {"mimeType": "image/png", "data": PNG_64}},
                    {"inlineData": {"mimeType": "application/pdf", "data": PDF_64}},
                ],
                "id": "c0",
            }
        },
        {
            "functionResponse": {
                "name": "look",
                "response": {"output": ""},
                "parts": [{"inlineData": {"mimeType": "text/plain", "data": NOTES_64}}],
                "id": "c1",
            }
        },
    ]


@pytest.mark.parametrize(
    ("profile", "attachments", "said"),
    [
        (OLD_GEMINI, (PICTURE, NOTES), ["inlineData", "text", "inlineData"]),
        (GeminiProfile(), (GIF, LINK), ["inlineData", "fileData"]),
    ],
)
def test_gemini_tells_the_others_in_a_turn_behind(
    profile: Profile, attachments: tuple[Image | Document, ...], said: list[str]
) -> None:
    results = returned("1.0", "1", *attachments), returned("1.1", "2").changed(provider_id=None)
    for messages in rounds(*results):
        contents = told(GEMINI, *messages, profile=profile)
        assert [next(iter(part)) for part in contents[2]["parts"]] == ["functionResponse"] * 2
        assert not any("parts" in part["functionResponse"] for part in contents[2]["parts"])
        announced, *media = contents[3]["parts"]
        assert announced == {"text": SHOWN.format("c0")}
        assert [next(iter(part)) for part in media] == said
        assert contents[4] == {"role": "user", "parts": [{"text": "so?"}]}
        assert told(GEMINI, *messages[:-1], profile=profile)[-1] == contents[3]


def test_gemini_tells_no_id_that_it_does_not_know() -> None:
    result = returned("1.0", "1", GIF).changed(provider_id=None)
    assert told(GEMINI, Message.of("tool", result))[1]["parts"][0] == {"text": "Besides its text, look returned:"}


def test_models_of_gemini_that_take_media_in_results() -> None:
    for model, is_in_results in [("gemini-2.5-flash", False), ("gemma-3-27b-it", False), ("gemini-3-pro", True)]:
        profile = providers()["google"].profile_of(model)
        contents = told(GEMINI, *ASKED, Message.of("tool", ONE), profile=profile)
        assert ("parts" in contents[2]["parts"][0]["functionResponse"]) == is_in_results
        assert len(contents) == (3 if is_in_results else 4)
