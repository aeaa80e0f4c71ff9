"""Are results and arguments shortened only in requests, and can they be told apart?"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drivers import Driver, anyhow, seed
from support.long_dialogs import PICTURE, SYSTEM, TASK, asks, dialogs, rounds, told, torn
from support.views import view

from fsm_agent import Agent, Dialog, Document, FunctionCall, Limits, Message, Prompt, UsageError, function
from fsm_agent.context import compress, keep_last, once, shorten
from fsm_agent.testing import Script, function_call

LONG = "".join(f"line {n}\n" for n in range(40))


def results(messages) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


def truncated(text: str, characters: int) -> str:
    return shorten(characters)([asks("1.0"), told("1.0", text)])[1].text


def short_arguments(arguments_json: str, characters: int) -> str:
    return shorten(characters)([asks_with(arguments_json)])[0].function_calls[0].arguments_json


def asks_with(arguments_json: str) -> Message:
    return Message.of("assistant", FunctionCall(name="write", arguments_json=arguments_json, id="1.0"))


class TestShortened:
    @anyhow
    def test_a_request_shows_head_and_tail_and_the_dialog_the_whole(self, driven: Driver):
        @function
        def read() -> str:
            """Read."""
            return LONG

        one = seed(Prompt("x", functions=(read,)), view=view(shorten(100)))
        script = Script(function_call("read"), "done")
        driven(one, script)
        (shown,) = results(script.requests[-1].messages)
        assert len(shown) == 100
        assert (shown[:7], shown[-8:]) == ("line 0\n", "line 39\n")
        assert results(one.record.dialog) == [LONG]
        assert one.result().function_calls[0].result == LONG

    def test_only_results_and_arguments_are_shortened_and_nothing_is_copied_without_need(self):
        messages = [SYSTEM, Message.of("user", LONG), *rounds("short"), Message.of("assistant", LONG)]
        assert shorten(100)(messages) is messages

    def test_a_text_file_of_a_result_too(self):
        long, short = Document.of(LONG.encode(), name="a.txt"), Document.of(b"short", name="b.txt")
        result = told("1.0", "").parts[0].changed(attachments=(long, short, PICTURE))
        (_, shown) = shorten(100)([asks("1.0"), Message.of("tool", result)])
        files = shown.parts[0].attachments
        assert len(files[0].text) == 100
        assert (files[0].name, files[1:]) == ("a.txt", (short, PICTURE))

    def test_each_result_of_a_message_by_itself(self):
        both = Message.of("tool", *told("1.0", LONG, images=1).parts, *told("1.1", "short").parts)
        (_, shown) = shorten(100)([asks("1.0", "1.1"), both])
        assert [len(part.text) for part in shown.parts] == [100, 5]
        assert shown.parts[0].attachments == both.parts[0].attachments

    @given(st.text(max_size=400), st.integers(50, 300))
    def test_head_and_tail_and_how_much_is_left_out(self, text, characters):
        shown = truncated(text, characters)
        if len(text) <= characters:
            assert shown == text
            return
        assert characters - 2 <= len(shown) <= characters, "the note included, and no shorter than need be"
        head, _, rest = shown.partition("\n[… ")
        count, _, tail = rest.partition(" characters left out …]\n")
        if "\n[… " not in text:
            assert text.startswith(head)
            assert text.endswith(tail)
            assert len(head) + int(count) + len(tail) == len(text)

    @given(st.integers(0, 3), st.integers(50, 60))
    def test_no_pair_of_surrogates_is_cut_in_two(self, offset, characters):
        text = "x" * offset + "\ud83d\ude00" * 100 + "x"
        shown = truncated(text, characters)
        shown.encode("utf-16", "surrogatepass").decode("utf-16")

    def test_nonsense_is_named(self):
        for value in (49, -1, True, 60.0):
            with pytest.raises(UsageError, match=f"characters of shorten: .*{value!r}"):
                shorten(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


class TestArguments:
    @given(st.dictionaries(st.text(max_size=9), JSON, max_size=5), st.integers(50, 400))
    def test_they_stay_json_and_an_object(self, arguments, characters):
        text = json.dumps(arguments)
        short = short_arguments(text, characters)
        assert isinstance(json.loads(short), dict)
        assert len(short) <= max(characters, 50)
        assert short == text or len(text) > characters

    def test_long_texts_in_them_are_shortened_and_the_rest_stays(self):
        short = json.loads(short_arguments(json.dumps({"path": "a.txt", "text": LONG, "lines": [1, LONG]}), 300))
        assert (short["path"], short["lines"][0]) == ("a.txt", 1)
        assert "characters left out" in short["text"]
        assert short["text"].startswith("line 0\n")

    @given(st.text('abc\n"é', min_size=80, max_size=900), st.integers(60, 700))
    def test_as_much_of_a_long_text_as_fits_is_shown(self, text, characters):
        """With one more character, the arguments would be too long."""
        whole = json.dumps({"path": "a.txt", "text": text}, ensure_ascii=False, separators=(",", ":"))
        short = short_arguments(whole, characters)
        assert len(short) <= characters or short == whole
        if short != whole and (shown := json.loads(short)).keys() == {"path", "text"}:
            more = truncated(text, min(len(shown["text"]) + 2, len(text)))
            assert len(json.dumps({**shown, "text": more}, ensure_ascii=False, separators=(",", ":"))) > characters - 3

    def test_those_without_long_texts_are_shown_as_text(self):
        whole = json.dumps({"numbers": list(range(900))})
        short = short_arguments(whole, 500)
        assert 450 < len(short) <= 500
        (shown,) = json.loads(short).values()
        assert shown.startswith('{"numbers": [0, 1, 2')
        assert "characters left out" in shown

    def test_what_is_no_json_is_cut_as_text(self):
        assert "characters left out" in short_arguments("{" * 500, 100)


class TestOnce:
    def test_a_later_equal_result_is_a_note(self):
        messages = [SYSTEM, TASK, *rounds(LONG, "other", LONG, LONG + "!")]
        shown = once()(messages)
        note = results(shown)[2]
        assert results(shown) == [LONG, "other", note, LONG + "!"]
        assert ("search" in note, LONG[:60] in note, len(note) < len(LONG)) == (True, True, True)
        assert results(messages) == [LONG, "other", LONG, LONG + "!"]
        assert torn(shown) == ""

    def test_of_the_same_function_and_kind(self):
        calls = Message.of("assistant", *asks("1.0").parts, *asks("1.1", name="find").parts, *asks("1.2").parts)
        messages = [calls, told("1.0", LONG), told("1.1", LONG, name="find"), told("1.2", LONG, is_error=True)]
        assert once()(messages) == messages

    def test_not_where_a_note_would_be_longer_or_a_picture_be_lost(self):
        pictures = [[asks(id), told(id, LONG, images=1)] for id in ("9.0", "9.1")]
        messages = [*rounds("same", "same"), *pictures[0], *pictures[1]]
        assert once()(messages) == messages

    def test_what_is_shown_stays_the_same_as_the_dialog_grows(self):
        messages = [TASK, *rounds(LONG, LONG, LONG, LONG)]
        whole = once()(messages)
        assert [list(once()(messages[:end])) for end in range(len(messages))] == [
            list(whole[:end]) for end in range(len(messages))
        ]

    def test_a_result_is_shown_again_once_the_earlier_one_is_gone(self):
        @function
        def search() -> str:
            """Search."""
            return "short"

        both = [part for id in ("9.0", "9.1") for part in asks(id).parts]
        found = (*told("9.0", LONG).parts, *told("9.1", LONG + "!").parts)
        dialog = [TASK, *rounds(LONG, LONG + "!"), Message.of("assistant", *both), Message(role="tool", parts=found)]
        script = Script(*[function_call("search")] * 2, "done")
        agent = Agent(script, functions=[search], context=[keep_last(3), once()], limits=Limits(rounds=None))
        agent.call("?", after=Dialog(dialog))
        for request in script.requests:
            texts = [part.text for message in request.messages if message.role == "tool" for part in message.parts]
            assert [sorted(texts).count(text) for text in (LONG, LONG + "!")] == [1, 1], texts


class TestCompressed:
    def test_older_calls_are_one_line_each(self):
        first = Message.of(
            "assistant",
            "Let me look.",
            FunctionCall(name="search", arguments_json='{"q": "' + "cats " * 30 + '"}', id="1.0"),
            FunctionCall(name="count", arguments_json="{}", id="1.1"),
        )
        old = [first, told("1.0", "Three cats.\nAnd a dog."), told("1.1", "9" * 500, name="count")]
        messages = [SYSTEM, TASK, *old, *rounds("b", first=2)]
        shown = compress(1)(messages)
        assert [m.role for m in shown] == ["system", "user", "assistant", "user", "assistant", "tool"]
        assert shown[2].text == "Let me look."
        assert shown[2].function_calls == ()
        arguments = first.function_calls[0].arguments_json[:80]
        assert shown[3].text.endswith(f"\nsearch({arguments}) → Three cats.\ncount({{}}) → {'9' * 200}")
        assert list(shown[4:]) == messages[-2:]

    def test_what_is_not_old_is_shown_as_it_is(self):
        messages = [SYSTEM, TASK, *rounds("a", "b")]
        assert compress(2)(messages) is messages

    def test_it_moves_in_steps(self):
        script = Script(*[function_call("tick", n=n) for n in range(60)], "done")

        @function
        def tick(n: int) -> str:
            """Count."""
            return f"{n}"

        agent = Agent(script, functions=[tick], context=compress(12), limits=Limits(rounds=None))
        uses = agent.call("?").record.requests
        assert sum(use.extends for use in uses) / len(uses) > 0.8
        assert len(script.requests[-1].messages) < 122 - 30


@given(dialogs())
def test_messages_and_calls_stay_in_place(messages):
    for one in (shorten(50), once()):
        shown = one(messages)
        assert torn(shown) == ""
        assert [(m.role, [f.id for f in m.function_calls]) for m in shown] == [
            (m.role, [f.id for f in m.function_calls]) for m in messages
        ]
        assert all(len(new.text) <= len(old.text) for new, old in zip(shown, messages, strict=True))
