"""Are messages values that show no bytes, and pictures what they claim to be?"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.errors import UsageError
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Opaque, Reasoning, Text

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 100
JPEG = b"\xff\xd8\xff\xe0" + b"JFIF"
GIF = b"GIF89a" + b"\0" * 8
WEBP = b"RIFF\x1a\0\0\0WEBPVP8 "


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


class TestImage:
    @pytest.mark.spec(
        "2.53: bytes, files, URLs and data URLs become one value",
        "2.53: the media type is read from the bytes",
    )
    @pytest.mark.parametrize(
        ("data", "media_type"),
        [
            (PNG, "image/png"),
            (JPEG, "image/jpeg"),
            (GIF, "image/gif"),
            (b"GIF87a", "image/gif"),
            (WEBP, "image/webp"),
        ],
    )
    def test_bytes_tell_their_media_type(self, data: bytes, media_type: str, tmp_path: Path) -> None:
        expected = Image(data=data, media_type=media_type)
        path = tmp_path / "picture.of_anything"
        path.write_bytes(data)
        assert Image.of(data) == expected
        assert Image.of(bytearray(data)) == expected
        assert Image.of(path) == expected
        assert Image.of(str(path)) == expected
        assert Image.of(data_url(data, "image/whatever")) == expected
        assert Image.of(data_url(data).replace("data:", "DATA:", 1)) == expected
        assert expected.data_url() == data_url(data, media_type)
        assert Image.of(expected.data_url()) == expected

    @pytest.mark.spec("2.53: bytes, files, URLs and data URLs become one value")
    @pytest.mark.parametrize("url", ["https://example.com/a.png?b=c", "HTTP://EXAMPLE.COM/A"])
    def test_a_url_is_kept(self, url: str) -> None:
        assert Image.of(url) == Image(url=url)
        assert Image.of(url).data_url() == url

    @pytest.mark.spec("2.53: the media type is read from the bytes")
    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            (b"", "these 0 bytes"),
            (b"RIFF\x1a\0\0\0WAVE", "are no PNG, JPEG, GIF or WebP image"),
            ("no/such/file.png", r"no image can be read from 'no/such/file.png': No such file or directory"),
            ("", "no image can be read from ''"),
            ("a\0b", "embedded null"),
            (5, "from 5: .* not '?int"),
            (None, "from None"),
            ("ftp://example.com/a.png", "no image can be read from 'ftp://example.com/a.png'"),
            ("data:,hello", "'data:'… is not base64"),
            ("data:image/png;base64", "holds no valid base64|are no PNG"),
            ("data:image/png;base64,@@@", "holds no valid base64"),
            ("data:image/png;base64,iVBO\nRw0=", "holds no valid base64"),
            ("data:image/png;base64,\u00e9", "holds no valid base64"),
            (data_url(b"<svg/>", "image/svg+xml"), "are no PNG"),
        ],
    )
    def test_a_bad_source_is_told(self, source: Any, problem: str) -> None:
        with pytest.raises(UsageError, match=problem):
            Image.of(source)

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"data": PNG},
            {"data": PNG, "media_type": ""},
            {"data": PNG, "media_type": "image/png", "url": "https://example.com"},
            {"url": "data:image/png;base64,AAAA"},
            {"url": "file:///etc/passwd"},
        ],
    )
    def test_an_image_is_either_data_or_a_url(self, fields: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=r"Image\.of"):
            Image(**fields)

    def test_its_bytes_are_never_shown(self) -> None:
        message = Message.of("user", "look", Image.of(PNG))
        assert "pixels" not in repr(message)
        assert "image/png" in repr(message)


PDF = b"%PDF-1.7\n" + b"\xe2\xe3\xcf\xd3 pages"
TEXT = "Grüße, \N{SNOWMAN}\n".encode()


class TestDocument:
    @pytest.mark.spec(
        "2.53: bytes, files, URLs and data URLs become one value",
        "2.53: the media type is read from the bytes",
    )
    def test_a_pdf_is_one_by_its_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "report.md"
        path.write_bytes(PDF)
        expected = Document(data=PDF, media_type="application/pdf")
        named = expected.changed(name="report.md")
        assert Document.of(PDF) == Document.of(bytearray(PDF)) == Document.of(data_url(PDF, "text/plain")) == expected
        assert Document.of(path) == Document.of(str(path)) == named
        assert Document.of(path, name="other.txt") == expected.changed(name="other.txt")
        assert expected.data_url() == data_url(PDF, "application/pdf")
        assert (expected.is_text, expected.text) == (False, None)

    @pytest.mark.parametrize(
        ("name", "media_type"),
        [
            ("notes.txt", "text/plain"),
            ("README.MD", "text/markdown"),
            ("a.b.csv", "text/csv"),
            ("page.htm", "text/html"),
            ("feed.xml", "text/xml"),
            ("data.json", "application/json"),
            ("script.py", "text/plain"),
            ("paper.pdf", "text/plain"),
            ("Makefile", "text/plain"),
            (".md", "text/plain"),
        ],
    )
    def test_the_name_tells_one_text_from_another(self, name: str, media_type: str, tmp_path: Path) -> None:
        expected = Document(data=TEXT, media_type=media_type, name=name)
        path = tmp_path / name
        path.write_bytes(TEXT)
        assert Document.of(path) == Document.of(str(path)) == Document.of(TEXT, name=name) == expected
        assert (expected.is_text, expected.text) == (True, TEXT.decode())

    @pytest.mark.parametrize(
        ("said", "media_type"),
        [
            ("text/markdown", "text/markdown"),
            ("TEXT/CSV;charset=utf-8", "text/csv"),
            ("application/octet-stream", "text/plain"),
            ("application/pdf", "text/plain"),
            ("x" * 10**6, "text/plain"),
        ],
    )
    def test_a_data_url_tells_it_too(self, said: str, media_type: str) -> None:
        assert Document.of(data_url(TEXT, said)) == Document(data=TEXT, media_type=media_type)
        assert Document.of(data_url(TEXT, said).replace("data:", "DATA:", 1)).media_type == media_type

    @pytest.mark.spec("2.53: bytes, files, URLs and data URLs become one value")
    @pytest.mark.parametrize(
        ("url", "media_type"),
        [
            ("https://example.com/a.pdf?b=c.md", "application/pdf"),
            ("https://example.com/a/b", "application/pdf"),
            ("https://example.md", "application/pdf"),
            ("https://example.com#a/b.md", "application/pdf"),
            ("http://[x/a.md", "text/markdown"),
            ("HTTP://EXAMPLE.COM/A.JSON#b", "application/json"),
        ],
    )
    def test_a_url_is_kept(self, url: str, media_type: str) -> None:
        assert Document.of(url) == Document(url=url, media_type=media_type)
        assert Document.of(url, name="a").name == "a"
        assert Document.of(url).data_url() == url
        assert Document.of(url).text is None

    @pytest.mark.spec("2.53: the media type is read from the bytes")
    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            (b"", "these 0 bytes"),
            (PNG, "are no PDF, and no text in UTF-8"),
            (b"a\0b", "are no PDF, and no text"),
            ("Grüße".encode("latin-1"), "are no PDF, and no text"),
            ("no/such/file.pdf", "no document can be read from 'no/such/file.pdf': No such file or directory"),
            (5, "no document can be read from 5"),
            ("ftp://example.com/a.pdf", "no document can be read"),
            ("data:,hello", "'data:'… is not base64"),
            ("data:application/pdf;base64,@@@", "holds no valid base64"),
            (b"\xff" * 10**6, "these 1000000 bytes"),
            ("x" * 10**6, "no document can be read"),
        ],
    )
    def test_a_bad_source_is_told(self, source: Any, problem: str) -> None:
        with pytest.raises(UsageError, match=problem) as caught:
            Document.of(source)
        assert len(str(caught.value)) < 400

    def test_its_bytes_are_never_shown(self) -> None:
        document = Document.of(b"%PDF- pages", name="a.pdf")
        result = FunctionResult(id="1.0", name="f", text="", attachments=(document,))
        for shown in (repr(Message.of("user", document)), repr(Message.of("tool", result))):
            assert "pages" not in shown
            assert "'a.pdf'" in shown


class TestFunctionCall:
    @pytest.mark.parametrize(
        ("arguments_json", "arguments"),
        [
            ("", {}),
            ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
            ('{"a": 1, "a": 2}', {"a": 2}),
            ("[1]", {}),
            ("null", {}),
            ('"{}"', {}),
            ('{"a": 1', {}),
            ('{"a": 1} x', {}),
            (" ", {}),
            ('{"a":"\\ud800"}', {}),
            ('{"a":"\ud800"}', {}),
            ('{"a":' * 10_000, {}),
            ('{"a":' + "9" * 5000 + "}", {}),
        ],
    )
    def test_arguments_are_an_object_or_empty(self, arguments_json: str, arguments: dict[str, Any]) -> None:
        assert FunctionCall(name="f", arguments_json=arguments_json).arguments == arguments

    @settings(deadline=None)
    @given(st.text() | st.text(alphabet='{}[]",:\\0au\ud800'))
    def test_arguments_never_raise(self, arguments_json: str) -> None:
        assert isinstance(FunctionCall(name="f", arguments_json=arguments_json).arguments, dict)

    @pytest.mark.spec("3.17: success is a result without an error")
    def test_settled_and_succeeded(self) -> None:
        asked = FunctionCall(name="f", arguments_json="{}")
        returned = asked.changed(result="")
        failed = asked.changed(error="no")
        repeated = asked.changed(result="see above", is_repeated=True)
        assert [f.is_settled for f in (asked, returned, failed, repeated)] == [False, True, True, True]
        assert [f.succeeded for f in (asked, returned, failed, repeated)] == [False, True, False, False]


class TestMessage:
    @pytest.mark.spec("0.2: the content is unchanged")
    def test_of_takes_texts_and_parts_in_order(self) -> None:
        call = FunctionCall(name="f", arguments_json="{}")
        message = Message.of("assistant", "a", call, Reasoning(text="hm"), Text("b"), Reasoning(text="!"))
        assert message.parts == (Text("a"), call, Reasoning(text="hm"), Text("b"), Reasoning(text="!"))
        assert message.text == "ab"
        assert message.reasoning == "hm!"
        assert message.function_calls == (call,)

    def test_the_text_of_a_function_result(self) -> None:
        result = FunctionResult(id="1.0", name="f", text="42")
        assert Message.of("tool", result).text == "42"

    def test_it_is_a_value(self) -> None:
        one = Message.of("user", "a", Opaque(wire="w", data={"k": [1]}))
        same = Message.of("user", "a", Opaque(wire="w", data={"k": [1]}))
        other = Message.of("user", "a", Opaque(wire="w", data={"k": [2]}))
        assert one == same
        assert one != other
        assert len({one, same, other}) == 2
        with pytest.raises(AttributeError, match="immutable"):
            one.role = "system"

    def test_reprs_leave_out_what_only_wires_need(self) -> None:
        call = FunctionCall(name="f", arguments_json="{}", provider_id="call_1", signature="c2ln", fingerprint="ab")
        message = Message.of("assistant", Text("a", signature="c2ln"), call, Opaque(wire="w", data="c2ln"))
        assert "kind" not in repr(message)
        assert "c2ln" not in repr(message)
        assert "call_1" not in repr(message)
