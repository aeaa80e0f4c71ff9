"""The commands ``fsm-agent flows …``: check, draw and run flows, and answer their questions."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fsm_agent._internal.text import format_moment, plain
from fsm_agent.call.outcomes import Outcome, Returned
from fsm_agent.cli.diagram import AsFormat, AtLevel, Output, draw
from fsm_agent.cli.options import (
    By,
    Debug,
    Deps,
    Json,
    JsonLines,
    OptionalStore,
    Quiet,
    RunName,
    check_client,
    deps_option,
    load_deps,
    load_module,
    open_store,
    store_option,
    user_or,
)
from fsm_agent.cli.output import SUSPENDED, Approver, LineWriter, error_text, json_text, option, reporting, tell_waits
from fsm_agent.cli.questions import fill_in, is_at_terminal, question_of
from fsm_agent.cli.run_tables import whereabouts
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import PromptError, UsageError
from fsm_agent.flows import Flow, FlowSuspended
from fsm_agent.flows.definition import agents_of
from fsm_agent.flows.diagram import flow_diagram
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.flows.process import outcome_of
from fsm_agent.flows.record import AwaitAnswer
from fsm_agent.flows.runs import state_at
from fsm_agent.flows.states import End, LiveState, WaitState
from fsm_agent.functions.schema import described_errors
from fsm_agent.messages.events import Event
from fsm_agent.named_objects import within
from fsm_agent.prompts.type_text import name_of, prompt_schema
from fsm_agent.store.store import Run

NOT_KEPT = "the run was not kept; pass --store runs.db to continue it later"
app = typer.Typer(no_args_is_help=True, help="Flows: check, draw and run them, answer their questions.")

Module = Annotated[str, typer.Argument(help="A module with flows, or module:name.")]
Named = Annotated[
    str,
    typer.Argument(
        metavar="FLOW",
        help="The flow, as module:name, or a module with one flow.",
    ),
]


@app.command()
def check(module: Module, as_json: Json = False, debug: Debug = False) -> None:
    """Check the flows of a module; show their states and what each waits for, or the errors."""
    with reporting(debug), Screen() as screen:
        rows = [_row(flow) for flow in option("module", load_flows, module)]
        if as_json:
            screen.line(json_text(rows))
            return
        for row in rows:
            screen.line(f"{row['name']}({row['data']}) is valid (states: {len(row['states'])}, rows: {row['rows']})")
            for name, waits in row["states"].items():
                screen.prose(f"{name}: {waits}", indent=2)
            screen.prose(f"ends: {', '.join(row['ends'])}", indent=2)


@app.command()
def diagram(
    flow: Named,
    level: AtLevel = None,
    format: AsFormat = None,
    output: Output = None,
    debug: Debug = False,
) -> None:
    """Draw a flow."""
    with reporting(debug):
        with Screen():
            drawn = flow_diagram(_one(flow), level=level)
        draw(drawn, format, output)


@app.command()
def run(
    flow: Named,
    data: Annotated[
        str | None, typer.Argument(help="The data of the flow, as JSON. Without it, the run of --run-id is continued.")
    ] = None,
    store: OptionalStore = None,
    run_id: Annotated[str | None, typer.Option(help="The name of the run; by default a new one.")] = None,
    deps: Deps = None,
    as_json: JsonLines = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a flow, or continue a run; a person at the terminal approves the functions of its agents."""
    lines = LineWriter(as_json)
    with reporting(debug, lines), Screen(quiet=quiet) as screen:
        found = _one(flow)
        given = load_deps(deps, [found])
        for agent in agents_of(found):
            check_client(agent.client)  # before a run is made
        if data is None and run_id is None:
            raise typer.BadParameter("expected data, or --run-id of a run to continue, got neither", param_hint="data")
        if store is None and found.store is None:
            if run_id is not None:
                raise typer.BadParameter(
                    "expected the store of the run, got none; pass --store runs.db", param_hint="--run-id"
                )
            _drive(screen, found, data, None, lines, given)
            return
        with _kept(found, store, must_exist=data is None) as (kept, where):
            run_id = run_id or secrets.token_hex(4)
            again = f"fsm-agent flows run {flow} --run-id {shlex.quote(run_id)}{where}{deps_option(deps)}"
            try:
                _drive(screen, kept, data, run_id, lines, given, named=flow, where=where, again=again)
            except KeyboardInterrupt:
                screen.tell(f"to continue: {again}")
                raise


