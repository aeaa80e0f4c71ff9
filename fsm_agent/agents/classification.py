"""Classification with an agent: the question, the calls, and the probability of each class.

Each call asks for one word, with the log probabilities of its first token, and offers no functions.  A parser finds the
class, so the model is asked again if its answer names no class.  `ClassificationRequest.plan` is a generator that works
with sync and async drivers: it yields calls, receives their results, and returns the classification.

An answer is read token by token.  If only one class can begin with a token, in any spelling (" True", "true"), the
token counts for that class.  If several classes can begin with it, the next token decides, provided that its
alternatives were reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TypeAlias

from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value
from fsm_agent.agents.options import CALL_OPTIONS, CallOptions, Deps, check_known
from fsm_agent.agents.task_messages import dialog_before
from fsm_agent.call.result import CallResult
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.messages.message import ChatDict, Message, Payload
from fsm_agent.messages.reply import TokenLogprob, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.output import Parser, ParserInput
from fsm_agent.prompts.prompt import EXCEPTION, Prompt
from fsm_agent.validation import invalid, require, safe_repr

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent

Label = TypeVar("Label", covariant=True, default=Any)

_BEFORE = " \t\r\n\"'`*_([{\u201c\u2018\u00ab\u2581\u0120"  # characters that may precede a class
_AFTER = _BEFORE + ".,;:!?)]}\u201d\u2019\u00bb"
_END = re.compile("<[|/\uff5c].*>|<eos>|<end_of_turn>")  # how some wire formats end an answer
_LEAST_REPORTED = 1e-9
_UNSEEN = 0.25  # without log probabilities, an upper bound for the classes that the model did not name
_LEAST_CORRECTED = 1e-6  # the least probability: no provider reports less


@dataclass(frozen=True, kw_only=True)
class Classification(Generic[Label]):
    """The result of a classification: the most likely class and the probability of each class.

    Attributes:
        label: The most likely class.  If several are equally likely, it is the one that was passed first.
        probabilities: The probabilities of the classes, which add up to 1.
        coverage: The probability that the answer is one of the classes, in any spelling.
        is_calibrated: Whether the probabilities come from log probabilities.  If not, the class named in the answer is
            given a probability of 1.
        missing: The classes for which no log probability was reported.
        raw: The probabilities as reported, before they were scaled to add up to 1.
        floor: An upper bound on the raw probability of a missing class.
        calibration: The correction that was applied to the probabilities, if any.
        results: The calls that were made, in order.

    Examples:
        >>> found = Agent(Script(token_reply({"yes": 0.75, "no": 0.25}))).classify("Is it late?", ["yes", "no"])
        >>> found.label, round(found.probabilities["no"], 2)
        ('yes', 0.25)
    """

    label: Label
    probabilities: Mapping[Any, float]
    coverage: float
    is_calibrated: bool
    missing: tuple[Any, ...]
    raw: Mapping[Any, float]
    floor: float = 0.0
    calibration: Calibration | None = None
    results: tuple[CallResult[Any], ...] = field(default=(), repr=False)

    @property
    def p(self) -> float:
        """The probability of the most likely class."""
        return max(self.probabilities.values())

    @property
    def dialog(self) -> Dialog:
        """The dialog with the question and the answer, without failed attempts."""
        return self.results[0].dialog

    @property
    def usage(self) -> Usage:
        """The tokens of all calls."""
        return sum([result.usage for result in self.results], Usage())


class Calibration(Value, frozen=True, kw_only=True):
    """A correction to class probabilities, for one question put to one model.

    The corrected probability of a class is proportional to ``p * exp(-bias)``.  Pass the calibration to
    `Agent.classify`.

    Attributes:
        bias: How strongly the model generally prefers each class, by class name.

    Examples:
        >>> found = Agent(Script(token_reply({"yes": 0.75, "no": 0.25}))).classify("Is it late?", ["yes", "no"])
        >>> Calibration.of_prior([found]).applied(found).p
        0.5
    """

    bias: Mapping[str, float]

    @classmethod
    def of_prior(cls, found: Iterable[Classification[Any]]) -> Self:
        """Return the correction that divides each class's probability by its mean over the examples.

        Args:
            found: The classifications of many examples.  All classes must be about equally frequent among the examples,
                unless the examples have no content.  The correct classes are not needed.
        """
        rows, names = _rows(found)
        bias = [math.log(fmean([math.exp(row[i]) for row in rows])) for i in range(len(names))]
        middle = fmean(bias)
        return cls(bias={name: value - middle for name, value in zip(names, bias, strict=True)})

    def corrected(self, raw: Mapping[str, float], floor: float) -> dict[str, float]:
        """Return corrected probabilities, which add up to 1.

        Args:
            raw: The probabilities, by class name.
            floor: The probability to assume for a missing class.

        Raises:
            UsageError: If the calibration is for other classes.
        """
        if raw.keys() != self.bias.keys():
            other, ours = (", ".join(map(repr, names)) for names in (self.bias, raw))
            raise UsageError(f"calibration: expected one of the classes {ours}, got one of {other}")
        shifted = [x - self.bias[name] for name, x in zip(raw, _logits(raw, floor), strict=True)]
        return dict(zip(raw, _softmax(shifted), strict=True))

    def applied(self, found: Classification[Any]) -> Classification[Any]:
        """Return a classification with corrected probabilities."""
        by_name = {name_of(label): label for label in found.raw}
        corrected = self.corrected({name: found.raw[label] for name, label in by_name.items()}, found.floor)
        probabilities = {by_name[name]: p for name, p in corrected.items()}
        label = max(probabilities, key=lambda name: probabilities[name])
        return replace(found, label=label, probabilities=probabilities, calibration=self)


def _rows(found: Iterable[Classification[Any]]) -> tuple[list[list[float]], list[str]]:
    kept = [*found]
    require("the classifications", kept, bool(kept), "one classification or more")
    names = [name_of(label) for label in kept[0].raw]
    if any([name_of(label) for label in one.raw] != names for one in kept):
        raise UsageError(f"the classifications: expected all to be of {', '.join(names)}, got different classes")
    return [_logits({name_of(label): p for label, p in one.raw.items()}, one.floor) for one in kept], names


def _logits(raw: Mapping[str, float], floor: float) -> list[float]:
    return [math.log(p or max(floor, _LEAST_CORRECTED)) for p in raw.values()]


def _softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    odds = [math.exp(x - top) for x in logits]
    total = math.fsum(odds)
    return [odd / total for odd in odds]


def name_of(label: object) -> str:
    """Return the name that a model uses for a class."""
    if isinstance(label, Enum):
        label = label.value if isinstance(label.value, str) else label.name
    name = label if isinstance(label, str) else str(label)
    if not name.strip():
        raise UsageError(f"a class: expected a string that a model can answer, got {safe_repr(label)}")
    return name


def classes_of(classes: object) -> dict[str, Any]:
    """Return classes by name.  There must be at least two, with different names."""
    right = "two classes or more, such as ['yes', 'no'], or an Enum"
    is_right = not isinstance(classes, str | Mapping) and hasattr(classes, "__iter__")
    require("classes", classes, is_right, right)
    labels: list[Any] = list(classes)  # type: ignore[call-overload]
    if len(labels) < 2:
        raise invalid("classes", classes, right)
    by_name = {name_of(label): label for label in labels}
    if len(by_name) < len(labels):
        raise UsageError(f"classes: expected different names, got one twice in {safe_repr(labels)}")
    return by_name


class Scores(Value, frozen=True, kw_only=True):
    """The classes' probabilities, by name.  They add up to less than 1 if other answers are possible."""

    masses: Mapping[str, float]
    floor: float = 0.0  # an upper bound for missing classes
    shared: Mapping[str, float] = {}  # probabilities of beginnings that several classes share
    is_measured: bool = True  # from log probabilities

    @property
    def coverage(self) -> float:
        """The probability that the answer is one of the classes."""
        return min(1.0, math.fsum(self.masses.values()))

    @property
    def missing(self) -> tuple[str, ...]:
        """The classes for which no probability was reported."""
        return tuple([name for name, mass in self.masses.items() if not mass])


