"""The journals of flows in a store: makes headers of runs, and runs from headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent._internal.text import guess
from fsm_agent.call.journal import VERSION, Header, Journal, kept_lines
from fsm_agent.call.record import Limits
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.flows.data_json import describe_json_error
from fsm_agent.flows.process import RunContext
from fsm_agent.flows.record import step_name
from fsm_agent.flows.run import FlowRun, restore
from fsm_agent.flows.table import NOTES
from fsm_agent.store.claiming import ProcessFactory

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

SHOWN_STEPS = 10  # of those that a run has entered, in an error


class FlowSeed(Value, frozen=True, kw_only=True):
    """All that a run of a flow began with, except code."""

    version: int  # of the flow
    data: msgspec.Raw
    depth: int = 0
    lent: Limits | None = None  # what the call around it had left of its budgets


def attach_journal(run: FlowRun[Any], name: str) -> None:
    """Give a run that has not begun a journal, so that driving it stores it.

    Args:
        run: The run.
        name: Its name in the store; empty: a new one.
    """
    r, flow = run.record, run.flow
    seed = FlowSeed(version=flow.version, data=msgspec.Raw(flow.data_json(r.data).encode()), depth=r.depth, lent=r.lent)
    format: Literal[1] = VERSION
    header = Header(
        version=format,
        agent=flow.name,
        fingerprint=run.fingerprint,
        seed=msgspec.Raw(to_json(seed).encode()),
        extra=r.extra,
        by=r.by,
    )
    if flow.tables_json:
        header = header.changed(tables=msgspec.Raw(flow.tables_json))
    run.journal = Journal(run, name, to_json(header))


def definition_of(flow: Flow[Any], run_context: RunContext) -> ProcessFactory:
    """Return how runs of a flow are rebuilt from a store."""
    environment = run_context.own_environment

    def make(header: Header, document: str | None, earlier: Sequence[Any] = ()) -> FlowRun[Any]:
        if document is None:
            return FlowRun(flow, _seeded(flow, header), run_context)
        return restore(document, flow, run_context)

    return ProcessFactory(
        flow.name, make, FlowRun.snapshot, environment.new_id, request_differences, environment.clock, entry_of=entry_of
    )


def entry_of(run: FlowRun[Any], lines: Sequence[str], step: str) -> int:
    """Return the number of the entry by which a run has entered a state.

    Args:
        run: The run, as it was at any time after that.
        lines: The entries of its journal.
        step: The name of the step, such as ``"review#3"``.

    Raises:
        UsageError: It has not entered this state.
    """
    entered = [n for n, taken in enumerate(run.record.trace) if taken.trigger not in NOTES]
    names = {step_name(run.record.trace[n].to, number): n for number, n in enumerate(entered, 1)}
    if step not in names:
        known = ", ".join([*names][-SHOWN_STEPS:]) or "none"
        raise UsageError(f"{run}: expected a step that it has entered ({known}), got {step!r}{guess(step, names)}")
    own = 0
    for line in kept_lines(lines):  # an entry may hold several steps of the run itself, or none
        number = line.n
        own += sum([not path for path, _ in line.steps])
        if own <= names[step]:
            continue
        if any(names[step] < n < own for n in entered):
            raise UsageError(
                f"{run}: expected a step that ends with an entry, got {step!r}, which the run left in the same entry;"
                f" pass step {number}, which is that entry"
            )
        return number
    raise JournalError(f"journal of {run}: expected the steps of its trace, got fewer")


def _seeded(flow: Flow[Any], header: Header) -> Any:
    try:
        seed: FlowSeed = from_json(bytes(header.seed), FlowSeed)
        data = flow.adapter.validate_json(bytes(seed.data))
    except ValueError as error:
        what = f"header of the journal: expected a run of the flow {flow.name!r}, version {flow.version}, got another"
        raise JournalError(f"{what}: {describe_json_error(error)}") from None
    extra: Mapping[str, Any] = header.extra
    return flow.record_of(data, seed.depth, extra, header.by).changed(version=flow.version, lent=seed.lent)


def request_differences(one: Header, other: Header) -> list[str]:
    """Return, in words, how two runs differ in what they began with."""
    seeds = [{**from_json(bytes(header.seed), Any), "lent": None} for header in (one, other)]
    compared: dict[str, list[Any]] = {
        "data": seeds,
        "extra": [one.extra, other.extra],
        "by": [one.by, other.by],
        "agent": [one.agent, other.agent],
        "run that it is a fork of": [one.forked, other.forked],
    }
    return [name for name, (ours, theirs) in compared.items() if ours != theirs]
