"""Does the model get all that an MCP server's answer holds, once?"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from fsm_agent.messages import Document, Image

pytest.importorskip("mcp")

from mcp_http_stub import HttpStub

from fsm_agent.mcp import MCPServer, MCPToolError

GIF = b"GIF89a-and-more"


def value(*content: dict[str, Any], structured: Any = None, is_error: bool = False) -> Any:
    """What a function of a server gives that answers so."""
    result = {"content": content, "isError": is_error, **({"structuredContent": structured} if structured else {})}
    with HttpStub() as stub, MCPServer.http(stub.url) as server:
        stub.answer = lambda id: stub.body(id, result)
        return asyncio.run(server.functions[0].call())


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def blob(type_: str, data: bytes, uri: str = "file:///x/a%20b.bin?v=1") -> dict[str, Any]:
    resource = {"uri": uri, "mimeType": type_, "blob": base64.b64encode(data).decode()}
    return {"type": "resource", "resource": resource}


@pytest.mark.parametrize(
    ("texts", "structured", "told"),
    [
        (["a", "b"], None, "a\nb"),
        ([], None, ""),
        ([], {"a": 1}, '{"a":1}'),
        (['{ "a": 1 }'], {"a": 1}, '{ "a": 1 }'),
        (["3 found"], {"a": 1}, '3 found\n{"a":1}'),
        (["7"], {"result": 7}, "7"),
        (["7"], {"result": 8}, '7\n{"result":8}'),
        (['{"a": 1}', "two"], {"result": [{"a": 1}, "two"]}, '{"a": 1}\ntwo'),
        ([], {"result": []}, '{"result":[]}'),
    ],
)
def test_texts_and_structured_content(texts, structured, told):
    assert value(*map(text, texts), structured=structured) == told


def test_pictures_and_documents_stand_between_the_texts():
    picture = {"type": "image", "mimeType": "image/whatever", "data": base64.b64encode(GIF).decode()}
    pieces = value(text("a"), text("b"), picture, blob("application/pdf", b"%PDF"), text("c"))
    image, document = Image(data=GIF, media_type="image/gif"), Document(data=b"%PDF", name="a b.bin")
    assert pieces == ["a\nb", image, document, "c"]
    assert value(picture) == [image]
    assert value(blob("image/gif", GIF)) == [image]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (blob("text/csv; charset=utf-8", "a,ü".encode()), "a,ü"),
        (blob("text/plain", b"\xff"), "[text/plain, file:///x/a%20b.bin?v=1, 1 bytes: not shown]"),
        (blob("image/tiff", b"II*"), "[image/tiff, file:///x/a%20b.bin?v=1, 3 bytes: not shown]"),
        ({"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}, "[audio/wav, 4 bytes: not shown]"),
        ({"type": "image", "mimeType": "image/png", "data": "no base64"}, "[image/png: not valid base64]"),
        ({"type": "resource_link", "name": "n", "uri": "a:b"}, "n: a:b"),
    ],
)
def test_what_no_model_takes_is_told_in_words(block, told):
    assert value(block) == told


def test_an_error_is_its_words():
    picture = {"type": "image", "mimeType": "image/gif", "data": base64.b64encode(GIF).decode()}
    with pytest.raises(MCPToolError, match="no\nway"):
        value(text("no"), picture, text("way"), is_error=True)
