"""Classifies with an agent: the question, and the calls that make up a classification.

Each call asks for one word, with the log probabilities of its first token, and offers no functions.  A parser finds the
class, so an answer that names no class is asked for again.  `plan` is a generator that works with sync and async
drivers: it yields calls that may run concurrently, receives their results, and returns the classification.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fsm_agent._internal.structs import is_whole
from fsm_agent.agents.batch import CONCURRENCY, amap_tasks, map_tasks
from fsm_agent.agents.builder import dialog_before
from fsm_agent.agents.classification import Calibration, Classification, ClassNames, Scores, classes_of
from fsm_agent.agents.options import CallOptions, Deps, check_known
from fsm_agent.call.result import CallResult
from fsm_agent.errors import ParseError
from fsm_agent.messages.message import ChatDict, Message
from fsm_agent.messages.payload import Payload
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.output import Parser, ParserInput
from fsm_agent.prompts.prompt import EXCEPTION, Prompt
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent

Result: TypeAlias = CallResult[Any]  # of `Scores`; the type of a dialog does not tell its prompt
Plan: TypeAlias = "Generator[Sequence[Ask], list[Result], Classification[Any]]"
What: TypeAlias = str | Payload | Message | Sequence[Message | ChatDict] | CallResult[Any]  # can be classified
OnMissing: TypeAlias = Literal["zero", "error"]

QUESTION = (
    "Please respond with one and only one word from the following options: {{ classes }}. You can be fussy or unsure,"
    " but you must select one of the options, do not refuse to answer."
)
BINARY_QUESTION = (
    'Please respond with one and only one word, "True" or "False". You must select one of them, do not respond like'
    ' "maybe" or "unsure" or "unknown".'
)


class ClassifyOptions(CallOptions[Deps], total=False):
    """The options of `Agent.classify` without ``prompt``."""

    calibration: Calibration | None
    votes: int
    on_missing: OnMissing


TOP = 20  # alternatives to a token: more than most providers report
_MAX_TOKENS = 16
_SPLIT_BELOW = 0.02  # a smaller probability is divided without asking


class ClassParser(Parser[Scores]):
    """A parser of replies that name one of several classes.

    If ``on_missing`` is ``"zero"``, a class without a reported probability has the probability 0.  If it is
    ``"error"``, the model is asked again.
    """

    def __init__(self, names: Sequence[str], on_missing: OnMissing = "zero") -> None:
        require("on_missing", on_missing, on_missing in ("zero", "error"), "'zero' or 'error'")
        self._classes = ClassNames(names)
        self._on_missing = on_missing

    @property
    def label(self) -> str:
        return f"ClassParser({', '.join(map(repr, self._classes.names))}, {self._on_missing})"

    def read(self, source: ParserInput) -> Scores:
        """Return the probability of each class."""
        names, vote = self._classes.names, self._classes.named(source.text)
        wanted = f"Please respond with one and only one word from {quoted(names)}."
        if not source.logprobs:
            if vote is None:
                raise ParseError(wanted)
            return Scores.of_votes(names, [vote])
        scores = self._classes.scores(source.logprobs)
        if not (scores.coverage or scores.shared) or (vote is None and source.finish != "length"):
            raise ParseError(wanted)
        if self._on_missing == "error" and scores.missing and not scores.shared:
            raise ParseError(wanted)
        return scores


def quoted(names: Sequence[str]) -> str:
    """Return names as text: "a", "b" or "c"."""
    *others, last = [f'"{name}"' for name in names]
    return f"{', '.join(others)} or {last}" if others else last


def classifier(
    classes: Sequence[str], prompt: str | Prompt[Any] = QUESTION, on_missing: OnMissing = "zero"
) -> Prompt[Scores]:
    """Return a prompt that asks for one of several classes, with log probabilities.

    The question may use the variables ``{{ text }}`` and ``{{ classes }}``.
    """
    asked = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    shared = ClassNames(classes).longest_shared()
    settings = {"temperature": 0, "top_logprobs": TOP, "max_tokens": min(shared + 2, _MAX_TOKENS) if shared else 1}
    return asked.extend(
        output=str,
        parser=ClassParser(classes, on_missing),
        settings={**settings, **asked.settings},
        on_exception="{{ error_message }}" if asked.on_exception == EXCEPTION else asked.on_exception,
    )


def without_logprobs(prompt: Prompt[Scores], temperature: float) -> Prompt[Scores]:
    """Return the prompt for models without log probabilities.

    It has no token limit, because some models think first.
    """
    kept = {name: value for name, value in prompt.settings.items() if name not in ("top_logprobs", "max_tokens")}
    return prompt.extend(parser=prompt.parser, settings={**kept, "temperature": temperature})


class Ask(NamedTuple):
    """The task and the options of one call."""

    task: Dialog
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ClassificationRequest:
    """What to ask an agent, and how to use its answer; see `Agent.classify`."""

    agent: Agent[Any, Any]
    what: What
    classes: Any
    prompt: str | Prompt[Any]
    calibration: Calibration | None
    votes: int
    on_missing: OnMissing
    options: Mapping[str, Any]  # of the calls

    def __post_init__(self) -> None:
        kinds = (str, Payload, Message, CallResult, Dialog, list, tuple)
        require("the input to classify", self.what, isinstance(self.what, kinds), "a string, a Payload or a Dialog")
        require("votes", self.votes, is_whole(self.votes, 1), "a whole number from 1 on")
        right = "a Calibration, such as Calibration.of_prior(…), or None"
        require("calibration", self.calibration, isinstance(self.calibration, Calibration | None), right)
        check_known(self.options, self.what)

    def plan(self) -> Plan:
        labels = classes_of(self.classes)
        scores, results = yield from self._scored(tuple(labels), "")
        return self._found(labels, scores, tuple(results))

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
        """Divide the probability of prefixes that several classes share.

        To divide a large probability, the model is asked again.  A small probability is divided equally.
        """
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
        values: dict[str, Any] = {"classes": quoted(names)} if "classes" in prompt.variables else {}
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
        fork = Dialog(before.messages, system_args=before.system_args)  # the fork is not handed over to another agent
        return Ask(fork.put(prompt(**values)), options)

    def _named(self, suffix: str) -> dict[str, Any]:
        """Return the options of a call.  Its run id, if any, gets a suffix."""
        run_id = self.options.get("run_id")
        return {**self.options, "run_id": f"{run_id}{suffix}"} if run_id and suffix else dict(self.options)

    def _reports_logprobs(self) -> bool:
        return getattr(self.agent._client_of(self.options.get("model")), "reports_logprobs", True)

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


def question_about(what: What, prompt: str | Prompt[Any] | None, question: str) -> str | Prompt[Any]:
    """Return the prompt, or by default the template of a question, with a text that is classified before it."""
    if prompt is not None:
        return prompt
    return f"{{{{ text }}}}\n\n{question}" if isinstance(what, str) else question


def perform(request: ClassificationRequest) -> Classification[Any]:
    """Make the calls of a classification, using threads if several run at once."""

    def call(ask: Ask) -> Result:
        return request.agent.call(ask.task, **ask.options)

    plan = request.plan()
    try:
        asks = next(plan)
        while True:
            is_one = len(asks) == 1
            asks = plan.send([call(*asks)] if is_one else map_tasks(call, asks, CONCURRENCY, None, True).outputs)
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found


async def aperform(request: ClassificationRequest) -> Classification[Any]:
    """The async version of `perform`."""

    async def call(ask: Ask) -> Result:
        result: Result = await request.agent.acall(ask.task, **ask.options)
        return result

    plan = request.plan()
    try:
        asks = next(plan)
        while True:
            asks = plan.send((await amap_tasks(call, asks, CONCURRENCY, None, True)).outputs)
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found
