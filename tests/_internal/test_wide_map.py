"""Does a wide map behave as a dictionary of which a copy is kept after each change?"""

from __future__ import annotations

import pickle
import random

import msgspec
import pytest

from fsm_agent._internal.values import Value, to_json
from fsm_agent._internal.wide_map import WIDE, WideMap, with_items, without


@pytest.mark.parametrize("size", [0, WIDE - 20, 2 * WIDE])
def test_versions_are_those_of_a_dictionary_whatever_is_changed_in_which(size):
    rng = random.Random(1)
    first = {f"n{n}": n for n in range(size)}
    versions = [(first, with_items({}, first))]
    for number in range(700):
        plain, wide = versions[-1] if rng.random() < 0.9 else rng.choice(versions)
        name = f"n{rng.randrange(size + 90)}"
        if name in plain and rng.random() < 0.7:
            versions.append(({key: plain[key] for key in plain if key != name}, without(wide, name)))
        else:
            new = {name: number, f"m{number}": number}
            versions.append(({**plain, **new}, with_items(wide, new)))
    for plain, wide in versions:
        assert wide == plain
        assert len(wide) == len(plain)
    for plain, wide in [*rng.sample(versions, 70), versions[-1]]:
        assert dict(wide.items()) == plain
        assert {name: wide.get(name) for name in first} == {name: plain.get(name) for name in first}
        assert all((name in wide) == (name in plain) for name in first)
        assert list(reversed(wide)) == list(wide)[::-1]
        assert pickle.loads(pickle.dumps(wide)) == plain


def test_items_keep_their_order_and_new_ones_are_the_last():
    wide = with_items({}, {str(n): n for n in range(WIDE)})
    wide = with_items(without(with_items(wide, {"7": -7}), "8"), {"new": 1})
    assert [*wide][:9] == ["0", "1", "2", "3", "4", "5", "6", "7", "9"]
    assert next(reversed(wide)) == "new"  # type: ignore[call-overload]
    assert wide["7"] == -7


@pytest.mark.parametrize("size", [3, 2 * WIDE])
def test_a_name_that_is_not_there_is_a_key_error(size):
    wide = without(with_items({}, {str(n): n for n in range(size)}), "1")
    with pytest.raises(KeyError):
        wide["1"]
    for name in ("1", "other"):
        with pytest.raises(KeyError):
            without(wide, name)


def test_few_items_are_a_plain_dictionary():
    assert type(with_items({}, {"a": 1})) is dict
    wide = with_items({}, {str(n): n for n in range(WIDE + 1)})
    assert type(wide) is WideMap
    for n in range(40):
        wide = without(wide, str(n))
    assert type(wide) is dict


def test_a_change_copies_few_of_many_items():
    wide = with_items({}, {str(n): n for n in range(10_000)})
    changed = without(wide, "5")
    assert isinstance(wide, WideMap)
    assert isinstance(changed, WideMap)
    assert changed._base is wide._base


class Holder(Value, frozen=True):
    items: msgspec.Raw | dict[str, int]


def test_it_is_written_as_a_dictionary():
    items = {str(n): n for n in range(WIDE)}
    assert to_json(Holder(with_items({}, items))) == to_json(Holder(items))  # type: ignore[arg-type]
