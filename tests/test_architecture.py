"""Do imports only go down?"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fsm_agent"

# From the bottom to the top; a module imports only from floors below or, on its floor, from those before it.
FLOORS = [
    # 0: words
    "deferred kinds values errors redaction field_checks mistakes plain_text vector messages replies events contexts"
    " policies json_schemas signatures functions versions toolsets prices templates parsing prompts dialogs"
    " hosted_tools outcomes effects",
    # 1: the machine
    "machine machine.rows limits masking windows record views budgets approval reading stopping table invariants"
    " transcripts results call",
    # 2: codecs, pure
    "signing snapshots providers providers.arriving_text providers.encoding providers.wire providers.provider"
    " providers.error_codes providers.failures providers.adaptations providers.hosting providers.schemas"
    " providers.attachments providers.openai_parts providers.citations providers.chunks"
    " providers.openai_chat_calls providers.openai_chat_reply providers.openai_chat"
    " providers.openai_responses_items providers.openai_responses_arrival providers.openai_responses_reply"
    " providers.openai_responses"
    " providers.anthropic_schemas providers.anthropic_reply providers.anthropic_dialog providers.anthropic_cache"
    " providers.anthropic_tools providers.anthropic"
    " providers.gemini_arguments providers.gemini_reply providers.gemini_schema providers.gemini_tools"
    " providers.gemini_contents providers.gemini"
    " providers.model_families providers.catalog",
    # 3: the world
    "abort local_child local_model local private_files log_masking"
    " clients clients.http clients.http.sockets clients.http.request"
    " clients.http.network clients.http.trust clients.http.transport clients.http.http1 clients.http.ledger"
    " clients.http.async_connection clients.http.async_pool clients.http.sync_connection clients.http.sync_pool"
    " clients.http.httpx_adapter clients.http.transports clients.http.endpoint clients.http.exchange"
    " clients.http.response"
    " client cassette threads result_pipeline result_cache world progress running perform"
    " fallback rate_limit limited_client middleware reconciler drivers"
    " mcp mcp.bounds mcp.transports mcp.background mcp.listing mcp.session mcp.link mcp.results mcp.client mcp.config",
    # 4: surfaces
    "hooks metrics agent_arguments agents registry prompt_library testing pytest_plugin drawing diagrams calibration"
    " snapshot_files demo_items demo_approval demo arguments terminal answering demo_screen"
    " bench_works bench bench_screen commands cli __main__",
    # 5: the public list
    "__init__",
]
IMPURE = {"asyncio", "threading", "httpx", "socket", "time", "random", "os", "logging", "subprocess", "concurrent"}
CALLS_PARSERS = {"reading"}  # which are the user's code
RANK = {name: (floor, place) for floor, names in enumerate(FLOORS) for place, name in enumerate(names.split())}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(path: Path) -> list[tuple[str, bool]]:
    """What a module imports, and whether it does so inside a function."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name if is_module(name) else node.module, id(node) in inside) for name in names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside) for alias in node.names]
    return found


def is_module(name: str) -> bool:
    return name.removeprefix("fsm_agent.") in RANK and name.startswith("fsm_agent.")


def test_every_module_has_a_place_and_every_place_a_module():
    assert set(MODULES) == set(RANK)


@pytest.mark.parametrize("name", RANK)
def test_imports_go_down(name):
    for imported, _ in imports(MODULES[name]):
        if imported.startswith("fsm_agent."):
            assert RANK[imported.removeprefix("fsm_agent.")] < RANK[name], f"{name} imports {imported}"


@pytest.mark.spec("0.1: no part of an agent does input or output while it is made")
@pytest.mark.parametrize("name", [name for name, (floor, _) in RANK.items() if floor <= 2])
def test_the_lower_floors_are_pure(name):
    for imported, inside in imports(MODULES[name]):
        assert imported.partition(".")[0] not in IMPURE, f"{name} imports {imported}"
        assert not inside, f"{name} imports {imported} inside a function"
    handlers = [n for n in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(n, ast.ExceptHandler)]
    caught = {ast.unparse(h.type) if h.type else "" for h in handlers}
    assert not caught & {"", "Exception"} or name in CALLS_PARSERS, f"{name} catches everything"


def test_the_package_itself_loads_nothing():
    code = "import sys; before = set(sys.modules); import fsm_agent; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "httpx", "transitions", "jinja2"} & set(loaded)


def test_no_name_says_nothing():
    assert not {"utils", "helpers", "common", "base", "types"} & {name.rpartition(".")[2] for name in MODULES}
