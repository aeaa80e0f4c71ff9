"""Does a prompt make sense from the start, and do its handlers say what they should?"""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel

from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Message, WebSearch
from fsm_agent.prompts import Prompt

KINDS = ("exception", "interrupt", "final")


class Answer(BaseModel):
    n: int


def look(key: str) -> str:
    return key


def handler(prompt: Prompt, kind: str) -> Prompt:
    return getattr(prompt, f"{kind}_handler")


class TestTask:
    def test_it_renders_a_users_message(self):
        prompt = Prompt('Reply like {"city": …} about {{ city }}.')
        assert prompt.render(city="{{ x }} {%") == Message.of("user", 'Reply like {"city": …} about {{ x }} {%.')
        assert prompt.variables == {"city"}

    def test_the_variables_are_those_of_the_template(self):
        for template, names in (
            ("", set()),
            ("{{ a }} {{ b }} {{ a }}", {"a", "b"}),
            ("{% for x in items %}{{ x }}{{ loop.index }}{% endfor %}{{ range(3) }}{{ a | upper }}", {"items", "a"}),
            ("{% set x = 1 %}{% if x %}{{ b.c }}{% endif %}", {"b"}),
        ):
            assert Prompt(template).variables == names

    def test_its_repr_leaves_out_the_defaults(self):
        prompt = Prompt("{{ city }}?", output=int, settings={"temperature": 0})
        task = prompt(city="Oslo")
        assert repr(prompt) == "Prompt(template='{{ city }}?', output=<class 'int'>, settings={'temperature': 0})"
        assert repr(task) == f"Task(prompt={prompt!r}, values={{'city': 'Oslo'}})"

    def test_functions_from_callables(self):
        named = Function(name="ask")
        prompt = Prompt("x", functions=(f for f in [look, named]))
        assert [f.name for f in prompt.functions] == ["look", "ask"]
        assert prompt.functions[1] is named
        assert prompt.by_name == {"look": prompt.functions[0], "ask": named}

    def test_two_functions_of_one_name(self):
        ask = Function(name="ask")
        functions = [look, ask, Function.of(look), ask]
        with pytest.raises(PromptError, match=r"prompt 'p'.*ask, look"):
            Prompt("x", path="p", functions=functions)

    def test_the_output_is_parsed(self):
        prompt = Prompt("x", output=Answer)
        assert prompt.parse('{"n": 1}') == Answer(n=1)
        assert prompt.expected is prompt.expected
        with pytest.raises(ParseError, match="cut off"):
            prompt.parse('{"n": ', is_cut=True)
        assert Prompt("x").parse("text") == "text"

    def test_a_parser_goes_over_the_output(self):
        prompt = Prompt("x", output=Answer, parser=lambda text: text.upper())
        assert prompt.parse("text", is_cut=True) == "TEXT"
        assert prompt.expected.type is Answer

    def test_a_parser_whose_result_must_be_awaited_is_refused(self):
        async def awaited(text: str) -> int:
            return int(text)

        for wrong in (awaited, 5):
            with pytest.raises(UsageError, match="parser"):
                Prompt("?", parser=wrong)

    def test_it_is_frozen_and_equal_only_to_itself(self):
        prompt = Prompt("x")
        assert prompt != Prompt("x")
        assert len({prompt, prompt, Prompt("x")}) == 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            prompt.path = "y"

    def test_an_extended_prompt_differs_in_what_is_given(self):
        prompt = Prompt("x", path="p", functions=[look], output=Answer)
        longer = prompt.extend(path="q", output=str)
        assert (longer.path, longer.output, longer.template) == ("q", str, "x")
        assert longer.functions[0] is prompt.functions[0]
        assert (prompt.path, prompt.output) == ("p", Answer)
        with pytest.raises(TypeError, match="'outptu'"):
            prompt.extend(outptu=str)

    def test_extend_keeps_the_rest(self):
        options = {
            **{"parser": ascii, "output": Answer, "mode": "function", "max_length": 9, "settings": {"temperature": 0}},
            **{
                f"on_{kind}": Prompt("{{ error_message }}" if kind == "exception" else "x")
                for kind in ("exception", "final")
            },
            **{
                "on_loop": "Stop.",
                "on_form": "Now.",
                "hosted_tools": (WebSearch(),),
                "functions": (Function(name="f"),),
            },
        }
        longer = Prompt("x", path="p", **options).extend(path="q")
        assert {name: getattr(longer, name) for name in options} == options
        assert (longer.path, longer.template) == ("q", "x")


