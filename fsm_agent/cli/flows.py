"""The commands ``fsm-agent flows …``: check, draw and run flows, and answer their questions."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fsm_agent._internal.text import plain
from fsm_agent.call.outcomes import Outcome, Returned
from fsm_agent.cli import loading, options
from fsm_agent.cli.diagram import AsFormat, AtLevel, Output, draw
from fsm_agent.cli.errors import option
from fsm_agent.cli.output import Advice, Command, drive_and_show
from fsm_agent.cli.questions import Approver, fill_in, is_at_terminal, question_of
from fsm_agent.cli.terminal import Screen, json_text, one_line
from fsm_agent.errors import PromptError, UsageError
from fsm_agent.flows import Flow
from fsm_agent.flows.definition import agents_of
from fsm_agent.flows.diagram import flow_diagram
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.flows.process import outcome_of
from fsm_agent.flows.record import AwaitAnswer
from fsm_agent.flows.states import End, LiveState, WaitState
from fsm_agent.flows.stored_runs import state_at
from fsm_agent.functions.arguments import described_errors
from fsm_agent.prompts.type_text import name_of, prompt_schema

NOT_KEPT = "the run was not kept; pass --store runs.db to continue it later"
app = typer.Typer(no_args_is_help=True, help="Check, draw and run flows, and answer their questions.")

Named = Annotated[str, typer.Argument(metavar="FLOW", help="The flow, as module:name, or a module with one flow.")]
_DATA = "The data of the flow, as JSON. Without it, the run named by --run-id continues."
_STATE = "The state that asks or has early=True, or the key of its question."
_ANSWER = "The answer as JSON; '[\"Type\", {…}]' also names its type."


@app.command(cls=Command)
def check(module: Annotated[str, typer.Argument(help="A module with flows, or module:name.")]) -> None:
    """Check the flows in a module, and show their errors, or their states and what each one waits for."""
    with Screen() as screen:
        for flow in option("module", load_flows, module).values():
            counts = f"states: {len(flow.live)}, rows: {len(flow.rows)}"
            screen.line(f"{flow.name}({_data_name(flow)}) is valid ({counts})")
            for work in flow.live:
                screen.prose(f"{work.name}: {_waits(work)}", indent=2)
            ends = [state.name for state in flow.states.values() if isinstance(state, End)]
            screen.prose(f"ends: {', '.join(ends)}", indent=2)


@app.command(cls=Command)
def diagram(flow: Named, level: AtLevel = None, format: AsFormat = None, output: Output = None) -> None:
    """Draw a flow."""
    with Screen():
        drawn = flow_diagram(_one(flow)[0], level=level)
    draw(drawn, format, output)


@app.command(cls=Command)
def run(
    flow: Named,
    data: Annotated[str | None, typer.Argument(help=_DATA)] = None,
    store: options.OptionalStore = None,
    run_id: options.RunId = None,
    deps: options.Deps = None,
    as_json: options.JsonLines = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a flow, or continue a run. If a function needs approval, the command asks at the terminal."""
    with Screen(quiet=quiet, as_json=as_json) as screen:
        found, place = _one(flow)
        given = loading.load_deps(deps, [found])
        for agent in agents_of(found):
            options.check_client(agent.client)  # before a run is made
        if data is None and run_id is None:
            raise typer.BadParameter("expected data, or --run-id of a run to continue, got neither", param_hint="data")
        if store is None and found.store is None and run_id is not None:
            raise options.without_store("--run-id")
        value = None if data is None else data_of(found, data, "data")
        with _kept(found, store, must_exist=data is None) as (kept, where):
            kept = replace(kept, approve=kept.approve or Approver(screen))
            if kept.store is not None:
                run_id = run_id or secrets.token_hex(4)
            name = shlex.quote(run_id or "")

            def drive(sink: Any) -> Any:
                if data is None:
                    assert run_id is not None
                    return kept.runs.resume(run_id, sink=sink, deps=given)
                return kept.run(kept.prepare(value, run_id=run_id, deps=given), sink)

            def of_state(effect: Any) -> str:
                """Show a state's question, and return the command that answers it."""
                if not isinstance(effect, AwaitAnswer):
                    return ""
                screen.tell(f"{effect.key} asks: {one_line(str(effect.shown))}")
                return f"fsm-agent flows answer {flow} {name} {effect.state.name} JSON{where}"

            advice = Advice(otherwise=NOT_KEPT, of_state=of_state)
            if kept.store is not None:
                again = f"fsm-agent flows run {flow} --run-id {name}{where}{options.deps_option(deps)}"
                command = f"fsm-agent runs answer {name}{where or f' --store {place}.store'}"
                advice = replace(advice, command=command, again=again)
            drive_and_show(drive, screen, advice, shown=lambda it: f"{it.state}\n{json_text(it.to_dict()['data'])}")


