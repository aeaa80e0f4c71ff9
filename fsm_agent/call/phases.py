"""Detect the phase of an agent's work from the functions that it has called.

A phase describes a call but does not control it.  To restrict what may happen in a phase, define a flow with a state
for each phase.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeAlias

from fsm_agent._internal.structs import Value
from fsm_agent.call.record import CallRecord
from fsm_agent.messages.events import Done, FunctionEnded, FunctionStarted
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message
from fsm_agent.validation import invalid, require

Pattern: TypeAlias = str | re.Pattern[str] | Callable[[FunctionCall], bool]
WINDOW = 5


class PhaseRule(Value, frozen=True):
    """A rule that recognizes a phase by the functions that succeeded.

    Args:
        phase: The name of the phase.
        any_of: The functions that are signs of the phase, given as names, regular expressions that match a whole name,
            or predicates on a settled `FunctionCall`.
        after: The phases after which the rule applies.  If none are given, it applies from the start.
        min_count: How many of the latest calls must be signs of this phase; None means more than half.
        only_success: Whether failed functions are ignored.

    Examples:
        >>> PhaseRule("edit", ["write", "patch"], min_count=2).min_count
        2
    """

    phase: str
    any_of: tuple[Pattern, ...] | list[Pattern]
    after: tuple[str, ...] | list[str] = ()
    min_count: int | None = 1
    only_success: bool = True

    def __post_init__(self) -> None:
        for name, value in (("any_of", self.any_of), ("after", self.after)):
            right = "a tuple, such as ('edit',)"
            require(f"{name} of the rule for {self.phase!r}", value, not isinstance(value, str), right)

    def fits(self, call: FunctionCall) -> bool:
        """Return whether the rule matches a function call, regardless of earlier calls."""
        if self.only_success and call.error is not None:
            return False
        return any(_fits(item, call) for item in self.any_of)


CODING_PHASES = (
    PhaseRule(
        "edit",
        ("search_replace", "write", re.compile(r"(edit|write|create|delete|move|patch|insert|str_replace|apply).*")),
    ),
    PhaseRule(
        "validate",
        ("build", "lint", "pytest", "test", re.compile(r"(run|execute)_(build|checks?|lint|tests?|type_?check).*")),
        after=("edit",),
    ),
    PhaseRule(
        "discover",
        ("codebase_search", re.compile(r"(find|glob|grep|list|ls|open|plan|read|search|view)(_.*)?")),
        min_count=None,
    ),
)


class PhaseDetector(Value, frozen=True):
    """Detects the phase of an agent's work.

    Each function that has ended counts towards the first rule that matches it.  A rule starts its phase when enough of
    the latest calls count towards it, so reading a single file does not end an editing phase.  Calls from before the
    current phase do not count.

    Args:
        rules: The rules, in order.
        default: The phase that applies until a rule starts another one.
        window: How many of the latest calls are considered, ignoring calls that no rule matches.

    Examples:
        >>> PhaseDetector(rules=[PhaseRule("look", ["read", "search"]), PhaseRule("edit", ["write"])]).rules[1].phase
        'edit'
    """

    rules: tuple[PhaseRule, ...] | list[PhaseRule] = CODING_PHASES
    default: str = "explore"
    window: int = WINDOW

    def __post_init__(self) -> None:
        known = {self.default, *[rule.phase for rule in self.rules]}
        for rule in self.rules:
            unknown = [name for name in rule.after if name not in known]
            right = f"one of {', '.join(sorted(known))}"
            require(f"after of the rule for {rule.phase!r}", rule.after, not unknown, right)
            is_met = rule.min_count is None or rule.min_count <= self.window
            require(f"min_count of the rule for {rule.phase!r}", rule.min_count, is_met, f"at most {self.window}")

    def phase(self, what: Any) -> str:
        """Return the latest phase; see `phases`."""
        latest = deque(self.phases(what), maxlen=1)
        return latest[0] if latest else self.default

    def phases(self, what: Any) -> Iterator[str]:
        """Yield the phase of the work after each function that has ended.

        Args:
            what: The result of a call, a call, its record, a dialog, messages, or settled function calls.

        Raises:
            UsageError: If ``what`` is something else.
        """
        tracker = _PhaseTracker(self)
        return (tracker.add(call) for call in _settled(what))

    def hook(self) -> PhaseHook:
        """Return a hook to pass as ``Agent(…, hooks=[hook])``, or as the sink of a call."""
        return PhaseHook(self)


class _PhaseTracker:
    def __init__(self, detector: PhaseDetector) -> None:
        self.phase = detector.default
        self._detector = detector
        self._seen = {detector.default}
        self._latest = deque[str](maxlen=detector.window)  # since the phase began

    def add(self, call: FunctionCall) -> str:
        rule = next((rule for rule in self._detector.rules if self._applies(rule) and rule.fits(call)), None)
        if rule is None:
            return self.phase
        self._latest.append(rule.phase)
        needed = len(self._latest) // 2 + 1 if rule.min_count is None else rule.min_count
        if rule.phase != self.phase and self._latest.count(rule.phase) >= needed:
            self.phase = rule.phase
            self._seen.add(rule.phase)
            self._latest.clear()
            self._latest.append(rule.phase)
        return self.phase

    def _applies(self, rule: PhaseRule) -> bool:
        return not rule.after or not self._seen.isdisjoint(rule.after)


class PhaseHook:
    """A hook that follows the phase of the latest call.

    It can follow only one call at a time, so if threads share an agent, pass each call its own hook as the sink.

    Attributes:
        phase: The current phase.

    Examples:
        >>> hook = PhaseHook(PhaseDetector())
        >>> Agent(Script("Hi."), hooks=[hook]).call("Hello").output
        'Hi.'
    """

    def __init__(self, detector: PhaseDetector) -> None:
        self.detector = detector
        self.phase = detector.default
        self._tracker = _PhaseTracker(detector)
        self._started: dict[str, FunctionStarted] = {}
        self._is_over = False

    def on_event(self, event: Any) -> None:
        """Update the phase after an event."""
        if self._is_over:
            self._is_over = False
            self._tracker, self._started = _PhaseTracker(self.detector), {}
            self.phase = self._tracker.phase
        match event:
            case Done():
                if isinstance(event.result.record, CallRecord):  # otherwise a flow has ended, which keeps no calls
                    self.phase = self.detector.phase(event.result)
                self._is_over = True
            case FunctionStarted():
                self._started[event.id] = event
            case FunctionEnded():
                began = self._started.pop(event.id, None)
                arguments = began.arguments_json if began else "{}"
                call = FunctionCall(id=event.id, name=event.name, arguments_json=arguments, was_run=True)
                call = call.changed(error=event.text) if event.is_error else call.changed(result=event.text)
                self.phase = self._tracker.add(call)


def _fits(pattern: Pattern, call: FunctionCall) -> bool:
    if isinstance(pattern, str):
        return call.name == pattern
    if isinstance(pattern, re.Pattern):
        return pattern.fullmatch(call.name) is not None
    return bool(pattern(call))


def _settled(what: Any) -> Iterable[FunctionCall]:
    if isinstance(record := getattr(what, "record", None), CallRecord):
        what = record
    if isinstance(what, CallRecord):
        return [*what.function_calls, *[call for call in what.round if call.is_settled]]
    if isinstance(what, Collection) and not isinstance(what, str | bytes):
        if all(isinstance(item, Message) for item in what):
            return _of_messages(what)
        if all(isinstance(item, FunctionCall) for item in what):
            return [call for call in what if call.is_settled]
    raise invalid("the function calls", what, "the result of a call, a Dialog, or a list of function calls")


def _of_messages(messages: Iterable[Message]) -> Iterator[FunctionCall]:
    requested: dict[str, FunctionCall] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, FunctionCall):
                requested[part.id] = part
            elif isinstance(part, FunctionResult) and (call := requested.pop(part.id, None)) is not None:
                yield call.changed(error=part.text) if part.is_error else call.changed(result=part.text)
