"""Are the tools of an MCP server functions like others, whatever the server and its callers do?

The servers are one from a registry, one made with the official package, and a handmade one with an older protocol.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.copies import replace
from support.paths import TESTS

from fsm_agent import Agent, Prompt
from fsm_agent.errors import ConfigError, PromptError, UsageError
from fsm_agent.functions import Function, Toolset
from fsm_agent.mcp import MCPServer, MCPServerError, MCPToolError
from fsm_agent.prompts import Prompts
from fsm_agent.testing import Script, function_call

pytest.importorskip("mcp")

from mcp_http_stub import ANY, HttpStub, text

HERE = TESTS / "mcp"
ROOT = str(HERE.parent)
OLD = (sys.executable, str(HERE / "mcp_old_server.py"))
NEW = (sys.executable, str(HERE / "mcp_new_server.py"))
SECRET = "recognisable-0123456789"


def old(**options: Any) -> MCPServer:
    return MCPServer.stdio(*OLD, env={"SECRET": SECRET}, name="old", **options)


@pytest.fixture(scope="module")
def old_server() -> Iterator[MCPServer]:
    with old() as server:
        yield server


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with subprocess.Popen([*NEW, "http"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module", params=["stdio", "http"])
def new_server(request: pytest.FixtureRequest) -> Iterator[MCPServer]:
    """A server of the official package, in an OS process."""
    if request.param == "stdio":
        made = MCPServer.stdio(*NEW, env={"SECRET": SECRET}, name="new")
    else:
        url = f"http://127.0.0.1:{request.getfixturevalue('port')}/mcp"
        made = MCPServer.http(url, headers={"Authorization": f"Bearer {SECRET}"}, name="far")
    with made as server:
        yield server


@pytest.fixture
def stub() -> Iterator[HttpStub]:
    """A server in memory."""
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    with HttpStub() as made:
        made.tools = {
            "add": lambda a, b=1: text(str(a + b)),
            "fail": lambda: text(f"no luck with {SECRET}", isError=True),
        }
        schema = {"type": "object", "properties": numbers, "required": ["a"]}
        made.pages = [
            [{"name": "add", "inputSchema": schema}],
            [{"name": name, "inputSchema": ANY} for name in ("fail", "wait", "ask")],
        ]
        yield made


@pytest.fixture
def server(stub: HttpStub) -> Iterator[MCPServer]:
    with MCPServer.http(stub.url, headers={"Authorization": f"Bearer {SECRET}"}, name="far") as made:
        yield made


def names(server: MCPServer) -> list[str]:
    return [function.name for function in server.functions]


def until(holds: Callable[[], bool]) -> None:
    """Wait for a message that travels next to an answer."""
    ends_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def has_ended(child: int) -> bool:
    """Return whether a child has ended and closed its pipes, even if it was not waited for yet."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def test_a_prompt_file_brings_a_server(tmp_path, stub):
    """It is started for a call, not when the file is read."""
    (tmp_path / "time.md").write_text('+++\nfunctions = ["clock"]\n+++\nWhat is in {{ what }}?\n')
    server = MCPServer.http(stub.url)
    prompt = Prompts(directory=tmp_path, names={"clock": server})("time")
    assert (prompt.offers, stub.heard) == ((), [])
    with server:
        with Script("one", "two") as script:
            agent = Agent(script)
            agent.call(prompt(what="it"))
            agent.call("And now?")
        assert [f.name for f in script.requests[0].functions] == [f.name for f in server.functions]
        assert script.requests[1].functions == ()


