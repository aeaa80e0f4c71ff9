"""Show the abilities of an agent with a real model.

Designed for what 135 million parameters do reliably: a sum through a function after two worked turns, an answer of a
given type by constrained decoding, a classification by log probabilities.  Any other model can play it, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.agents.classification import Calibration, Classification
from fsm_agent.agents.config import AgentConfig
from fsm_agent.agents.registry import build_agent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.record import Reason
from fsm_agent.cli.demo.approval import Reach, approved_elsewhere
from fsm_agent.cli.demo.items import DemoItem, Finding, PartStarted, streamed
from fsm_agent.clients.client import Client
from fsm_agent.diagrams.diagram import trace_diagram, write
from fsm_agent.diagrams.drawing import FORMATS, Diagram
from fsm_agent.errors import CallFailed, UsageError
from fsm_agent.functions.function import function
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.library import Prompts, packaged_prompts
from fsm_agent.prompts.output import Output
from fsm_agent.testing import Script, function_call

LABELS = ("positive", "negative")
TEXTS = (  # half of each: the calibration assumes equally frequent labels
    ("I love this phone, it is wonderful.", "positive"),
    ("The food was cold and the waiter was rude.", "negative"),
    ("What a beautiful day at the beach!", "positive"),
    ("This film is boring and far too long.", "negative"),
    ("The staff were kind and the room was spotless.", "positive"),
    ("My order arrived broken and nobody helped me.", "negative"),
)
MAX_WRONG_LABELS = 1
_PROMPTS = Prompts("demo", directory=packaged_prompts())
DIAGRAM_STEM = "fsm-agent-demo"

SETTINGS: Mapping[str, Mapping[str, Any]] = {  # of the embedded model; others use their defaults
    "calculator": {"temperature": 0, "seed": 1, "max_tokens": 48},
    "extractor": {"temperature": 0, "seed": 1, "max_tokens": 64},
    "classifier": {"temperature": 0, "seed": 1},
    "eraser": {"temperature": 0, "seed": 1, "max_tokens": 48},
}


class Person(BaseModel):
    """The person whom a text is about.  Every string has a greatest length, or a small model might never end it."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)
    city: str = Field(max_length=40)


@function
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def read_number(text: str) -> int:
    """Return the number that an answer is."""
    return int(Output(int).parse(text))


class Classified(NamedTuple):
    """The label that a text was given."""

    text: str
    label: str
    probability: float
    is_right: bool