class TestHandlers:
    def test_what_is_told_by_default(self):
        prompt = Prompt("x")
        assert prompt.handler_text("exception", error_message="{{ no }}", attempt=1).splitlines()[0] == (
            "Your answer could not be used: {{ no }}"
        )
        assert prompt.handler_text("interrupt", call_results="{{ 5 }}", name="f", arguments="{}") == "{{ 5 }}"
        assert "limit of function calls" in prompt.handler_text("final", rounds=3)

    def test_a_handler_may_be_a_template(self):
        prompt = Prompt(
            "x",
            on_exception="{{ attempt }}: {{ error_message }}",
            on_interrupt="{{ name }}({{ arguments }}) = {{ call_results }}",
            on_final="after {{ rounds }}",
        )
        assert prompt.handler_text("exception", error_message="{% no", attempt=2) == "2: {% no"
        assert prompt.handler_text("interrupt", call_results="{{", name="f", arguments='{"a": 1}') == 'f({"a": 1}) = {{'
        assert prompt.handler_text("final", rounds=3) == "after 3"

    def test_a_handler_may_be_a_prompt(self):
        prompt = Prompt("x", on_exception=Prompt("Mend: {{ error_message }}"), on_final=Prompt("Stop."))
        assert prompt.handler_text("exception", error_message="{{", attempt=1) == "Mend: {{"
        assert prompt.handler_text("final", rounds=1) == "Stop."

    def test_a_handler_may_be_a_function(self):
        def told(**values):
            return f"{values}"

        prompt = Prompt("{{ task }}", on_exception=told, on_interrupt=told, on_final=told)
        assert prompt.handler_text("exception", error_message="e", attempt=1) == "{'error_message': 'e', 'attempt': 1}"
        assert prompt.handler_text("interrupt", call_results="r", name="n", arguments="") == (
            "{'call_results': 'r', 'name': 'n', 'arguments': ''}"
        )
        assert prompt.handler_text("final", rounds=1) == "{'rounds': 1}"

    def test_a_function_that_returns_no_text(self):
        for said in (None, Prompt("x")):
            prompt = Prompt("x", path="p", on_exception=lambda **values: said)  # noqa: B023
            with pytest.raises(PromptError, match="on_exception of prompt 'p'"):
                prompt.handler_text("exception", error_message="e", attempt=1)

    @pytest.mark.parametrize(("kind", "needed"), [("exception", "error_message"), ("interrupt", "call_results")])
    @pytest.mark.parametrize("wrap", [str, Prompt])
    def test_the_placeholder_is_needed(self, kind, needed, wrap):
        with pytest.raises(PromptError, match=f"on_{kind} of prompt 'p'.*{needed}"):
            Prompt("x", path="p", **{f"on_{kind}": wrap("No {x")})

    def test_what_is_no_handler(self):
        for kind in KINDS:
            with pytest.raises(PromptError, match=f"on_{kind} of prompt 'p': "):
                Prompt("x", path="p", **{f"on_{kind}": None})


class TestDerivedHandlers:
    @pytest.mark.parametrize(
        ("kind", "handler", "given"),
        [
            ("exception", lambda prompt, session: "", "error_message, attempt"),
            ("interrupt", lambda call_results: call_results, "call_results, name, arguments"),
            ("final", lambda: "Stop.", "rounds"),
            ("form", lambda fields: "", "nothing"),
        ],
    )
    def test_a_function_that_takes_something_else_is_refused_when_the_prompt_is_made(self, kind, handler, given):
        with pytest.raises(PromptError, match=f"on_{kind} of prompt 'p'.*{given}"):
            Prompt("x", path="p", **{f"on_{kind}": handler})

    @pytest.mark.parametrize("on_exception", ["No: {{ error_message }}", lambda error_message, attempt: error_message])
    def test_they_inherit(self, on_exception):
        prompt = Prompt("x", path="p", functions=[look], output=Answer, parser=str, on_exception=on_exception)
        for kind in KINDS:
            derived = handler(prompt, kind)
            assert derived.path == f"__p_{kind}_handler"
            assert (derived.output, derived.parser) == (Answer, str)
            assert derived.functions == (() if kind == "final" else prompt.functions)
        expected = on_exception if isinstance(on_exception, str) else ""
        assert prompt.exception_handler.template == expected

    def test_a_prompt_brings_its_own(self):
        own = Prompt("No: {{ error_message }}", path="mend", output=Answer)
        final = Prompt("Stop.", functions=[look])
        prompt = Prompt("x", path="p", functions=[look], on_exception=own, on_final=final)
        derived = prompt.exception_handler
        assert (derived.path, derived.template, derived.functions, derived.output) == ("mend", own.template, (), Answer)
        assert prompt.final_handler.path == "__p_final_handler"
        assert prompt.final_handler.functions == ()

    @pytest.mark.parametrize("on_exception", ["No: {{ error_message }}", Prompt("No: {{ error_message }}")])
    def test_they_are_derived_once_and_handle_themselves(self, on_exception):
        prompt = Prompt("x", path="p", functions=[look], on_exception=on_exception)
        for kind in KINDS:
            derived = handler(prompt, kind)
            assert handler(prompt, kind) is derived
            assert all(handler(derived, other) is derived for other in KINDS)

    def test_a_handler_that_is_also_a_task_keeps_its_own_handlers(self):
        own = Prompt("No: {{ error_message }}", path="mend")
        assert Prompt("x", on_exception=own).exception_handler is not own
        assert own.exception_handler.path == "__mend_exception_handler"


def test_a_handlers_prompt_offers_no_function_that_the_task_does_not() -> None:
    def helper() -> None:
        """Help."""

    with pytest.raises(PromptError, match=r"on_exception of prompt 'p'.*helper"):
        Prompt("x", path="p", on_exception=Prompt("{{ error_message }}", functions=(helper,)))


def test_a_handlers_prompt_asks_for_the_tasks_output_unless_it_has_its_own() -> None:
    inherits = Prompt("x", output=int, on_exception=Prompt("{{ error_message }}"))
    assert inherits.exception_handler.output is int
    stricter = Prompt("x", on_exception=Prompt("{{ error_message }}", output=int))
    assert stricter.exception_handler.output is int
