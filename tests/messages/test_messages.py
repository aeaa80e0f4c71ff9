"""Are messages values that show no bytes, and pictures what they claim to be?"""

from __future__ import annotations

import base64
import codecs
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, Dialog
from fsm_agent.call import snapshot
from fsm_agent.errors import UsageError
from fsm_agent.messages import Document, FunctionCall, FunctionResult, Image, Message, Opaque, Reasoning, Text
from fsm_agent.testing import Script

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 100
JPEG = b"\xff\xd8\xff\xe0" + b"JFIF"
WEBP = b"RIFF\x1a\0\0\0WEBPVP8 "


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


class TestImage:
    def test_bytes_tell_their_media_type(self, tmp_path: Path) -> None:
        path = tmp_path / "picture.of_anything"
        for kind, data in {"png": PNG, "jpeg": JPEG, "gif": b"GIF89a" + b"\0" * 8, "webp": WEBP}.items():
            expected = Image(data=data, media_type=f"image/{kind}")
            path.write_bytes(data)
            for source in (data, bytearray(data), path, str(path), data_url(data, "image/whatever")):
                assert Image.of(source) == expected
            assert Image.of(data_url(data).replace("data:", "DATA:", 1)) == expected
            assert expected.data_url() == data_url(data, f"image/{kind}")
            assert Image.of(expected.data_url()) == expected
        assert Image.of(b"GIF87a").media_type == "image/gif"

    def test_a_url_is_kept(self) -> None:
        for url in ("https://example.com/a.png?b=c", "HTTP://EXAMPLE.COM/A"):
            assert Image.of(url) == Image(url=url)
            assert Image.of(url).data_url() == url

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            (b"", " 0 bytes"),
            (b"RIFF\x1a\0\0\0WAVE", "12 bytes"),
            ("no/such/file.png", "'no/such/file.png'"),
            *(("", "''"), ("a\0b", "null"), (5, "5"), (None, "None"), ("ftp://example.com/a.png", "'ftp://")),
            *[(f"data:{rest}", "data:|bytes") for rest in (",hello", "image/png;base64", "image/png;base64,@@@")],
            *[(f"data:image/png;base64,{rest}", "base64") for rest in ("iVBO\nRw0=", "\u00e9")],
            (data_url(b"<svg/>", "image/svg+xml"), "bytes"),
        ],
    )
    def test_a_bad_source_is_told(self, source: Any, name: str) -> None:
        with pytest.raises(UsageError, match=name):
            Image.of(source)

    def test_an_image_is_either_data_or_a_url(self) -> None:
        for fields in (
            *({}, {"data": PNG}, {"data": PNG, "media_type": ""}, {"url": "file:///etc/passwd"}),
            {"data": PNG, "media_type": "image/png", "url": "https://example.com"},
            {"url": "data:image/png;base64,AAAA"},
        ):
            with pytest.raises(UsageError, match=r"Image\.of"):
                Image(**fields)

    def test_no_source_names_what_is_no_encoding_of_files(self) -> None:
        for encoding in ("punycode", "IDNA", "Unicode_Escape", "raw-unicode-escape", "undefined", "rot13", "a\0b"):
            for make in (
                lambda name=encoding: Document.of(b"Text", encoding=name),
                lambda name=encoding: Document.of(data_url(b"Text", f"text/plain;charset={name}")),
            ):
                with pytest.raises(UsageError, match="encoding"):
                    make()

    def test_its_bytes_are_never_shown(self) -> None:
        message = Message.of("user", "look", Image.of(PNG))
        assert "pixels" not in repr(message)
        assert "image/png" in repr(message)


PDF = b"%PDF-1.7\n" + b"\xe2\xe3\xcf\xd3 pages"
TEXT = "Grüße, \N{SNOWMAN}\n".encode()


