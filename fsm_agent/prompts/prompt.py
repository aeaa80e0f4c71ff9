"""Prompts: tasks for a model, with their output, functions, and handlers for problems.

A prompt's fingerprint is a short string that changes when the prompt's text, functions or output change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

from pydantic_core import to_json
from typing_extensions import TypeForm, TypeVar

from fsm_agent._internal.masking import path_tokens, shown_url
from fsm_agent._internal.structs import New, Value, changed_repr, fields_alone
from fsm_agent.errors import PromptError, UsageError
from fsm_agent.foreign_names import KnownArguments
from fsm_agent.functions import hosted_calls as hosted
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Functions, check_dependencies, functions_of, is_asked_per_call, sources
from fsm_agent.messages.hosted_tools import HostedMCP, HostedTool, check_hosted_tools
from fsm_agent.messages.message import Message, Part, Payload
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.output import (
    ANSWER,
    MAX_LENGTH,
    Arriving,
    Output,
    Parsed,
    Parser,
    ParserInput,
    check_type,
    checked,
)
from fsm_agent.prompts.partial_output import PartialReader
from fsm_agent.prompts.template import TextGuard, check_used, handler_text, render, variables
from fsm_agent.prompts.values import attachments_in, is_attachment
from fsm_agent.validation import Rules, invalid, require, require_fields, safe_repr

Out = TypeVar("Out", default=Any)


EXCEPTION = "Your answer could not be used: {{ error_message }}\nPlease correct this and answer again."
INTERRUPT = "{{ call_results }}"
LOOP = "You have called {{ name }} with identical arguments {{ count }} times. Try a different approach."
FINAL = "You have reached the limit of function calls. Call no more functions: give your final answer now."
FORM = "Now give your final answer in the form that is asked for."
# How the output is requested: by a request field, as a function, in words, or by a second request.
Mode: TypeAlias = Literal["native", "function", "prompted", "two_stage"]
_Kind: TypeAlias = Literal["exception", "interrupt", "final", "loop", "form"]
_NEEDED = {"exception": "error_message", "interrupt": "call_results"}
HANDLERS = {  # their variables
    "exception": ("error_message", "attempt"),
    "interrupt": ("call_results", "name", "arguments"),
    "final": ("rounds",),
    "loop": ("name", "count"),
    "form": (),
}


_RIGHTS: Rules = (
    ("template", lambda value: isinstance(value, str), "a string"),
    ("path", lambda value: isinstance(value, str), "a string such as 'root/name'"),
    (
        "parser",
        lambda value: value is None or (callable(value) and not inspect.iscoroutinefunction(value)),
        "a plain function of the text",
    ),
    ("mode", lambda value: value in (*get_args(Mode), None), f"{', '.join(map(repr, get_args(Mode)))}, or None"),
    ("max_length", lambda value: type(value) is int and value > 0, "at least 1 character"),
    ("settings", lambda value: isinstance(value, Mapping), "a mapping such as {'temperature': 0}"),
)


class PromptValues(TypedDict, total=False):
    """The fields of a `Prompt` except ``template``, ``path``, ``output`` and ``parser``."""

    functions: Functions
    on_exception: Handler
    on_interrupt: Handler
    on_final: Handler
    on_loop: Handler
    on_form: Handler
    mode: Mode | None
    max_length: int
    hosted_tools: Sequence[HostedTool]
    settings: Mapping[str, Any]
    finalizer: str | Prompt | None


class PromptOptions(PromptValues, total=False):
    """The keyword fields of a `Prompt` except ``output`` and ``parser``."""

    path: str


class PromptOverrides(PromptValues, total=False):
    """The fields of a `Prompt` that can override those in its files."""

    output: Any
    parser: Callable[[str], Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class Prompt(KnownArguments, Generic[Out]):
    """A task for a model: a template, the functions that it may call, and the output that it must produce.

    Handlers (the ``on_…`` arguments) provide the text for the model in certain situations.  A handler is a template,
    the path to a template file, a `Prompt`, or a pure function that takes the same variables by keyword and returns the
    text.  If the handler is a template or a function, the task's functions, hosted tools, settings, output and parser
    still apply.  A handler that is a `Prompt` brings its own hosted tools, and selects its functions from the task's.
    Its settings override the task's, and it may have its own output or parser.  The prompt that asked for an answer
    also parses it.

    Args:
        template: A Jinja2 template; see `render`.
        path: The prompt's name in a `Prompts` collection and in snapshots.
        functions: `Function`s, plain callables, toolsets and other sources, which replace the agent's functions.  If
            there are none, the agent's functions are offered.  MCP servers are asked for their functions at each call.
        output: The type of the answer; see `Output`.
        parser: A pure function that makes the output from the answer's text, or a `Parser`, which gets the whole reply
            (`ParserInput`).  Both may return a `Parsed` to report repairs.  If the parser raises an exception, the
            model tries again: it sees the exception's message and, unless it is a `ParseError` or another `ValueError`,
            its type.  The parser decides whether to accept an answer that was cut off.  If possible, the schema for
            ``output`` is still sent.
        on_exception: The text after a parse error.  Variables: ``error_message`` (required), ``attempt`` (from 1).
        on_interrupt: The text for each function result.  Variables: ``call_results`` (required), ``name``,
            ``arguments``.
        on_final: The text once the rounds or function calls are used up.  From then on, the model gets no functions.
            Variable: ``rounds``.
        on_form: The text between the two stages in ``"two_stage"`` mode.
        mode: How to request the output; by default, in the best mode for the model.  ``"native"``: the schema is sent
            in a field of the request.  ``"function"``: the model calls a function whose arguments are the answer.
            ``"prompted"``: the system prompt describes the schema.  ``"two_stage"``: the model first answers in words,
            with functions but without the schema; a second request then sends the schema but no functions.
        max_length: The maximum number of characters in a typed answer; longer answers are refused.  The limit does not
            apply if you have your own parser.
        on_loop: The text when the model repeats the same request.  Variables: ``name``, ``count``.  See
            `Limits.on_loop`.
        hosted_tools: Tools that the provider runs, in addition to the agent's, for the requests that this prompt
            governs.  The last request includes neither hosted tools nor functions.
        settings: Options for these requests, such as ``{"temperature": 0}``.  They override the agent's but not the
            call's.
        finalizer: Text or a `Prompt` for wording the final answer, with the variable ``answer``.  After the model
            answers in text, the finalizer is sent in another request, without functions, and the reply to it becomes
            the answer.  That reply is parsed with the finalizer's output or parser if it has one, otherwise with this
            prompt's.

    Examples:
        >>> order = Prompt("Which goods does this letter order? {{ letter }}", output=list[str])
        >>> Agent(Script('["lamp"]')).call(order(letter="A lamp, please.")).output
        ['lamp']
        >>> order.variables
        frozenset({'letter'})
    """

    template: str
    _: KW_ONLY
    path: str = ""
    functions: tuple[Function, ...] | Functions = ()
    output: Any = str
    parser: Callable[[str], Any] | None = None
    on_exception: Handler = EXCEPTION
    on_interrupt: Handler = INTERRUPT
    on_final: Handler = FINAL
    on_loop: Handler = LOOP
    on_form: Handler = FORM
    mode: Mode | None = None
    max_length: int = MAX_LENGTH
    hosted_tools: Sequence[HostedTool] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    finalizer: str | Prompt | None = None
    offers: tuple[Function, ...] = field(init=False, repr=False)  # the functions
    by_name: dict[str, Function] = field(init=False, repr=False)  # the functions, as the model calls them
    depended_on: frozenset[str] = field(init=False, repr=False)  # the functions that other functions depend on
    delegates: frozenset[str] = field(init=False, repr=False)  # the agents used as functions
    handoffs: frozenset[str] = field(init=False, repr=False)  # the agents among them that take over the dialog
    tallied: frozenset[str] = field(init=False, repr=False)  # the functions whose runs are counted
    may_host: tuple[HostedTool, ...] = field(init=False, repr=False)  # its hosted tools and its handlers'
    in_order: frozenset[str] = field(init=False, repr=False, default=frozenset())  # functions that run one at a time
    is_borrowed: bool = field(init=False, repr=False, default=False)  # an agent lends its functions for one call
    is_fixed: bool = field(init=False, repr=False, default=True)  # its functions are the same in every call
    source: Prompt | None = field(init=False, repr=False, default=None)  # the prompt that an agent made this from
    unresolved: Prompt | None = field(init=False, repr=False, default=None)  # the prompt before its sources were asked

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, template: str, *, parser: Callable[[str], Out], output: Any = ..., **options: Unpack[PromptOptions]
        ) -> None: ...
        @overload
        def __init__(
            self: Prompt[str], template: str, *, parser: None = None, **options: Unpack[PromptOptions]
        ) -> None: ...
        @overload
        def __init__(
            self,
            template: str,
            *,
            output: TypeForm[Out],
            parser: None = None,
            **options: Unpack[PromptOptions],
        ) -> None: ...
        def __init__(self, template: str, **options: Any) -> None: ...

    __getstate__ = fields_alone
    __repr__ = changed_repr

    def __post_init__(self) -> None:
        require_fields(self, "a prompt", _RIGHTS)
        if isinstance(self.parser, type) and hasattr(self.parser, "model_fields"):
            right = f"a function of the text (a type goes into output={self.parser.__name__})"
            raise invalid("parser of a prompt", self.parser, right)
        check_type(self.output, "the output of a prompt")
        self._check_requests()
        listed = sources(self.functions)
        asked = [item for item in listed if is_asked_per_call(item)]
        functions = functions_of([item for item in listed if item not in asked] if asked else listed)
        by_name = {f.name: f for f in functions}
        depended_on = frozenset([name for f in functions for name in f.depends_on])
        limited = [f.name for f in functions if f.max_calls is not None or f.max_failures is not None]
        agents = {f.name: f.delegate for f in functions if f.delegate is not None}
        handler = self.on_exception
        derived: dict[str, Any] = {
            "functions": listed if asked else functions,
            "is_fixed": not asked,
            "offers": functions,
            "by_name": by_name,
            "depended_on": depended_on,
            "tallied": depended_on.union(limited),
            "delegates": frozenset(agents),
            "handoffs": frozenset([name for name, delegate in agents.items() if delegate.is_handoff]),
            "may_host": (*self.hosted_tools, *(handler.hosted_tools if isinstance(handler, Prompt) else ())),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        what = f"functions of prompt {self.path!r}"
        names = [f.name for f in functions]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise PromptError(f"{what}: expected different names, got {', '.join(repeated)} twice")
        if ANSWER in by_name and self.output is not str:
            raise PromptError(f"{what}: expected a name other than {ANSWER}, which is reserved for the answer")
        if not asked:
            check_dependencies(functions, f"prompt {self.path!r}")
        variables(self.template)
        for kind in HANDLERS:
            self._check_handler(kind)
        self._check_finalizer()

    def _check_finalizer(self) -> None:
        if self.finalizer is None:
            return
        what = f"the finalizer of prompt {self.path!r}"
        right = "a string with {{ answer }} in it, a Prompt or None"
        require(what, self.finalizer, isinstance(self.finalizer, str | Prompt), right)
        template = self.finalizer if isinstance(self.finalizer, str) else self.finalizer.template
        if isinstance(self.finalizer, Prompt) and (self.finalizer.offers or self.finalizer.hosted_tools):
            raise PromptError(f"{what}: expected no functions, since a finalizer cannot offer any, got some")
        if unknown := ", ".join(sorted(variables(template) - {"answer"})):
            raise PromptError(f"{what}: expected only the variable answer, got {unknown}")

    def _check_requests(self) -> None:
        if type(self.hosted_tools) is list:
            object.__setattr__(self, "hosted_tools", tuple(self.hosted_tools))
        if self.hosted_tools != ():
            check_hosted_tools(self.hosted_tools, f"hosted_tools of prompt {self.path!r}")
        if self.settings:
            if "hosted_tools" in self.settings:
                what = f"settings of prompt {self.path!r}"
                raise PromptError(f"{what}: expected no hosted_tools, got some; pass hosted_tools=… to the prompt")
            Settings().override(self.settings)

    def _check_handler(self, kind: str) -> None:
        handler, what = getattr(self, f"on_{kind}"), f"on_{kind} of prompt {self.path!r}"
        if hasattr(handler, "__fspath__"):
            handler = handler_text(handler, what)
            object.__setattr__(self, f"on_{kind}", handler)
        template = handler.template if isinstance(handler, Prompt) else handler
        is_compared = isinstance(handler, Prompt) and self.is_fixed
        if is_compared and (foreign := ", ".join(sorted(handler.by_name.keys() - self.by_name.keys()))):
            raise PromptError(f"{what}: expected functions of the prompt itself, got {foreign}")
        if callable(template):
            _check_handler_function(template, HANDLERS[kind], what)
            return
        right = "a string, a Prompt, a function or the path of a file"
        require(what, handler, isinstance(template, str), right, PromptError)
        names, needed = variables(template), _NEEDED.get(kind)
        if needed is not None and needed not in names:
            raise PromptError(f"{what}: expected {{{{ {needed} }}}} in it, got {safe_repr(template)}")
        if unknown := sorted(names.difference(HANDLERS[kind])):
            raise PromptError(f"{what}: expected only {', '.join(HANDLERS[kind])}, got {', '.join(unknown)}")

    def __call__(self, /, **values: Any) -> Task[Out]:
        """Return this prompt with values for its variables, to pass to a call as its task.  No model is called.

        Values go to the prompt, and options go to the call: ``agent.call(order(letter="…"), run_id="order-17")``.

        Raises:
            PromptError: If the template has no variable with a given name.  Missing variables are reported when the
                task is rendered.
        """
        check_used(self.template, values)
        return Task(self, values)

    def render(self, /, **values: Any) -> Message:
        """Return the user message for the task.

        A `Payload` among the values appears as its text.  The images and documents in all values follow the text.

        Raises:
            PromptError: If a variable has no value, or if the template does not use one of the values.
        """
        check_used(self.template, values)
        rest: list[Any] = []
        for name, value in values.items():
            rest += attachments_in(value)
            if is_attachment(value):
                values[name] = ""
            elif isinstance(value, Payload):
                values[name] = value.to_text()
        return Message.of("user", render(self.template, values, self._guard), *rest)

    @property
    def _guard(self) -> TextGuard | None:
        return None

    @overload
    def extend(self, *, template: str = ..., **changes: Unpack[PromptOptions]) -> Prompt[Out]: ...
    @overload
    def extend(
        self,
        *,
        parser: Callable[[str], New],
        output: Any = ...,
        template: str = ...,
        **changes: Unpack[PromptOptions],
    ) -> Prompt[New]: ...
    @overload
    def extend(
        self,
        *,
        output: TypeForm[New],
        parser: None = ...,
        template: str = ...,
        **changes: Unpack[PromptOptions],
    ) -> Prompt[New]: ...
    @overload
    def extend(self, *, parser: None, template: str = ..., **changes: Unpack[PromptOptions]) -> Prompt[Any]: ...
    def extend(self, **changes: Any) -> Prompt[Any]:
        """Return a copy of this prompt with ``changes``."""
        this: Any = self
        return replace(this, **changes)

    def borrowing(self, **changes: Any) -> Prompt:
        """Return a copy that uses an agent's functions, for a single call."""
        return self.extend(**changes).marked(is_borrowed=True)

    def for_call(self) -> Prompt[Out]:
        """Return this prompt with the current functions from its MCP servers and other sources."""
        if self.is_fixed:
            return self
        changes: Any = {name: getattr(self, f"on_{name}") for name in HANDLERS}
        changes = {f"on_{name}": item.for_call() for name, item in changes.items() if isinstance(item, Prompt)}
        return self.extend(functions=functions_of(self.functions), **changes).marked(unresolved=self)

    def answering(self, tools: Sequence[HostedTool], *, has_approver: bool) -> Prompt[Out]:
        """Return this prompt with functions for the hosted tool calls that the caller must answer.

        Raises:
            PromptError: If one of the prompt's own functions has the same name.
        """
        answers = hosted.answering((*tools, *self.may_host), self.offers, has_approver=has_approver)
        if not answers:
            return self
        return self.marked(by_name={**self.by_name, **answers}, in_order=frozenset(answers))

    def marked(self, **derived: Any) -> Prompt[Out]:
        """Return a copy with different values for derived fields such as ``source``.

        `extend` would derive all of them again.
        """
        copied = object.__new__(type(self))
        vars(copied).update(vars(self), **derived)
        return copied

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template needs."""
        return variables(self.template)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change with the prompt's text, functions or output.  Code is identified only by name."""
        data = [
            self.path,
            self.template,
            self.mode == "two_stage",
            self.expected.schema,
            self.parser.label if isinstance(self.parser, Parser) else _name_of(self.parser),
            [_handler_source(getattr(self, f"on_{kind}")) for kind in HANDLERS],
            [_described(function) for function in self.offers],
        ]
        if self.mode not in (None, "two_stage"):
            data.append(self.mode)
        if not self.is_fixed:
            data.append([_source(item) for item in self.functions])
        if self.hosted_tools or self.settings:
            data.append([[_hosted(tool) for tool in self.hosted_tools], dict(self.settings)])
        if self.finalizer is not None:
            data.append(_handler_source(self.finalizer))
        if parts := getattr(self.template, "parts", None):
            data.append(parts)
        return _digest(to_json(data, fallback=_name_of, serialize_unknown=True))

    @cached_property
    def needs_deps(self) -> Function | None:
        """The first function that needs a call's ``deps``, or None."""
        return next((function for function in self.offers if function.deps_type), None)

    @cached_property
    def expected(self) -> Output:
        """The output's schema and parser."""
        return Output(self.output, self.max_length)

    def read(self, source: ParserInput) -> Parsed[Out]:
        """Return the output in a reply, with the repairs that were needed to read it.

        Raises:
            Exception: If the answer is invalid or the parser failed.  The model is told why, and tries again.
        """
        if self.parser is None:
            return self.expected.read(source)
        if isinstance(self.parser, Parser):
            return checked(self.parser.read(source))
        function: Callable[..., Any] = self.parser
        return checked(function(source.text, **source.parser_args))

    def arriving(self, parser_args: Mapping[str, Any]) -> Arriving | None:
        """Return a reader for a reply that is still arriving, or None if only a complete reply can be read."""
        if self.parser is not None:
            return self.parser.arriving(parser_args) if isinstance(self.parser, Parser) else None
        return None if self.output is str else PartialReader(self.expected, "", parser_args)

    def parse(self, text: str, *, is_cut: bool = False) -> Out:
        """Return the output in ``text``; see `read`."""
        return self.read(ParserInput(text=text, is_cut=is_cut)).value

    def prompt_for_request(self, *, is_final: bool, in_branch: bool) -> Prompt:
        """Return the prompt that governs a request and parses its answer: this prompt or a handler.

        If the final answer is refused, the model is asked for the final handler's output again, unless the exception
        handler has its own output or parser.
        """
        if in_branch:
            handler = self.exception_handler
            if not is_final or handler.output is not self.output or handler.parser is not self.parser:
                return handler
        return self.final_handler if is_final else self

    @cached_property
    def finalizing(self) -> Prompt:
        """The prompt that governs the second request for a final answer; see ``finalizer``."""
        finalizer = self.finalizer
        assert finalizer is not None
        path = f"__{self.path}_finalizer"
        without: Any = {"functions": (), "hosted_tools": (), "finalizer": None}
        if isinstance(finalizer, str):
            return self.extend(template=finalizer, path=path, **without)
        is_typed = finalizer.output is not str or finalizer.parser is not None
        output, parser = (finalizer.output, finalizer.parser) if is_typed else (self.output, self.parser)
        settings = {**self.settings, **finalizer.settings}
        changes: Any = {"output": output, "parser": parser, "settings": settings, "mode": finalizer.mode or self.mode}
        return finalizer.extend(path=finalizer.path or path, **changes, **without)

    def finalizer_text(self, answer: str) -> str:
        """Return the text that asks the model for its final answer."""
        finalizer = self.finalizer
        template = finalizer.template if isinstance(finalizer, Prompt) else finalizer or ""
        return render(template, {"answer": answer} if "answer" in variables(template) else {})

    @cached_property
    def exception_handler(self) -> Prompt:
        """The prompt that governs the exception branch."""
        return self._handler("exception")

    @cached_property
    def interrupt_handler(self) -> Prompt:
        """The prompt whose text wraps function results."""
        return self._handler("interrupt")

    @cached_property
    def final_handler(self) -> Prompt:
        """The prompt that governs the last request, which has no functions."""
        return self._handler("final")

    def _handler(self, kind: Literal["exception", "interrupt", "final"]) -> Prompt:
        handler: Handler = getattr(self, f"on_{kind}")
        path = f"__{self.path}_{kind}_handler"
        if isinstance(handler, Prompt):
            is_typed = handler.output is not str
            output = handler.output if is_typed else self.output
            parser = handler.parser if is_typed else handler.parser or self.parser
            mode, settings = handler.mode or self.mode, {**self.settings, **handler.settings}
            options = {"output": output, "parser": parser, "mode": mode, "settings": settings}
            derived = handler.extend(path=handler.path or path, **options)
        else:
            derived = self.extend(template=handler if isinstance(handler, str) else "", path=path)
        if kind == "final":
            derived = derived.extend(functions=(), hosted_tools=())
        vars(derived).update(exception_handler=derived, interrupt_handler=derived, final_handler=derived)
        if derived.output is self.output and derived.max_length == self.max_length:
            vars(derived)["expected"] = self.expected
        return derived

    def handler_text(self, kind: _Kind, /, **values: Any) -> str:
        """Return the handler's text for the model.

        Raises:
            PromptError: If the handler is a function that returned something other than a string.
        """
        handler: Handler = getattr(self, f"on_{kind}")
        if handler == INTERRUPT:  # by far the most frequent
            return str(values["call_results"])
        if isinstance(handler, str | Prompt):
            return render(handler.template if isinstance(handler, Prompt) else handler, values)
        write: Any = handler  # a path was read when the prompt was made
        text: Any = write(**values)
        what = f"the return value of on_{kind} of prompt {self.path!r}"
        require(what, text, isinstance(text, str), "a string", PromptError)
        return text  # type: ignore[no-any-return]


