"""Hypothesis strategies of turns of models, their streams, dialogs and requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Literal

from hypothesis import strategies as st

from conformance.streams import Framing
from conformance.turns import Kind, Turn, TurnPart, utf16_units
from fsm_agent.call import Request
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Part, Settings
from fsm_agent.prompts import Output

FRAMINGS = st.builds(
    Framing,
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    comment=st.none() | st.sampled_from([b": ping", b":", b": data: {}"]),
    other=st.none() | st.sampled_from([b"id: 7", b"retry: 1000", b"nonsense"]),
    space=st.sampled_from([b" ", b""]),
    splits=st.booleans(),
    is_closed=st.booleans(),
)
CUTS = st.lists(st.integers(1, 40), max_size=12) | st.integers(1, 9).map(lambda size: [size] * 4000)

_LETTERS = st.sampled_from([*'ab \n"\\{}é漢\u2028\u0085\ufeff', "😀", "𝄞", "data: ", "\r"])
_TEXTS = st.lists(_LETTERS, min_size=1, max_size=5).map("".join)
_SIZES = st.lists(st.integers(1, 3), max_size=4)
_HALVES = st.sampled_from([*"a ", "\ud83d", "\ude00", "😀"])

# Pieces of a text that may contain a half of a surrogate pair alone; in every second draw, one pair is cut in two.
_PIECES = st.lists(st.lists(_HALVES, min_size=1, max_size=3).map("".join), min_size=1, max_size=6)
CUT_PIECES = _PIECES | st.tuples(_PIECES, _PIECES).map(lambda beside: [*beside[0], "\ud83d", "\ude00", *beside[1]])


@st.composite
def turns(draw: st.DrawFn, kinds: Collection[Kind], *, cuts_characters: bool) -> Turn:
    """Draw a turn: texts and reasoning, then perhaps calls.

    Args:
        draw: Draws a value.
        kinds: The kinds of its parts.
        cuts_characters: Whether its pieces may end between the halves of a surrogate pair.
    """

    def pieces(text: str) -> list[str]:
        left, cut = utf16_units(text) if cuts_characters else [*text], []
        for size in draw(_SIZES):
            cut.append("".join(left[:size]))
            left = left[size:]
        return [piece for piece in [*cut, "".join(left)] if piece]

    words: list[Literal["text", "reasoning"]] = [kind for kind in ("text", "reasoning") if kind in kinds]
    parts = []
    for _ in range(draw(st.integers(0, 3)) if words else 0):
        kind = draw(st.sampled_from(words))
        parts.append(TurnPart(kind, pieces(draw(_TEXTS))))
    for number in range(draw(st.integers(0, 2)) if "call" in kinds else 0):
        arguments = json.dumps({"a": draw(_TEXTS)}, ensure_ascii=False, separators=(",", ":"))
        parts.append(TurnPart("call", pieces(arguments), f"f{number}", f"call_{number}"))
    return Turn(parts or [TurnPart("text", ["hi"])])


@st.composite
def dialogs(draw: st.DrawFn) -> list[Message]:
    """Draw a dialog as agent calls leave it; each text, name and result in it is unique."""
    messages = [Message.of("system", "<system>")] * draw(st.integers(0, 1))
    messages.append(Message.of("user", "<task>"))
    for position in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            messages += [Message.of("assistant", f"<answer {position}>"), Message.of("user", f"<question {position}>")]
            continue
        words: list[str | Part] = [f"<words {position}>"] * draw(st.integers(0, 1))
        calls = [
            FunctionCall(name="search", arguments_json=json.dumps({"query": f"<query {id}>"}), id=id)
            for id in [f"{position}.{index}" for index in range(draw(st.integers(1, 3)))]
        ]
        messages.append(Message.of("assistant", *words, *calls))
        for call in calls:
            is_error = draw(st.booleans())
            result = FunctionResult(id=call.id, name=call.name, text=f"<result {call.id}>", is_error=is_error)
            messages.append(Message.of("tool", result))
    return messages


def requests(make_functions: Callable[[], tuple[Function, ...]], output: Output) -> st.SearchStrategy[Request]:
    """Return a strategy of requests over `dialogs`, in which no two share a value that could be changed."""
    settings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.just(0.25),
            "max_tokens": st.just(4096),
            "seed": st.just(7),
            "extra_body": st.builds(lambda: {"x_extra": {"inner": [1]}}),
        },
    )
    return st.builds(
        Request,
        messages=dialogs(),
        functions=st.just(()) | st.builds(make_functions),
        tool_choice=st.sampled_from(["auto", "required", "none"]),
        output=st.sampled_from([Output(str), output]),
        mode=st.sampled_from([None, "native", "function", "prompted"]),
        settings=settings.map(lambda changes: Settings(**changes)),
    )
