"""Is the public list what it says?"""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fsm_agent


@pytest.mark.parametrize("name", fsm_agent.__all__)
def test_every_name_is_there_and_documented(name):
    value = getattr(fsm_agent, name)
    assert value.__doc__
    assert value.__module__.startswith("fsm_agent.")


def test_no_name_is_also_a_modules():
    modules = {module.name for module in pkgutil.iter_modules(fsm_agent.__path__)}
    assert not modules & set(fsm_agent.__all__), "the module would hide the name once it is imported"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        _ = fsm_agent.Agnet


def test_the_list_is_sorted_and_shown():
    assert list(fsm_agent.__all__) == sorted(fsm_agent.__all__)
    assert set(fsm_agent.__all__) <= set(dir(fsm_agent))


def test_type_checkers_see_the_same_list():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(fsm_agent.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(seen) == set(fsm_agent.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(module), name) is getattr(fsm_agent, name)
