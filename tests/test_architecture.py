"""Do imports only go down?"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest

from fsm_agent.messages import Event

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "fsm_agent"

IMPURE = {"asyncio", "threading", "httpx", "socket", "time", "random", "os", "logging", "subprocess", "concurrent"}
DO_NO_IO = {"_internal.system": {"os", "threading"}}  # registers with forks, locks files
LOAD_LATE = {("prompts.template", "prompts.values")}  # which loads pydantic, and renders templates itself
CALLS_USERS = {"context.passes", "context.fitting", "call.triggers", "call.machine"}  # parsers, passes, guards
PURE = ("_internal", "errors", "validation", "messages", "functions", "prompts", "call", "context", "providers")
EVENTS = {event.__name__ for event in get_args(Event)} | {"Event"}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


# The rooms and files that a successor of a library would change.
CHOSEN_IN = {"httpx": {"clients", "mcp"}, "aiohttp": {"clients.aiohttp_transport"}}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def statements(path: Path) -> list[tuple[ast.AST, bool]]:
    """All nodes of a module but expressions, and whether each is inside a function."""
    found: list[tuple[ast.AST, bool]] = [(tree_of(path), False)]
    for node, inside in found:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        found += [(child, inside) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return found


def imports(path: Path) -> list[tuple[str, bool]]:
    """What a module imports, and whether it does so inside a function."""
    found = []
    for node, inside in statements(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name if is_module(name) else node.module, inside) for name in names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, inside) for alias in node.names]
    return found


def is_module(name: str) -> bool:
    return name.removeprefix("fsm_agent.") in MODULES and name.startswith("fsm_agent.")


@pytest.mark.system
@pytest.mark.parametrize("name", ["drive_loop", "drivers", "activity"])
def test_the_loop_knows_processes_and_no_agent_call(name: str):
    """From the agent call it imports only the two outcomes that end any process."""
    path = MODULES[f"runtime.{name}"]
    known = {imported for imported, _ in imports(path) if imported.startswith("fsm_agent.")}
    parts = ("call", "delegation", "record", "requests", "transition_table", "triggers")
    of_calls = {f"fsm_agent.call.{part}" for part in parts}
    assert not known & of_calls
    tree = tree_of(path)
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not named & {"AgentCall", "CallRecord", "Replied", "ModelFailed", "Returned"}
    assert named & EVENTS <= {"Event", "Inside", "Done", "Suspended"}


def test_the_lower_floors_are_pure():
    for name, path in MODULES.items():
        if name.partition(".")[0] not in PURE:
            continue
        for imported, inside in imports(path):
            assert imported.partition(".")[0] not in IMPURE - DO_NO_IO.get(name, set()), f"{name} imports {imported}"
            is_late = (
                inside
                and imported.startswith("fsm_agent")
                and (name, imported.removeprefix("fsm_agent.")) not in LOAD_LATE
            )
            assert not is_late, f"{name} imports {imported} inside a function"
        handlers = [n for n, _ in statements(path) if isinstance(n, ast.ExceptHandler)]
        caught = {ast.unparse(h.type) if h.type else "" for h in handlers}
        assert not caught & {"", "Exception"} or name in CALLS_USERS, f"{name} catches everything"


@pytest.mark.system
def test_the_package_itself_loads_no_library_before_it_is_needed():
    code = "import sys; before = set(sys.modules); import fsm_agent; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "jinja2", "mcp", "opentelemetry", "rich", "starlette", "typer"} & set(loaded)


def test_an_import_of_the_package_stays_small():
    """As the first statement of a program.  Imports inside functions come later, if at all."""
    loaded, left = set[str](), [""]
    while left:
        module = left.pop()
        if module in loaded or module not in MODULES:
            continue
        loaded.add(module)
        rooms = [module.rpartition(".")[0]]
        left += rooms + [name.removeprefix("fsm_agent").lstrip(".") for name in at_once(MODULES[module])]
    assert len(loaded) <= 220, len(loaded)
    assert not {room for room in loaded if room.partition(".")[0] in ("cli", "flows", "mcp", "testing", "web")}


def at_once(path: Path) -> Iterator[str]:
    """The modules of ours that a module imports at once, at run time."""
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fsm_agent"):
            yield from {node.module or "", *[f"{node.module}.{alias.name}" for alias in node.names]}


def test_a_room_loads_whole_rooms_before_modules_of_them() -> None:
    """Or two threads wait for each other: one loads the room, and the other one a module of it."""
    rooms = {name for name in MODULES if name and (PACKAGE / name / "__init__.py").is_file()} - {"_internal", "cli"}
    loaded = dict[str, set[str]]()
    for room in rooms:
        before = takewhile(
            lambda node: "fsm_agent" not in str(getattr(node, "module", "")), tree_of(MODULES[room]).body
        )
        names = [alias.name for node in before if isinstance(node, ast.Import) for alias in node.names]
        loaded[room] = {name.removeprefix("fsm_agent.") for name in names} & rooms
    for module, path in MODULES.items():
        room = module.partition(".")[0]
        if room in rooms:
            known, left = {room}, [room]
            while left:
                new = loaded[left.pop()] - known
                known |= new
                left += new
            used = {name.split(".")[1] for name in at_once(path) if "." in name} & rooms
            assert used <= known, f"{room} loads modules of {used - known} first"


@pytest.mark.parametrize("library", CHOSEN_IN)
def test_a_library_of_http_is_known_in_few_places(library: str) -> None:
    users = {
        module for module, path in MODULES.items() if library in {name.partition(".")[0] for name, _ in imports(path)}
    }
    assert {place for place in CHOSEN_IN[library] for module in users if f"{module}.".startswith(f"{place}.")} == (
        CHOSEN_IN[library]
    )
    assert all(any(f"{module}.".startswith(f"{place}.") for place in CHOSEN_IN[library]) for module in users)