class TestDocument:
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

    def test_the_name_tells_one_text_from_another(self, tmp_path: Path) -> None:
        for name, kind in {
            **{"notes.txt": "text/plain", "README.MD": "text/markdown", "a.b.csv": "text/csv", "page.htm": "text/html"},
            **{"feed.xml": "text/xml", "data.json": "application/json", "script.py": "text/plain"},
            **{"paper.pdf": "text/plain", "Makefile": "text/plain", ".md": "text/plain"},
        }.items():
            expected = Document(data=TEXT, media_type=kind, name=name)
            path = tmp_path / name
            path.write_bytes(TEXT)
            assert Document.of(path) == Document.of(str(path)) == Document.of(TEXT, name=name) == expected
            assert (expected.is_text, expected.text) == (True, TEXT.decode())

    def test_a_data_url_tells_it_too(self) -> None:
        for said, kind in {
            **{"text/markdown": "text/markdown", "TEXT/CSV;charset=utf-8": "text/csv"},
            **dict.fromkeys(("application/octet-stream", "application/pdf", "x" * 10**6), "text/plain"),
        }.items():
            assert Document.of(data_url(TEXT, said)) == Document(data=TEXT, media_type=kind)
            assert Document.of(data_url(TEXT, said).replace("data:", "DATA:", 1)).media_type == kind

    def test_a_url_is_kept(self) -> None:
        for url, kind in {
            "https://example.com/a.pdf?b=c.md": "application/pdf",
            "https://example.com/a/b": "application/pdf",
            "https://example.md": "application/pdf",
            "https://example.com#a/b.md": "application/pdf",
            "http://[x/a.md": "text/markdown",
            "HTTP://EXAMPLE.COM/A.JSON#b": "application/json",
        }.items():
            assert Document.of(url) == Document(url=url, media_type=kind)
            assert Document.of(url, name="a").name == "a"
            assert (Document.of(url).data_url(), Document.of(url).text) == (url, None)

    def test_a_bad_source_is_told(self) -> None:
        for source in (
            *(b"", PNG, b"a\0b", "Grüße".encode("latin-1"), "no/such/file.pdf", 5, "ftp://example.com/a.pdf"),
            *("data:,hello", "data:application/pdf;base64,@@@", b"\xff" * 10**6, "x" * 10**6),
        ):
            with pytest.raises(UsageError) as caught:
                Document.of(source)
            assert len(str(caught.value)) < 400

    def test_text_in_another_encoding_becomes_utf_8(self) -> None:
        text = "Größe;Preis\n1;2 €"
        for encoding in ("utf-16", "cp1252", "shift_jis"):
            known = text if encoding != "shift_jis" else "価格"
            data = known.encode(encoding)
            document = Document.of(data, name="a.csv", encoding=encoding)
            assert (document.text, document.data) == (known, known.encode())
        for data in (text.encode("utf-16"), codecs.BOM_UTF16_BE + text.encode("utf-16-be")):  # Notepad, Excel
            assert Document.of(data).text == text
        assert Document.of(data_url(text.encode("cp1252"), "text/csv; charset=CP1252")).text == text

    def test_text_that_is_not_utf_8_is_never_guessed(self) -> None:
        for data in ("Größe".encode("latin-1"), "Größe".encode("utf-16")):
            with pytest.raises(UsageError, match="UTF-8"):
                Document(data=data, media_type="text/csv")
        for encoding in ("utf-8", "no-such", "base64", 5):
            with pytest.raises(UsageError, match="encoding" if encoding != "utf-8" else "utf-8"):
                Document.of("Größe".encode("latin-1"), encoding=encoding)

    def test_a_stored_document_of_another_encoding_can_still_be_read(self) -> None:
        """Earlier releases took it."""
        document = Document(data="Größe".encode(), media_type="text/csv")
        kept = snapshot(Agent(Script("Hi."), name="a").prepare(Dialog([Message.of("user", document)])))
        old, new = (base64.b64encode("Größe".encode(encoding)).decode() for encoding in ("latin-1", "utf-8"))
        assert new in kept
        call = Agent(Script("Hi."), name="a").restore(kept.replace(new, old))
        (read,) = call.record.dialog[0].parts
        assert isinstance(read, Document)
        assert read.text == "Gr\ufffd\ufffde"

    def test_its_bytes_are_never_shown(self) -> None:
        document = Document.of(b"%PDF- pages", name="a.pdf")
        result = FunctionResult(id="1.0", name="f", text="", attachments=(document,))
        for shown in (repr(Message.of("user", document)), repr(Message.of("tool", result))):
            assert "pages" not in shown
            assert "'a.pdf'" in shown


class TestFunctionCall:
    def test_arguments_are_an_object_or_empty(self) -> None:
        for text, arguments in (
            *(("", {}), ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}), ('{"a": 1, "a": 2}', {"a": 2})),
            ('"{\\"a\\": 1}"', {"a": 1}),
            *[(text, {}) for text in ("[1]", "null", '"{}"', '{"a": 1', '{"a": 1} x', " ", '{"a":"\\ud800"}')],
            *[(text, {}) for text in ('{"a":"\ud800"}', '{"a":' * 10_000, '{"a":' + "9" * 5000 + "}")],
        ):
            assert FunctionCall(name="f", arguments_json=text).arguments == arguments

    @settings(deadline=None)
    @given(st.text() | st.text(alphabet='{}[]",:\\0au\ud800'))
    def test_arguments_never_raise(self, arguments_json: str) -> None:
        assert isinstance(FunctionCall(name="f", arguments_json=arguments_json).arguments, dict)

    def test_settled_and_succeeded(self) -> None:
        asked = FunctionCall(name="f", arguments_json="{}")
        returned = asked.changed(result="")
        failed = asked.changed(error="no")
        repeated = asked.changed(result="see above", is_repeated=True)
        assert [f.is_settled for f in (asked, returned, failed, repeated)] == [False, True, True, True]
        assert [f.succeeded for f in (asked, returned, failed, repeated)] == [False, True, False, False]


class TestMessage:
    def test_of_takes_texts_and_parts_in_order(self) -> None:
        call = FunctionCall(name="f", arguments_json="{}")
        message = Message.of("assistant", "a", call, Reasoning(text="hm"), Text("b"), Reasoning(text="!"))
        assert message.parts == (Text("a"), call, Reasoning(text="hm"), Text("b"), Reasoning(text="!"))
        assert message.text == "ab"
        assert message.reasoning == "hm!"
        assert message.function_calls == (call,)

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