class TestResults:
    def test_one_error_is_told_and_holds_no_secret(self, server):
        with pytest.raises(MCPToolError, match="no luck with") as caught:
            server.call("fail")
        assert SECRET not in str(caught.value)

    def test_a_functions_failure_is_told_to_the_model(self, server):
        result = Agent(Script(function_call("fail"), "Sorry."), functions=server.functions).call("Try.")
        assert "no luck with" in (result.function_calls[0].error or "")

    def test_arguments_are_checked_before_it_is_asked(self, server):
        result = Agent(Script(function_call("add", a="x"), "Sorry."), functions=server.functions).call("Try.")
        assert "a: Input should be a valid integer" in (result.function_calls[0].error or "")

    def test_a_tool_is_a_function_sync_and_async(self, server):
        agent = Agent(Script(*[function_call("add", a=1, b=2), "3."] * 2), functions=server.functions)
        for result in (agent.call("How many?"), asyncio.run(agent.acall("How many?"))):
            assert (result.output, result.function_calls[0].result) == ("3.", "3")

    def test_a_result_is_not_searched_by_the_patterns_of_its_server(self, stub):
        """Python's search may take years for a pattern and a text that were made for it, and it stops all threads."""
        form = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^b+$"}}}
        stub.pages = [[{"name": "ask", "inputSchema": ANY, "outputSchema": form}]]
        stub.tools["ask"] = lambda: text("aaa", structuredContent={"word": "aaa"})
        with MCPServer.http(stub.url) as server:
            assert server.call("ask") == 'aaa\n{"word":"aaa"}'

    @pytest.mark.system
    @pytest.mark.parametrize(("tool", "told"), [("refuse", r"no entry with \*\*\*"), ("over", "Session terminated")])
    def test_an_error_that_looks_like_the_end_of_a_session_ends_none(self, old_server, tool, told):
        before = old_server.call("pid")
        with pytest.raises(MCPToolError, match=f"the tool {tool!r}: {told}"):
            old_server.call(tool)
        assert old_server.call("pid") == before

    @pytest.mark.system
    @pytest.mark.parametrize(("tool", "told"), [("latin", "caf\ufffd"), ("half", "cut \ufffd"), ("noise", "done")])
    def test_what_is_no_text_is_read_as_far_as_it_is(self, old_server, tool, told):
        before = old_server.call("pid")
        assert old_server.call(tool) == told
        assert old_server.call("pid") == before

    @pytest.mark.system
    @pytest.mark.parametrize(
        ("value", "told"), [(float("nan"), "Out of range float"), ("\udcff", "surrogates"), (object(), "Unable to")]
    )
    def test_arguments_that_are_no_json_are_refused_and_the_session_goes_on(self, old_server, value, told):
        before = old_server.call("pid")
        with pytest.raises(MCPToolError, match=f"the tool 'find': .*{told}"):
            old_server.call("find", word=value)
        assert old_server.call("pid") == before


class TestTheList:
    @pytest.mark.system
    def test_all_pages_and_only_names_that_providers_take(self, old_server):
        listed = names(old_server)
        assert len(listed) == len(set(listed)) == 18
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in listed)
        assert [re.sub("_[0-9a-f]{6}$", "_…", name) for name in listed[:4]] == [
            "find",
            "files_read_…",
            "files_read_…",
            f"{('long' * 64)[:57]}_…",
        ]

    @pytest.mark.system
    def test_a_function_calls_its_tool_under_the_servers_name(self, old_server):
        functions = {name: function_of(old_server, name) for name in names(old_server) if name.startswith("files")}
        assert {asyncio.run(function.call()) for function in functions.values()} == {"files/read", "files.read"}

    @pytest.mark.system
    def test_changes_are_followed_of_an_old_server(self, old_server):
        before = old_server.functions
        assert old_server.functions is before
        old_server.call("grow")
        until(lambda: "grown" in names(old_server))
        old_server.call("shrink")
        until(lambda: names(old_server) == [function.name for function in before])

    @pytest.mark.system
    def test_changes_are_followed_of_a_new_server(self, new_server):
        assert "grown" not in names(new_server)
        new_server.call("grow")
        until(lambda: names(new_server)[-1] == "grown")
        assert asyncio.run(new_server.functions[-1].call()) == "tall"
        assert new_server.call("add", a=1) == "2"
        with pytest.raises(MCPToolError, match="no luck with") as caught:
            new_server.call("fail")
        assert SECRET not in str(caught.value)

    @pytest.mark.system
    def test_a_server_may_be_adapted(self):
        def careful(function: Function) -> Function | None:
            return replace(function, needs_approval=True) if function.name in ("o_find", "o_grow") else None

        with old(prefix="o", adapt=careful) as server:
            assert [(f.name, f.needs_approval) for f in server.functions] == [("o_find", True), ("o_grow", True)]


