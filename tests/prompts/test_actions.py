"""Are actions described, found in answers, replaced and removed, and is nothing lost silently?"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from fsm_agent import Agent, ParseError, PromptError, UsageError
from fsm_agent.prompts import Action, ActionSet, Attribute, InnerText, ParserInput
from fsm_agent.testing import Script


class GetWeather(Action, tag="GetWeather"):
    """Get the current weather"""


class ShowImage(Action, tag="ShowImage"):
    """Show an image to the user"""

    href: str = Attribute("The URL of the image to display")


class SendMessage(Action, tag="SendMessage"):
    """Send a message to someone"""

    to: str = Attribute("The recipient of the message")
    content: str = InnerText("The content of the message")


class Play(Action):
    times: int = Attribute("How often", default=1)
    mode: Literal["loud", "soft"] = Attribute(alias="as")


TEMPLATE = """Based on the user request, generate a response using the following available actions.

**Available Actions:**
{{ actions_doc }}

**User Request:**
{{ user_request }}"""
ACTIONS = ActionSet[Action](GetWeather, ShowImage, SendMessage, prompt=TEMPLATE)


RESPONSE = """
Here's the weather: <GetWeather />
And here's a cat picture: <ShowImage href="https://cataas.com/cat" />
<SendMessage to="user">I've completed both requests!</SendMessage>
"""


def told(action: Action) -> str:
    match action:
        case GetWeather():
            return "[Checking weather...]"
        case ShowImage():
            return f"[Displaying image from {action.href}]"
        case SendMessage():
            return f"[Message to {action.to}: {action.content}]"
    raise AssertionError(action)


class TestTheExampleOfTheGuide:
    def test_the_prompt(self):
        assert ACTIONS.build_prompt(user_request="What's the weather and show me a cat picture?") == (
            "Based on the user request, generate a response using the following available actions.\n\n"
            "**Available Actions:**\n"
            "- `<GetWeather />`: Get the current weather\n"
            '- `<ShowImage href="..." />`: Show an image to the user\n'
            "  - `href` (attribute): The URL of the image to display\n"
            '- `<SendMessage to="...">...</SendMessage>`: Send a message to someone\n'
            "  - `to` (attribute): The recipient of the message\n"
            "  - `content` (inner_text): The content of the message\n\n"
            "**User Request:**\n"
            "What's the weather and show me a cat picture?"
        )

    def test_its_actions_are_extracted(self):
        assert ACTIONS.extract_actions(RESPONSE) == [
            GetWeather(),
            ShowImage(href="https://cataas.com/cat"),
            SendMessage(to="user", content="I've completed both requests!"),
        ]

    def test_its_actions_are_replaced_by_texts(self):
        assert ACTIONS.transform_actions(RESPONSE.strip(), told) == (
            "Here's the weather: [Checking weather...]\n"
            "And here's a cat picture: [Displaying image from https://cataas.com/cat]\n"
            "[Message to user: I've completed both requests!]"
        )
        assert ACTIONS.transform_actions(RESPONSE, told).startswith("\nHere's"), "white space is left alone"

    def test_its_actions_are_taken_out(self):
        assert ACTIONS.strip_actions(RESPONSE.strip()) == "Here's the weather: \nAnd here's a cat picture: \n"
        assert ACTIONS.strip_actions("Hello <GetWeather /> world") == "Hello  world"


def test_the_list_of_actions_tells_types_and_what_is_optional():
    class Wait(Action):
        """Wait.

        As long as it takes.
        """

        text: str = InnerText(default="")

    assert ActionSet(Wait, Play).actions_doc == (
        "- `<Wait>...</Wait>`: Wait. As long as it takes.\n"
        "  - `text` (inner_text, optional)\n"
        '- `<Play times="..." as="..." />`\n'
        "  - `times` (attribute, number, optional): How often\n"
        "  - `as` (attribute, 'loud' | 'soft')"
    )
    assert ActionSet(Wait)("<Wait/><Wait></Wait><Wait> x </Wait>") == [Wait(), Wait(), Wait(text="x")]


class TestExtraction:
    def test_actions_are_found(self):
        for text, actions in [
            ("", []),
            ("<Dance /> <weather/>", []),
            ("<b><GetWeather/></b> <getweather/> <GetWeathers/>", [GetWeather()]),
            ("<GetWeather  />", [GetWeather()]),
            ("<GetWeather >\n</GetWeather >", [GetWeather()]),
            ("5 < 6 & x <<GetWeather/>", [GetWeather()]),
            ("</SendMessage> & <GetWeather/> a < b", [GetWeather()]),
            ("<!-- <GetWeather/>", [GetWeather()]),
            ('<ShowImage href="a?b=1&amp;c=2&copy=3&lt;"/>', [ShowImage(href="a?b=1&c=2&copy=3<")]),
            (
                "<SendMessage to='&#65;&quot;'>1 &lt; 2 &amp;amp; 3 & 4 < 5</SendMessage>",
                [SendMessage(to='A"', content="1 < 2 &amp; 3 & 4 < 5")],
            ),
            ("<ShowImage href='a > b < c <b>'/>", [ShowImage(href="a > b < c <b>")]),
            ("<ShowImage href=https://x.example/cat />", [ShowImage(href="https://x.example/cat")]),
            ("<ShowImage\n  href = 'it`s'\n></ShowImage>", [ShowImage(href="it`s")]),
            ("<SendMessage to='a'></SendMessage>", [SendMessage(to="a", content="")]),
            (
                "<SendMessage to='a'> <GetWeather/> <b>x</b> </SendMessage><GetWeather/>",
                [SendMessage(to="a", content="<GetWeather/> <b>x</b>"), GetWeather()],
            ),
            ("<GetWeather/>" * 1000, [GetWeather()] * 1000),
        ]:
            assert ACTIONS.extract_actions(text) == actions
            assert ACTIONS.strip_actions(text).count("<GetWeather/>") == 0

    def test_what_cannot_be_read_is_an_error_or_left_out_and_reported(self):
        lenient = ActionSet[Action](GetWeather, ShowImage, SendMessage, strict=False)
        for text, tag, name in (
            ("<SendMessage>x</SendMessage>", "<SendMessage>", "to: "),
            ("<ShowImage/>", "<ShowImage>", "href: "),
            ("<ShowImage href/>", "<ShowImage>", "href: "),
            ('<ShowImage href="x />', "<ShowImage>", "href: "),
            ("<SendMessage to='a'/>", "<SendMessage>", "content: "),
            ("<SendMessage to='a'>x", "<SendMessage>", "closed"),
            ("<GetWeather>", "<GetWeather>", "closed"),
            ("<GetWeather><ShowImage href='a'/></GetWeather>", "<GetWeather>", "<ShowImage>"),
        ):
            with pytest.raises(ParseError, match=f"{tag}.*{name}"):
                ACTIONS.extract_actions(f"<GetWeather/>{text}")
            found = lenient.read(ParserInput(text=f"<GetWeather/>{text}"))
            assert found.value == [GetWeather()]
            (repair,) = found.repairs
            assert tag in repair
            assert name in repair

    def test_what_is_nearly_right_is_reported(self):
        for text, action, repairs in [
            ("<ShowImage hreff='x'/>", ShowImage(href="x"), ["the name 'hreff' was taken for 'href'"]),
            ("<ShowImage HREF='x'/>", ShowImage(href="x"), ["the name 'HREF' was taken for 'href'"]),
            ("<Play as='Loud'/>", Play(**{"as": "loud"}), ["'Loud' at as was taken for 'loud'"]),
            ("<Play times=' 3 ' as='soft' more='1'/>", Play(times=3, **{"as": "soft"}), []),
            (
                "<SendMessage to='a' content='b'/>",
                SendMessage(to="a", content="b"),
                ["the attribute 'content' of <SendMessage> was taken for its text"],
            ),
            ("<GetWeather>Rome</GetWeather>", GetWeather(), ["the text in <GetWeather> was passed over: 'Rome'"]),
        ]:
            found = ActionSet[Action](GetWeather, ShowImage, SendMessage, Play).read(ParserInput(text=text))
            assert (found.value, list(found.repairs)) == ([action], repairs)

    def test_all_problems_are_in_one_error(self):
        with pytest.raises(ParseError) as caught:
            ACTIONS("<ShowImage/><SendMessage to='x'/><GetWeather>" + "<ShowImage x='1'/>" * 3)
        assert len(str(caught.value).splitlines()) == 7
        with pytest.raises(ParseError, match="91"):
            ACTIONS("".join([f"<ShowImage n='{i}'/>" for i in range(10_000)]))
        with pytest.raises(ParseError, match=r"10001 .* 10000 "):
            ACTIONS("<GetWeather/>" * 10_001)

    def test_in_a_call(self):
        model = Script("Hm. <SendMessage>Hi</SendMessage>", "<SendMessage to='Ada'>Hi</SendMessage>")
        result = Agent(model).call(ACTIONS.prompt(user_request="Greet <SendMessage to='Eve'>me</SendMessage>."))
        assert result.output == [SendMessage(to="Ada", content="Hi")]
        assert "to: Field required" in model.requests[1].messages[-1].text
        asked = model.requests[0].messages[-1].text
        assert "Greet <quoted:SendMessage to='Eve'>me<quoted:/SendMessage>." in asked
        assert '- `<SendMessage to="...">...</SendMessage>`' in asked

    def test_an_answer_that_was_cut_off_is_no_answer(self):
        with pytest.raises(ParseError, match="cut off"):
            ACTIONS.read(ParserInput(text="<GetWeather/> and", is_cut=True))

    def test_validators_get_the_arguments_of_the_parser(self):
        class Buy(Action):
            n: int = Attribute()

            @pydantic.field_validator("n")
            @classmethod
            def is_small(cls, n: int, info: pydantic.ValidationInfo) -> int:
                if n > (info.context or {}).get("most", 10):
                    raise ValueError("that is too much")
                return n

        assert ActionSet(Buy)("<Buy n='20'/>", most=20) == [Buy.model_construct(n=20)]
        with pytest.raises(ParseError, match="<Buy>: n: Value error, that is too much"):
            ActionSet(Buy)("<Buy n='20'/>")


class TestTransformation:
    def test_what_cannot_be_read_stays(self):
        texts = ("<ShowImage/>", "<SendMessage>x</SendMessage>", "<GetWeather>", "<Dance/>", "a < b", "</GetWeather>")
        for text in texts:
            assert ACTIONS.strip_actions(f" {text} <GetWeather/>\n{text}\t") == f" {text} \n{text}\t"

    def test_what_is_put_in_is_not_read_again(self):
        assert ACTIONS.transform_actions("<GetWeather/>&", lambda _: "<GetWeather/>&lt;") == "<GetWeather/>&lt;&"
        with pytest.raises(UsageError, match=r"GetWeather\(\)"):
            ACTIONS.transform_actions("<GetWeather/>", lambda _: None)  # type: ignore[arg-type, return-value]


def two_texts() -> Any:
    class Two(Action):
        a: str = InnerText()
        b: str = InnerText()


def no_part() -> Any:
    class Plain(Action):
        a: str


def no_tag() -> Any:
    class Tagless(Action, tag="a b"):
        pass


def test_mistakes_are_told():
    for make, error, name in [
        (two_texts, UsageError, "a and b"),
        (no_part, UsageError, "Plain.a"),
        (no_tag, UsageError, "'a b'"),
        (ActionSet, UsageError, "the actions of an ActionSet"),
        (lambda: ActionSet(Action), UsageError, "an action of an ActionSet"),
        (lambda: ActionSet(GetWeather, GetWeather), UsageError, "same tag"),
        (lambda: ActionSet(GetWeather, prompt="x"), PromptError, "actions_doc"),
        (lambda: ActionSet(GetWeather).prompt, UsageError, "prompt"),
        (lambda: ACTIONS.build_prompt(), PromptError, "user_request"),
    ]:
        with pytest.raises(error, match=name):
            make()


@given(
    st.lists(
        st.sampled_from(
            ["<GetWeather", "/>", ">", "</GetWeather>", "<ShowImage href=", "'", '"', "x", " ", "&lt;", "<"]
        )
    )
)
@examples(200)
def test_what_is_extracted_is_what_is_replaced(pieces):
    text, replaced = "".join(pieces), list[Action]()
    stripped = ACTIONS.transform_actions(text, lambda action: str(replaced.append(action) or ""))
    lenient = ActionSet[Action](GetWeather, ShowImage, SendMessage, strict=False)
    assert lenient.extract_actions(text) == replaced
    assert len(stripped) <= len(text)
    with suppress(ParseError):
        assert ACTIONS.extract_actions(text) == replaced


MEGABYTES = [
    *("{", "[", "<", "(", '"', "\\", "`", "\n", '{[<("\\`\n', "&", "&lt;", "&#", " "),
    *("<GetWeather ", "<GetWeather>", "<GetWeather />", "<GetWeather></GetWeather>", "</GetWeather", "</GetWeather>"),
    *("<ShowImage href='", "<ShowImage href=\"<'", "<ShowImage href='<b' ", "<ShowImage =", "<ShowImage a=' b=\""),
    *("<ShowImage/>", "<SendMessage to='a'>", "<SendMessage to='a'/>", "<GetWeather><SendMessage>", "<ShowImage a "),
    *("<SendMessage to='&#1114112;'>x</SendMessage>", "<GetWeather>x</GetWeather>", "<ShowImage href/ "),
]


@pytest.mark.nightly
@pytest.mark.parametrize("unit", ["different", *MEGABYTES])
def test_a_megabyte_takes_at_most_a_second(unit):
    text = unit * (10**6 // len(unit))
    if unit == "different":
        text = "".join([f"<SendMessage n='{i}'>" for i in range(40_000)])[: 10**6]
    for work in (ACTIONS, ACTIONS.strip_actions):
        took_s = []
        for _ in range(5):  # the machine may be busy
            start = time.thread_time()
            with suppress(ParseError):
                work(text)
            took_s.append(time.thread_time() - start)
            if took_s[-1] < 1:
                break
        assert min(took_s) < 1


def test_what_is_hostile_is_read_or_refused():
    for unit in MEGABYTES:
        for work in (ACTIONS, ACTIONS.strip_actions):
            with suppress(ParseError):
                work(unit * (1000 // len(unit)))
