"""Is the phase of an agent's work recognised from the sequence of its steps, and not only from the last name?"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Limits, Reply, SqliteStore, Usage, UsageError, function
from fsm_agent.call import PhaseDetector, PhaseRule
from fsm_agent.messages import Done, FunctionCall
from fsm_agent.testing import Script, function_call


def did(*names: str) -> list[FunctionCall]:
    """Return settled calls of functions; those that failed have a ``!`` before their names."""
    settled = []
    for name in names:
        outcome: dict[str, Any] = {"error": "no"} if name.startswith("!") else {"result": "done"}
        settled.append(FunctionCall(name=name.lstrip("!"), arguments_json='{"path": "a"}', **outcome))
    return settled


def phases(*names: str, detector: PhaseDetector | None = None) -> list[str]:
    return [*(detector or PhaseDetector()).phases(did(*names))]


class TestCodingAgents:
    def test_the_phases(self) -> None:
        assert PhaseDetector().phase([]) == "explore"
        assert phases("send_mail", "remember") == ["explore", "explore"], "names that tell nothing"
        assert phases("grep", "write", "run_tests") == ["discover", "edit", "validate"]

    @pytest.mark.parametrize(
        ("phase", "names"),
        {
            "edit": ["search_replace", "write", "write_file", "edit_file", "apply_patch", "str_replace_based_edit"],
            "validate": ["run_tests", "run_build", "run_lint", "run_type_checks", "pytest"],
            "discover": ["grep", "codebase_search", "read_file", "read_span", "list_files", "glob", "plan"],
        }.items(),
    )
    def test_a_name_tells_its_phase(self, phase: str, names: list[str]) -> None:
        before = ["write"] if phase == "validate" else []
        for name in names:
            assert phases(*before, name)[-1] == phase, name
            assert phases(*before, name, "send_mail")[-1] == phase, "what maps to none changes nothing"

    def test_with_a_window_of_one_the_last_function_that_maps_to_one_decides(self) -> None:
        detector = PhaseDetector(window=1)
        names = ("read_file", "read_file", "write", "read_file", "run_tests", "send_mail", "grep")
        expected = ["discover", "discover", "edit", "discover", "validate", "validate", "discover"]
        assert phases(*names, detector=detector) == expected
        assert phases(*names) != expected, "by default the sequence decides"

    @pytest.mark.parametrize("name", ["reader", "runtests", "planet"])
    def test_names_that_begin_alike_are_others(self, name: str) -> None:
        assert phases(name) == ["explore"]

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["write", "read_file"], "edit"),
            (["run_tests"], "explore"),
            (["read_file", "run_tests"], "discover"),
            (["write", "run_tests", "write"], "edit"),
            (["write", "run_tests", "read_file"], "validate"),
            (["write", "read_file", "read_file"], "discover"),
            (["write", "write", "write", "grep", "read_file"], "edit"),
            (["write", "write", "write", "grep", "read_file", "read_file"], "discover"),
            (["read_file"] * 9 + ["write", "run_tests", "read_file", "write", "read_file"], "edit"),
        ],
    )
    def test_the_phase_follows_from_the_calls_so_far(self, names: list[str], expected: str) -> None:
        assert phases(*names)[-1] == expected

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["grep", "!write"], "discover"),
            (["!write", "run_tests"], "explore"),
            (["write", "!run_tests"], "edit"),
            (["write", "!grep", "!grep", "!grep"], "edit"),
        ],
    )
    def test_a_failed_call_changes_no_phase(self, names: list[str], expected: str) -> None:
        assert phases(*names)[-1] == expected


class TestRules:
    def test_names_patterns_and_predicates(self) -> None:
        def is_of_docs(call: FunctionCall) -> bool:
            return call.arguments.get("path") == "a"

        for item in ("look", re.compile("lo+k"), is_of_docs):
            assert phases("look", detector=PhaseDetector([PhaseRule("found", [item])])) == ["found"]
        whole = PhaseDetector([PhaseRule("found", ["look", re.compile("lo+k")])])
        assert phases("looks", detector=whole) == ["explore"]

    def test_a_count(self) -> None:
        detector = PhaseDetector([PhaseRule("a", ["x"], min_count=2), PhaseRule("b", ["y"])], window=3)
        assert phases("x", "x", detector=detector) == ["explore", "a"]
        assert phases("x", "y", "x", "x", detector=detector) == ["explore", "b", "b", "a"], "a phase begins anew"
        assert phases("y", "x", "y", "y", "x", detector=detector)[-1] == "b", "two of the last five, not of three"

    def test_more_than_half_of_the_window(self) -> None:
        detector = PhaseDetector([PhaseRule(p, [p], min_count=None) for p in ("a", "b")], window=4)
        assert phases("a", "b", "b", "a", "b", detector=detector) == ["a", "a", "b", "b", "b"]

    def test_failures_count_if_they_are_said_to(self) -> None:
        detector = PhaseDetector([PhaseRule("trying", ["x"], only_success=False)])
        assert phases("!x", detector=detector) == ["trying"]

    def test_after_wants_one_of_the_phases_to_have_been(self) -> None:
        rules = [PhaseRule("a", ["x"], min_count=2), PhaseRule("b", ["y"], after=("a", "c")), PhaseRule("c", ["z"])]
        detector = PhaseDetector(rules)
        assert phases("x", "y", detector=detector)[-1] == "explore", "one x is no phase yet"
        assert phases("x", "x", "y", detector=detector)[-1] == "b"
        assert phases("z", "x", "y", detector=detector)[-1] == "b"
        after_default = PhaseDetector([PhaseRule("b", ["y"], after=("explore",))])
        assert phases("y", detector=after_default) == ["b"]

    def test_the_first_rule_that_fits_decides(self) -> None:
        rules = [PhaseRule("late", ["x"], after=["early"]), PhaseRule("early", ["x"])]
        assert phases("x", "x", detector=PhaseDetector(rules, default="none")) == ["early", "late"]

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: PhaseRule("a", "grep"), "any_of"),  # type: ignore[arg-type]
            (lambda: PhaseRule("a", ["x"], after="edit"), "after"),  # type: ignore[arg-type]
            (lambda: PhaseDetector([PhaseRule("a", ["x"], min_count=6)]), "min_count"),
            (lambda: PhaseDetector([PhaseRule("a", ["x"], after=["b"])]), "'b'"),
            (lambda: PhaseDetector().phase("grep"), "'grep'"),
        ],
    )
    def test_what_cannot_be_right_is_refused(self, make: Any, says: str) -> None:
        with pytest.raises(UsageError) as error:
            make()
        assert says in str(error.value)


def grep(pattern: str) -> str:
    """Search."""
    return "main.py"


def write(path: str) -> str:
    """Write."""
    if path == "/":
        raise PermissionError(path)
    return "written"


def run_tests() -> str:
    """Test."""
    return "passed"


def replies() -> list[Any]:
    return [
        function_call("grep", pattern="x"),
        function_call("write", path="/"),
        [function_call("write", path="a"), function_call("grep", pattern="y")],
        function_call("run_tests"),
        "Done.",
    ]


EXPECTED = ["discover", "discover", "edit", "edit", "validate"]
FUNCTIONS = [grep, write, run_tests]


class Watching:
    """A hook that notes the phase whenever a function has ended."""

    def __init__(self, detector: PhaseDetector | None = None) -> None:
        self.phases = list[str]()
        self.hook = (detector or PhaseDetector()).hook()

    def on_event(self, event: Any) -> None:
        self.hook.on_event(event)
        if type(event).__name__ == "FunctionEnded":
            self.phases.append(self.hook.phase)


class TestCalls:
    def test_of_a_result_a_record_a_dialog_and_messages(self) -> None:
        result = Agent(Script(*replies()), functions=FUNCTIONS).call("Do it.")
        whats = (result, result.call, result.record, result.dialog, [*result.dialog], result.function_calls)
        for what in whats:
            assert [*PhaseDetector().phases(what)] == EXPECTED, type(what)

    def test_of_a_stored_run(self, tmp_path: Path) -> None:
        agent = Agent(Script(*replies()), functions=FUNCTIONS, name="clerk", store=SqliteStore(tmp_path / "runs.db"))
        agent.call("Do it.", run_id="a")
        assert [*PhaseDetector().phases(agent.runs.replay("a"))] == EXPECTED

    @pytest.mark.parametrize("is_async", [False, True])
    def test_live_and_who_listens_changes_nothing(self, is_async: bool) -> None:
        def called(hooks: list[Any]) -> Any:
            agent = Agent(Script(*replies()), functions=FUNCTIONS, hooks=hooks, limits=Limits(parallel=1))
            return asyncio.run(agent.acall("Do it.")) if is_async else agent.call("Do it.")

        of_a = PhaseDetector([PhaseRule("of a", [lambda f: f.arguments.get("path") == "a"])])
        watching, by_arguments = Watching(), Watching(of_a)
        heard, unheard = called([watching, by_arguments]), called([])
        assert watching.phases == EXPECTED
        assert by_arguments.phases == [*of_a.phases(heard)] == ["explore", "explore", "of a", "of a", "of a"]
        assert watching.hook.phase == "validate"
        assert [f.changed() for f in heard.function_calls] == [*unheard.function_calls]
        assert [step.trigger for step in heard.trace] == [step.trigger for step in unheard.trace]

    def test_the_next_call_begins_anew(self) -> None:
        watching = Watching()
        agent = Agent(Script(*replies(), function_call("run_tests"), "Done."), functions=FUNCTIONS, hooks=[watching])
        agent.call("Do it.")
        agent.call("And test.")
        assert watching.phases[-1] == watching.hook.phase == "explore", "there was no edit in this call"

    def test_at_the_end_it_is_that_of_the_result_in_whatever_order_its_functions_ended(self) -> None:
        hook = PhaseDetector().hook()
        hook.on_event(Done(Agent(Script(*replies()), functions=FUNCTIONS).call("Do it.")))
        assert hook.phase == EXPECTED[-1]

    def test_what_has_not_ended_does_not_count(self) -> None:
        assert [*PhaseDetector().phases([FunctionCall(name="write", arguments_json="{}")])] == []


def test_each_state_knows_its_phase_its_budget_and_its_totals() -> None:
    @function
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    detector = PhaseDetector([PhaseRule("adding", ("add",))], default="planning")
    asked = [Reply.of(function_call("add", a=n, b=n)).changed(usage=Usage(input_tokens=10)) for n in (1, 2)]
    agent = Agent(Script(*asked, "six"), functions=[add], limits=Limits(rounds=2, tokens=1000))
    one = agent.prepare("?").journaled()
    agent.run(one)
    assert [(detector.phase(state), state.usage.input_tokens, state.rounds) for state in one.states] == [
        ("planning", None, 0),
        ("planning", None, 0),
        ("planning", 10, 0),
        ("adding", 10, 1),
        ("adding", 20, 1),
        ("adding", 20, 2),
        ("adding", 20, 2),
    ]
    assert {(state.limits.tokens, state.limits.rounds) for state in one.states} == {(1000, 2)}
    assert [len(state.function_calls) for state in one.states] == [0, 0, 0, 1, 1, 2, 2]
