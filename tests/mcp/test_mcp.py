"""Are the tools of an MCP server functions like others, whatever the server and its callers do?

Against a server of a registry, one made with the official package, and one of an older protocol made by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from support.copies import replace
from support.paths import TESTS

from fsm_agent import Agent
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions import Function
from fsm_agent.mcp import MCPServer, MCPServerError, MCPToolError
from fsm_agent.mcp.background import background
from fsm_agent.mcp.client import _wait, function_names
from fsm_agent.prompts.library import load_prompt
from fsm_agent.testing import Script, call

pytest.importorskip("mcp")

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
def new_server() -> Iterator[MCPServer]:
    with MCPServer.stdio(*NEW, env={"SECRET": SECRET}, name="new") as server:
        yield server


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with subprocess.Popen([*NEW, "http"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def http_server(port: str) -> Iterator[MCPServer]:
    headers = {"Authorization": f"Bearer {SECRET}"}
    with MCPServer.http(f"http://127.0.0.1:{port}/mcp", headers=headers, name="far") as server:
        yield server


@pytest.fixture(params=["new_server", "http_server"])
def server(request: pytest.FixtureRequest) -> MCPServer:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def names(server: MCPServer) -> list[str]:
    return [function.name for function in server.functions]


def wait_for_a_change(server: MCPServer) -> None:
    """Until the notice is here, which travels beside the answer of the tool that sent it."""

    async def notice() -> None:
        while server._link.tools_now is not None:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)

    background().submit(asyncio.wait_for(notice(), 20)).result(30)


def wait_for_the_end(server: MCPServer) -> None:
    session = server._link._session
    assert session is not None
    background().submit(asyncio.wait_for(session._stop.wait(), 20)).result(30)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def time() -> Iterator[MCPServer]:
    with MCPServer.stdio(sys.executable, "-m", "mcp_server_time", "--local-timezone=UTC", prefix="time") as server:
        yield server


@pytest.mark.system
@pytest.mark.spec("3.19: servers are part of a prompt")
def test_a_prompt_file_brings_a_server(tmp_path):
    """It is started for a call, not when the file is read."""
    file = tmp_path / "time.md"
    file.write_text('+++\nfunctions = ["clock"]\n+++\nWhat is in {{ what }}?\n')
    server = old()
    prompt = load_prompt(file, names={"clock": server})
    assert (prompt.offers, server._link.tools_now) == ((), None)
    with server:
        with Script("one", "two") as script:
            agent = Agent(script)
            agent.call(prompt(what="it"))
            agent.call("And now?")
        assert [f.name for f in script.requests[0].functions] == [f.name for f in server.functions]
        assert script.requests[1].functions == ()


@pytest.mark.nightly
class TestARealServer:
    @pytest.mark.spec("4.5: name, description, schema and callable")
    def test_an_agent_uses_its_tools_sync_and_async(self, time):
        assert names(time) == ["time_get_current_time", "time_convert_time"]
        asked = call("time_convert_time", source_timezone="Asia/Tokyo", time="09:30", target_timezone="UTC")
        results = [
            Agent(Script(asked, "00:30"), functions=time.functions).call("When?"),
            asyncio.run(Agent(Script(asked, "00:30"), functions=time.functions).acall("When?")),
        ]
        for result in results:
            assert result.output == "00:30"
            assert result.function_calls[0].succeeded
            assert "T00:30:00+00:00" in (result.function_calls[0].result or "")

    @pytest.mark.spec("4.29: before the function is run")
    def test_arguments_are_checked_before_it_is_asked(self, time):
        asked = call("time_get_current_time", timezone=7)
        result = Agent(Script(asked, "Sorry."), functions=time.functions).call("When?")
        assert "timezone: Input should be a valid string" in (result.function_calls[0].error or "")


class TestResults:
    def test_one_error_is_told_and_holds_no_secret(self, server):
        with pytest.raises(MCPToolError, match="no luck with") as caught:
            server.call("fail")
        assert SECRET not in str(caught.value)

    def test_a_functions_failure_is_told_to_the_model(self, server):
        result = Agent(Script(call("fail"), "Sorry."), functions=server.functions).call("Try.")
        assert "no luck with" in (result.function_calls[0].error or "")

    @pytest.mark.spec("4.29: before the function is run")
    def test_arguments_are_checked_before_it_is_asked(self, server):
        result = Agent(Script(call("add", a="x"), "Sorry."), functions=server.functions).call("Try.")
        assert "a: Input should be a valid integer" in (result.function_calls[0].error or "")

    @pytest.mark.spec("4.5: name, description, schema and callable")
    def test_a_tool_is_a_function_sync_and_async(self, server):
        agent = Agent(Script(*[call("add", a=1, b=2), "3."] * 2), functions=server.functions)
        for result in (agent.call("How many?"), asyncio.run(agent.acall("How many?"))):
            assert (result.output, result.function_calls[0].result) == ("3.", "3")

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
        assert len(listed) == len(set(listed)) == 19
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
        wait_for_a_change(old_server)
        assert "grown" in names(old_server)
        old_server.call("shrink")
        wait_for_a_change(old_server)
        assert names(old_server) == [function.name for function in before]

    def test_changes_are_followed_of_a_new_server(self, server):
        assert "grown" not in names(server)
        server.call("grow")
        wait_for_a_change(server)
        assert names(server)[-1] == "grown"
        assert asyncio.run(server.functions[-1].call()) == "tall"

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


def function_of(server: MCPServer, name: str) -> Any:
    return next(function for function in server.functions if function.name == name)


def test_names_are_distinct_and_the_same_in_any_order():
    tools = ["a.b", "a_b", "a/b", "x" * 100, "x" * 101, "ü", ""]
    named = function_names(tools)
    assert named == function_names(reversed(tools))
    assert named["a_b"] == "a_b"
    assert len(set(named.values())) == len(tools)
    assert all(Function(name=name) for name in named.values())
    assert function_names(["read"], "my files") == {"read": "my_files_read"}


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
    def test_opened_in_one_task_and_closed_in_another(self):
        async def main() -> None:
            server = old()
            await asyncio.create_task(server.__aenter__())
            assert await asyncio.create_task(server.acall("find", word="a")) == '{"word": "a"}'
            await asyncio.create_task(server.aclose())

        asyncio.run(main())

    @pytest.mark.system
    def test_a_cancelled_task_leaves_the_session_usable_and_tells_the_server(self, old_server):
        async def counts() -> list[int]:
            return json.loads(await old_server.acall("cancelled"))  # type: ignore[no-any-return]

        async def main() -> None:
            stuck, cancelled = await counts()
            asking = asyncio.create_task(old_server.acall("stuck"))
            while await counts() != [stuck + 1, cancelled]:
                pass
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            while await counts() != [stuck + 1, cancelled + 1]:
                pass

        asyncio.run(main())

    def test_a_cancelled_task_of_the_real_client_disturbs_nobody(self, server):
        async def main() -> list[Any]:
            stuck = asyncio.create_task(server.acall("wait"))
            other = await server.acall("add", a=1)
            stuck.cancel()
            return [other, *await asyncio.gather(stuck, server.acall("add", a=2), return_exceptions=True)]

        first, cancelled, second = asyncio.run(main())
        assert (first, second) == ("2", "3")
        assert isinstance(cancelled, asyncio.CancelledError)

    def test_an_interrupt_ends_what_is_waited_for(self):
        class Interrupted(Future[None]):
            def result(self, timeout: float | None = None) -> None:
                signal.raise_signal(signal.SIGINT)

        future = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            _wait(future)
        assert future.cancelled()


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
    def test_a_server_that_ended_while_nobody_used_it(self):
        with old() as server:
            pid = int(server.call("leave"))
            wait_for_the_end(server)
            assert int(server.call("pid")) != pid
            server.call("leave")
            wait_for_the_end(server)
            assert "find" in names(server)

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
        session = server._link._session
        assert session is not None
        assert server.functions
        del server
        background().submit(asyncio.wait_for(asyncio.wait([session._owner]), 20)).result(30)
        assert is_gone(pid)

    @pytest.mark.system
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_after_a_fork_each_process_has_its_own_and_at_exit_all_end_without_a_word(self):
        code = f"""
