"""Is the public list what it says?"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import fsm_agent

EVERY = sorted(fsm_agent._HOME)  # also what needs an extra


def test_every_name_is_there_and_documented():
    for name in EVERY:
        value = getattr(fsm_agent, name)
        assert value.__doc__, name
        assert value.__module__.startswith("fsm_agent."), name


def test_no_name_is_also_a_modules():
    modules = {module.name for module in pkgutil.iter_modules(fsm_agent.__path__)}
    assert not modules & set(EVERY), "the module would hide the name once it is imported"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        _ = fsm_agent.Agnet


def test_the_list_is_sorted_and_shown():
    assert list(fsm_agent.__all__) == sorted(fsm_agent.__all__)
    assert set(EVERY) <= set(dir(fsm_agent))


def test_type_checkers_see_the_same_list():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(fsm_agent.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(seen) == set(EVERY)
    for name, module in seen.items():
        assert getattr(importlib.import_module(module), name) is getattr(fsm_agent, name)


def test_all_names_can_be_imported_without_any_extra():
    without = """
import importlib.metadata as metadata, importlib.util, re, sys

class Missing:  # finds no module of a distribution that an extra brings
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"no module {name!r}", name=name)

wanted = [line for line in metadata.requires("fsm-agent") if re.search("extra == .(?!dev)", line)]
names = {re.match(r"[\\w-]+", line)[0].lower().replace("-", "_") for line in wanted} - {"fsm_agent"}
modules = {"yaml" if name == "pyyaml" else name for name in names}
assert {"typer", "rich", "yaml"} <= modules, modules
sys.meta_path.insert(0, Missing())
from fsm_agent import *
assert Agent and build_agent and SqliteStore
import fsm_agent
assert "TerminalHook" in dir(fsm_agent)
"""
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
