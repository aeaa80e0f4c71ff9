"""Do strategies find what they look for, in order, strictly first, and say what they found instead?"""

from __future__ import annotations

import enum
import json
import pickle
import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from support.examples import examples

from fsm_agent import ParseError, UsageError
from fsm_agent.prompts import (
    Output,
    Parsed,
    Parser,
    ParserInput,
    TagParser,
    code,
    extract_json,
    first_of,
    json_anywhere,
    json_block,
    keyword,
    regex,
    tagged,
    verbatim,
)


class Verdict(enum.Enum):
    APPROVED = "Approved"
    REJECTED = "Rejected"
    STEP_1 = "step 1"


class Step(BaseModel):
    name: str


class Review(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str
    verdict: Verdict = Verdict.REJECTED
    taggs: list[str] = []
    steps: list[Step] = []


# What a repair is called, as it is recorded.
(MENDED,) = Output(dict).read(ParserInput(text="{'a': 1}")).repairs
(IN_PROSE,) = Output(dict).read(ParserInput(text='So {"a": 1}.')).repairs


def read(parser: Parser[Any], text: str, **options: Any) -> Parsed[Any]:
    found = parser.read(ParserInput(text=text, **options))
    assert isinstance(found, Parsed)
    return found


class TestEach:
    def test_tagged_takes_what_is_in_the_tag(self):
        for text, value in [
            ("<answer> 5\n6 </answer> <answer>7</answer>", "5\n6"),
            ('In <answer> tags: <answer id="a > b">5</answer>', "5"),
            ("<Answer>1</Answer><answers>2</answers><answer>3</answer>", "3"),
            ("<answer><answer>5</answer></answer>", "<answer>5</answer>"),
        ]:
            assert tagged("answer")(text) == value

    def test_json_anywhere(self):
        assert json_anywhere(r'so {"a": "\"} {"} and {}') == {"a": '"} {'}
        assert extract_json(r'so {"a": "\"} {"} and {}') == {"a": '"} {'}
        assert json_anywhere("so [1, {}] and {}") == [1, {}]
        assert first_of(json_anywhere, expect=dict)('so [1] and {"a": "}"} and {}') == {"a": "}"}

    def test_json_block(self):
        assert json_block("{}\n```python\n[1]\n```\n~~~json\n[2]\n~~~\n") == [2]

    def test_keyword_takes_one_of_its_words(self):
        assert keyword("No", "Yes")("oh YES, or no") == "No"
        assert keyword("Yes")("oh YES") == "Yes"
        assert keyword("No", "know")("I KNOW it") == "No", "also inside of another word"
        with pytest.raises(ParseError, match="'No', 'Yes'"):
            keyword("No", "Yes")("maybe")

    def test_regex_takes_the_first_group_of_the_first_match(self):
        assert regex(r"n=(\d+)")("n=5, n=6") == "5"
        assert regex(r"\d+")("n=5") == "5"
        assert regex(r"(\d)-(\d)")("5-6") == "5", "the first group"
        assert regex(r"n(=\d)?")("n and n=5") == "n", "all, where the group has no part in it"
        assert regex(r"n=(\d*)")("n=") == "", "an empty group is one"
        assert first_of(regex(r"n=(\S+)"), expect=int)("n=x n=6") == 6
        with pytest.raises(ParseError, match="max_length=10"):
            regex(r"(a+)+$", max_length=10)("a" * 11)

    def test_verbatim_changes_nothing(self):
        assert verbatim(" a \n") == " a \n"

    def test_code_takes_the_first_block_of_its_language(self):
        text = "```python title=x\na  \n  b\n```\n  ```py\n  c\n    d  \n  ```\n````md\n```js\ne\n```\n````\n```sql\nf"
        assert code()(text) == "a  \n  b"
        assert code("py")(text) == "c\n  d"
        assert code("PYTHON")(text) == "a  \n  b"
        assert code("md")(text) == "```js\ne\n```"
        assert code("js")(text) == "e"
        assert code("sql")(text) == "f"
        assert code("py")("```Py\nf\n```") == "f"
        with pytest.raises(ParseError, match="rust"):
            code("rust")(text)

    def test_the_content_of_any_block(self):
        for text, content in (
            ("```\na\n```\n```py\nb\n```", "a"),
            ("```py\n\n  a\n\n \n```", "\n  a"),
            ("\t```py\n\ta\n\t\tb\n\t```", "a\n\tb"),
            ("~~~py\na\n```\n~~~", "a\n```"),
            ("```py\na\n`````\nb", "a"),
            ("````py\na\n```\nb\n````", "a\n```\nb"),
            ("```py\n```", ""),
            ("````md\n```js\ne\n```\n````", "```js\ne\n```"),
        ):
            assert code()(text) == content

    @pytest.mark.parametrize(
        ("make", "name"),
        [
            (lambda: tagged("a b"), "'a b'"),
            (lambda: code(""), "language of code"),
            (keyword, "words of keyword"),
            (lambda: regex("("), r"'\('"),
            (lambda: regex("(" * 3000), "pattern of regex"),
            (first_of, "strategies of first_of"),
            (lambda: first_of(3), "first_of"),
            (lambda: first_of(verbatim, repairs=("all",)), "repairs of first_of"),
            (lambda: first_of(verbatim, max_length=0), "max_length of first_of"),
            (TagParser, "TagParser|nothing"),
            (lambda: TagParser(xml=["a"], md=["a"]), "a twice"),
            (lambda: TagParser(signals=["raw"]), "raw twice"),
        ],
    )
    def test_mistakes_are_told(self, make, name):
        with pytest.raises(UsageError, match=name):
            make()


class TestFirstOf:
    def test_the_first_that_is_valid_wins(self):
        parser = first_of(tagged("answer"), json_block, json_anywhere, expect=Review)
        text = '{"title": "c"}\n```json\n{"title": "b"}\n```\n<answer>%s</answer>'
        assert parser(text % '{"title": "a"}').title == "a"
        assert parser(text % '{"titre": "x"}').title == "b", "it parses, and is not valid"
        assert read(parser, text % '{"title": "a"}').repairs == ()
        assert first_of(json_anywhere, tagged("answer"))(text % "a") == {"title": "c"}
        assert first_of(keyword("answer"), json_anywhere)(text % "a") == "answer"
        assert first_of(json_anywhere, keyword("answer"))("[answer]") == "answer", "no JSON, and mended last of all"
        assert parser("{'title': 'b'} <answer>{'title': 'a'}</answer>").title == "a", "mended in this order as well"

    def test_an_error_names_the_type_each_strategy_and_the_field_that_is_wrong(self):
        with pytest.raises(ParseError) as caught:
            first_of(tagged("answer"), json_block, expect=Review)(
                '<answer>5 apples</answer> {"x": 1}\n```json\n{"x": 1}\n```'
            )
        first, *others = str(caught.value).splitlines()
        assert "Review" in first
        assert ["<answer>" in others[0], "title" in others[1]] == [True, True]

    def test_a_longer_answer_is_refused(self):
        assert first_of(verbatim, max_length=5)("12345") == "12345"
        with pytest.raises(ParseError, match=r"6 .* 5 "):
            first_of(verbatim, max_length=5)("123456")
        with pytest.raises(ParseError, match=r"2 .* 1 "):
            extract_json("{}", max_length=1)
        assert TagParser(signals=["a"], max_length=3)("<a>")["a"]
        with pytest.raises(ParseError, match=r"4 .* 3 "):
            TagParser(signals=["a"], max_length=3)("<a/>")

    def test_there_is_a_limit_by_default(self):
        for parser in (first_of(verbatim), verbatim, extract_json, TagParser(signals=["a"])):
            with pytest.raises(ParseError, match=r"1000001 .* 1000000 "):
                parser(" " * 1_000_001)
        with pytest.raises(ParseError, match="max_length=10000"):
            regex("a")("a" * 10_001)

    def test_repairs_are_strict_first_recorded_and_can_be_switched_off(self):
        parser = first_of(json_anywhere, expect=Review)
        assert read(parser, 'So {"title": "a",} or {"title": "b"}') == Parsed(Review(title="b"))
        for broken in ("So {'title': 'a',}", 'So {"title": "a"'):
            assert read(parser, broken) == Parsed(Review(title="a"), (MENDED,))
        nearly = "So {'tittle': 'a',}"
        assert read(parser, nearly) == Parsed(Review(title="a"), (MENDED, "the name 'tittle' was taken for 'title'"))
        two = """{"tittle": "a"} {'title': 'b'}"""
        assert read(parser, two) == Parsed(Review(title="b"), (MENDED,)), "names come last"
        for repairs in (("json",), ("names",), ()):
            with pytest.raises(ParseError):
                first_of(json_anywhere, expect=Review, repairs=repairs)(nearly)
        with pytest.raises(ParseError):
            read(parser, "So {'title': 'a',}", is_cut=True)
        with pytest.raises(ParseError, match="'title'"):
            first_of(verbatim, expect=Review, repairs=())('{"title": "a", "title": "b"}')

    def test_a_word_of_an_enum_is_found_by_any_strategy(self):
        parser = first_of(tagged("answer"), expect=Verdict)
        assert read(parser, "<answer>Approved</answer>") == Parsed(Verdict.APPROVED)
        assert read(parser, "<answer>aproved</answer>").value is Verdict.APPROVED
        assert read(parser, "<answer>aproved</answer>").repairs == ("'aproved' was taken for 'Approved'",)


class TestNearlyRight:
    def test_what_is_close_to_one_thing_is_taken_for_it(self):
        for text, value, repairs in [
            ('{"tittle": "a"}', Review(title="a"), ["the name 'tittle' was taken for 'title'"]),
            ('{"Title": "a"}', Review(title="a"), ["the name 'Title' was taken for 'title'"]),
            (
                '{"title": "a", "verdict": "Aproved"}',
                Review(title="a", verdict=Verdict.APPROVED),
                ["'Aproved' at verdict was taken for 'Approved'"],
            ),
            (
                '{"title": "a", "steps": [{"nmae": "x"}]}',
                Review(title="a", steps=[Step(name="x")]),
                ["the name 'nmae' was taken for 'name'"],
            ),
            (
                '{"tittle": "a", "stesp": [{"nmae": "x"}]}',
                Review(title="a", steps=[Step(name="x")]),
                [
                    "the name 'tittle' was taken for 'title'",
                    "the name 'stesp' was taken for 'steps'",
                    "the name 'nmae' was taken for 'name'",
                ],
            ),
            ('So {"title": "a"}.', Review(title="a"), [IN_PROSE]),
            ("{'title': 'a',}", Review(title="a"), [MENDED]),
            ('{"title": "a"}', Review(title="a"), []),
        ]:
            assert Output(Review).read(ParserInput(text=text)) == Parsed(value, tuple(repairs))

    def test_lists_and_objects_written_as_text_are_read(self):
        steps = json.dumps([{"name": "a"}])
        for written in (steps, json.dumps([json.dumps({"name": "a"})])):
            found = Output(Review).read(ParserInput(text=json.dumps({"title": "[1]", "steps": written})))
            assert found.value == Review(title="[1]", steps=[Step(name="a")]), "a text that is valid stays"
            assert found.repairs
        assert Output(list[Step]).parse(json.dumps({"value": steps})) == [Step(name="a")]
        assert Output(Step | list[Step]).parse(json.dumps(json.dumps({"name": "a"}))) == Step(name="a")
        for text in ("[1", "one, two", '["a"]'):
            with pytest.raises(ParseError, match="steps"):
                Output(Review).parse(json.dumps({"title": "a", "steps": text}))
        with pytest.raises(ParseError):
            first_of(verbatim, expect=Review, repairs=())(json.dumps({"title": "a", "steps": steps}))

    def test_what_is_close_to_nothing_or_to_two_is_refused(self):
        for text in [
            '{"title": "a", "verdict": "unapproved"}',
            '{"title": "a", "verdict": "step 2"}',
            '{"tittle": "a", "titlle": "b"}',
            '{"name": "a"}',
            '{"title": "a", "verdict": "Rejecting"}',
        ]:
            with pytest.raises(ParseError):
                Output(Review).parse(text)

    def test_objects_in_a_row_are_a_list(self):
        found = Output(list[Step]).read(ParserInput(text='{"name": "a"}, {"name": "b"}'))
        assert found == Parsed([Step(name="a"), Step(name="b")], (MENDED,))
        found = Output(list).read(ParserInput(text="[1], [2]"))
        assert found == Parsed([[1], [2]], (MENDED,)), "the first alone is a list as well"

    def test_values_at_the_top_and_in_wrappers(self):
        for kind in (Verdict, Literal["Approved", "Rejected"]):
            for text in ("Aproved", '"Aproved"', '{"value": "Aproved"}'):
                found = Output(kind).read(ParserInput(text=text))
                assert found.value in (Verdict.APPROVED, "Approved")
                assert len(found.repairs) == 1
        assert Output(Verdict).read(ParserInput(text="Approved")).repairs == ()
        assert Output(list[Verdict]).parse('["Rejcted"]') == [Verdict.REJECTED]

    def test_close_to_one_word_alone_is_taken_for_it(self):
        for said, right, found in [
            ("recieve", ["receive"], "receive"),
            ("firstName", ["first_name"], "first_name"),
            ("cat", ["car"], None),
            ("encrypt", ["decrypt"], None),
            ("abcd1", ["abcd2"], None),
            ("stars", ["start", "stare"], None),
            ("Stars", ["stars", "start"], "stars"),
            ("x" * 101, ["x" * 100], None),
        ]:
            output = Output(Literal[tuple(right)])
            if found is None:
                with pytest.raises(ParseError):
                    output.parse(f'"{said}"')
            else:
                assert output.parse(f'"{said}"') == found


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
@examples(40)
def test_valid_json_is_never_altered(value):
    document = json.dumps(value)
    for kind in (Any, object) if isinstance(value, dict | list) else (Any,):
        assert Output(kind).read(ParserInput(text=document)) == Parsed(value)
    assert read(first_of(verbatim, json_anywhere, expect=Any), document) == Parsed(value)
    assert read(first_of(json_block), f"```json\n{document}\n```") == Parsed(value)


class TestTags:
    PARSER = TagParser(xml=["a", "note"], md=["python", "py"], signals=["done", "more"], required=["a", "b"])

    def test_what_is_listed_is_extracted(self):
        text = '<a id=1 class="x > y" on> 5 < 6 & 7 <a>8</a></a><b/>\n```python\n9\n```\n<done/> <a>10</a> <note>'
        found = self.PARSER(text)
        assert found == {
            **{"raw": text, "a": ["5 < 6 & 7 <a>8</a>", "10"], "note": [], "b": [""]},
            **{"python": ["9"], "py": [], "done": True, "more": False},
        }
        assert found["a"][0].attributes == {"id": "1", "class": "x > y", "on": ""}
        assert pickle.loads(pickle.dumps(found))["a"][0].attributes["id"] == "1"

    def test_contents_and_attributes(self):
        parser = TagParser(xml=["a", "ab"])
        text = "\n<ab>1</ab><A>2</A><a>\n3 </a> <a x='4' y=5 x=6>7</a>\n"
        found = parser(text)
        assert found == {"raw": text, "a": ["3", "7"], "ab": ["1"]}
        assert [content.attributes for content in found["a"]] == [{}, {"x": "4", "y": "5"}]
        assert parser("no tags") == {"raw": "no tags", "a": [], "ab": []}

    def test_a_signal(self):
        for text in ("<done/>", "<done>", '<done n="1" />', "so <done>1</done>"):
            assert TagParser(signals=["done"])(text)["done"] is True
        for text in ("</done>", "done", "<DONE/>", "<done_not/>", ""):
            assert TagParser(signals=["done"])(text)["done"] is False

    def test_all_that_is_missing_is_in_one_error(self):
        parser = TagParser(md=["python"], signals=["done"], required=["a", "b", "python", "done"])
        with pytest.raises(ParseError) as caught:
            parser("<a> and ```py\n1\n```")
        names, told = ("<a>", "<b>", "```python", "<done/>"), re.split(r"\n(?=No )", str(caught.value))
        assert all(name in line for name, line in zip(names, told, strict=True))


def last_line(text: str) -> str | None:
    return text.splitlines()[-1] if text else None


def test_a_function_of_ones_own_is_a_strategy() -> None:
    assert first_of(tagged("answer"), last_line)("I think:\n42") == "42"
    assert first_of(last_line, expect=int)("I think:\n42") == 42
    assert first_of(lambda text: text.split(), expect=int)("it is 7 now") == 7
    with pytest.raises(ParseError, match="last_line"):
        first_of(last_line, expect=int)("so so")


def test_a_row_of_documents_that_is_cut_is_not_mended() -> None:
    row = '{"name": "a", "minutes": 1}, {"name": "b", "minutes": 2}'
    output = Output(list[dict[str, Any]])
    assert len(output.read(ParserInput(text=row)).value) == 2
    with pytest.raises(ParseError, match="cut off"):
        output.read(ParserInput(text=row, is_cut=True))


MEANT, THOUGHT = '{"title": "meant"}', 'Is it {"title": "tried"}?\n```json\n{"title": "tried"}\n```\n'


def test_json_in_the_reasoning_before_an_answer_is_no_answer() -> None:
    strategies = first_of(json_block, json_anywhere, expect=Review)
    for thought in (f"<think>{THOUGHT}</think>", f"\n<think>\n{THOUGHT}</think>", f"{THOUGHT}</think>"):
        for answer in (MEANT, f"\n```json\n{MEANT}\n```", f"So: {MEANT}.", "So: {'title': 'meant'}"):
            assert Output(Review).parse(thought + answer) == Review(title="meant")
            assert read(strategies, thought + answer).value == Review(title="meant")


def test_reasoning_without_an_answer_is_none() -> None:
    for is_cut in [True, False]:
        for parser in (Output(Review), first_of(tagged("answer"), json_anywhere, expect=Review)):
            for text in (f"<think>{THOUGHT}", f"<think>{THOUGHT}</think>", f"<think><answer>{MEANT}</answer></think>"):
                with pytest.raises(ParseError):
                    parser.read(ParserInput(text=text, is_cut=is_cut))


def test_what_reads_like_reasoning_inside_an_answer_stays() -> None:
    page = '{"title": "<think>a</think>b"}'
    assert Output(Review).parse(page) == Output(Review).parse(f"So: {page}") == Review(title="<think>a</think>b")
    for answer in ("{}", "So: {}", "```json\n{}\n```"):
        assert Output(Review).parse(answer.format('{"title": "a</think>b"}')) == Review(title="a</think>b")
    assert Output(Any).parse('```json\n"a</think>b"\n```') == "a</think>b"
    assert Output(int).parse("<think>41 or 42</think>\n42") == 42
    assert Output(Verdict).parse("<think>Rejected?</think>Approved") is Verdict.APPROVED
    assert first_of(tagged("think"))("<think>a</think>b") == "a"
    assert Output(str).parse("<think>a</think>b") == "<think>a</think>b"


HALF_A_BLOCK = "Here:\n```python\n  delete(\n    a,"


def test_half_of_what_was_meant_is_no_answer() -> None:
    for parser, half, whole in [
        (Output(int), "12", "12\n"),
        (Output(Literal["no", "not sure"]), "no", "not sure"),
        (first_of(code("python")), HALF_A_BLOCK, f"{HALF_A_BLOCK})\n```\nIt"),
        (first_of(regex("order ([0-9]+)")), "It is order 1", "It is order 17, I"),
        (first_of(verbatim), "It is", None),
        (first_of(keyword("yes", "no")), "no", "no, I"),
        (first_of(json_anywhere), 'So: {"a": 1', 'So: {"a": 1}'),
    ]:
        with pytest.raises(ParseError):
            parser.read(ParserInput(text=half, is_cut=True))
        if whole is not None:
            assert parser.read(ParserInput(text=whole, is_cut=True)) == parser.read(ParserInput(text=whole))