class Demo(AgentBase):
    """An agent of four sub-agents that shows what the library does.

    Args:
        config: See `AgentBase`.
        client: The client of the model.
        reach: How another process reaches the model, if it can.
    """

    agent_type = "demo"
    agent_group = ("calculator", "extractor", "classifier", "eraser")

    def __init__(
        self,
        config: AgentConfig | Mapping[str, Any],
        *,
        client: Client | None = None,
        reach: Reach | None = None,
    ) -> None:
        super().__init__(config, client=client)
        self._reach = reach

    def answer(self, task: str) -> dict[str, str]:
        """Play everything without a screen, and return what was wrong, by the title of the part."""
        return {item.title: item.problem for item in self.play() if isinstance(item, Finding)}

    def play(self, a: int = 17, b: int = 25) -> Generator[DemoItem, None, None]:
        """Play all parts: of each a `PartStarted`, the events of its calls, a `Finding`.

        Raises:
            CallFailed: The request to the model failed.
        """
        yield from self._add_up(a, b)
        maria = Person(name="Maria Silva", age=34, city="Lisbon")
        yield from self._extract("Maria Silva is 34 years old and lives in Lisbon.", maria)
        yield from self._recover(7)
        yield from self._classify()
        yield from approved_elsewhere(self.agents["eraser"], _PROMPTS("erase"), self._reach)

    def _add_up(self, a: int, b: int) -> Iterator[DemoItem]:
        title, agent = "A sum, through a function", self.agents["calculator"]
        prompt = _PROMPTS("task")
        seed = agent.prepare(worked_turns(agent.init_dialog()).put(prompt(a=a, b=b)))
        about = "After two worked examples, the model calls add(), gets the result, and answers with it."
        yield PartStarted(title=title, about=about, request=prompt.render(a=a, b=b).text)
        problem = yield from streamed(agent, seed)
        added = [f for f in seed.record.function_calls if f.name == "add" and f.succeeded]
        if not problem and not any(sorted(map(str, f.arguments.values())) == sorted([str(a), str(b)]) for f in added):
            problem = f"the model did not call add(a={a}, b={b})"
        elif not problem and str(a + b) not in str(seed.output):
            problem = f"the answer {seed.output!r:.80} does not say {a + b}"
        yield Finding(title=title, output=seed.output, calls=(seed,), problem=problem)

    def _extract(self, text: str, expected: Person) -> Iterator[DemoItem]:
        title, agent = "A typed answer, held to a schema", self.agents["extractor"]
        prompt = _PROMPTS("extract")
        seed = agent.prepare(agent.init_dialog().put(prompt(text=text)))
        about = "The answer must be a Person(name, age, city); the schema lets the model write nothing else."
        yield PartStarted(title=title, about=about, request=prompt.render(text=text).text)
        problem = yield from streamed(agent, seed)
        if not problem and seed.output != expected:
            problem = f"the answer {seed.output!r} is not {expected!r}"
        yield Finding(title=title, output=seed.output, calls=(seed,), problem=problem)

    def _recover(self, expected: int) -> Iterator[DemoItem]:
        title, agent = "A parse error, recovered", self.agents["extractor"]
        prompt = _PROMPTS("count")
        seed = agent.prepare(agent.init_dialog().put(prompt))
        about = (
            "The answer should be a number, but the model is free to answer in a sentence, and often does. It is then"
            " told what was wrong and asked again, held to the schema. The failed answer leaves the dialog."
        )
        yield PartStarted(title=title, about=about, request=prompt.render().text)
        problem = yield from streamed(agent, seed)
        note = ""
        if not problem and seed.output != expected:
            problem = f"the answer {seed.output!r} is not {expected}"
        elif not problem and not seed.record.parse_errors:
            note = "The first answer was a number: the exception branch (ParseException) was not needed."
        yield Finding(title=title, output=seed.output, calls=(seed,), problem=problem, note=note)

    def _classify(self) -> Iterator[DemoItem]:
        title, agent = "A classification, by log probabilities", self.agents["classifier"]
        about = (
            f"The model labels {len(TEXTS)} texts; this is the first. It does not write the label: the framework reads"
            " how likely each label is as the next token, compared with how likely that label is on average."
        )
        request = _PROMPTS("sentiment").render(text=TEXTS[0][0]).text
        yield PartStarted(title=title, about=about, request=request, shows_steps=False)
        calls, found = list[AgentCall](), list[Classification[str]]()
        for text, _ in TEXTS:
            try:
                found.append(agent.classify(text, LABELS, prompt=_PROMPTS("sentiment")))
            except UsageError as error:
                yield Finding(title=title, note=f"Left out: {error}")
                return
            except CallFailed as error:
                if error.reason is Reason.MODEL_FAILED:
                    raise
                yield Finding(title=title, calls=tuple(calls), problem=f"{error.reason}: {error}")
                return
            calls += [result.call for result in found[-1].results]
            if not found[-1].is_calibrated:
                note = "Left out: the model gives no log probabilities."
                yield Finding(title=title, calls=tuple(calls), note=note)
                return
        calibration = Calibration.of_prior(found)
        labels = [
            Classified(text, one.label, one.p, is_right=one.label == right)
            for (text, right), one in zip(TEXTS, map(calibration.applied, found), strict=True)
        ]
        right = sum(label.is_right for label in labels)
        problem = "" if right >= len(TEXTS) - MAX_WRONG_LABELS else f"only {right} of {len(TEXTS)} labels are right"
        yield Finding(title=title, output=labels, calls=tuple(calls), problem=problem)


def worked_turns(dialog: Dialog) -> Dialog:
    """Return ``dialog`` with two sums as they should go: the function is really run, the model's part is scripted."""
    script = Script(
        *(function_call("add", a=40, b=3), "The answer is 43."),
        *(function_call("add", a=310, b=75), "The answer is 385."),
    )
    agent = Agent(script, functions=[add])
    for question in ("What is 40 + 3?", "Add 310 and 75."):
        dialog = agent.call(dialog.put(question)).dialog
    return dialog


def build_demo(client: Client, *, is_embedded: bool, reach: Reach | None = None) -> Demo:
    """Return the demo on a model.

    Args:
        client: The client of the model.
        is_embedded: Whether it is the embedded one, whose settings are known.
        reach: How another process reaches the model, if it can.
    """
    system = Prompts("demo", directory=packaged_prompts())("system").template
    configs = {name: {"system": system, "settings": SETTINGS[name] if is_embedded else {}} for name in Demo.agent_group}
    return build_agent(Demo, {"agent_configs": configs}, client=client, reach=reach)


def diagram_of(findings: Sequence[Finding]) -> Diagram:
    """Return the map of an agent call, with the paths of all parts that are one call."""
    calls = [finding.calls[0] for finding in findings if len(finding.calls) == 1]
    trace = [step for one in calls for step in one.record.trace]
    return trace_diagram(trace, title=f"fsm-agent demo: {len(calls)} calls")


def write_diagrams(diagram: Diagram, output: Path) -> list[Path]:
    """Write a diagram into files.

    Args:
        diagram: The diagram.
        output: The file, whose suffix says how it is drawn; or a directory for a ``.mmd`` and, when `dot` is
            installed, an ``.svg``.

    Returns:
        The files.

    Raises:
        UsageError: A file cannot be written.
        ConfigError: `dot` is needed, and is not installed.
    """
    if output.suffix.lower() in FORMATS and not output.is_dir():
        return [write(diagram, output)]
    with suppress(OSError):  # an error shows when a file is written
        output.mkdir(parents=True, exist_ok=True)
    suffixes = (".mmd", ".svg") if can_draw() else (".mmd",)
    return [write(diagram, output / f"{DIAGRAM_STEM}{suffix}") for suffix in suffixes]


def can_draw() -> bool:
    """Return True if `dot` is installed, without which there are no pictures but Mermaid."""
    return shutil.which("dot") is not None
