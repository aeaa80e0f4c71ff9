"""Are payloads built in order, of texts, images and documents, and of nothing that cannot be sent?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsm_agent import Document, Image, Payload, UsageError
from fsm_agent.messages import Message, Reasoning, Text
from fsm_agent.testing import function_call

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
PDF = b"%PDF-1.7 ..."


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    return path


class TestBuilding:
    def test_parts_are_in_the_order_in_which_they_were_added(self, cat: Path) -> None:
        payload = Payload.text("a").with_image(cat).with_text("b").with_image_data(PNG).prepend_text("first")
        image = Image(data=PNG, media_type="image/png")
        assert payload.parts == (Text("first"), Text("a"), image, Text("b"), image)
        assert payload.to_text() == "first\na\nb"
        assert payload.message == Message.of("user", "first\na", image, "b", image)

    def test_each_step_leaves_the_one_before(self, cat: Path) -> None:
        first = Payload.text("a")
        first.with_image(cat), first.with_text("b"), first.prepend_text("c")
        assert first == Payload.text("a")

    def test_it_says_what_it_holds(self, cat: Path) -> None:
        text = Payload.text("a")
        sheet, lease = text.with_document(b"1,2", name="a.csv"), text.with_document(PDF)
        held = [(p.has_images, p.is_text_only) for p in (Payload(), text, text.with_image(cat), sheet, lease)]
        assert held == [(False, True), (False, True), (True, False), (False, False), (False, False)]
        assert sheet.with_image(cat).without_images == sheet
        assert lease.with_image(cat).without_images == text

    def test_addresses_and_data_urls_are_images(self) -> None:
        payload = Payload().with_image("https://example.com/a.png").with_image(Image.of(PNG).data_url())
        assert payload.parts == (Image(url="https://example.com/a.png"), Image(data=PNG, media_type="image/png"))

    def test_a_document_has_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "lease.md").write_text("# Lease")
        assert Payload().with_document(tmp_path / "lease.md").parts == (
            Document(data=b"# Lease", media_type="text/markdown", name="lease.md"),
        )

    def test_nothing_is_no_task(self) -> None:
        for payload in (Payload(), Payload.text(" \n"), Payload.text("").with_text("")):
            with pytest.raises(UsageError, match="task"):
                _ = payload.message

    def test_an_image_or_a_document_that_exists_is_taken(self):
        image, document = Image.of(PNG), Document.of(b"1,2", name="a.csv")
        assert Payload().with_image(image).with_document(document).parts == (image, document)
        assert Payload().with_document(document, name="b.csv").parts == (document.changed(name="b.csv"),)

    def test_an_image_alone_is_a_task(self) -> None:
        assert Payload().with_image_data(PNG).message.parts == (Image(data=PNG, media_type="image/png"),)


class TestRefused:
    def test_what_is_no_part_is_refused_when_it_is_added(self, tmp_path: Path) -> None:
        (tmp_path / "a.bmp").write_bytes(b"BM")
        os.mkfifo(tmp_path / "pipe")  # to read it would take forever
        for make, name in (
            (lambda: Payload.text(5), "5"),
            *[
                (lambda parts=parts: Payload(parts), "Payload.text")
                for parts in ("a", b"a", Text("a"), ("a",), None, (Reasoning(text="a"),), (function_call("f"),))
            ],
            *[
                (lambda name=name: Payload().with_image(tmp_path / name), name)
                for name in ("none.png", "a.bmp", "pipe")
            ],
            (lambda: Payload().with_image(tmp_path), tmp_path.name),
            (lambda: Payload().with_image_data(str(tmp_path)), "with_image"),
            (lambda: Payload().with_image_data(b"BM"), "b'BM'"),
            (lambda: Payload().with_document(tmp_path / "none.pdf"), "none.pdf"),
            (lambda: Payload().with_document(PNG), "PDF"),
        ):
            with pytest.raises(UsageError, match=name):
                make()

    def test_no_more_of_a_file_is_read_than_a_request_may_hold(self, tmp_path: Path) -> None:
        huge = tmp_path / "huge.png"
        huge.write_bytes(PNG)
        os.truncate(huge, 10**12)  # a hole, which takes no room, and all of which no memory holds
        with pytest.raises(UsageError, match=r"huge\.png"):
            Payload().with_image(huge)
