"""Plans the calls of one classification, whatever drives them.

A plan is a generator.  It yields calls that may be made at once, receives their results, and returns the
classification.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent.agents.classification.calibration import Calibration
from fsm_agent.agents.classification.classification import UNSURE, Classification
from fsm_agent.agents.classification.classifying import Classifying
from fsm_agent.agents.classification.prompt import (
    QUESTION,
    OnMissing,
    classes_of,
    classifier,
    quoted,
    without_logprobs,
)
from fsm_agent.agents.classification.scores import ClassNames, Scores
from fsm_agent.agents.many import amap_tasks, map_tasks
from fsm_agent.agents.options import CALL_OPTIONS, CONCURRENCY
from fsm_agent.agents.system_prompt import dialog_before
from fsm_agent.call.result import CallResult
from fsm_agent.errors import UsageError, hint
from fsm_agent.messages.message import Message
from fsm_agent.messages.payload import Payload
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import check

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent

Result: TypeAlias = CallResult[Any]  # of `Scores`; no type tells whose prompt a dialog has
Plan: TypeAlias = "Generator[Sequence[Ask], list[Result], Classification[Any]]"

_OURS = ("prompt", "calibration", "threshold", "otherwise", "votes", "on_missing")
_OF_AGENT = ("model", "args", "system_args", "keep_system")  # options that concern the agent which is asked first
_SPLIT_BELOW = 0.02  # up to this share of a probability is divided without asking


@dataclass(frozen=True)
class Ask:
    """One call: its agent, its task and its options."""

    agent: Agent[Any, Any]
    task: Any
    options: Mapping[str, Any]

    def run(self) -> Result:
        """Make the call."""
        result: Result = self.agent.call(self.task, **self.options)
        return result

    async def arun(self) -> Result:
        """Make the call under asyncio."""
        result: Result = await self.agent.acall(self.task, **self.options)
        return result


@dataclass(frozen=True, kw_only=True)
class ClassificationRequest:
    """What to ask an agent, and how to use its answer; see `Agent.classify`."""

    agent: Agent[Any, Any]
    what: Any
    classes: Any
    prompt: str | Prompt[Any]
    values: Mapping[str, Any] = field(default_factory=dict)  # for variables of the prompt
    calibration: Calibration | None = None
    threshold: float = 0.0
    otherwise: Classifying | None = None
    votes: int = 1
    on_missing: OnMissing = "zero"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = (str, Payload, Message, CallResult, Dialog, list, tuple)
        check("what is classified", self.what, isinstance(self.what, kinds), "a string, a Payload or a Dialog")
        right = "a probability from 0 to 1"
        threshold: Any = self.threshold
        check("threshold", threshold, is_finite(threshold) and 0 <= threshold <= 1, right)
        votes: Any = self.votes
        check("votes", votes, is_whole(votes, 1), "a whole number from 1 on")
        right = "an agent or None"
        check("otherwise", self.otherwise, isinstance(self.otherwise, Classifying | None), right)
        check(
            "calibration",
            self.calibration,
            self.calibration is None or isinstance(self.calibration, Calibration),
            "a Calibration, such as Calibration.of_prior(…), or None",
        )

    def plan(self) -> Plan:
        """Return the plan of the calls."""
        labels = classes_of(self.classes)
        scores, results = yield from self._scored(tuple(labels), "")
        found = self._found(labels, scores, tuple(results))
        if found.p >= self.threshold:
            return found
        if self.otherwise is None:
            return replace(found, label=UNSURE)
        options = {name: value for name, value in self._named(".other").items() if name not in _OF_AGENT}
        other = replace(
            self,
            agent=self.otherwise._classifier,
            classes=[*labels.values()],
            threshold=0.0,
            otherwise=None,
            calibration=None,
            options=options,
        )
        second: Classification[Any] = yield from other.plan()
        return replace(second, results=(*found.results, *second.results))

    def _scored(
        self, names: tuple[str, ...], suffix: str
    ) -> Generator[Sequence[Ask], list[Result], tuple[Scores, list[Result]]]:
        prompt = classifier(names, self.prompt, self.on_missing)
        if self._reports_logprobs():
            results = yield [self._ask(prompt, names, suffix)]
            scores: Scores = results[0].output
            if scores.is_measured:
                may_ask = "classes" in prompt.variables and not suffix
                return (yield from self._distinguished(scores, results, may_ask))
        else:
            results = []
        if (left := self.votes - len(results)) > 0:
            voting = without_logprobs(prompt, 1.0 if self.votes > 1 else 0.0)
            first = len(results) + 1
            numbers = range(first, first + left)
            results += yield [self._ask(voting, names, suffix + (f".{i}" if i > 1 else "")) for i in numbers]
        votes = [max(names, key=lambda name: result.output.masses[name]) for result in results]
        return Scores.of_votes(names, votes), results

    def _distinguished(
        self, scores: Scores, results: list[Result], may_ask: bool
    ) -> Generator[Sequence[Ask], list[Result], tuple[Scores, list[Result]]]:
        """Divide the probability that several classes share: ask which it is, or divide a small one equally."""
        names = ClassNames([*scores.masses])
        masses = dict(scores.masses)
        total = scores.coverage + math.fsum(scores.shared.values())
        for number, (begun, mass) in enumerate(scores.shared.items(), 1):
            group = names.beginning_with(begun)
            shares = dict.fromkeys(group, 1 / len(group))
            if may_ask and mass > _SPLIT_BELOW * total:
                inner, more = yield from self._scored(group, f".part{number}")
                results = [*results, *more]
                if inner.coverage:
                    shares = {name: inner.masses[name] / inner.coverage for name in group}
            for name, share in shares.items():
                masses[name] += mass * share
        return scores.changed(masses=masses, shared={}), results

    def _ask(self, prompt: Prompt[Scores], names: tuple[str, ...], suffix: str) -> Ask:
        values = {"classes": quoted(names), **self.values}
        values = {name: value for name, value in values.items() if name in prompt.variables}
        options = self._named(suffix)
        after = options.pop("after", None)
        before = Dialog() if after is None else dialog_before(after)
        match self.what:
            case str() if "text" in prompt.variables:
                values["text"] = self.what
            case str():
                before = before.put(self.what)
            case Payload():
                before = before.append(self.what.message)
            case Message():
                before = before.append(self.what)
            case _:
                before = dialog_before(self.what)
        fork = Dialog(before.messages, system_args=before.system_args)  # no agent has taken it over
        return Ask(self.agent, fork.put(prompt(**values)), options)

    def _named(self, suffix: str) -> dict[str, Any]:
        """Return the options of a call, with a name for its run if they have one."""
        run_id = self.options.get("run_id")
        return {**self.options, "run_id": f"{run_id}{suffix}"} if run_id and suffix else dict(self.options)

    def _reports_logprobs(self) -> bool:
        model = self.options.get("model")
        client = (
            self.agent.client if model is None else self.agent.client_of(model) if isinstance(model, str) else model
        )
        return getattr(client, "reports_logprobs", True)

    def _found(self, labels: Mapping[str, Any], scores: Scores, results: tuple[Result, ...]) -> Classification[Any]:
        total = math.fsum(scores.masses.values())
        plain = {name: mass / total if total else 1 / len(labels) for name, mass in scores.masses.items()}
        by = self.calibration
        probabilities = plain if by is None else by.corrected(scores.masses, scores.floor)
        likeliest = max(probabilities, key=lambda name: probabilities[name])
        return Classification(
            label=labels[likeliest],
            probabilities={labels[name]: p for name, p in probabilities.items()},
            coverage=scores.coverage,
            is_calibrated=scores.is_measured,
            missing=tuple([labels[name] for name in scores.missing]),
            raw={labels[name]: mass for name, mass in scores.masses.items()},
            floor=scores.floor,
            calibration=by,
            results=results,
        )


def planned(
    agent: Agent[Any, Any],
    what: Any,
    classes: Any,
    options: Mapping[str, Any],
    question: str = QUESTION,
    **values: Any,
) -> Plan:
    """Return the plan of one classification.

    Args:
        agent: The agent that is asked.
        what: A text, a payload or a dialog.
        classes: The classes.
        options: Those of `Agent.classify`, some of which are for its calls.
        question: What is asked without a prompt among the options.
        values: For variables of the prompt.

    Raises:
        UsageError: An option is not right.
    """
    ours = {name: options[name] for name in _OURS if name in options}
    rest = {name: value for name, value in options.items() if name not in _OURS}
    if unknown := [name for name in rest if name not in CALL_OPTIONS]:
        raise UsageError(f"unknown option {unknown[0]!r} of classify{hint(unknown[0], (*_OURS, *CALL_OPTIONS))}")
    if ours.get("prompt") is None:
        ours["prompt"] = f"{{{{ text }}}}\n\n{question}" if isinstance(what, str) else question
    return ClassificationRequest(agent=agent, what=what, classes=classes, values=values, options=rest, **ours).plan()


def perform(plan: Plan) -> Classification[Any]:
    """Make the calls of a plan, those at once in threads."""
    try:
        asks = next(plan)
        while True:
            is_one = len(asks) == 1
            asks = plan.send([asks[0].run()] if is_one else map_tasks(Ask.run, asks, CONCURRENCY, False, True).outputs)
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found


async def aperform(plan: Plan) -> Classification[Any]:
    """Make the calls of a plan under asyncio."""
    try:
        asks = next(plan)
        while True:
            results = await amap_tasks(Ask.arun, asks, CONCURRENCY, False, True)
            asks = plan.send(results.outputs)
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found