def _check_handler_function(handler: Callable[..., Any], names: Sequence[str], what: str) -> None:
    try:
        inspect.signature(handler).bind(**dict.fromkeys(names))
    except TypeError as error:  # checked now, since it runs only after a paid request
        right = f"{', '.join(names)} by name" if names else "nothing"
        raise PromptError(f"{what}: expected a function that takes {right}: {error}") from None
    except ValueError:  # a C function without a signature
        return


Handler: TypeAlias = str | Path | Prompt | Callable[..., str]


@dataclass(frozen=True)  # with slots, Task[int](…) is a TypeError
class Task(Generic[Out]):
    """A prompt with values for its variables.  Calling a prompt returns a task.

    A task can be used wherever a prompt can: in ``agent.call(order(letter="…"))``, in
    ``dialog.put(order(letter="…"))``, as an item for ``agent.map``, and as the task in a flow's state.

    Args:
        prompt: The prompt that governs the call.
        values: The values, by variable name.

    Examples:
        >>> task = Prompt("Hello, {{ name }}.")(name="Ada")
        >>> task.values["name"]
        'Ada'
        >>> Agent(Script("Hi.")).call(task).output
        'Hi.'
    """

    prompt: Prompt[Out]
    values: Mapping[str, Any]

    def render(self) -> Message:
        """Return the user message for the task.

        Raises:
            PromptError: If a variable has no value.
        """
        return self.prompt.render(**self.values)


