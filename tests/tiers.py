"""A pytest plugin: what a test of the gate must not do, and fails for when it does it all the same.

The gate is every test that is marked neither ``system`` nor ``nightly``.  It has no sleep, OS process, port, or
assertion about a clock.  ``pytest --tiers report --tiers-out uses.json`` fails nothing and counts: a row a test.
`conftest.py` imports this module before anything else, since it wraps `sleep` for all later imports.

Seen while a test runs, in any thread, and in its fixtures (a shared one counts for every test that asks for it):

- ``sleep``: `time.sleep` or `asyncio.sleep` of more than `SLEEP_S`, but for the watcher of runs;
- ``process``: `Popen`, `fork`, `posix_spawn`, `forkpty`, `system`;
- ``port``: `socket.bind` to an address of the network; ``connect`` (not refused) is `socket.connect` to one.

Seen in the source: ``bound``, an assertion that depends on a clock (`perf_counter`, `monotonic`, `thread_time`,
`time.time`), also through variables and helper functions below ``tests/``.

Not seen: a wait of `Event.wait`, `join` or `queue.get` that runs into its time-out, and C code that sleeps by itself.

PYTEST_DONT_REWRITE: it is imported before pytest could.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import functools
import hashlib
import json
import os
import pathlib
import sys
import threading
import time
from operator import sub

import pytest

SLEEP_S, SLOW_S = 0.01, 0.5
PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.spawn", "pty.spawn"}
LAW = ("sleep", "process", "port", "bound")  # what fails in strict mode
FREE = ("system", "nightly")
WATCHER = "fsm_agent run watcher"  # the name of a thread of `fsm_agent.store`
CLOCKS = {n + s for n in ("monotonic", "perf_counter", "process_time", "thread_time") for s in ("", "_ns")}

_now: collections.Counter[str] | None = None  # what the test, or the shared fixture, that runs now has used
_perf, _cpu = time.perf_counter, time.process_time


def _children() -> float:
    """Return the processor time of OS processes that have ended, in seconds."""
    return sum(os.times()[2:4])


def _use(kind: str) -> None:
    """Count it, and by whom it was: the innermost function of the tests, if this thread has one."""
    now = _now  # the test may end while a thread is here
    if now is None:
        return
    if kind == "sleep" and threading.current_thread().name == WATCHER:
        return  # it rests for as long as its look at the store has taken, which is up to the machine
    frame = sys._getframe(2)
    while frame is not None and not _is_of_tests(frame.f_code.co_filename):
        frame = frame.f_back
    now[kind] += 1
    if frame is not None:
        now[f"{kind} @ {pathlib.Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"] += 1


def _is_of_tests(file: str) -> bool:
    return f"{os.sep}tests{os.sep}" in file and file != __file__


def _audit(event: str, args: tuple) -> None:
    if event in PROCESS:
        _use("process")
    elif event in ("socket.bind", "socket.connect") and isinstance(args[1], tuple):
        _use("port" if event == "socket.bind" else "connect")


def _wrapped(sleep):
    def count(seconds: float) -> None:
        if isinstance(seconds, (int, float)) and seconds > SLEEP_S:
            _use("sleep")

    @functools.wraps(sleep)
    def plain(seconds, *rest, **more):
        count(seconds)
        return sleep(seconds, *rest, **more)

    return plain


sys.addaudithook(_audit)
time.sleep, asyncio.sleep = _wrapped(time.sleep), _wrapped(asyncio.sleep)
asyncio.tasks.sleep = asyncio.sleep


class _Clocks:
    """Which functions of a folder assert something about a clock: {(file stem, function)}."""

    def __init__(self, root: pathlib.Path) -> None:
        self.returns: set[tuple[str, str]] = set()
        self.bound: set[tuple[str, str]] = set()
        files = [(p.stem, ast.parse(p.read_text("utf-8"))) for p in sorted(root.rglob("*.py"))]
        self.names = {  # file: {name there: (file, name)}, of functions there and of what it imports from other files
            stem: {
                a.asname or a.name: (n.module.rpartition(".")[2], a.name)
                for n in ast.walk(tree)
                if isinstance(n, ast.ImportFrom) and n.module
                for a in n.names
            }
            for stem, tree in files
        }
        size = -1
        while size != len(self.returns) + len(self.bound):  # until nothing new is found
            size = len(self.returns) + len(self.bound)
            for stem, tree in files:
                for f in ast.walk(tree):
                    if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        self._look(stem, f)

    def _look(self, stem: str, f: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        held: set[str] = set()
        for _ in range(2):
            for n in ast.walk(f):
                if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and n.value is not None:
                    if self._clock(stem, n.value, held):
                        targets = n.targets if isinstance(n, ast.Assign) else [n.target]
                        held |= {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)}
                elif (
                    isinstance(n, ast.Call)  # took.append(perf_counter() - began)
                    and isinstance(n.func, ast.Attribute)
                    and n.func.attr in ("append", "add", "extend")
                    and isinstance(n.func.value, ast.Name)
                    and any(self._clock(stem, a, held) for a in n.args)
                ):
                    held.add(n.func.value.id)
                elif isinstance(n, ast.Return) and n.value is not None and self._clock(stem, n.value, held):
                    self.returns.add((stem, f.name))
                elif (isinstance(n, ast.Assert) and self._clock(stem, n.test, held)) or (
                    isinstance(n, ast.Call) and self._callee(stem, n) in self.bound
                ):
                    self.bound.add((stem, f.name))

    def _callee(self, stem: str, call: ast.Call) -> tuple[str, str] | None:
        if isinstance(call.func, ast.Name):
            return self.names[stem].get(call.func.id, (stem, call.func.id))
        return None

    def _clock(self, stem: str, value: ast.expr, held: set[str]) -> bool:
        for n in ast.walk(value):
            if isinstance(n, ast.Name) and n.id in held:
                return True
            if isinstance(n, ast.Call):
                f = n.func
                name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
                if name in CLOCKS or (isinstance(f, ast.Attribute) and ast.unparse(f) in ("time.time", "loop.time")):
                    return True
                if self._callee(stem, n) in self.returns:
                    return True
        return False


def pytest_addoption(parser):
    group = parser.getgroup("tiers")
    group.addoption("--tiers", choices=("off", "report", "strict"), default="strict")
    group.addoption("--tiers-out", default="", help="JSON: a row for each test")


def pytest_configure(config):
    if config.getoption("--tiers") != "off":
        config.pluginmanager.register(_Tiers(config), "tiers-at-work")


class _Tiers:
    def __init__(self, config):
        self.config, self.strict = config, config.getoption("--tiers") == "strict"
        self.shared: dict[object, collections.Counter[str]] = {}
        self.rows: dict[str, dict] = {}
        self.clocks = None

    def pytest_collection_finish(self, session):
        if session.items:  # none in the controller of xdist
            self.clocks = self._bound()

    def _bound(self) -> set[tuple[str, str]]:
        """Read all sources once, as that takes seconds; then only when a file has changed."""
        root = pathlib.Path(self.config.rootpath, "tests")
        state = repr([(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(root.rglob("*.py"))])
        state = hashlib.sha256(state.encode()).hexdigest()
        kept = pathlib.Path(self.config.rootpath, ".pytest_cache", "clocks.json")
        if kept.is_file() and (found := json.loads(kept.read_text()))[0] == state:
            return {tuple(pair) for pair in found[1]}
        bound = _Clocks(root).bound
        kept.parent.mkdir(exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps([state, sorted(bound)]))
        part.replace(kept)
        return bound

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        global _now
        if fixturedef.scope == "function":
            return (yield)
        outer, _now = _now, collections.Counter()
        try:
            return (yield)
        finally:
            self.shared[fixturedef] = _now
            _now = outer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        global _now
        _now = collections.Counter()
        self.begin = _perf(), _cpu(), _children()
        try:
            return (yield)
        finally:
            _now = None

    def _used(self, item) -> collections.Counter[str]:
        used = collections.Counter(_now or {})
        for name in item.fixturenames:
            for fixturedef in item._fixtureinfo.name2fixturedefs.get(name, ()):
                used += self.shared.get(fixturedef, collections.Counter())
        function = getattr(item, "originalname", item.name)
        if self.clocks and (item.path.stem, function) in self.clocks:
            used["bound"] += 1
        return used

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        result = yield
        if self.strict and not any(item.get_closest_marker(m) for m in FREE):
            used = self._used(item)
            wrong = [k for k in sorted(used) if k.partition(" @ ")[0] in LAW]
            if wrong:
                pytest.fail(f"the gate has no {', '.join(wrong)}: mark it system, or do without", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item, nextitem):
        try:
            return (yield)
        finally:
            wall, cpu, children = map(sub, (_perf(), _cpu(), _children()), self.begin)
            marks = [m for m in FREE if item.get_closest_marker(m)]
            row = {"uses": dict(self._used(item)), "s": round(wall, 3), "cpu": round(cpu + children, 3), "marks": marks}
            item.user_properties.append(("tiers", row))

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.rows[report.nodeid] = dict(report.user_properties).get("tiers", {})

    def pytest_terminal_summary(self, terminalreporter):
        if self.strict:
            return
        out = self.config.getoption("--tiers-out")
        if out:
            pathlib.Path(out).write_text(json.dumps(self.rows))
        files: dict[str, collections.Counter[str]] = {}
        for nodeid, row in self.rows.items():
            counted = files.setdefault(nodeid.partition("::")[0], collections.Counter())
            counted.update(set(row.get("uses", ())))
            counted["slow"] += row.get("s", 0) > SLOW_S
            counted["cases"] += 1
        columns = ("cases", *LAW, "connect", "slow")
        w = terminalreporter.write_line
        w(f"tiers: {'file':60}" + "".join(f"{c:>9}" for c in columns))
        for name, counted in sorted(files.items(), key=lambda kv: -sum(kv[1][k] for k in LAW)):
            if any(counted[c] for c in columns[1:]):
                w(f"tiers: {name:60}" + "".join(f"{counted[c] or '':>9}" for c in columns))
