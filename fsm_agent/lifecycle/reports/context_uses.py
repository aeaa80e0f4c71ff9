"""What the requests of a call showed the model, derived from its record and trace."""

from __future__ import annotations

from fsm_agent.lifecycle.record import CallRecord, ContextUse

_PREFIX = "model:"


def uses_of(record: CallRecord) -> tuple[ContextUse, ...]:
    """Return what each answered request of a call showed, in order."""
    counted = {use.key: use for use in record.requests}
    uses: list[ContextUse] = []
    for step in record.trace:
        if step.usage is None or not step.key.startswith(_PREFIX):
            continue
        use = counted.get(step.key)
        if use is None:
            use = ContextUse(key=step.key, reported=step.usage.input_tokens, cached=step.usage.cached_tokens)
            use = use.changed(extends=bool(uses) and uses[-1].messages is None)
        uses.append(use)
    return tuple(uses)