def task_message(text: str, *parts: Part) -> Message:
    """Return a user message with this content, which must not be empty."""
    require("the task", text, bool(parts or text.strip()), "text that asks for something")
    return Message.of("user", text, *parts)


class MissingPrompt:
    """A stand-in for the prompt of a call that was pickled without its prompt.

    Args:
        path: The prompt's path.
        problem: Why the prompt is missing.
    """

    delegates: frozenset[str] = frozenset()
    handoffs: frozenset[str] = frozenset()
    may_host: tuple[HostedTool, ...] = ()
    fingerprint = ""  # unknown

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for methods
            raise AttributeError(name)
        raise UsageError(
            f"the agent call came from another process without its prompt {self.path!r} ({self.problem});"
            " call agent.restore(snapshot(call)) for one that can continue"
        )


_DECIDING = ("needs_approval", "repeatable", "version", "max_calls", "max_failures", "depends_on", "once")


class PromptChange(Value, frozen=True):
    """A change in a prompt's fingerprint."""

    path: str
    before: str  # the fingerprint
    after: str

    def __str__(self) -> str:
        return f"the prompt {self.path!r} has changed since: its fingerprint was {self.before} and is now {self.after}"


def change_of(prompt: Prompt[Any], before: str) -> PromptChange | None:
    """Return how the prompt has changed since it had this fingerprint.

    Return None if the prompt has not changed, or if either fingerprint is unknown.
    """
    after = prompt.fingerprint
    return None if before in ("", after) or not after else PromptChange(prompt.path, before, after)