import os
from fsm_agent.mcp.client import MCPServer
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


class TestTrouble:
    @pytest.mark.system
    def test_a_command_that_is_not_there(self):
        with pytest.raises(ConfigError, match=r"'files' \(no-such-command\) cannot be started: No such file"):
            _ = MCPServer.stdio("no-such-command", name="files").functions

    @pytest.mark.nightly
    @pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop for Windows")
    def test_a_command_that_is_not_there_under_uvloop(self):
        code = f"""import asyncio, uvloop
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as older versions of uvicorn do
from fsm_agent.mcp import MCPServer
MCPServer.stdio({sys.executable + "-is-not-there"!r}, name="files").functions"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert "ConfigError: MCP server 'files'" in done.stderr
        assert done.stderr.endswith("cannot be started: No such file or directory\n")

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
            MCPServer.http("https://h.invalid", headers={"Any": f"Bearer {SECRET}"}),
            MCPServer.http(f"https://h.invalid/{SECRET}"),
            MCPServer.http(f"https://h.invalid/mcp?any={SECRET}"),
            MCPServer.http(f"https://u:{SECRET}@h.invalid/mcp"),
        ],
    )
    def test_nothing_shows_a_secret(self, server):
        target = server._link.target
        assert SECRET not in repr(server) + repr(server._transport) + repr(target)
        assert SECRET not in target.scrubbed(f"it says {SECRET}, '{SECRET}' and https://h.invalid/{SECRET}")

    def test_nor_the_password_of_a_proxy_of_the_environment(self, monkeypatch):
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:{SECRET}@proxy.invalid:3128")
        target = MCPServer.http("https://h.invalid/mcp")._link.target
        assert SECRET not in target.scrubbed(f"it says {SECRET}")

    def test_arguments_that_are_no_secrets_may_be_shown(self):
        server = MCPServer.stdio("server", "--directory", "/data/projects", "--depth=1234567890")
        assert server._link.target.failure("/data/projects 1234567890").args[0].endswith("/data/projects 1234567890")

    @pytest.mark.system
    def test_a_server_gets_no_more_of_the_environment_than_it_needs(self, monkeypatch):
        monkeypatch.setenv("A_KEY_OF_MINE", SECRET)
        with MCPServer.stdio(*OLD, env={"GIVEN": "1"}) as server:
            found = set(server.call("environment").split())
        assert {"PATH", "GIVEN"} <= found
        assert "A_KEY_OF_MINE" not in found

    @pytest.mark.system
    def test_without_the_package_an_error_says_what_to_install(self):
        code = """
import sys
sys.modules["mcp"] = None
from fsm_agent.mcp.client import MCPServer
try:
    MCPServer.stdio("server").functions
except Exception as error:
    print(type(error).__name__, error)
"""
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("ConfigError ")
        assert "pip install 'fsm-agent[mcp]'" in done.stdout
