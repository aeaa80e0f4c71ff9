"""Is each public name in one place, and does an import from another place say where?"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from contextlib import suppress
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from support.packages import PACKAGES
from support.paths import ROOT

import fsm_agent
from fsm_agent.functions import Function

SUB_PACKAGES = [import_module(f"fsm_agent.{name}") for name in PACKAGES]
LAZY = [module for module in [fsm_agent, *SUB_PACKAGES] if hasattr(module, "__getattr__")]
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
        assert name in dir(module), f"{module.__name__}.{name}"


def test_a_class_with_parameters_is_made_with_them():
    """``Toolset[Shop]([look])`` notes its parameter in the object, which a frozen one refuses by an AttributeError."""
    kinds = {getattr(module, name) for module, name in EVERY}
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


def test_each_package_with_a_list_is_named():
    """So that the error of a name that is not there can say where it is."""
    found = {
        info.name
        for info in pkgutil.walk_packages(fsm_agent.__path__, "fsm_agent.")
        if info.ispkg and hasattr(import_module(info.name), "__all__")
    }
    assert found == {module.__name__ for module in SUB_PACKAGES} - {"fsm_agent.errors"}


@pytest.mark.parametrize("module", [m for m in SUB_PACKAGES if hasattr(m, "__path__")], ids=named)
def test_no_name_is_also_a_modules_that_is_imported_later(module):
    """It would hide the name, as `functions.function` would if its package did not import it at once."""
    modules = {info.name for info in pkgutil.iter_modules(module.__path__)}
    assert modules & set(module.__all__) == ({"function"} if module.__name__ == "fsm_agent.functions" else set())


@pytest.mark.parametrize("module", LAZY, ids=named)
def test_type_checkers_see_the_same_names(module):
    tree = ast.parse(Path(module.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname: node.module
        for node in [*block.body, *tree.body]
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert set(seen) == set(module.__all__)
    for name, home in seen.items():
        assert getattr(import_module(home), name) is getattr(module, name)


class TestErrors:
    @pytest.mark.parametrize(
        ("line", "home"),
        [
            ("from fsm_agent import keep_last", "keep_last is in fsm_agent.context"),
            ("from fsm_agent import Overloaded", "Overloaded is in fsm_agent.errors"),
            ("from fsm_agent import TerminalHook", "TerminalHook is in fsm_agent.cli"),
            ("from fsm_agent.prompts import Agent", "Agent is in fsm_agent"),
            ("from fsm_agent.prompts import keep_last", "keep_last is in fsm_agent.context"),
            ("from fsm_agent.providers import ArgumentsDelta", "ArgumentsDelta is in fsm_agent.messages"),
            ("from fsm_agent.prompts import Prompd", "did you mean 'Prompt'?"),
        ],
    )
    def test_a_name_from_the_wrong_place(self, line, home):
        with pytest.raises(ImportError) as caught:
            exec(line)
        module = line.split()[1]
        assert str(caught.value) == f"cannot import name {line.split()[-1]!r} from {module!r}: {home}"

    @pytest.mark.parametrize("module", LAZY, ids=named)
    def test_an_attribute_that_is_nowhere(self, module):
        assert not hasattr(module, "nothing")
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'zzzz'"):
            _ = module.zzzz

    def test_every_name_that_is_not_at_the_top_is_found_from_there(self):
        for name in {name for _, name in EVERY} - {*fsm_agent.__all__}:
            if importlib.util.find_spec(f"fsm_agent.{name}") is None:
                with pytest.raises(ImportError, match=rf": {name} is in fsm_agent\.\w+"):
                    getattr(fsm_agent, name)

    def test_modules_are_imported_from_their_package(self):
        exec("from fsm_agent.agents import agent, batch\nfrom fsm_agent.prompts import prompt")


WITHOUT_EXTRAS = """
import importlib.metadata as metadata, re, sys

class Missing:  # finds no module of a distribution that an extra brings
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"no module {name!r}", name=name)

wanted = [line for line in metadata.requires("fsm-agent") if re.search("extra == .(?!dev)", line)]
names = {re.match(r"[\\w-]+", line)[0].lower().replace("-", "_") for line in wanted} - {"fsm_agent"}
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
        if module.__name__.rpartition(".")[2] in ("cli", "telemetry"):  # their names need an extra
            continue
        names = [name for name in module.__all__ if (module.__name__, name) not in NEED_STARLETTE]
        code += f"from {module.__name__} import {', '.join(names)}\nimport {module.__name__} as m\n"
        code += f"assert all(globals()[name] is getattr(m, name) for name in {names}), m\n"
    in_a_fresh_process(code)


@pytest.mark.system
def test_what_needs_an_extra_says_so():
    code = "try:\n    from fsm_agent.cli import TerminalHook\nexcept ImportError as error:\n    print(error)"
    needed = in_a_fresh_process(WITHOUT_EXTRAS + code)
    assert "TerminalHook" in needed
    assert "'fsm-agent[cli]'" in needed


(CONTRACT,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
FLOORS = CONTRACT["layers"]  # from the top


@pytest.mark.system
def test_importing_a_package_loads_no_floor_above_it():
    """From the ground up, so that what is loaded beforehand is below."""
    code = "import sys\n"
    packages = sorted((module.__name__ for module in SUB_PACKAGES), key=floor_of, reverse=True)
    for name in packages:
        code += f"import {name} as m; [getattr(m, name) for name in m.__all__]; print(*sys.modules)\n"
    for name, loaded in zip(packages, in_a_fresh_process(code).splitlines(), strict=True):
        above = {
            other for other in loaded.split() if other.startswith("fsm_agent.") and floor_of(other) < floor_of(name)
        }
        assert above == set(), name


def floor_of(module):
    """The number of its floor, counted from the top."""
    return FLOORS.index(module.split(".")[1])