@app.command()
def answer(
    flow: Named,
    run: RunName,
    state: Annotated[
        str | None,
        typer.Argument(metavar="STATE", help="The state that asks, or has early=True; or the key of its question."),
    ] = None,
    value: Annotated[
        str | None, typer.Argument(metavar="JSON", help="The answer as JSON; '[\"Type\", {…}]' also names its type.")
    ] = None,
    store: OptionalStore = None,
    by: By = None,
    debug: Debug = False,
) -> None:
    """Answer a question of a run; its driver continues with the answer. Without an answer, a form asks for it."""
    with reporting(debug), Screen() as screen:
        found = _one(flow)
        if store is None and found.store is None:
            raise typer.BadParameter(
                "expected the store of the run, got none; pass --store runs.db", param_hint="--store"
            )
        with _kept(found, store) as (kept, where):
            again = f"fsm-agent flows run {flow} --run-id {shlex.quote(run)}{where}"
            answers = _answers(kept, run, state, value, again, screen)
            kept.runs.all.answer(run, answers, by=user_or(by), typed=answers)
            for key in answers:
                screen.line(f"posted an answer to {one_line(key)} of {one_line(run)}; its next driver takes it")
            screen.tell(f"to continue: {again}")


@contextmanager
def _kept(flow: Flow[Any], store: str | None, *, must_exist: bool = True) -> Iterator[tuple[Flow[Any], str]]:
    """Yield the flow with its store, and the option that names the store, with a leading space.

    For a store that code creates, the option is "", because every command finds the store through the flow.
    """
    if store is None and isinstance(flow.store, str | PathLike):
        store = os.fspath(flow.store)
    if store is None:
        yield flow, ""
        return
    with open_store(store, must_exist=must_exist) as runs:
        yield replace(flow, store=runs), f" {store_option(store)}"


def load_flows(named: str) -> list[Flow[Any]]:
    """Return the flows in ``module``, or the flow ``module:name``.  An orchestrator counts as its flow."""
    module_name, colon, path = named.partition(":")
    module = load_module(module_name, named)
    listed = [within(module, path, named)] if colon else [*vars(module).values()]
    flows = list({id(one): one for item in listed if (one := _flow_in(item)) is not None}.values())
    if not flows:
        raise UsageError(f"expected a module with a Flow, or 'module:name', got {named!r}")
    return flows


def _flow_in(item: object) -> Flow[Any] | None:
    found = item.flow if isinstance(item, Orchestrator) else item
    return found if isinstance(found, Flow) else None


def _store_in_code(named: str) -> str:
    """Return the option that names a flow's store by its place in the code, for commands without a flow."""
    module, _, path = named.partition(":")
    path = path or next(name for name, item in vars(load_module(module, named)).items() if _flow_in(item))
    return f" {store_option(f'{module}:{path}.store')}"


def _one(named: str) -> Flow[Any]:
    flows = option("flow", load_flows, named)
    if len(flows) > 1:
        raise typer.BadParameter(
            f"expected one flow, got {', '.join(flow.name for flow in flows)} in {named}; pass module:name"
        )
    return flows[0]


def _row(flow: Flow[Any]) -> dict[str, Any]:
    return {
        "name": flow.name,
        "data": getattr(flow.data, "__name__", str(flow.data)),
        "start": flow.start.name,
        "states": {work.name: _waits(work) for work in flow.live},
        "ends": [state.name for state in flow.states.values() if isinstance(state, End)],
        "rows": len(flow.rows),
    }


def _waits(work: LiveState[Any, Any]) -> str:
    gives = f", gives {work.answer_types!r}" if work.answer_types.names else ""
    return f"{type(work).__name__.removesuffix('State').lower()}{gives}"