@pytest.mark.system
def test_the_old_transport_of_two_endpoints(port, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which no request to this machine goes through
    with MCPServer.http(f"http://127.0.0.1:{port}/sse", sse=True) as server:
        assert server.call("add", a=1) == "2"


@pytest.mark.system
def test_a_fault_of_a_child_process_is_logged_with_its_last_words(caplog):
    code = """
from fsm_agent import Agent
from fsm_agent.mcp import serve
serve("shop", [Agent("openai:gpt-5-mini", name="desk")]).run_stdio()
"""
    environment = {"PYTHONPATH": str(TESTS.parent), "OPENAI_API_KEY": ""}
    with (
        MCPServer.stdio(sys.executable, "-c", code, env=environment) as server,
        pytest.raises(MCPToolError) as caught,
    ):
        server.call("desk", task="Hello.")
    assert "OPENAI_API_KEY" not in str(caught.value)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fsm_agent.mcp"]
    assert "OPENAI_API_KEY" in line


def function_of(server: MCPServer, name: str) -> Any:
    return next(function for function in server.functions if function.name == name)


def test_names_are_distinct_and_the_same_in_any_order(stub):
    tools = ["a.b", "a_b", "a/b", "x" * 100, "x" * 101, "ü"]
    found = []
    for listed in (tools, tools[::-1]):
        stub.pages = [[{"name": name, "inputSchema": ANY} for name in listed]]
        with MCPServer.http(stub.url) as server:
            found.append({*names(server)})
    assert found[0] == found[1]
    assert len(found[0]) == len(tools)
    assert "a_b" in found[0]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found[0])
    stub.pages = [[{"name": "read", "inputSchema": ANY}]]
    with MCPServer.http(stub.url, prefix="my files") as server:
        assert names(server) == ["my_files_read"]


def test_a_server_lists_each_name_once(stub):
    read = {"name": "read", "inputSchema": ANY}
    stub.pages = [[read], [read]]  # a page that shifted while the list was read
    with MCPServer.http(stub.url) as server:
        assert names(server) == ["read"]
    stub.pages = [[read, {**read, "description": "Another."}]]
    with MCPServer.http(stub.url, name="files") as server, pytest.raises(MCPServerError, match=r"'files'.*'read'"):
        names(server)


@pytest.mark.parametrize(
    "call",
    [
        lambda functions: Agent(Script("ok"), functions=functions).call("go"),
        lambda functions: Agent(Script("ok")).call(Prompt("go", functions=functions)),
    ],
)
def test_servers_with_a_function_of_the_same_name_are_named(stub, call):
    def add() -> None:
        """Add."""

    with MCPServer.http(stub.url, name="here") as here, MCPServer.http(stub.url, name="there") as there:
        for others, named in (([here, there], "'here'.*'there'.*prefix"), ([here, add], "'here'.*add")):
            with pytest.raises(PromptError, match=f"'add'.*{named}"):
                call(others)
        assert call([here, Toolset(there).prefixed("b_")]).output == "ok"


class TestManyCallers:
    def test_threads_and_loops_share_a_session(self, server):
        start = threading.Barrier(8)

        def in_thread(n: int) -> Any:
            start.wait(20)
            return server.call("add", a=n)

        def in_loop(n: int) -> Any:
            async def all_at_once() -> list[Any]:
                return await asyncio.gather(*[server.acall("add", a=n, b=m) for m in range(3)])

            start.wait(20)
            return asyncio.run(all_at_once())

        with ThreadPoolExecutor(8) as pool:
            ones = pool.map(in_thread, range(4))
            threes = pool.map(in_loop, range(4))
        assert list(ones) == [str(n + 1) for n in range(4)]
        assert list(threes) == [[str(n), str(n + 1), str(n + 2)] for n in range(4)]

    @pytest.mark.system
    async def test_opened_in_one_task_and_closed_in_another(self):
        server = old()
        await asyncio.create_task(server.__aenter__())
        assert await asyncio.create_task(server.acall("find", word="a")) == '{"word": "a"}'
        await asyncio.create_task(server.aclose())

    @pytest.mark.system
    async def test_a_cancelled_task_leaves_the_session_usable_and_tells_the_server(self, old_server):
        async def counts() -> list[int]:
            return json.loads(await old_server.acall("cancelled"))  # type: ignore[no-any-return]

        stuck, cancelled = await counts()
        asking = asyncio.create_task(old_server.acall("stuck"))
        while await counts() != [stuck + 1, cancelled]:
            pass
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while await counts() != [stuck + 1, cancelled + 1]:
            pass

    async def test_a_cancelled_task_disturbs_nobody(self, stub, server):
        begun, cancelled = threading.Event(), threading.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        stub.tools["wait"] = wait

        stuck = asyncio.create_task(server.acall("wait"))
        first = await server.acall("add", a=1)
        assert await asyncio.to_thread(begun.wait, 20)
        stuck.cancel()
        second, third = await asyncio.gather(stuck, server.acall("add", a=2), return_exceptions=True)
        assert (first, third) == ("2", "3")
        assert isinstance(second, asyncio.CancelledError)

    def test_an_interrupt_ends_what_is_waited_for(self, stub, server):
        async def wait() -> None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.Event().wait()

        stub.tools["wait"] = wait
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                server.call("wait")
        finally:
            signal.signal(signal.SIGINT, before)
        assert server.call("add", a=1) == "2"


