"""Is a text the same however it is cut, also between the halves of a surrogate pair?"""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.providers.streams import ArrivingText, CutText, joined, mended, with_halves

UNITS = st.sampled_from([*"ab\ufffd", "\ud83d", "\ude00", "😀", "\udbff", "\udc00"])
PIECES = st.lists(st.lists(UNITS, max_size=3).map("".join), max_size=8)


@given(pieces=PIECES)
def test_pieces_are_told_as_soon_as_they_are_certain(pieces: list[str]) -> None:
    text, told = ArrivingText(), ""
    for number, piece in enumerate(pieces):
        told += text.add(with_halves(piece))
        so_far = "".join(pieces[: number + 1])
        waits = "\ud800" <= so_far[-1:] <= "\udbff"
        assert told == str(text) == mended(so_far[:-1] if waits else so_far)
    assert told + text.end() == str(text) == mended("".join(pieces))
    assert text.end() == ""
    assert bool(text) == bool(pieces)


@given(pieces=PIECES)
def test_joined_pieces_are_one_piece(pieces: list[str]) -> None:
    one, whole = joined([with_halves(piece) for piece in pieces]), with_halves("".join(pieces))
    assert (one, type(one)) == (whole, type(whole))
    around = [mended("\ud83d" + getattr(text, "halves", text) + "\ude00") for text in (one, whole)]
    assert around[0] == around[1]


@given(text=st.lists(UNITS).map("".join))
def test_halves_stay_only_where_a_piece_may_be_cut(text: str) -> None:
    value: Any = with_halves({text: [text, 7, None]})
    ((key, (kept, *others)),) = value.items()
    assert (key, kept, others) == (mended(text), mended(text), [7, None])
    json.dumps(value, ensure_ascii=False).encode()
    is_cut = any("\ud800" <= edge <= "\udfff" for edge in (text[:1], text[-1:]))
    assert isinstance(kept, CutText) == is_cut


def test_a_copy_is_a_plain_string() -> None:
    text = copy.deepcopy(CutText("a\ud83d"))
    assert (text, type(text)) == ("a\ufffd", str)
