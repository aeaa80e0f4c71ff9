"""Do type checkers accept right code, and find the mistakes?"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

import planted_flows
import pytest
from support.packages import PACKAGES
from support.paths import ROOT
from support.type_checkers import Finding, mypy, pyright, with_mypy, with_pyright

from fsm_agent import Agent, AgentCall, CallResult, Function, Prompt
from fsm_agent.flows import Flow, FlowError
from fsm_agent.messages import Done
from fsm_agent.testing import Script

HERE = Path(__file__).parent
ACCEPTED, REFUSED = HERE / "accepted.py", HERE / "refused.py"
REFUSED_FLOWS = HERE / "refused_flows.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PACKAGE = ROOT / "fsm_agent"
CHECKERS = [pytest.param(mypy, marks=with_mypy), pytest.param(pyright, marks=with_pyright)]


def expected(file: Path, checker: str) -> set[Finding]:
    found = set[Finding]()
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if said := re.search(rf"# .*\b{checker}: ([\w, -]+)", line):
            found |= {(file.name, number, rule) for rule in said[1].split(", ")}
    return found


PUBLIC = [import_module("fsm_agent"), *[import_module(f"fsm_agent.{name}") for name in PACKAGES]]
IMPORTS = [(module.__name__, name) for module in PUBLIC for name in module.__all__]
NOTHING = [(module.__name__, "Nothing") for module in PUBLIC if module.__name__ != "fsm_agent.errors"]  # a plain module


@cache
def found_by(check: Callable[[Iterable[Path]], list[Finding]]) -> dict[str, set[Finding]]:
    """Return what a checker finds, by file.  It reads all files in one run, because most of its time goes into the
    package.

    Only mypy checks the package strictly.
    """
    found: dict[str, set[Finding]] = {}
    with tempfile.TemporaryDirectory() as folder:
        imports = Path(folder, "imports_all.py")
        lines = [f"from {module} import {name} as n{n}\n" for n, (module, name) in enumerate([*IMPORTS, *NOTHING])]
        imports.write_text("".join(lines))
        files = [ACCEPTED, *EXAMPLES, REFUSED, REFUSED_FLOWS, Path(planted_flows.__file__), imports]
        for finding in check([PACKAGE, *files] if check is mypy else files):
            found.setdefault(finding[0], set()).add(finding)
    return found


@pytest.mark.nightly
@pytest.mark.timeout(300)  # mypy without a cache
@pytest.mark.parametrize("check", CHECKERS)
class TestCheckers:
    def test_what_is_right_is_taken(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        wrong = {REFUSED.name, REFUSED_FLOWS.name, Path(planted_flows.__file__).name, "imports_all.py"}
        assert [sorted(found) for name, found in found_by(check).items() if name not in wrong] == []
        assert found_by(check).keys() == wrong

    def test_each_public_name_is_found_and_no_other(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        lines = {line for _, line, _ in found_by(check)["imports_all.py"]}
        assert lines == {len(IMPORTS) + n for n in range(1, len(NOTHING) + 1)}

    def test_what_is_wrong_is_found(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        wrong = expected(REFUSED, check.__name__)
        assert len(wrong) > 60
        assert found_by(check)[REFUSED.name] == wrong

    def test_mistakes_in_flows_are_found(self, check: Callable[[Iterable[Path]], list[Finding]]) -> None:
        wrong = expected(REFUSED_FLOWS, check.__name__)
        assert len({line for _, line, _ in wrong}) >= 13
        assert found_by(check)[REFUSED_FLOWS.name] == wrong
        planted = {mistake.__name__ for mistake, finders, _ in planted_flows.MISTAKES if check.__name__ in finders}
        assert {place_of(line) for _, line, _ in found_by(check)[Path(planted_flows.__file__).name]} == planted


def place_of(line: int) -> str:
    """Return the name of the planted mistake on a line, or empty."""
    for mistake, _, _ in planted_flows.MISTAKES:
        lines, first = inspect.getsourcelines(mistake)
        if first <= line < first + len(lines):
            return mistake.__name__
    return ""


@pytest.mark.parametrize(
    ("mistake", "finders", "says"),
    planted_flows.MISTAKES,
    ids=[mistake.__name__ for mistake, _, _ in planted_flows.MISTAKES],
)
def test_planted_mistakes_are_found_before_anything_runs(
    mistake: Callable[[], object], finders: str, says: str
) -> None:
    """By type checkers, see above, or by the definition, whose errors name the wrong part."""
    assert finders
    if "definition" not in finders:
        assert isinstance(mistake(), Flow)
        return
    with pytest.raises((FlowError, AttributeError, NameError), match=says):
        mistake()


def test_the_classes_take_types_at_run_time() -> None:
    """As in annotations that are evaluated, and in bases."""

    class Counting(Agent[object, int]):
        pass

    class OfShops(Agent[str]):
        pass

    prompt = Prompt[int]("How many?", output=int)
    agents = (Agent[object, int], Agent[str], Counting, OfShops)
    assert [made(Script("1"), output=int).call(prompt).output for made in agents] == [1] * 4
    assert Function[[int], str](name="x").name == Function[[int], str, str](name="x").name == "x"
    assert [made.__origin__ for made in (CallResult[int], AgentCall[int], Done[int])] == [CallResult, AgentCall, Done]
    with pytest.raises(TypeError, match="Too many"):
        Agent[str, str, str]
