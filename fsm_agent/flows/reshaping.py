"""An upgrade of runs for a flow whose data have other fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fsm_agent.errors import SnapshotError
from fsm_agent.flows.errors import FlowError
from fsm_agent.validation import check, plain_json, shown

_NO_FIELDS: Mapping[str, Any] = {}


def reshaped(
    *, add: Mapping[str, Any] = _NO_FIELDS, drop: Sequence[str] = (), rename: Mapping[str, str] = _NO_FIELDS
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an upgrade in which the data have other fields.

    For example, ``upgrades={1: reshaped(add={"lang": "en"}, drop=["old"], rename={"text": "words"})}``.

    It is about the fields of the data themselves, and not about fields of values inside of them: a function of the
    record is for those.  Flows inside have data, and upgrades, of their own.

    Args:
        add: The values of new fields by name, as JSON has them.  A field with a default needs none.
        drop: The names of fields that are no more.
        rename: New names of fields by old ones; two fields may swap names.

    Raises:
        FlowError: No field is given, one is given twice, or JSON cannot hold a value.

    Examples:
        >>> upgrade = reshaped(add={"note": ""}, rename={"txt": "text"})     # for Flow(…, upgrades={1: upgrade})
        >>> callable(upgrade)
        True
    """
    check(
        "add of reshaped",
        add,
        isinstance(add, Mapping),
        "a mapping of fields to values, such as {'lang': 'en'}",
        FlowError,
    )
    is_list = isinstance(drop, Sequence | frozenset | set) and not isinstance(drop, str)
    check("drop of reshaped", drop, is_list, "a list of fields, such as ['old']", FlowError)
    check(
        "rename of reshaped", rename, isinstance(rename, Mapping), "a mapping of old field names to new ones", FlowError
    )
    if not (add or drop or rename):
        raise FlowError("reshaped: expected fields, got none; pass add={'lang': 'en'}, drop=['old'], …")
    made, gone = [*add, *rename.values()], [*drop, *rename]
    for names in (made, gone):
        for name in names:
            check("a field of reshaped", name, isinstance(name, str) and bool(name), "a field name", FlowError)
            check("a field of reshaped", name, names.count(name) == 1, "one change of each field", FlowError)
    added = plain_json("add of reshaped", add) if add else {}

    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        data = record["data"]
        where = f"data of version {record.get('version', 1)} of the flow {record['flow']!r}"
        if not isinstance(data, dict):
            raise SnapshotError(f"{where}: expected fields for reshaped to change, got {shown(data)}")
        for name in gone:
            if name not in data:
                raise SnapshotError(f"{where}: expected one of its fields ({', '.join(data)}), got {name!r}")
        kept = {rename.get(name, name): value for name, value in data.items() if name not in drop}
        for name in made:
            if name in data and name not in gone:
                raise SnapshotError(f"{where}: expected a new field to add, got {name!r}; leave it out, or rename it")
        return {**record, "data": {**kept, **added}}

    return upgrade
