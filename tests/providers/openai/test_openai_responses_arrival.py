"""Do the pieces of an item become the item, and is it found again in the whole output?"""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent.providers.openai.responses_arrival import PIECES, ArrivingItem, RepeatableText, matched

TEXT, REFUSAL = PIECES["response.output_text"], PIECES["response.refusal"]
ARGUMENTS = PIECES["response.function_call_arguments"]


def text_of(*pieces: str) -> RepeatableText:
    text = RepeatableText()
    for piece in pieces:
        text.add(piece)
    return text


def item(kind: str, index: int, id: Any = None) -> ArrivingItem:
    arriving = ArrivingItem(kind, index)
    arriving.data = {"type": kind, "id": id}
    return arriving


@pytest.mark.parametrize(
    ("whole", "rest"),
    [("abc", "c"), ("ab", ""), ("a", ""), ("", ""), ("xyz", ""), ("abcd", "cd")],
)
def test_rest_is_what_was_not_told(whole: str, rest: str) -> None:
    assert text_of("a", "b").rest(whole) == rest
    assert text_of().rest(whole) == whole


def test_pieces_become_the_item() -> None:
    message = ArrivingItem("message", 0)
    message.texts = {(TEXT, 2): text_of("c"), (REFUSAL, 1): text_of("no"), (TEXT, 0): text_of("a", "b")}
    content = [
        {"type": "output_text", "text": "ab"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "c"},
    ]
    assert message.whole() == {"type": "message", "content": content}
    call = item("function_call", 0, "fc_1")
    call.texts = {(ARGUMENTS, 0): text_of("{", "}")}
    assert call.whole() == {"type": "function_call", "id": "fc_1", "arguments": "{}"}
    call.is_done = True
    assert call.whole() is call.data


@pytest.mark.parametrize(
    ("arrived", "output", "places"),
    [
        ([item("message", 0, "a")], [("message", "z"), ("message", "a")], [None, 0]),
        ([item("message", 1, "a"), item("message", 0, "b")], [("message", "y"), ("message", "z")], [1, 0]),
        ([item("message", 7, "a"), item("message", 8)], [("message", "z"), ("message", None)], [0, 1]),
        ([item("message", 0, "a"), item("message", 1, "a")], [("message", "a"), ("message", "a")], [0, 1]),
        ([item("message", 0, "a")], [("message", "a"), ("message", "a")], [0, None]),
        ([item("message", 0, "a")], [("reasoning", "a")], [None]),
        ([item("message", 0)], [("message", None), ("web_search_call", None)], [0, None]),
        ([], [], []),
    ],
)
def test_items_are_found_by_id_else_by_index_else_in_order(
    arrived: list[ArrivingItem], output: list[tuple[str, Any]], places: list[int | None]
) -> None:
    found = matched(arrived, [{"type": kind, "id": id} for kind, id in output])
    assert [arrived.index(item) if item in arrived else None for item in found] == places
    assert [(item.kind, item.index) for item in found] == [(kind, index) for index, (kind, _) in enumerate(output)]