class ClassNames:
    """Finds class names in a model's answer.

    Case is ignored unless two names differ only in case.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._folds = len({name.casefold() for name in names}) == len(names)
        self._keys = {name: self._key(name) or name for name in names}

    def named(self, text: str) -> str | None:
        """Return the class that the text names, ignoring quotes, final punctuation and case, or None."""
        wanted = self._key(text)
        found = [name for name, key in self._keys.items() if key in (wanted, wanted.rstrip(_AFTER), text.strip())]
        return found[0] if found else None

    def beginning_with(self, text: str) -> tuple[str, ...]:
        """Return the classes that an answer with this beginning may name."""
        begun = self._key(text)
        if not begun:
            same = [name for name, key in self._keys.items() if text.strip() and key == text.strip()]
            return tuple(same) or self.names
        return tuple([name for name, key in self._keys.items() if key.startswith(begun) or _is_whole(key, begun)])

    def longest_shared(self) -> int:
        """Return the length of the longest prefix that two classes share."""
        keys = sorted(self._keys.values())
        return max([_shared(*pair) for pair in pairwise(keys)], default=0)

    def scores(self, tokens: Sequence[TokenLogprob]) -> Scores:
        """Return the probability of each class, given the tokens of the answer and their alternatives."""
        masses, shared = dict.fromkeys(self.names, 0.0), dict[str, float]()
        floor, before, reach = 1.0, "", 1.0
        for index, token in enumerate(tokens):
            alternatives = {**dict(token.top), token.token: token.logprob}
            goes_on = 0.0
            for text, logprob in alternatives.items():
                mass = reach * max(_LEAST_REPORTED, math.exp(min(0.0, logprob)))
                floor = min(floor, mass) if index == 0 else floor
                classes = self._after(before, text)
                if len(classes) == 1:
                    masses[classes[0]] += mass
                elif classes and text == token.token and index + 1 < len(tokens):
                    goes_on = mass
                elif classes:
                    ends = index + 1 == len(tokens) and text == token.token
                    exact = self.named(before + text) if ends else None
                    if exact is not None:
                        masses[exact] += mass
                    elif len(classes) < len(self.names):  # otherwise it distinguishes nothing
                        shared[before + text] = shared.get(before + text, 0.0) + mass
            if not goes_on:
                break
            before, reach = before + token.token, goes_on
        return Scores(masses=masses, floor=floor, shared=shared)

    def _after(self, before: str, text: str) -> tuple[str, ...]:
        """Return the classes that an answer may still name after this continuation."""
        if before and (not text or _END.fullmatch(text)):
            ended = self.named(before)
            return () if ended is None else (ended,)
        return () if _END.fullmatch(text) or not text else self.beginning_with(before + text)

    def _key(self, text: str) -> str:
        plain = re.sub(r"\s+", " ", text.lstrip(_BEFORE))
        return plain.casefold() if self._folds else plain


def _is_whole(key: str, begun: str) -> bool:
    """Return whether the text begins with a class name as a whole word."""
    return begun.startswith(key) and not (begun[len(key)].isalnum() and key[-1].isalnum())


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# Asking

Result: TypeAlias = CallResult[Any]  # its output is `Scores`, but a dialog's type does not say so
Plan: TypeAlias = "Generator[Ask, Result, Classification[Any]]"
What: TypeAlias = str | Payload | Message | Sequence[Message | ChatDict] | CallResult[Any]  # can be classified
OnMissing: TypeAlias = Literal["zero", "error"]

_OPTIONS = (*CALL_OPTIONS, "prompt", "calibration", "on_missing")
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
    on_missing: OnMissing


TOP = 20  # alternatives to a token: more than most providers report
_MAX_TOKENS = 16
_SPLIT_BELOW = 0.02  # a smaller probability is divided without asking


class ClassParser(Parser[Scores]):
    """A parser for replies that name one of several classes.

    If ``on_missing`` is ``"zero"``, a class without a reported probability gets a probability of 0.  If it is
    ``"error"``, the model is asked again.
    """

    def __init__(self, names: Sequence[str], on_missing: OnMissing) -> None:
        require("on_missing", on_missing, on_missing in ("zero", "error"), "'zero' or 'error'")
        self._classes = ClassNames(names)
        self._on_missing = on_missing

    @property
    def label(self) -> str:
        return f"ClassParser({', '.join(map(repr, self._classes.names))}, {self._on_missing})"

    def read(self, source: ParserInput) -> Scores:
        """Return the probability of each class."""
        names, answer = self._classes.names, self._classes.named(source.text)
        wanted = f"Please respond with one and only one word from {quoted(names)}."
        if not source.logprobs:
            if answer is None:
                raise ParseError(wanted)
            return Scores(masses={name: float(name == answer) for name in names}, floor=_UNSEEN, is_measured=False)
        scores = self._classes.scores(source.logprobs)
        if not (scores.coverage or scores.shared) or (answer is None and source.finish != "length"):
            raise ParseError(wanted)
        if self._on_missing == "error" and scores.missing and not scores.shared:
            raise ParseError(wanted)
        return scores


def quoted(names: Sequence[str]) -> str:
    """Return names as text: "a", "b" or "c"."""
    *others, last = [f'"{name}"' for name in names]
    return f"{', '.join(others)} or {last}" if others else last


class Ask(NamedTuple):
    """The task and the options for one call."""

    task: Dialog
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ClassificationRequest:
    """A question for an agent, and how to read the answer; see `Agent.classify`."""

    agent: Agent[Any, Any]
    what: What
    classes: Any
    prompt: str | Prompt[Any]
    calibration: Calibration | None
    on_missing: OnMissing
    options: Mapping[str, Any]  # of the calls

    def __post_init__(self) -> None:
        kinds = (str, Payload, Message, CallResult, Dialog, list, tuple)
        require("the input to classify", self.what, isinstance(self.what, kinds), "a string, a Payload or a Dialog")
        check_known(self.options, self.what, _OPTIONS)

    def plan(self) -> Plan:
        labels = classes_of(self.classes)
        scores, results = yield from self._scored(tuple(labels), "")
        return self._found(labels, scores, tuple(results))

    def _scored(self, names: tuple[str, ...], suffix: str) -> Generator[Ask, Result, tuple[Scores, list[Result]]]:
        prompt = self._prompt_for(names)
        result = yield self._ask(prompt, names, suffix)
        scores: Scores = result.output
        if not scores.is_measured:
            return scores, [result]
        return (yield from self._distinguished(scores, [result], "classes" in prompt.variables and not suffix))

    def _prompt_for(self, names: Sequence[str]) -> Prompt[Scores]:
        """Return the prompt that asks for one of these classes."""
        asked = self.prompt if isinstance(self.prompt, Prompt) else Prompt(self.prompt)
        shared = ClassNames(names).longest_shared()
        limit = min(shared + 2, _MAX_TOKENS) if shared else 1
        settings = {"temperature": 0, "top_logprobs": TOP, "max_tokens": limit, **asked.settings}
        if not getattr(self.agent._client_of(self.options.get("model")), "reports_logprobs", True):
            del settings["top_logprobs"], settings["max_tokens"]  # some of these models think first
        return asked.extend(
            output=str,
            parser=ClassParser(names, self.on_missing),
            settings=settings,
            on_exception="{{ error_message }}" if asked.on_exception == EXCEPTION else asked.on_exception,
        )

    def _distinguished(
        self, scores: Scores, results: list[Result], may_ask: bool
    ) -> Generator[Ask, Result, tuple[Scores, list[Result]]]:
        """If several classes share a prefix, divide the prefix's probability among them.

        The model is asked again how to divide a large probability, whereas a small one is divided equally.
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
        """Return the options for one of the calls, with a suffix on the run id, if any."""
        run_id = self.options.get("run_id")
        return {**self.options, "run_id": f"{run_id}{suffix}"} if run_id and suffix else dict(self.options)

    def _found(self, labels: Mapping[str, Any], scores: Scores, results: tuple[Result, ...]) -> Classification[Any]:
        total = math.fsum(scores.masses.values())
        plain = {name: mass / total if total else 1 / len(labels) for name, mass in scores.masses.items()}
        found = Classification(
            label=labels[max(plain, key=plain.__getitem__)],
            probabilities={labels[name]: p for name, p in plain.items()},
            coverage=scores.coverage,
            is_calibrated=scores.is_measured,
            missing=tuple([labels[name] for name in scores.missing]),
            raw={labels[name]: mass for name, mass in scores.masses.items()},
            floor=scores.floor,
            results=results,
        )
        return found if self.calibration is None else self.calibration.applied(found)


def question_about(what: What, prompt: str | Prompt[Any] | None, question: str) -> str | Prompt[Any]:
    """Return the prompt or, by default, the text to classify followed by the default question."""
    if prompt is not None:
        return prompt
    return f"{{{{ text }}}}\n\n{question}" if isinstance(what, str) else question


def perform(request: ClassificationRequest) -> Classification[Any]:
    """Make the calls that a classification needs."""
    plan = request.plan()
    try:
        ask = next(plan)
        while True:
            ask = plan.send(request.agent.call(ask.task, **ask.options))
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found


async def aperform(request: ClassificationRequest) -> Classification[Any]:
    """The async version of `perform`."""
    plan = request.plan()
    try:
        ask = next(plan)
        while True:
            ask = plan.send(await request.agent.acall(ask.task, **ask.options))
    except StopIteration as stop:
        found: Classification[Any] = stop.value
        return found