@app.command(cls=Command)
def answer(
    flow: Named,
    run: options.RunName,
    state: Annotated[str | None, typer.Argument(metavar="STATE", help=_STATE)] = None,
    value: Annotated[str | None, typer.Argument(metavar="JSON", help=_ANSWER)] = None,
    store: options.OptionalStore = None,
    by: options.By = None,
) -> None:
    """Answer a question of a run, so that it can continue. If you give no answer, a form asks for one."""
    with Screen() as screen:
        found, _ = _one(flow)
        if store is None and found.store is None:
            raise options.without_store("--store")
        with _kept(found, store) as (kept, where):
            again = f"fsm-agent flows run {flow} --run-id {shlex.quote(run)}{where}"
            kept.runs.get(run)  # refuses a run of another flow, which may ask in a state of the same name
            answers = _answers(kept, run, state, value, again, screen)
            kept.runs.all.answer(run, answers, by=options.user_or(by), typed=answers)
            for key in answers:
                screen.line(f"posted an answer to {one_line(key)} of the run {one_line(run)!r}")
            screen.tell(f"to continue: {again}")


@contextmanager
def _kept(flow: Flow[Any], store: str | None, *, must_exist: bool = True) -> Iterator[tuple[Flow[Any], str]]:
    """Yield the flow with its store, and the option that names the store, with a leading space.

    If code creates the store, the option is "", because every command finds the store through the flow.
    """
    if store is None and isinstance(flow.store, str | PathLike):
        store = os.fspath(flow.store)
    if store is None:
        yield flow, ""
        return
    with options.open_store(store, must_exist=must_exist) as runs:
        yield replace(flow, store=runs), f" {options.store_option(store)}"


def load_flows(named: str) -> dict[str, Flow[Any]]:
    """Return the flows in ``module``, or only the flow ``module:name``, keyed by ``module:name``.

    An orchestrator counts as its flow.
    """
    places: dict[Flow[Any], str] = {}
    for name, item in loading.load_module(named)[1].items():
        flow = item.flow if isinstance(item, Orchestrator) else item
        if isinstance(flow, Flow):
            places.setdefault(flow, f"{named.partition(':')[0]}:{name}")
    if not places:
        raise UsageError(f"expected a module with a Flow, or 'module:name', got {named!r}")
    return {place: flow for flow, place in places.items()}


def _one(named: str) -> tuple[Flow[Any], str]:
    """Return a flow and its name in the code."""
    flows = option("flow", load_flows, named)
    if len(flows) > 1:
        names = ", ".join([flow.name for flow in flows.values()])
        raise typer.BadParameter(f"expected one flow, got {names} in {named}; pass module:name")
    [(place, flow)] = flows.items()
    return flow, place


def _data_name(flow: Flow[Any]) -> str:
    return getattr(flow.data, "__name__", str(flow.data))


def _waits(work: LiveState[Any, Any]) -> str:
    gives = f", gives {work.answer_types!r}" if work.answer_types.names else ""
    return f"{type(work).__name__.removesuffix('State').lower()}{gives}"


def _answers(
    flow: Flow[Any], run: str, state: str | None, value: str | None, again: str, screen: Screen
) -> Mapping[str, Outcome]:
    """Return the answer to a question, or an early answer for a state, from JSON or a form."""
    early = None if state is None else flow.early.get(state)
    if early is not None and value is not None:
        return flow._outcomes(run, {early: early.answer_types.load(value)}, flow._definition({}))
    kept = flow.runs.all.store.get(run)
    asked = [question.key for question in kept.waits if question.key.startswith(f"{AwaitAnswer.prefix}:")]
    if gone := [key for key in asked if not state_at(flow, key)[0]]:
        right = f"if an older version asked it, run {again} to ask it again"
        raise UsageError(f"expected a question of the flow {flow.name!r}, got {gone[0]!r}; {right}")
    question = option("state", question_of, kept, state, screen)
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


def data_of(flow: Flow[Any], text: str, argument: str) -> Any:
    """Return the data of a flow from JSON.

    Raises:
        typer.BadParameter: If the data is invalid.  The message contains the invalid fields, their values, the expected
            types and all field names.
    """
    try:
        return flow.adapter.validate_json(text)
    except ValidationError as error:
        found = "; ".join([one_line(line) for line in described_errors(error).splitlines()])
        message = f"expected JSON of {_data_name(flow)}: {found}"
    with suppress(PromptError):  # the type has no schema
        form = prompt_schema(flow.data).removeprefix(f"### Schema for `{name_of(flow.data)}`")
        message += f"; write JSON of this form: {' '.join(form.split())}"
    raise typer.BadParameter(plain(message), param_hint=argument)
