"""The agent: everything that its calls have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, overload

from fsm_agent._internal.generics import New
from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.spelled_out import spelled_out
from fsm_agent._internal.values import fields_alone
from fsm_agent._internal.vector import Vector
from fsm_agent.agents.arguments import TASK, UNNAMED, check_agent, check_deps, check_prices, check_values
from fsm_agent.agents.classification.classifying import Classifying
from fsm_agent.agents.driving import After, Asked, Deps, Driving, Messages, OptionalMapping, Out, Task
from fsm_agent.agents.governing import Governance, check_parser_args
from fsm_agent.agents.hooks import check_hooks
from fsm_agent.agents.keeping import Options, definition_of, keep, runs_of, warned_of_change, with_model, with_options
from fsm_agent.agents.opening import NO_ARGS, Opening, check_system, dialog_before
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import hinting
from fsm_agent.functions.context import Context, accepts_context
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import PYTHONS_OWN, Policy
from fsm_agent.functions.toolset import NO_FUNCTIONS, Functions, functions_of, sources
from fsm_agent.lifecycle.call import AgentCall, call_class
from fsm_agent.lifecycle.context.masking import Masking
from fsm_agent.lifecycle.context.window import Processor
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.interpret import StopWhen
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.prices import Prices
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.lifecycle.snapshot import restore
from fsm_agent.messages.message import Message, Text
from fsm_agent.mistakes import check
from fsm_agent.prompts.dialog import Dialog, task_message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.logs.log import LOG
from fsm_agent.runtime.results.pipeline import ResultPipeline
from fsm_agent.runtime.run_function import current_depth
from fsm_agent.runtime.world import Approve, World

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import TypeForm

    from fsm_agent.agents import conversation as conversations
    from fsm_agent.agents.conversation import Conversation
    from fsm_agent.agents.delegation import delegate as delegates
    from fsm_agent.agents.delegation import handoffs
    from fsm_agent.agents.options import AgentChanges, CallOptions, RestoreOptions
    from fsm_agent.clients.client import Client
    from fsm_agent.functions.options import AgentPolicy
    from fsm_agent.lifecycle.context import view as views
    from fsm_agent.lifecycle.snapshot import OnChange
    from fsm_agent.messages import payload as payloads
    from fsm_agent.messages.payload import Payload
    from fsm_agent.store.runs import Definition, Runs
    from fsm_agent.store.store import Store
else:
    conversations = deferred("fsm_agent.agents.conversation")
    delegates = deferred("fsm_agent.agents.delegation.delegate")
    handoffs = deferred("fsm_agent.agents.delegation.handoffs")
    payloads = deferred("fsm_agent.messages.payload")
    views = deferred("fsm_agent.lifecycle.context.view")


@hinting
@dataclass(frozen=True, eq=False, repr=False)
class Agent(Driving[Deps, Out], Classifying):
    """One identity: a model, a system prompt, functions, the type of its answers, and limits.

    For type checkers it is an ``Agent[Deps, Out]``: of the deps that its calls are given, and of its answers.  Plain
    ``Agent(…)`` needs no deps and answers with text, as ``Agent`` in an annotation does; ``output=Person`` is an
    ``Agent[object, Person]``; ``Agent[Shop, str](…)`` takes functions and approvers of ``Context[Shop]``.

    ``call``, ``acall``, ``stream`` and ``astream`` are one machine under different drivers.  An agent keeps nothing of
    a call: it may be used from many threads and tasks.  ``call("…", after=result)`` goes on with what was said, and
    `conversation` keeps it in the store.  An agent never changes: ``agent.changed(model=Script(…))`` makes a variant
    of it, for a test, say, and ``call("…", model="provider:model")`` asks another model once.

    Args:
        model: ``"provider:model"``, or a client.
        system: The system prompt of every call: text; a function of the call's ``deps`` that returns text; or a
            `Prompt` whose variables are given with the call, as ``system_args``.
        functions: What the model may ask for: `Function`s, plain callables, toolsets, MCP servers.  Toolsets and
            servers are asked anew for each call.
        output: The type of the answer; see `Prompt`.
        prompt: The prompt of tasks that are given in words, with ``{{ task }}`` in it; its other variables are given
            with the call.
        name: For traces and snapshots; an agent with a ``store`` needs one, by which its runs are found.
        limits: The budgets of each call.
        settings: How the model shall answer.
        stop_when: Ends a call at a reply; see `fsm_agent.lifecycle.stopping`.
        approve: Asked about every function call before any of its round is run, except for functions with
            ``needs_approval=False``: with the call, and with its `Context` if it takes one.  It returns True, False,
            ``Approved()``, ``Denied(reason)`` or ``Modified(arguments_json)``; None, if it cannot say, suspends the
            call.  Without one, only functions that require approval suspend it.
        masking: When old results are no longer shown to the model; None: never.
        processors: Choose what of the dialog is shown to the model; see `KeepLastN`, `TokenBudget`, `ByRecord`.
        results: What is done to the results of functions before the model is told.
        prices: What the model's tokens cost: a `Price`, or a mapping by the model's name, with ``"*"`` for every other.
            ``result.usage`` then has the cost.  None: the prices that are known (the extra ``prices``), as soon as
            `Limits.cost_usd` needs them.
        hooks: Objects that are told of events by name; see `fsm_agent.agents.hooks`.
        store: Where its calls are kept as runs, step by step: the path of a SQLite file, a `Store`, or `Runs` with
            options.  Another OS process goes on with what this one has begun; see `resume`.
        world: More of what performs effects: ``clock``, ``backoff``, ``threads``, ``new_id``; see `World`.
    """

    model: str | Client
    _: KW_ONLY
    system: str | Prompt | Callable[[Deps], str] = ""
    functions: Functions[Deps] = NO_FUNCTIONS
    output: TypeForm[Out] = str  # type: ignore[assignment]  # what Out is by default
    prompt: Prompt = field(default=TASK, repr=False)
    name: str = UNNAMED
    limits: Limits = Limits()
    settings: Settings = Settings()
    stop_when: StopWhen | None = field(default=None, repr=False)
    approve: Approve[Deps] | None = field(default=None, repr=False)
    masking: Masking | None = None
    processors: Sequence[Processor] = field(default=(), repr=False)
    results: ResultPipeline | None = None
    prices: Prices | None = field(default=None, repr=False)
    hooks: Sequence[Any] = field(default=(), repr=False)
    store: Runs | Store | str | PathLike[str] | None = field(default=None, repr=False)
    world: Mapping[str, Any] = field(default_factory=dict, repr=False)

    __getstate__ = fields_alone

    def __post_init__(self) -> None:
        check_agent(self)
        listed = sources(self.functions)
        is_fixed = not any(hasattr(type(item), "functions") for item in listed)
        functions = functions_of(listed) if is_fixed else listed
        own: Any = self.prompt.source or self.prompt
        output = self.output if own.output is str and own.parser is None else own.output
        lent = {} if own.functions else {"functions": functions if is_fixed else ()}
        prompt = own.extend(path=own.path or self.name, output=output, **lent)
        vars(prompt)["source"] = own
        for name, value in {"functions": functions, "prompt": prompt, "output": output}.items():
            object.__setattr__(self, name, value)
        check_system(self.system)
        check_hooks(self.hooks)
        if prompt.delegates:
            handoffs.check_agents(self, prompt, is_late=False)
        if self.approve is not None:
            accepts_context(self.approve, "approve")
        if self.prices is not None or self.limits.cost_usd is not None:
            check_prices(self)

    def __repr__(self) -> str:
        """Return the fields that were given; of those that are callable or hold keys, only that they are there."""
        model = self.model if isinstance(self.model, str) else self.model.name
        functions = ", ".join([getattr(item, "name", "") or type(item).__qualname__ for item in self.functions])
        plain = ("output", "limits", "settings", "masking")
        changes = [f"{name}={getattr(self, name)!r}" for name in plain if getattr(self, name) != _DEFAULTS[name]]
        others = ("stop_when", "approve", "processors", "results", "hooks", "store")
        has = [f"{name}=…" for name in others if getattr(self, name) not in (None, ())]
        return f"Agent({', '.join([repr(model), f'name={self.name!r}', f'functions=[{functions}]', *changes, *has])})"

    @overload
    def changed(self, *, output: TypeForm[New], **options: Unpack[AgentChanges[Deps]]) -> Agent[Deps, New]: ...
    @overload
    def changed(self, **options: Unpack[AgentChanges[Deps]]) -> Agent[Deps, Out]: ...
    def changed(self, **options: Any) -> Agent[Deps, Any]:
        """Return an agent that differs in these options, such as ``model``, ``functions`` or ``limits``.

        What the agent was given as an object, both have: a client, a store, hooks, a cache of results.  What an agent
        makes of a name, each makes for itself: the client of ``"provider:model"``, the connection to ``"runs.db"``.
        Each closes its own.  A variant with the same name and store goes on with the agent's runs and conversations.

        Raises:
            TypeError: There is no such option; the message has the one that was probably meant.
            UsageError: A value is not right.
        """
        return type(self)(**{**{name: getattr(self, name) for name in ARGUMENTS}, **options})

    @cached_property
    def client(self) -> Client:
        """The client that sends its requests; made on first use when ``model`` is a name."""
        return self._client_of(self.model)

    @cached_property
    def _classifier(self) -> Agent[Deps, str]:
        """The agent that classifies for this one: it only answers."""
        without: Any = {"stop_when": None, "approve": None, "results": None}
        made = self.changed(model=self.client, functions=(), output=str, **without)
        vars(made)["_clients"] = self._clients  # which this one closes
        return made

    def _client_of(self, model: str | Client) -> Client:
        """Return the agent's client of a model, which is made on first use; a client as it is."""
        if not isinstance(model, str):
            return model
        from fsm_agent.clients.registered import named_client

        return self._clients.get(model) or self._clients.setdefault(model, named_client(model))

    @cached_property
    def _governance(self) -> Governance:
        return Governance(self.functions, self.prompt, self.output)

    @cached_property
    def _world(self) -> World:
        return self._world_with(self.client)

    def _world_with(self, client: Client) -> World:
        return World.of(client, approve=self.approve, results=self.results, prices=self.prices, **self.world)

    def _world_of(self, call: AgentCall[Any]) -> World:
        r = call.record
        if not r.model or r.ending is not None:
            return self._world
        return self._world_under(call.client or r.model)

    def _world_under(self, model: str | Client | None) -> World:
        """Return the world in which a model is asked; None: the agent's own."""
        return self._world if model is None else self._world_with(self._client_of(model))

    @cached_property
    def _clients(self) -> dict[str, Client]:
        """The clients that it made, by the names of their models."""
        return {}

    def init_dialog(self, **values: Any) -> Dialog:
        """Return a fresh dialog: the system prompt, if there is one, with its variables.

        Raises:
            PromptError: A variable is missing or not used.
        """
        if not isinstance(self.system, Prompt):
            if values:
                raise UsageError(
                    f"the variables {', '.join(sorted(values))} are for a Prompt as system, not for {self.system!r:.60}"
                )
            return Dialog(self._opening, system_args=NO_ARGS)
        dialog = Opening(self.system, self.name, values).before(Dialog())
        return Dialog(
            dialog.messages,
            top_prompt=self._governance.governed(self.system, self.prompt.offers),
            system_args=values,
        )

    # A prompt of texts is asked for the agent's output, any other for its own; whose a dialog's is, no type says.
    @overload
    def seed(self, task: Asked, /, **options: Unpack[CallOptions[Deps]]) -> AgentCall[Out]: ...
    @overload
    def seed(
        self,
        task: Prompt[str],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> AgentCall[Out]: ...
    @overload
    def seed(
        self,
        task: Prompt[New],
        /,
        *,
        args: OptionalMapping = ...,
        parser_args: OptionalMapping = ...,
        extra: OptionalMapping = ...,
        run_id: str | None = ...,
        deps: Deps = ...,
        model: str | Client | None = ...,
        after: After = ...,
        system_args: OptionalMapping = ...,
        keep_system: bool = ...,
        **values: object,
    ) -> AgentCall[New]: ...
    @overload
    def seed(self, task: Messages, /, **options: Unpack[CallOptions[Deps]]) -> AgentCall: ...
    def seed(
        self,
        task: Task,
        /,
        *,
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        extra: OptionalMapping = None,
        run_id: str | None = None,
        deps: Any = None,
        model: str | Client | None = None,
        after: After = None,
        system_args: OptionalMapping = None,
        keep_system: bool = False,
        **values: Any,
    ) -> AgentCall[Any]:
        """An agent call that has not begun.

        Args:
            task: Text (taken as it is), a `Payload` of texts and images, a prompt, a user's message, or a dialog that
                waits for an answer: a `Dialog`, or a list of messages.
            args: Settings for this call, over the agent's.
            parser_args: Keyword arguments for the prompt's parser, or the context of its output's validators: data
                that JSON can hold, kept in the record.
            extra: Data of yours that JSON can hold, such as a ticket's number: ``result.extra`` has it again, and so
                has a snapshot.  The model is not shown it.
            run_id: The name of its run in the agent's store; None: a new one.  With the name and the task of a run that
                is there already, the call goes on with that, or returns its result.
            deps: What functions find in their `Context`.
            model: The model of this call, ``"provider:model"`` or a client, in place of the agent's.
            after: What was said before, which the task follows: the result of a call, a dialog, or messages.
            system_args: The values for the variables of the agent's system prompt; None: those of the dialog before.
            keep_system: A system message with which the dialog begins stays, and the agent's is left out.
            values: The prompt's variables.

        Raises:
            UsageError: A variable is missing, a setting unknown, or a dialog has nothing to answer.
        """
        options = Options(args, parser_args, extra, run_id, deps, after, system_args, keep_system, model)
        return self._seeded(task, values, options)

    def _made(self, task: Task, values: Mapping[str, Any], options: Options) -> AgentCall[Any]:
        """Return a call that is in no store."""
        if values:
            check_values(task, values, self.prompt)
        messages, system_args, prompt, governed_by = self._asked(task, values, options)
        prompt = self._governance.for_call(prompt, options.deps)
        if options.parser_args:
            check_parser_args(prompt, options.parser_args)
        if self.limits.cost_usd is not None:
            delegates.check_prices_inside(prompt)
        record = CallRecord.of(
            messages,
            limits=self.limits,
            depth=current_depth(),
            extra=options.extra,
            parser_args=options.parser_args,
            governed_by=governed_by and handoffs.path_from(self, prompt, governed_by),
        )
        if prompt.delegates:
            handoffs.check_agents(self, prompt)
        call = call_class(prompt)(record, prompt, **self._kept(prompt, options.args, options.deps))
        call.system_args = system_args
        return call if options.model is None else with_model(self, call, options.model)

    def _seeded(self, task: Task, values: Mapping[str, Any], options: Options) -> AgentCall[Any]:
        call = self._made(task, values, options)
        if self.store is not None:
            keep(self, call, options)
        elif options.run_id is not None:
            raise UsageError(
                f"run_id {options.run_id!r} names a run in a store, and the agent has none: store='runs.db'"
            )
        return call

    def _asked(
        self, task: Task, values: Mapping[str, Any], options: Options
    ) -> tuple[Vector[Message], Mapping[str, Any] | None, Prompt, str]:
        """The messages that wait for an answer, the variables of the system prompt, and the prompt that governs.

        The last is the path of handoffs to the agent that does.
        """
        prompt, system = self.prompt, self.system
        is_plain = isinstance(system, str) and prompt.template == TASK.template
        if is_plain and isinstance(task, str) and options.after is options.system_args is None:
            return Vector([*self._opening, task_message(task)]), NO_ARGS, prompt, ""
        opening = Opening(self.system, self.name, options.system_args, options.keep_system, options.deps)
        before = Dialog() if options.after is None else dialog_before(options.after)
        match task:
            case str() | payloads.Payload():
                dialog = self._put_in_words(before, task, values, options.model)
            case Prompt():
                dialog, prompt = before.put(task, **values), task
            case Message():
                dialog = before.append(task)
            case Dialog() | list() | tuple():
                if options.after is not None:
                    raise UsageError(
                        "a dialog as the task is the whole conversation, and after=… is given as well: one of them, or"
                        " the newest message as the task, would be right"
                    )
                dialog = task if isinstance(task, Dialog) else Dialog(task)
                prompt = dialog.top_prompt or prompt
            case _:
                raise UsageError(
                    f"the task is {task!r:.60}: text, a Payload, a Prompt, a Message or a Dialog would be right"
                )
        if dialog.tail is None or dialog.tail.function_calls:
            what = "asks for functions that have no results" if dialog.tail else "is empty"
            raise UsageError(f"the dialog {what}: one that ends with a task would be right")
        dialog = opening.before(dialog)
        return dialog.messages, dialog.system_args, prompt, dialog.governed_by

    def _put_in_words(
        self, dialog: Dialog, task: str | Payload, values: Mapping[str, Any], model: str | Client | None
    ) -> Dialog:
        """Return a dialog with a task in words; what is no text in a payload follows the prompt."""
        message = task_message(task) if isinstance(task, str) else self._visible(task, model).message
        if self.prompt.template == TASK.template:
            return dialog.append(message)
        rest = [part for part in message.parts if not isinstance(part, Text)]
        text = "\n".join([part.text for part in message.parts if isinstance(part, Text)])
        return dialog.put(self.prompt, *rest, task=text, **values)

    def _visible(self, payload: Payload, model: str | Client | None) -> Payload:
        """Return the part of a payload that the model of a call takes: without images, some take the rest alone."""
        seen = payload.without_images
        if seen == payload:
            return payload
        client = self.client if model is None else self._client_of(model)
        if getattr(client, "takes_images", True):
            return payload
        if client.name not in self._blind:
            self._blind.add(client.name)
            LOG.warning("the model %r takes no images and no PDFs: it is sent the rest of its payloads", client.name)
        return seen

    @cached_property
    def _blind(self) -> set[str]:
        """The models of which it was said that they take no images."""
        return set()

    def _governed_for(self, prompt: Prompt | None, options: Options) -> Prompt:
        """Return the prompt of a call that began before, as the agent governs it now."""
        governed = self._governance.for_call(prompt or self.prompt, options.deps)
        if options.parser_args:
            check_parser_args(governed, options.parser_args)
        return governed

    def conversation(self, name: str, *, keep: Processor | None = None) -> Conversation[Deps, Out]:
        """Return a conversation that the agent's store keeps under a name; it begins with its first turn.

        ``agent.conversation("customer-17").call("…")`` goes on with it, from any OS process.

        Args:
            name: Its name in the store.
            keep: Which of the earlier messages it keeps at each turn: ``KeepLastN(40)``, ``TokenWindow(8_000)``, yours;
                None: all.

        Raises:
            UsageError: The agent has no store, or the name is no text.
        """
        return conversations.Conversation(self, name, keep)

    @cached_property
    def runs(self) -> Runs:
        """The runs in its store.

        Raises:
            UsageError: The agent has no store.
        """
        if self.store is None:
            raise UsageError(f"the agent {self.name!r} has no store: store='runs.db' gives it one")
        return runs_of(self.store)

    def _definition(self, prompt: Prompt | None, options: Options) -> Definition:
        return definition_of(self, prompt, options)

    def _kept(self, prompt: Prompt, args: OptionalMapping, deps: Any) -> dict[str, Any]:
        """Return the arguments of a call that come from the agent and are in no record."""
        check_deps(deps, prompt)
        check("args", args, args is None or isinstance(args, Mapping), "settings such as {'temperature': 0}, or None,")
        view = views.View(self.masking, tuple(self.processors)) if self.masking or self.processors else None
        settings = self.settings.override(args) if args else self.settings
        asks = {"stop_when": self.stop_when, "has_approver": self.approve is not None}
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
        args: OptionalMapping = None,
        parser_args: OptionalMapping = None,
        deps: Any = None,
        model: str | Client | None = None,
        signing_key: str | bytes | None = None,
        on_change: OnChange = "report",
    ) -> AgentCall[Any]:
        """A call of this agent from its `snapshot`, with the prompt, ``args`` and key that it was made with.

        Its ``parser_args`` and the name of its model are in the snapshot; other ones take their place.

        If the prompt has changed since, that is logged and is the call's ``prompt_change``, or with
        ``on_change="error"`` an error.  Trust a document without a key as far as code: see `fsm_agent.restore`.

        Raises:
            SnapshotError: The document is damaged, changed, inconsistent, or of another prompt.
            PromptChanged: The prompt has changed, and that is to be an error.
        """
        governed = self._governed_for(prompt, Options(parser_args=parser_args, deps=deps))
        keys: Any = {"signing_key": signing_key, "on_change": on_change}
        call = warned_of_change(restore(document, governed, **keys, **self._kept(governed, args, deps)))
        return with_options(self, call, Options(parser_args=parser_args, model=model))

    @spelled_out(Policy, without=PYTHONS_OWN)
    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[[Context[Deps], str], Out, Deps]:
        """This agent as a function of another: it is given a task, and its output is the result.

        Its call is part of the one that asks: what it waits for, that one waits for, under ``run:2.0/ask:2.0``, say;
        its events are that one's, `Inside`; its tokens and its deps are that one's, too.  When it fails, also because
        agents are nested deeper than `Limits.depth`, the model that asked is told.

        Args:
            name: What the model calls it; the agent's name by default.
            description: What it is good at, for the model.
            policy: As of `Function.of`, as far as it makes sense for an agent; ``timeout_s`` is a limit of each call.

        Raises:
            UsageError: The policy makes no sense for an agent.
        """
        name = name or self.name
        delegates.check_policy("agent", name, policy)
        made = Function.of(self._ask, name=name, description=description or "", acall=self._aask, **policy)
        needy = self.prompt.needs_deps
        delegate = delegates.AgentDelegate(self, policy.get("timeout_s"))
        return replace(made, delegate=delegate, deps_type=needy.deps_type if needy else made.deps_type)

    def _ask(self, context: Context[Any], task: str) -> Out:
        return self.call(task, deps=context.deps).output

    async def _aask(self, context: Context[Any], task: str) -> Out:
        return (await self.acall(task, deps=context.deps)).output

    @cached_property
    def _opening(self) -> tuple[Message, ...]:
        return (Message.of("system", self.system),) if self.system and isinstance(self.system, str) else ()

    def close(self) -> None:
        """Close the connections, if the agent made any; a client that it was given is its giver's to close."""
        for client in self._clients.values():
            client.close()

    async def aclose(self) -> None:
        """`close` for asyncio."""
        for client in self._clients.values():
            await client.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def as_agent(value: Any) -> Any:
    """Return the agent that an object stands for, as an `AgentBase` does; all else as it is."""
    return value.as_agent() if hasattr(type(value), "as_agent") else value


ARGUMENTS = tuple([item.name for item in fields(Agent) if item.init])
_DEFAULTS = {item.name: item.default for item in fields(Agent)}
spelled_out(Agent, is_change=True)(Agent.changed)