def by_path(prompts: Iterable[Prompt[Any]]) -> dict[str, Prompt[Any]]:
    """Return the prompts that are passed as ``prompts``, by their paths."""
    kept = [*prompts] if isinstance(prompts, Iterable) else [None]
    require("prompts", prompts, all(isinstance(prompt, Prompt) for prompt in kept), "a list of prompts")
    return {prompt.path: prompt for prompt in kept}


def fingerprint_under(prompt: Prompt[Any], system: Any) -> str:
    """Return one fingerprint for a prompt and its agent's system prompt."""
    if system == "":
        return prompt.fingerprint
    shown = system if isinstance(system, str) else getattr(system, "fingerprint", None) or _name_of(system)
    return _digest(to_json([prompt.fingerprint, shown]))


def _digest(data: bytes) -> str:
    from hashlib import blake2b

    return blake2b(data, digest_size=8).hexdigest()


def _handler_source(handler: Any) -> Any:
    if isinstance(handler, str):
        parts = getattr(handler, "parts", None)  # of a file that includes others
        return [handler, parts] if parts else handler
    return getattr(handler, "fingerprint", None) or _name_of(handler)


def _described(function: Function) -> list[Any]:
    policy = [value if not callable(value := getattr(function, name)) else _name_of(value) for name in _DECIDING]
    inner = [] if function.delegate is None else [function.delegate.fingerprint]
    return [function.name, function.description, function.parameters, *policy, *inner]


def _source(item: Any) -> Any:
    return None if isinstance(item, Function) else [_name_of(item), getattr(item, "name", "")]


def _hosted(tool: HostedTool) -> list[str]:
    """Return the data that identifies a tool, without its secrets, which may be rotated at any time."""
    if not isinstance(tool, HostedMCP):
        return [repr(tool)]
    address = shown_url(tool.url)
    for token in path_tokens(tool.url):
        address = address.replace(token, "")
    return [repr(tool), address]


def _name_of(code: Any) -> str | None:
    return None if code is None else getattr(code, "__qualname__", type(code).__qualname__)
