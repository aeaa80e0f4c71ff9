"""The effects: everything that an agent call can wait for.

An effect is a request to the outside world.  A driver performs it with the effect's `Activity`
(`fsm_agent.runtime.call_activities`), and passes the outcome to the call under the same ``key``.  A key names the
request, not its subject (``ask:3.0`` and ``run:3.0`` differ), and is used only once in the life of a call.  Each kind
of effect has a ``prefix``, with which its keys begin, and ``outcomes``, which lists the kinds of outcomes that answer
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from fsm_agent._internal.masking import masked_arguments
from fsm_agent._internal.structs import Value, to_json
from fsm_agent._internal.text import cut, plain
from fsm_agent.call.outcomes import (
    Approved,
    Begun,
    Checked,
    CheckFailed,
    CheckRefused,
    Denied,
    FunctionFailed,
    Interrupted,
    ModelFailed,
    Modified,
    Replied,
    Returned,
    RunAgain,
    Slept,
    Started,
)
from fsm_agent.call.process import EffectValue
from fsm_agent.errors import ErrorReport
from fsm_agent.functions.function import Function
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import OutputMode, Settings
from fsm_agent.prompts.output import Output

TEXT = Output(str)
_MOST_NAMED = 3  # effects in the message of an error
_LATER = "; or keep its snapshot() and restore() it later"
_MOST_SHOWN = 200  # characters of a function call in the message of an error
MOST_SCHEMA = 16_384  # characters of the schema of an answer in a question
_MOST_READ = 1000  # characters of arguments that are masked before the cut, so that a secret at the cut is recognized


class Request(Value, frozen=True, kw_only=True):
    """The content of one request to a model.

    Examples:
        >>> request = Request(messages=[Message.of("user", "Hello")], settings=Settings(temperature=0))
        >>> request.messages[0].text, request.tool_choice
        ('Hello', 'auto')
    """

    messages: Sequence[Message]
    functions: tuple[Function, ...] = ()
    tool_choice: str = "auto"
    output: Output = TEXT
    mode: OutputMode | None = None  # how the output is requested; by default, as the model's profile says
    settings: Settings = Settings()
    branch_length: int = 0  # the number of messages at the end that belong to the exception branch


class Begin(EffectValue, frozen=True):
    """Starts the call, which needs the time and an id.

    Examples:
        >>> Agent(Script()).prepare("Hello").effects[0].key
        'begin'
    """

    prefix, outcomes = "begin", (Begun,)


class CallModel(EffectValue, frozen=True):
    """Requests the model's reply.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> effect = asked.effects[0]
        >>> effect.key, effect.request.messages[-1].text
        ('model:0', 'Hello')
    """

    prefix, outcomes = "model", (Replied, ModelFailed)

    request: Request
    attempt: int  # the number of this attempt, from 1; more than 1 after transport failures
    is_priced: bool = False  # True if the reply's cost is needed
    refusal: ErrorReport | None = None  # why the request must not be sent, such as an exceeded `Budget`


class AskSummary(EffectValue, frozen=True, kw_only=True):
    """Asks a model to summarize the beginning of the dialog.

    Examples:
        >>> request = Request(messages=(Message.of("user", "Hi."),))
        >>> AskSummary(key="summary:3", request=request, attempt=1, covers=2, max_tokens=500).covers
        2
    """

    prefix, outcomes = "summary", (Replied, ModelFailed)

    request: Request
    attempt: int  # see `CallModel`
    covers: int  # the number of messages in the dialog that the summary replaces
    max_tokens: int  # a longer summary is not used
    is_priced: bool = False
    client: Any = None  # the client to use; by default, the call's client


class Sleep(EffectValue, frozen=True):
    """Waits until a Unix time.

    Examples:
        >>> Sleep("sleep:1", until_s=1_800_000_000.0).until_s
        1800000000.0
    """

    prefix, outcomes = "sleep", (Slept,)

    until_s: float

    @property
    def wakes_at_s(self) -> float:
        return self.until_s


class AskApproval(EffectValue, frozen=True):
    """Asks whether a function may be called.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> asked = Agent(Script(function_call("erase")), functions=[erase]).prepare("Tidy up.")
        >>> try:
        ...     Agent(Script(function_call("erase")), functions=[erase]).run(asked)
        ... except CallSuspended as waiting:
        ...     print([(effect.key, effect.call.name) for effect in waiting.call.effects])
        [('ask:1.0', 'erase')]
    """

    prefix, outcomes = "ask", (Approved, Modified, Denied)

    call: FunctionCall
    function: Function | None = None  # None if the function has been removed

    @property
    def question(self) -> Question:
        schema = "" if self.function is None else schema_json(self.function.parameters)
        return _question(self, "approval", schema)


class StartFunction(EffectValue, frozen=True):
    """Records that a function that must not run twice is about to start.

    Examples:
        >>> StartFunction("start:1.0", function_call("pay", order=17)).call.name
        'pay'
    """

    prefix, outcomes = "start", (Started,)

    call: FunctionCall


class RunFunction(EffectValue, frozen=True):
    """Runs a function.

    Examples:
        >>> weather = Function(name="weather", parameters={"type": "object", "properties": {}})
        >>> try:
        ...     Agent(Script(function_call("weather")), functions=[weather]).call("?")
        ... except CallSuspended as waiting:
        ...     print([(effect.key, effect.call.name) for effect in waiting.call.effects])
        [('run:1.0', 'weather')]
    """

    prefix, outcomes = "run", (Returned, FunctionFailed, Interrupted)

    call: FunctionCall
    function: Function
    is_once: bool = False  # True if only the driver that noted the start may run it

    @property
    def question(self) -> Question | None:
        return _question(self, "result") if self.function.call is None else None


class Reconcile(EffectValue, frozen=True):
    """Asks how a function that must not run twice ended, after its driver has been lost.

    Examples:
        >>> @function(once=True, reconcile=lambda context: Returned(text="it was paid"))
        ... def pay() -> str:
        ...     "Pay."
        ...     return "paid"
        >>> pay.name
        'pay'
    """

    prefix, outcomes = "reconcile", (Returned, FunctionFailed, RunAgain)

    call: FunctionCall
    function: Function
    idempotency_key: str = ""  # the `Context.idempotency_key` of each attempt
    types: tuple[str, ...] = ()  # the names of the types that a state in a flow returns, as JSON; empty for any text
    schema: str = ""  # the JSON Schema of these types

    @property
    def question(self) -> Question:
        types = {"types": self.types} if self.types else {}
        return _question(self, "doubt", self.schema, idempotency_key=self.idempotency_key, **types)


class CheckOutput(EffectValue, frozen=True):
    """Runs `Agent.check` on the proposed answer; see `AgentCall.proposed`.

    Examples:
        >>> CheckOutput("check:0").key                       # its outcome is Checked, CheckRefused or CheckFailed
        'check:0'
    """

    prefix, outcomes = "check", (Checked, CheckRefused, CheckFailed)


Effect: TypeAlias = (
    Begin | CallModel | AskSummary | Sleep | AskApproval | StartFunction | RunFunction | Reconcile | CheckOutput
)


def describe_effects(effects: Sequence[Effect], run: str = "", driver: str = "agent", one: str = "call") -> str:
    """Describe the effects and how to answer them, as text of limited length for an error.

    ``driver`` is a Python expression for the process's driver, and ``one`` is the error's attribute that holds the
    process.
    """
    named = [f"{effect.key!r}{_about(effect)}" for effect in effects[:_MOST_NAMED]]
    if len(effects) > _MOST_NAMED:
        named.append(f"{len(effects) - _MOST_NAMED} more")
    return f"{', '.join(named)}: {_next_step(effects[0], run, driver, one)}" if effects else "nothing"


def schema_json(schema: Mapping[str, Any]) -> str:
    """Return a JSON Schema for a question, or ``""`` if it is too large."""
    text = msgspec.json.encode(schema).decode()
    return text if len(text) <= MOST_SCHEMA else ""


def _question(effect: AskApproval | RunFunction | Reconcile, kind: str, schema: str = "", **more: Any) -> Question:
    about = to_json({"function": effect.call.name, "arguments": effect.call.arguments_json, **more})
    kinds: Any = effect.outcomes
    answers = tuple([kind.__struct_config__.tag for kind in kinds if kind is not Interrupted])
    return Question(effect.key, kind, about, answers, schema)


def _about(effect: Effect) -> str:
    what = {AskApproval: "approval", RunFunction: "the result", Reconcile: "the unknown result"}.get(type(effect))
    if what is None or isinstance(effect, Begin | CallModel | AskSummary | Sleep | CheckOutput):
        return ""
    text = f"{effect.call.name}({masked_arguments(effect.call.arguments_json[:_MOST_READ])})"
    return f" ({what} of {plain(cut(text, _MOST_SHOWN))})"


def _next_step(effect: Effect, run: str, driver: str, one: str) -> str:
    if effect.question is None:
        return f"{driver}.runs.resume({run!r}) continues it" if run else f"{driver}.run({one}) continues it"
    answers = {
        AskApproval: "Approved(), Denied(reason) or Modified(arguments_json)",
        RunFunction: "Returned(text=…)",
        Reconcile: "Returned(text=…), FunctionFailed(text=…), or RunAgain() if it did nothing",
    }.get(type(effect), "Returned(text=…)")
    later = "" if run else _LATER
    first = answers.partition(")")[0] + ")"
    step = f"advance the {one} with {answers}, as in error.{one}.advance({effect.key!r}, {first})"
    step = f"{step}; {driver}.run(error.{one})"
    if run:
        step = f"answer with {driver}.runs.resume({run!r}, {{{effect.key!r}: …}}), where … is {answers}"
    match effect:
        case AskApproval():
            return f"{step}; or give the agent an approver with approve=…{later}"
        case Reconcile():
            return f"it was started, must not run twice, and its result is unknown; {step}{later}"
        case RunFunction():
            return f"the function has no callable; {step}; or link() one to it{later}"
    return f"it needs an answer; {step}{later}"  # an inner flow