def _answers(
    flow: Flow[Any], run: str, state: str | None, value: str | None, again: str, screen: Screen
) -> Mapping[str, Outcome]:
    """Return the answer to a question or an early answer to a state, from JSON or a form."""
    early = None if state is None else flow.early.get(state)
    if early is not None and value is not None:
        return flow._outcomes(run, {early: early.answer_types.load(value)}, flow._definition({}))
    kept = flow.runs.all.store.get(run)
    asked = [question.key for question in kept.waits if question.key.startswith(f"{AwaitAnswer.prefix}:")]
    if gone := [key for key in asked if not state_at(flow, key)[0]]:
        right = f"if an older version asked it, run {again} to ask it again"
        raise UsageError(f"expected a question of the flow {flow.name!r}, got {gone[0]!r}; {right}")
    question = question_of(kept, None if state is None else option("state", _find_question, kept, state), screen)
    key = question.key
    asking, _ = state_at(flow, key)
    if not isinstance(asking, WaitState):
        right = f"run fsm-agent runs answer {shlex.quote(run)} {shlex.quote(key)}"
        raise UsageError(f"expected a question of a state, got {key!r}, which a function asks; {right}")
    if value is None and not is_at_terminal():
        types = repr(asking.answer_types)
        right = f"pass JSON of {types} after the state {asking.name}"
        raise typer.BadParameter(f"expected an answer to {key!r}, got none; {right}", param_hint="JSON")
    if value is None:
        filled = fill_in(question, screen, only="returned")
        assert isinstance(filled, Returned)
        value = filled.text
    return {key: outcome_of(asking, asking.answer_types.load(value))}


def _find_question(run: Run, state: str) -> str:
    """Return the key of a question, given its state or the key itself."""
    keys = [question.key for question in run.waits]
    found = [key for key in keys if state in (key, key.partition(":")[2].partition("#")[0])]
    if len(found) != 1:
        what = "none" if not found else f"{len(found)}"
        asked = f"the run asks {', '.join(map(repr, keys))}" if keys else f"the run {whereabouts(run, time.time())}"
        raise UsageError(f"expected one open question of {state!r}, got {what} ({asked})")
    return found[0]


def _drive(
    screen: Screen,
    flow: Flow[Any],
    data: str | None,
    run_id: str | None,
    lines: LineWriter,
    deps: Any,
    *,
    named: str = "",
    where: str = "",
    again: str = "",
) -> None:
    """Run the flow, or continue its run.  See `_tell_waits` for the last arguments."""
    flow = replace(flow, approve=flow.approve or Approver(screen))

    def sink(event: Event) -> None:
        screen.pause()
        lines.take(event)
        screen.take(event)

    try:
        if data is None:
            assert run_id is not None
            result = flow.runs.resume(run_id, sink=sink, deps=deps)
        else:
            try:
                value = flow.adapter.validate_json(data)
            except ValidationError as error:
                raise typer.BadParameter(wrong_data(flow, error), param_hint="data") from None
            result = flow.run(flow.prepare(value, run_id=run_id, deps=deps), sink)
    except FlowSuspended as waiting:
        answers = _tell_waits(screen, waiting, named, where, again)
        waits_for = [effect.key for effect in waiting.run.effects]
        told = {"waits_for": waits_for, "answer_with": answers}
        lines.end("suspended", error=error_text(waiting), exit_status=SUSPENDED, **told)
        raise
    screen.pause()
    told = result.to_dict()
    if lines:
        lines.end("result", **told)
    else:
        screen.line(f"{result.state}\n{json_text(told['data'])}")


def wrong_data(flow: Flow[Any], error: ValidationError) -> str:
    """Return an error message with the invalid fields, their values, the expected types and all field names."""
    found = "; ".join([one_line(line) for line in described_errors(error).splitlines()])
    message = f"expected JSON of {_row(flow)['data']}: {found}"
    with suppress(PromptError):  # the type has no schema
        form = prompt_schema(flow.data).removeprefix(f"### Schema for `{name_of(flow.data)}`")
        message += f"; write JSON of this form: {' '.join(form.split())}"
    return plain(message)


def _tell_waits(screen: Screen, waiting: FlowSuspended, named: str, where: str, again: str) -> dict[str, str]:
    """Show each question from a flow and how long it waits, and return the commands that answer them, by key."""
    screen.pause()
    name = "" if waiting.run.journal is None else shlex.quote(waiting.run.journal.run)

    def of_state(effect: Any) -> str:
        if not isinstance(effect, AwaitAnswer):
            return ""
        screen.tell(f"{effect.key} asks: {one_line(str(effect.shown))}")
        return f"fsm-agent flows answer {named} {name} {effect.state.name} JSON{where}"

    due = "" if waiting.wake_at_s is None else f" at {format_moment(waiting.wake_at_s)}"
    otherwise = f"a worker continues it{due}, or: {again}" if again else NOT_KEPT
    command = f"fsm-agent runs answer {name}{where or _store_in_code(named)}" if again else ""
    commands = tell_waits(waiting, screen, command, otherwise, of_state)
    if due and commands:
        screen.tell(f"without an answer it continues{due}")
    if commands:
        screen.tell(f"to continue: {again}")
    return commands