class TestTime:
    @pytest.mark.system
    def test_a_tool_that_takes_too_long(self, old_server):
        with old(timeout_s=0.05) as server, pytest.raises(MCPToolError, match=r"'stuck' did not answer in 0\.05 s"):
            server.call("stuck")

    @pytest.mark.system
    def test_a_server_that_says_nothing(self):
        server = MCPServer.stdio(sys.executable, "-c", "import sys; sys.stdin.read()", start_timeout_s=0.05)
        with pytest.raises(MCPServerError, match=r"did not answer in 0\.05 s"):
            _ = server.functions


class TestTheEnd:
    @pytest.mark.system
    def test_a_server_that_dies_is_started_again_by_the_next_call(self):
        with old() as server:
            before = server.call("pid")
            with pytest.raises(MCPServerError, match=r"ended before the tool 'die' answered.*I die with \*\*\*"):
                server.call("die")
            assert server.call("pid") != before

    @pytest.mark.system
    def test_a_coroutine_function_of_a_sync_call_has_an_agent_that_starts_it(self):
        """Its functions are looked up in the loop that the sync call waits for."""

        async def think() -> str:
            inner = Agent(Script(function_call("find", name="x"), "found"), functions=[old()], name="inner")
            return (await inner.acall("?")).output

        outer = Agent(Script(function_call("think"), "done"), functions=[Function.of(think)])
        assert outer.call("?").function_calls[0].result == "found"

    @pytest.mark.system
    @pytest.mark.skipif(not hasattr(os, "waitid"), reason="no waitid")
    def test_a_call_after_the_end_of_its_server_starts_it_again(self):
        """Also the call that comes before anything has heard of the end."""
        with old() as server:
            for _ in range(16):
                pid = int(server.call("pid"))
                os.kill(pid, signal.SIGKILL)
                while not has_ended(pid):
                    pass
                assert int(server.call("pid")) != pid

    @pytest.mark.system
    def test_closed_is_ended_and_stays_so(self):
        with old() as server:
            pid = int(server.call("pid"))
        assert is_gone(pid)
        with pytest.raises(UsageError, match="is closed"):
            _ = server.functions
        with server:
            assert int(server.call("pid")) != pid

    @pytest.mark.system
    def test_one_that_is_forgotten_ends(self):
        server = old()
        pid = int(server.call("pid"))
        assert server.functions
        del server
        gc.collect()
        until(lambda: is_gone(pid))

    @pytest.mark.system
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_after_a_fork_each_process_has_its_own_and_at_exit_all_end_without_a_word(self):
        code = f"""
import os
from fsm_agent.mcp import MCPServer
server = MCPServer.stdio(*{OLD!r})
mine = server.call("pid")
unused = MCPServer.stdio(*{OLD!r})
print(mine, unused.call("pid"), flush=True)
if (child := os.fork()) == 0:
    unused.close()
    assert server.call("pid") != mine
    assert server.functions
    server.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert server.call("pid") == mine
"""
        quiet = "ignore:This process :DeprecationWarning"  # that it has threads, since Python 3.12
        run = [sys.executable, "-W", "error", "-W", quiet, "-c", code]
        done = subprocess.run(run, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        pids = [int(pid) for pid in done.stdout.split()]
        assert [is_gone(pid) for pid in pids] == [True, True]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("/usr/bin/files-server", "/data"), "files-server"),
        ((sys.executable, "-u", "shop/server.py", "/data"), "shop/server.py"),
        (("python3.12", "-m", "shop.server"), "shop.server"),
        (("npx", "-y", "@scope/server@1.2", "/data"), "@scope/server@1.2"),
        (("uv", "run", "--quiet", "server.py"), "server.py"),
        (("uvx",), "uvx"),
        (("python", "-c", "import shop; shop.serve()"), "python"),
        (("npx", "--token", SECRET, "server"), "npx"),
        (("npx", "-k", "any-value", "server"), "npx"),
        (("uvx", "--index", "https://host/token/simple", "server"), "uvx"),
        (("uvx", "git+https://token@host/server"), "uvx"),
        (("uv", "--directory", "/home/me/shop", "run", "server.py"), "uv"),
    ],
)
def test_a_server_is_named_after_its_program_and_not_after_what_starts_it(command, name):
    assert MCPServer.stdio(*command).name == name


