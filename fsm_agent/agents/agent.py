"""The `Agent` class: everything that an agent's calls have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any, overload

from typing_extensions import TypeForm, Unpack

from fsm_agent._internal.scope import Closing
from fsm_agent._internal.structs import New, fields_alone
from fsm_agent.agents.classification import (
    BINARY_QUESTION,
    QUESTION,
    Calibration,
    Classification,
    ClassificationRequest,
    ClassifyOptions,
    Label,
    OnMissing,
    What,
    aperform,
    perform,
    question_about,
)
from fsm_agent.agents.conversation import Conversation
from fsm_agent.agents.handoffs import AgentDelegate, check_agents, check_policy, check_prices_inside, path_from
from fsm_agent.agents.hooks import check_hooks
from fsm_agent.agents.nested_calls import inner_call
from fsm_agent.agents.options import (
    TASK,
    UNNAMED,
    AgentChanges,
    CallOptions,
    Deps,
    Out,
    RestoreOptions,
    check_agent,
    check_known,
    check_prices,
    plan_of_model,
)
from fsm_agent.agents.stored_runs import (
    attach_journal,
    check_drivable,
    decides_per_call,
    definition_of,
    opening_of,
    warned_of_change,
    with_model,
)
from fsm_agent.agents.system_prompt import NO_ARGS, SystemPrompt, check_system, check_system_needs
from fsm_agent.agents.task_messages import PromptResolver, check_needs, check_parser_args, needs_of, resolve_task
from fsm_agent.agents.verbs import CallVerbs
from fsm_agent.call.call import AgentCall
from fsm_agent.call.header import seed_of
from fsm_agent.call.journal import Header
from fsm_agent.call.limits import Limits
from fsm_agent.call.prices import Prices
from fsm_agent.call.record import CallRecord
from fsm_agent.call.snapshots import OnChange, asked_in, restore
from fsm_agent.call.stop_conditions import StopWhen
from fsm_agent.context.fitting import ContextOption, ContextPlan, View, keeping
from fsm_agent.context.passes import AnyPass, passes_of
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import KnownArguments
from fsm_agent.functions.context import LATER, Context, GivenDeps, Made, accepts_context, check_deps, deps_for, is_maker
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy
from fsm_agent.functions.toolset import NO_FUNCTIONS, Functions, functions_of, sources
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Approve, Check, Client, Environment
from fsm_agent.runtime.result_pipeline import ResultPipeline
from fsm_agent.runtime.run_function import InnerCalls, current_depth
from fsm_agent.store.claiming import Claimed, ProcessFactory
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store
from fsm_agent.validation import plain_json


@dataclass(frozen=True, eq=False, repr=False)
class Agent(KnownArguments, CallVerbs[Deps, Out], Closing):
    """A model with a system prompt, functions, an output type, and limits.

    Type checkers see an ``Agent[Deps, Out]``, where ``Deps`` is the type of the ``deps`` passed to its calls and
    ``Out`` is the type of its answers.  A plain ``Agent(…)`` accepts any functions and deps, and answers with text.
    With ``output=Person``, it is an ``Agent[Any, Person]``.  ``Agent[Shop, str](…)`` accepts only functions and
    approvers that take ``Context[Shop]``.

    ``call``, ``acall``, ``stream`` and ``astream`` run the same machine with different drivers.  An agent keeps no
    state between calls, so many threads and tasks can use it at once.  ``call("…", after=result)`` continues a dialog,
    and `conversation` keeps one in the store.  Agents are immutable: ``agent.changed(model=Script(…))`` returns a
    variant, for example for a test, and ``call("…", model="provider:model")`` uses another model for one call.

    Args:
        model: ``"provider:model"``, or a client.
        system: The system prompt for every call: text, a `Prompt` or a function.  A `Prompt` takes its variables from
            the call's ``system_args``.  A function takes the call's ``deps`` or no argument, and returns text.  It is
            called when a run begins, as soon as its ``deps`` are known.
        functions: The functions that the model may call: `Function`s, plain callables, toolsets and MCP servers.
            Toolsets and servers list their functions at the start of each call.
        output: The type of the answer; see `Prompt`.
        finalizer: Text or a `Prompt` that asks for the final wording, such as
            ``"Explain it to a child: {{ answer }}"``.  After the model has answered in text, the finalizer is sent in
            one more request, without functions, and the reply becomes the answer.  A `Prompt` may have its own output
            type.
        prompt: The prompt for tasks that are plain text, with the variable ``{{ task }}``.
        name: The agent's name in traces and snapshots.  An agent with a ``store`` needs a name so that its runs can be
            found.
        limits: The limits for each call.
        settings: Settings for the model, such as the temperature.
        stop_when: A condition that ends a call early, after a reply; see `fsm_agent.call.stop_conditions`.
        check: A function, plain or ``async``, that checks each answer before it becomes the output.  It takes the
            parsed output and, optionally, the call's `Context`.  It returns the output, changed or not, or raises
            `Retry`, in which case the model sees the message and tries again, within ``limits.parse_retries``.  Any
            other exception makes the call fail.  The check runs once per answer, even if the call is resumed.  It does
            not apply to the results of ``stop_when`` and ``classify``, nor to the answers from an agent that takes over
            the dialog.  A call that has a check can be restored and resumed only with a check.
        approve: A function that decides whether each function call is allowed, before any function in the round runs.
            It is not called for functions with ``needs_approval=False``.  It takes the function call and, optionally,
            its `Context`.  It returns True, False, ``Approved()``, ``Denied(reason)`` or ``Modified(arguments_json)``,
            or None to suspend the agent call.  Without an approver, only functions that require approval suspend the
            agent call.
        context: How a long dialog is shortened in requests.  The dialog itself stays complete.  Give a list of passes
            for every request (``[shorten(4_000), keep_last(8)]``), a `Budget` for requests that are too long, or both,
            with the budget last; see `fsm_agent.context`.  The default is ``Budget()`` if the model's context window is
            known.  ``[]`` sends the whole dialog.
        keep: Passes that choose what the next turn of a conversation or a call with ``after=result`` inherits, such as
            ``[summarize(keep=12)]``.  The result's own dialog stays complete.
        results: How function results are changed before the model sees them.
        prices: The prices of the model's tokens: a `Price`, or a mapping from model names to prices, with ``"*"`` for
            all other models.  With prices, ``result.usage`` includes the cost.  By default, prices are looked up with
            the extra ``prices``, but only if `Limits.cost_usd` is set.
        hooks: Objects with methods that receive the events; see `fsm_agent.agents.hooks`.
        store: Where calls are saved as runs, step by step: the path to a SQLite file, a `Store`, or `Runs` with
            options.  Another process can continue a saved run; see `runs`.
        environment: Options for the `Environment`, such as ``clock``, ``backoff``, ``threads`` or ``new_id``.

    Examples:
        >>> agent = Agent(Script("Paris."), system="You know capitals.")
        >>> agent.call("What is the capital of France?").output
        'Paris.'
        >>> Agent(Script('{"x": 3}'), output=dict[str, int]).call("Three, please.").output
        {'x': 3}
    """

    model: str | Client
    _: KW_ONLY
    system: str | Prompt | Callable[[Deps], str] | Callable[[], str] = ""
    functions: Functions[Deps] = NO_FUNCTIONS
    output: TypeForm[Out] = str  # type: ignore[assignment]  # what Out is by default
    finalizer: str | Prompt | None = field(default=None, repr=False)
    prompt: Prompt = field(default=TASK, repr=False)
    name: str = UNNAMED
    limits: Limits = Limits()
    settings: Settings = Settings()
    stop_when: StopWhen | None = field(default=None, repr=False)
    check: Check[Out, Deps] | None = field(default=None, repr=False)
    approve: Approve[Deps] | None = field(default=None, repr=False)
    context: ContextOption = field(default=None, repr=False)
    keep: AnyPass | Sequence[AnyPass] = field(default=(), repr=False)
    results: ResultPipeline | None = None
    prices: Prices | None = field(default=None, repr=False)
    hooks: Sequence[Any] = field(default=(), repr=False)
    store: Runs | Store | str | PathLike[str] | None = field(default=None, repr=False)
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)

    __getstate__ = fields_alone

    def __post_init__(self) -> None:
        check_agent(self)
        listed = sources(self.functions)
        is_fixed = not any(hasattr(type(item), "functions") for item in listed)
        functions = functions_of(listed) if is_fixed else listed
        own: Any = self.prompt.source or self.prompt
        output = self.output if own.output is str and own.parser is None else own.output
        added: dict[str, Any] = {} if own.functions else {"functions": functions if is_fixed else ()}
        if own.finalizer is None and self.finalizer is not None:
            added["finalizer"] = self.finalizer
        prompt = own.extend(path=own.path or self.name, output=output, **added).marked(source=own)
        for name, value in {"functions": functions, "prompt": prompt, "output": output}.items():
            object.__setattr__(self, name, value)
        _ = self._plan, self._keep  # refuses a wrong context
        check_system(self.system)
        check_hooks(self.hooks)
        if prompt.delegates:
            check_agents(self, prompt, is_late=False)
        if self.approve is not None:
            accepts_context(self.approve, "approve")
        if self.check is not None:
            accepts_context(self.check, "check", "output")
        if self.prices is not None or self.limits.cost_usd is not None:
            check_prices(self)

    def __repr__(self) -> str:
        """Return the fields that were set, with callables and fields that may hold keys shown as ``…``."""
        model = self.model if isinstance(self.model, str) else self.model.name
        functions = ", ".join([getattr(item, "name", "") or type(item).__qualname__ for item in self.functions])
        plain = ("output", "limits", "settings")
        changes = [f"{name}={getattr(self, name)!r}" for name in plain if getattr(self, name) != _DEFAULTS[name]]
        others = ("stop_when", "check", "approve", "context", "keep", "results", "hooks", "store")
        has = [f"{name}=…" for name in others if getattr(self, name) not in (None, ())]
        said = ", ".join([repr(model), f"name={self.name!r}", f"functions=[{functions}]", *changes, *has])
        return f"{type(self).__name__}({said})"

    @overload
    def changed(self, *, output: TypeForm[New], **options: Unpack[AgentChanges[Deps]]) -> Agent[Deps, New]: ...
    @overload
    def changed(self, **options: Unpack[AgentChanges[Deps]]) -> Agent[Deps, Out]: ...
    def changed(self, **options: Any) -> Agent[Deps, Any]:
        """Return a copy of this agent with some options changed, such as ``model``, ``functions`` or ``limits``.

        Both agents share the objects that were passed to this one, such as a client, a store or hooks.  Objects that an
        agent makes from a name, such as the client for ``"provider:model"`` or the connection to ``"runs.db"``, are not
        shared; each agent closes its own.  A variant with the same name and store can continue the agent's runs and
        conversations.

        Raises:
            TypeError: If an option is unknown.
            UsageError: If a value is wrong.
        """
        return type(self)(**{**{name: getattr(self, name) for name in ARGUMENTS}, **options})

    @cached_property
    def client(self) -> Client:
        """The client that sends requests.  For a model name, the client is created on first use."""
        return self._client_of(self.model)

    @cached_property
    def _classifier(self) -> Agent[Deps, str]:
        """The agent that classifies for this one, without functions or checks."""
        without = {"functions": (), "output": str, "stop_when": None, "check": None, "finalizer": None}
        without |= {"approve": None, "results": None}
        fields_of = {name: getattr(self, name) for name in ARGUMENTS}
        made = Agent[Deps, str](**{**fields_of, "model": self.client, **without})
        vars(made)["_clients"] = self._clients  # which this agent closes
        return made

    def _client_of(self, model: str | Client | None) -> Client:
        if model is None:
            return self.client
        if not isinstance(model, str):
            return model
        from fsm_agent.clients.named_clients import named_client

        return self._clients.get(model) or self._clients.setdefault(model, named_client(model))

    @cached_property
    def _keep(self) -> tuple[AnyPass, ...]:
        return passes_of(self.keep, "keep")

    @cached_property
    def _plan(self) -> ContextPlan:
        """The context plan for requests, given the model's context window."""
        return plan_of_model(ContextPlan.of(self.context), self.model, self.name)

    @cached_property
    def _resolver(self) -> PromptResolver:
        return PromptResolver(self.functions, self.prompt, self.output, self.finalizer)

    @cached_property
    def _own_environment(self) -> Environment:
        return self._environment_with(self.client)

    def _environment_with(self, client: Client) -> Environment:
        """Return the environment in which requests go to this client."""
        own: Any = {"approve": self.approve, "results": self.results, "prices": self.prices, "name": self.name}
        return Environment.of(client, **own, **self.environment)

    def _environment_of(self, process: AgentCall[Any]) -> Environment:
        r = process.record
        if not r.model or r.ending is not None:
            return self._own_environment
        return self._environment_with_model(process.client or r.model)

    def _environment_with_model(self, model: str | Client | None) -> Environment:
        """Return the environment for a model, or the agent's own environment if ``model`` is None."""
        return self._own_environment if model is None else self._environment_with(self._client_of(model))

    @cached_property
    def _clients(self) -> dict[str, Client]:
        return {}

    def init_dialog(self, **values: Any) -> Dialog:
        """Return a new dialog.  It begins with the rendered system prompt if the agent has one.

        Raises:
            PromptError: If a variable is missing or not used.
            UsageError: If values are given but the system prompt is not a `Prompt`.
        """
        if not isinstance(self.system, Prompt):
            if values:
                raise UsageError(
                    f"system: expected a Prompt with the variables {', '.join(sorted(values))}, got {self.system!r:.60}"
                )
            return Dialog(self._system_messages, system_args=NO_ARGS)
        dialog = SystemPrompt(self.system, self.name, values).before(Dialog())
        return Dialog(
            dialog.messages,
            top_prompt=self._resolver.resolve(self.system, self.prompt.offers),
            system_args=values,
        )

    def _prepare(self, task: Any, options: Mapping[str, Any]) -> AgentCall[Any]:
        return self._kept_in_store(self._build_call(task, options), options)

    def _kept_in_store(self, call: AgentCall[Any], options: Mapping[str, Any]) -> AgentCall[Any]:
        if self.store is not None:
            attach_journal(self, call, options)
        elif options.get("run_id") is not None:
            raise UsageError(
                f"run_id={options['run_id']!r}: expected an agent with a store, got one without; pass store='runs.db'"
            )
        return call

    def _prepare_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> AgentCall[Any]:
        check_known(options, task)
        call = inner_call(self._build_call(task, options), around)
        if around.recorder is None:
            return self._kept_in_store(call, options)
        attach_journal(self, call, {**options, "run_id": options.get("run_id") or around.next_name()})
        return call

    def _build_call(
        self, task: Any, options: Mapping[str, Any], keep: Sequence[AnyPass] | None = None
    ) -> AgentCall[Any]:
        """Return a call that is not in a store.

        A conversation's passes have already been applied to ``after``.  If ``keep`` is None, the agent's passes apply.
        """
        extra, by, parser_args = options.get("extra"), options.get("by"), options.get("parser_args")
        by = "" if by is None else by
        deps = deps_for(options.get("deps"), self.name, extra or {}, by)
        if callable(self.system):
            check_needs(deps, self.prompt.offers)  # before the system prompt is made from them
        resolved = resolve_task(self, task, deps, options)
        prompt = self._resolver.for_call(resolved.prompt, deps)
        if parser_args:
            check_parser_args(prompt, parser_args)
        if self.limits.cost_usd is not None:
            check_prices_inside(prompt)
        record = CallRecord.of(
            resolved.messages,
            limits=self.limits,
            depth=current_depth(),
            extra=extra,
            by=by,
            parser_args=parser_args,
            governed_by=resolved.governed_by and path_from(self, prompt, resolved.governed_by),
            summary=resolved.summary,
        )
        if prompt.delegates:
            check_agents(self, prompt)
        call = AgentCall(record, prompt, **self._call_parts(prompt, options.get("args"), deps, keep))
        call.system_args = resolved.system_args
        if resolved.is_system_late:
            call.opening = opening_of(self, deps)
        model = options.get("model")
        return call if model is None else with_model(self, call, model)

    @cached_property
    def _blind(self) -> set[str]:
        return set()

    def _resolve_prompt(self, prompt: Prompt | None, deps: Any) -> Prompt:
        """Return an earlier call's prompt in its current form, or the agent's own prompt if ``prompt`` is None."""
        return self._resolver.for_call(prompt or self.prompt, deps)

    def conversation(self, name: str, *, keep: AnyPass | Sequence[AnyPass] | None = None) -> Conversation[Deps, Out]:
        """Return the conversation with this name in the agent's store.  The first turn creates it.

        ``agent.conversation("customer-17").call("…")`` continues it, from any process.

        Args:
            name: The conversation's name in the store.
            keep: Passes that choose what each turn inherits from earlier turns, such as ``keep_last(20)`` or
                ``[shorten(1_000), summarize(keep=12)]``.  None uses the agent's passes.

        Raises:
            UsageError: If the agent has no store, or the name is not a string.
        """
        return Conversation(self, name, keep)

    def _definition(self, options: Mapping[str, Any]) -> ProcessFactory:
        return definition_of(self, options)

    def _definition_of(self, process: AgentCall[Any]) -> ProcessFactory:
        return definition_of(self, {"prompt": process.prompt, "deps": Made(process.deps), "model": process.client})

    def _definition_of_run(self, header: Header, deps: Any, prompts: Mapping[str, Any]) -> ProcessFactory:
        path = seed_of(header).prompt
        return definition_of(self, {"deps": deps, "prompt": None if path == self.prompt.path else prompts.get(path)})

    def _fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        known = {self._resolve_prompt(prompt, LATER).fingerprint for prompt in (None, *prompts)}
        return known | {""} if decides_per_call(self) else known  # for runs that were submitted without deps

    def _check_deps(self, deps: Any) -> None:
        check_deps(deps)
        if not is_maker(deps):
            value = deps.value if isinstance(deps, Made) else deps
            check_needs(value, self.prompt.offers)
            check_system_needs(self.system, self.name, value)

    def _check_resumed(self, claimed: Claimed) -> Claimed:
        return check_drivable(self, claimed)

    def _call_parts(
        self, prompt: Prompt, args: Mapping[str, Any] | None, deps: Any, keep: Sequence[AnyPass] | None = None
    ) -> dict[str, Any]:
        """Return the call arguments that come from the agent and are not saved in records."""
        check_needs(deps, prompt.offers)
        keep = self._keep if keep is None else keep
        plan = keeping(self._plan, keep) if keep else self._plan
        view = None if plan.is_off else View(plan)
        settings = self.settings.override(args) if args else self.settings
        asks = {"stop_when": self.stop_when, "check": self.check, "has_approver": self.approve is not None}
        return {"settings": settings, "args": args or {}, "view": view, "deps": deps, **asks}

    @overload
    def restore(
        self, document: str | bytes, prompt: Prompt[str] | None = ..., **options: Unpack[RestoreOptions[Deps]]
    ) -> AgentCall[Out]: ...
    @overload
    def restore(
        self, document: str | bytes, prompt: Prompt[New], **options: Unpack[RestoreOptions[Deps]]
    ) -> AgentCall[New]: ...
    def restore(
        self,
        document: str | bytes,
        prompt: Prompt | None = None,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        deps: GivenDeps[Any] = None,
        model: str | Client | None = None,
        signing_key: str | bytes | None = None,
        on_change: OnChange = "report",
    ) -> AgentCall[Any]:
        """Return one of this agent's calls from its `snapshot`.

        Pass the original prompt, ``args`` and key.  The snapshot contains ``parser_args`` and the model name; values
        that you pass replace them.

        If the prompt has changed, the call's ``prompt_change`` says so, and a warning is logged.  With
        ``on_change="error"``, an error is raised instead.  Treat an unsigned document as code, and restore it only if
        you trust its source; see `fsm_agent.call.restore`.

        Raises:
            SnapshotError: If the document is damaged, changed or inconsistent, or belongs to another prompt.
            PromptChanged: If the prompt has changed and ``on_change`` is ``"error"``.
        """
        extra, by = ({}, "") if not is_maker(deps) else asked_in(document, signing_key)
        deps = deps_for(deps, self.name, extra, by)
        resolved = self._resolve_prompt(prompt, deps)
        if parser_args:
            check_parser_args(resolved, parser_args)
        keys: Any = {"signing_key": signing_key, "on_change": on_change}
        call = warned_of_change(restore(document, resolved, **keys, **self._call_parts(resolved, args, deps)))
        if parser_args:
            call.record = call.record.changed(parser_args=plain_json("parser_args", parser_args))
        return call if model is None else with_model(self, call, model)

    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[[Context[Deps], str], Out, Deps]:
        """Return this agent as a function for another agent.

        The function takes a task and returns this agent's output.

        The inner call is part of the outer call, and shares its token budget and deps.  The outer call waits for
        whatever the inner call waits for, under keys such as ``run:2.0/ask:2.0``.  The inner call's events are reported
        as `Inside`, and both agents' hooks receive them.  If the inner call fails, or agents are nested deeper than
        `Limits.depth`, the model sees an error.

        Args:
            name: The function's name for the model; by default, the agent's name.
            description: The function's description for the model.
            policy: The options of `Function.of` that apply to an agent.  ``timeout_s`` limits each call.

        Raises:
            UsageError: If an option does not apply to an agent.
        """
        name = name or self.name
        check_policy("agent", name, policy)
        made = Function.of(self._ask, name=name, description=description or "", acall=self._aask, **policy)
        delegate = AgentDelegate(self, policy.get("timeout_s"))
        return replace(made, delegate=delegate, **needs_of(self.prompt.needs_deps))

    def _ask(self, context: Context[Any], task: str) -> Out:
        made: Any = Made(context.deps)
        return self.call(task, deps=made).output

    async def _aask(self, context: Context[Any], task: str) -> Out:
        made: Any = Made(context.deps)
        return (await self.acall(task, deps=made)).output

    def classify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        prompt: str | Prompt[Any] | None = None,
        calibration: Calibration | None = None,
        on_missing: OnMissing = "zero",
        **options: Unpack[CallOptions[Deps]],
    ) -> Classification[Label]:
        """Classify text or a dialog, and return the probability of each class.

        Args:
            what: Text, a `Payload`, or a dialog to which the question is added.
            classes: Strings, members of an `Enum`, or an `Enum` class.
            prompt: The question, with the optional variables ``{{ text }}`` and ``{{ classes }}``.
            calibration: A correction to the probabilities; see `Calibration.of_prior`.
            on_missing: What to do about a class that the model did not report: ``"error"`` asks the model again, and
                ``"zero"`` gives the class a probability of 0.
            options: The options of `call`.

        Raises:
            CallFailed: If the model named none of the classes or the request failed.
            UsageError: If an argument is wrong.
        """
        asked = question_about(what, prompt, QUESTION)
        return perform(ClassificationRequest(self._classifier, what, classes, asked, calibration, on_missing, options))

    async def aclassify(
        self,
        what: What,
        classes: Iterable[Label],
        *,
        prompt: str | Prompt[Any] | None = None,
        calibration: Calibration | None = None,
        on_missing: OnMissing = "zero",
        **options: Unpack[CallOptions[Deps]],
    ) -> Classification[Label]:
        """The async version of `classify`."""
        asked = question_about(what, prompt, QUESTION)
        return await aperform(
            ClassificationRequest(self._classifier, what, classes, asked, calibration, on_missing, options)
        )

    def binary_classify(
        self, what: What, *, prompt: str | Prompt[Any] | None = None, **options: Unpack[ClassifyOptions[Deps]]
    ) -> float:
        """Return the probability that the answer to a yes-or-no question is True; see `classify`."""
        asked = question_about(what, prompt, BINARY_QUESTION)
        return self.classify(what, (True, False), prompt=asked, **options).probabilities[True]

    async def abinary_classify(
        self, what: What, *, prompt: str | Prompt[Any] | None = None, **options: Unpack[ClassifyOptions[Deps]]
    ) -> float:
        """The async version of `binary_classify`."""
        asked = question_about(what, prompt, BINARY_QUESTION)
        return (await self.aclassify(what, (True, False), prompt=asked, **options)).probabilities[True]

    @cached_property
    def _system_messages(self) -> tuple[Message, ...]:
        return (Message.of("system", self.system),) if self.system and isinstance(self.system, str) else ()

    def close(self) -> None:
        """Close the connections that the agent created.  A client that was passed to the agent stays open."""
        for client in self._clients.values():
            client.close()

    async def aclose(self) -> None:
        """The async version of `close`."""
        for client in self._clients.values():
            await client.aclose()


ARGUMENTS = tuple([item.name for item in fields(Agent) if item.init])
_DEFAULTS = {item.name: item.default for item in fields(Agent)}
