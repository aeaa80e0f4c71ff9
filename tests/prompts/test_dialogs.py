"""Is a dialog a value that can be forked, stored and sent again at every moment?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from fsm_agent.errors import PromptError, SnapshotError
from fsm_agent.messages import FunctionCall, FunctionResult, Image, Message, Opaque, Reasoning, Text
from fsm_agent.prompts import Dialog, Prompt

SYSTEM = Message.of("system", "Be terse.")
PNG = b"\x89PNG\r\n\x1a\n\xff\x00pixels"


def asked(*ids: str) -> Message:
    return Message.of("assistant", *[FunctionCall(name="f", arguments_json="{}", id=i) for i in ids])


def told(i: str) -> Message:
    return Message.of("tool", FunctionResult(id=i, name="f", text="r"))


class TestValue:
    def test_append_and_put_leave_the_original(self):
        start = Dialog([SYSTEM])
        one, two = start.put("a"), start.put("b")
        three = start.append(Message.of("user", "c"), Message.of("assistant", "d"))
        assert [list(dialog) for dialog in (start, one, two, three)] == [
            [SYSTEM],
            [SYSTEM, Message.of("user", "a")],
            [SYSTEM, Message.of("user", "b")],
            [SYSTEM, Message.of("user", "c"), Message.of("assistant", "d")],
        ]

    def test_text_is_never_a_template(self):
        for text in ("{", '{"a": 1}', "{{ name }}", "{% if", "{#", "\ud800"):
            assert Dialog().put(text).tail == Message.of("user", text)

    def test_a_prompt_is_rendered_and_governs(self):
        prompt, other = Prompt("About {{ said }}"), Prompt("More")
        start = Dialog([SYSTEM])
        dialog = start.put(prompt(said="{{ x }}"), Text("!"))
        assert dialog.tail == Message.of("user", "About {{ x }}", "!")
        assert (start.top_prompt, dialog.top_prompt) == (None, prompt)
        assert dialog.append(told("1")).top_prompt is prompt
        assert dialog.put(other).top_prompt is other
        assert dialog.put("text").top_prompt is None
        with pytest.raises(PromptError, match="said"):
            start.put(prompt)

    def test_equality_and_hash(self):
        one, same = Dialog([SYSTEM]).put("a"), Dialog([SYSTEM]).put("a")
        assert one == same
        assert len({one, same, Dialog()}) == 2
        assert one != Dialog()
        assert one != list(one)
        assert hash(Dialog([Message.of("user", Opaque(wire="w", data={}))]))

    def test_its_repr_shows_no_bytes(self):
        shown = repr(Dialog().put("Look", Image.of(PNG)))
        assert "Look" in shown
        assert "pixels" not in shown


class TestFork:
    def test_it_shares_everything(self):
        prompt = Prompt("x")
        dialog = Dialog([SYSTEM] * 1000).put(prompt)
        for fork in (dialog.fork(), dialog.fork(last_n=2000), dialog.fork(last_n=1001)):
            assert fork.messages._items is dialog.messages._items
            assert fork == dialog
            assert fork.top_prompt is prompt

    def test_the_oldest_and_the_newest(self):
        dialog = Dialog([SYSTEM, *[Message.of("user", str(i)) for i in range(5)]])

        def kept(*args: int) -> str:
            return "".join(message.text[0] for message in dialog.fork(*args))

        assert kept(2) == "B34"
        assert kept(2, 0) == "34"
        assert kept(1, 3) == "B014"
        assert kept(0) == "B"
        assert kept(0, 0) == ""
        assert kept(-3, -1) == ""
        assert kept(5) == "B01234"
        assert kept(9, 9) == "B01234"

    def test_a_round_is_kept_whole_or_not_at_all(self):
        dialog = Dialog([SYSTEM, asked("1.0", "1.1"), told("1.0"), told("1.1"), Message.of("assistant", "so"), SYSTEM])
        assert dialog.fork(3).messages == dialog.messages
        assert dialog.fork(3, 0)[:] == dialog[1:]
        assert dialog.fork(1, 2)[:] == (dialog[0], dialog[5])
        assert dialog.fork(1, 3)[:] == (dialog[0], dialog[5])
        assert dialog.fork(1, 4)[:] == (*dialog[:4], dialog[5])

    @settings(deadline=None)
    @given(
        st.lists(st.integers(0, 3), max_size=8),
        st.integers(-1, 20) | st.none(),
        st.integers(-1, 20),
        st.booleans(),
    )
    def test_every_result_has_its_call_and_every_call_its_results(self, rounds, last_n, first_k, has_system):
        messages = [SYSTEM] if has_system else []
        for calls in rounds:
            place = len(messages)
            ids = [f"{place}.{i}" for i in range(calls)]
            messages += [asked(*ids), *map(told, ids)] if calls else [Message.of("user", f"{place}")]
        dialog = Dialog(messages)
        fork = dialog.fork(last_n, first_k)
        open_ids: list[str] = []
        for message in fork:
            if message.role == "tool":
                assert open_ids.pop(0) == message.parts[0].id
            else:
                assert not open_ids
                open_ids = [call.id for call in message.function_calls]
        assert not open_ids
        assert list(dialog) == messages
        assert [m for m in messages if m in fork] == list(fork)


texts = st.text() | st.text(alphabet='{}"\\\u2028\0\ud800\udfff\U0001f600')
sound = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | sound,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(sound, inner, max_size=3),
    max_leaves=5,
)


def parts(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    maybe = st.none() | text
    return st.one_of(
        st.builds(Text, text, signature=maybe),
        st.builds(Image, data=st.binary(), media_type=st.just("image/png")),
        st.builds(Image, url=text.map("https://".__add__)),
        st.builds(Reasoning, text=text, signature=maybe, id=maybe),
        st.builds(
            FunctionCall,
            name=text,
            arguments_json=text,
            id=text,
            provider_id=maybe,
            signature=maybe,
            needs_approval=st.booleans(),
            is_repeated=st.booleans(),
            fingerprint=text,
            result=maybe,
            error=maybe,
        ),
        st.builds(FunctionResult, id=text, name=text, text=text, provider_id=maybe, is_error=st.booleans()),
        st.builds(Opaque, wire=text, data=json_values),
    )


def dialogs(text: st.SearchStrategy[str]) -> st.SearchStrategy[Dialog]:
    roles = st.sampled_from(["system", "user", "assistant", "tool"])
    message = st.builds(Message, role=roles, parts=st.lists(parts(text), max_size=4).map(tuple))
    return st.lists(message, max_size=4).map(Dialog)


class TestJson:
    @given(dialogs(sound))
    @examples(60)
    def test_round_trip(self, dialog):
        document = dialog.to_json()
        again = Dialog.from_json(document)
        assert again == dialog
        assert again.to_json() == document
        assert Dialog.from_json(document.encode()) == dialog

    @given(dialogs(texts))
    @examples(60)
    def test_whatever_is_said_can_be_stored(self, dialog):
        document = dialog.to_json()
        again = Dialog.from_json(document)
        assert again.to_json() == document
        assert [message.role for message in again] == [message.role for message in dialog]

    def test_half_a_surrogate_pair_is_replaced(self):
        dialog = Dialog([Message.of("user", 'a\ud800"b', "\ud83d" + "\ude00", Image.of(PNG))])
        again = Dialog.from_json(dialog.to_json())
        assert again.tail == Message.of("user", 'a\ufffd"b', "\U0001f600", Image.of(PNG))

    def test_the_document(self):
        dialog = Dialog([SYSTEM]).put(Prompt("Hi", path="greet"), Image.of(PNG))
        image = {"kind": "image", "data": "iVBORw0KGgr/AHBpeGVscw==", "media_type": "image/png"}
        text = {"kind": "text"}
        assert json.loads(dialog.to_json()) == {
            "messages": [
                {"role": "system", "parts": [{**text, "text": "Be terse."}]},
                {"role": "user", "parts": [{**text, "text": "Hi"}, image]},
            ],
            "is_system_own": True,
        }

    def test_the_prompt_is_no_part_of_it(self):
        dialog = Dialog().put(Prompt("Hi", path="greet"))
        again = Dialog.from_json(dialog.to_json())
        assert (again, again.top_prompt) == (dialog, None)
        assert "greet" not in dialog.to_json()

    def test_a_damaged_document_is_told(self):
        for document in (
            *("", "null", "[]", "{}", "{'messages': []}", '{"messages": {}}'),
            '{"messages": [{"role": "robot", "parts": []}]}',
            '{"messages": [{"role": "user", "parts": [{"text": "a"}]}]}',
            '{"messages": [{"role": "user", "parts": [{"kind": "image", "data": "%"}]}]}',
            '{"messages": [{"role": "user", "parts": [{"kind": "image"}]}]}',
            '{"messages": [' + "[" * 10_000,
            '{"messages": [], "top_prompt": "\ud800"}',
            b"\xff\xfe",
        ):
            with pytest.raises(SnapshotError) as caught:
                Dialog.from_json(document)
            assert len(str(caught.value)) < 5000

    def test_every_cut_document_is_told(self):
        document = Dialog([SYSTEM]).put("a").to_json()
        for length in range(len(document)):
            with pytest.raises(SnapshotError):
                Dialog.from_json(document[:length])


def test_a_dialog_that_could_not_be_read_again_is_not_written():
    with pytest.raises(
        SnapshotError,
        match=r"messages\[0\]\.parts\[0\]\.text: ",
    ):
        Dialog([Message(role="user", parts=(Text(5),))]).to_json()
