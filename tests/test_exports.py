"""Is each public name in one place, and does an import from another place say where?"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType

import pytest
from support.packages import PACKAGES

import fsm_agent
from fsm_agent.functions import Function

SUB_PACKAGES = [import_module(f"fsm_agent.{name}") for name in PACKAGES]
EVERY = [(module, name) for module in [fsm_agent, *SUB_PACKAGES] for name in module.__all__]
SHARED = {  # by what the word means where: elsewhere it would be another word for the same
    "serve": {"fsm_agent.web", "fsm_agent.mcp"},  # a chat page, and tools
}
NEED_STARLETTE = {("fsm_agent.web", "inspector_app"), ("fsm_agent.web", "serve")}


def named(value: object) -> str:
    return value.__name__.removeprefix("fsm_agent.") if isinstance(value, ModuleType) else str(value)


def test_every_name_is_there_and_documented():
    for module, name in EVERY:
        value = getattr(module, name)
        assert value.__doc__, f"{module.__name__}.{name}"
        assert not isinstance(value, ModuleType), f"the module {module.__name__}.{name} hides it"


def test_the_top_names_at_most_fifty():
    assert len(fsm_agent.__all__) <= 50


def test_a_class_with_parameters_is_made_with_them():
    """``Toolset[Shop]([look])`` notes its parameter in the object, which a frozen one refuses by an AttributeError."""
    kinds = {kind for module, name in EVERY if isinstance(kind := getattr(module, name), type)}
    generic = [kind for kind in kinds if getattr(kind, "__parameters__", ()) and is_dataclass(kind)]
    assert Function in generic
    for kind in generic:
        with suppress(AttributeError):
            object.__new__(kind).__orig_class__ = kind


def test_each_name_is_in_one_sub_package():
    homes = defaultdict(set)
    for module in SUB_PACKAGES:
        for name in module.__all__:
            homes[name].add(module.__name__)
    assert {name: found for name, found in homes.items() if len(found) > 1} == SHARED
    for name in fsm_agent.__all__:
        assert any(getattr(import_module(home), name) is getattr(fsm_agent, name) for home in homes[name])


@pytest.mark.parametrize("module", [m for m in SUB_PACKAGES if hasattr(m, "__path__")], ids=named)
def test_no_name_is_also_a_modules_that_is_imported_later(module):
    """It would hide the name, as `functions.function` would if its package did not import it at once."""
    modules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    assert modules & set(module.__all__) == ({"function"} if module.__name__ == "fsm_agent.functions" else set())


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "home"),
        [
            ("keep_last", "keep_last is in fsm_agent.context"),
            ("Overloaded", "Overloaded is in fsm_agent.errors"),
            ("TerminalHook", "TerminalHook is in fsm_agent.cli"),
            ("Agnet", "did you mean 'Agent'?"),
        ],
    )
    def test_a_name_from_the_wrong_place(self, name, home):
        with pytest.raises(ImportError) as caught:
            exec(f"from fsm_agent import {name}")
        assert str(caught.value) == f"cannot import name {name!r} from 'fsm_agent': {home}"

    @pytest.mark.parametrize("module", [fsm_agent, *SUB_PACKAGES], ids=named)
    def test_an_attribute_that_is_nowhere(self, module):
        assert not hasattr(module, "nothing")
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'zzzz'"):
            _ = module.zzzz

    def test_modules_are_imported_from_their_package(self):
        exec("from fsm_agent.agents import agent, batch\nfrom fsm_agent.prompts import prompt")


WITHOUT_EXTRAS = """
import importlib.metadata as metadata, re, sys

class Missing:  # finds no module of a distribution that an extra brings
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"no module {name!r}", name=name)

wanted = [line for line in metadata.requires("fsm-agent") if re.search("extra == .(?!dev)", line)]
# The official client of MCP brings `httpx2`.
names = {"httpx2"} | {re.match(r"[\\w-]+", line)[0].lower().replace("-", "_") for line in wanted} - {"fsm_agent"}
modules = {{"pyyaml": "yaml", "opentelemetry_api": "opentelemetry"}.get(name, name) for name in names}
assert {"typer", "rich", "mcp", "yaml", "xllamacpp", "huggingface_hub"} <= modules, modules
sys.meta_path.insert(0, Missing())
"""


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
def test_all_names_can_be_imported_without_any_extra():
    code = WITHOUT_EXTRAS
    for module in [fsm_agent, *SUB_PACKAGES]:
        if module.__name__.rpartition(".")[2] in ("cli",):  # its names need an extra
            continue
        names = [name for name in module.__all__ if (module.__name__, name) not in NEED_STARLETTE]
        code += f"from {module.__name__} import {', '.join(names)}\nimport {module.__name__} as m\n"
        code += f"assert all(globals()[name] is getattr(m, name) for name in {names}), m\n"
    in_a_fresh_process(code)


@pytest.mark.system
def test_what_needs_an_extra_says_so():
    for line, extra in (
        ("from fsm_agent.cli import TerminalHook", "cli"),
        ("from fsm_agent.runtime import instrument; instrument()", "otel"),
    ):
        code = f"try:\n    {line}\nexcept (ImportError, ConfigError) as error:\n    print(error)"
        code = f"from fsm_agent import ConfigError\n{code}"
        assert f"'fsm-agent[{extra}]'" in in_a_fresh_process(WITHOUT_EXTRAS + code)