class TestTrouble:
    @pytest.mark.system
    def test_a_command_that_is_not_there(self):
        with pytest.raises(ConfigError, match=r"'files' \(no-such-command\) cannot be started: No such file"):
            _ = MCPServer.stdio("no-such-command", name="files").functions

    @pytest.mark.system
    def test_a_server_that_cannot_start_says_why_but_no_secret(self):
        code = "import os, sys; sys.exit('no entry with ' + os.environ['KEY'])"
        with pytest.raises(MCPServerError, match=r"cannot be used: Connection closed: no entry with \*\*\*"):
            _ = MCPServer.stdio(sys.executable, "-c", code, env={"KEY": SECRET}).functions

    @pytest.mark.parametrize(
        "server",
        [
            MCPServer.stdio("server", f"--api-key={SECRET}"),
            MCPServer.stdio("server", "--token", SECRET),
            MCPServer.stdio("server", f"postgres://me:{SECRET}@host/base"),
            MCPServer.stdio("server", env={"ANY": SECRET}),
            MCPServer.stdio("npx", "--token", SECRET),
            MCPServer.http("https://h.invalid", headers={"Any": f"Bearer {SECRET}"}),
            MCPServer.http(f"https://h.invalid/{SECRET}"),
            MCPServer.http(f"https://h.invalid/mcp?any={SECRET}"),
            MCPServer.http(f"https://u:{SECRET}@h.invalid/mcp"),
        ],
    )
    def test_nothing_shows_a_secret(self, server):
        target = server._connection.target
        assert SECRET not in repr(server) + repr(server._transport) + repr(target)
        assert SECRET not in target.scrubbed(f"it says {SECRET}, '{SECRET}' and https://h.invalid/{SECRET}")

    def test_nor_the_password_of_a_proxy_of_the_environment(self, monkeypatch):
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@proxy.invalid:3128")
        target = MCPServer.http("https://h.invalid/mcp")._connection.target
        assert SECRET not in target.scrubbed(f"it says {SECRET}")

    def test_arguments_that_are_no_secrets_may_be_shown(self):
        server = MCPServer.stdio("server", "--directory", "/data/projects", "--depth=1234567890")
        assert (
            server._connection.target.failure("/data/projects 1234567890").args[0].endswith("/data/projects 1234567890")
        )

    @pytest.mark.system
    def test_a_server_gets_no_more_of_the_environment_than_it_needs(self, monkeypatch):
        monkeypatch.setenv("A_KEY_OF_MINE", SECRET)
        with MCPServer.stdio(*OLD, env={"GIVEN": "1"}) as server:
            found = set(server.call("environment").split())
        assert {"PATH", "GIVEN"} <= found
        assert "A_KEY_OF_MINE" not in found

    def test_without_the_package_an_error_says_what_to_install(self, monkeypatch):
        for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigError, match=r"fsm-agent\[mcp\]"):
            _ = MCPServer.stdio("server").functions
