"""Rules for every test: it reaches only this machine, and sees no keys of the user."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import tiers  # first: it wraps `sleep` for all later imports

if sys.dont_write_bytecode:
    # Keep bytecode out of the tree, as was asked; without any, each OS process here would compile what it imports.
    # And before all imports below: pytest rewrites every module of its plugins, and those of hypothesis are hundreds.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(
        Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    )
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import HealthCheck, is_hypothesis_test, settings
from support.examples import GATE, GATE_COUNT, NIGHTLY, NIGHTLY_COUNT
from support.http_clients import chosen
from support.loopback import in_memory

from fsm_agent.testing import registries

gc.disable()  # until all tests are collected: of what is made until then nearly everything stays

for variable in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN", "_proxy", "_PROXY"))]:
    del os.environ[variable]

NIGHTLY_S = 600  # until a nightly test is ended that says nothing else
SYSTEM_S = 120  # and one of the system part
LOCAL_NAMES = ("localhost", "", None)


def _stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "localhost"
    elif event == "socket.getaddrinfo":
        host = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
    else:
        return
    if host in LOCAL_NAMES or str(host).endswith((".localhost", ".invalid")):
        return
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise RuntimeError(f"a test tried to reach {host!r}")


class _WarningConnection(sqlite3.Connection):
    """A connection that warns if it is dropped before it is closed, as in Python 3.13."""

    is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True

    def __del__(self) -> None:
        if not self.is_closed:
            warnings.warn(f"unclosed database in {self!r}", ResourceWarning, stacklevel=1)


if sys.version_info < (3, 13):
    sqlite3.connect = partial(sqlite3.connect, factory=_WarningConnection)  # type: ignore[assignment]

pytest_plugins = ["tiers"]

# The machine may be busy with something else: neither an example nor its making has a time.  The gate draws the same
# examples in each run, so that it never fails by chance.
settings.register_profile(
    GATE,
    max_examples=GATE_COUNT,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    NIGHTLY, max_examples=NIGHTLY_COUNT, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(GATE)

sys.addaudithook(_stay_here)


@pytest.fixture(params=[None, "httpx"], ids=["own", "httpx"])
def over(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """What the clients of `http_clients.client_of` send over, one after the other."""
    chosen.append(request.param)
    yield request.param
    chosen.pop()


SAID = "said"


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line below all tests, also from the OS processes of xdist, whose output is lost."""
    return lambda text: request.node.user_properties.append((SAID, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have said, such as what was counted."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    for report in reports:
        for name, text in report.user_properties if report.when == "call" else ():
            if name == SAID:
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {text}")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run a named file or test in one OS process, and whole folders in several.

    There are two more processes than cores, because tests wait half of their time.
    """
    named = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if any(path.is_file() for path in named) else cores + 2


def pytest_configure(config: pytest.Config) -> None:
    """Draw all examples of each property, others each time, where nightly tests run; leave those to their night."""
    if config.option.markexpr == "system":
        config.option.markexpr = "system and not nightly"
    if config.option.markexpr == "nightly":
        settings.load_profile(NIGHTLY)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let properties be among the nightly tests as well; give real things more time than the gate has."""
    for item in items:
        if settings.get_current_profile_name() == NIGHTLY and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("nightly")
        if item.get_closest_marker("timeout"):
            continue
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(NIGHTLY_S))
        elif item.get_closest_marker("system"):
            item.add_marker(pytest.mark.timeout(SYSTEM_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Servers of the gate bind no port.  In other parts they do, because their clients may be other OS processes."""
    is_gate = not any(item.get_closest_marker(name) for name in tiers.FREE)
    with in_memory(is_on=is_gate):
        return (yield)


def pytest_collection_finish() -> None:
    """What is there now stays: no collection of garbage needs to look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_looked_at_twice() -> Iterator[None]:
    """Collect the garbage of a test file.  Loaded modules are frozen, so that later collections skip them."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _interrupts_arrive() -> Iterator[None]:
    """Undo that a shell ignores SIGINT for the jobs in its background, here and in OS processes that tests start."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _no_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a person configured decides over a test."""
    monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine functions are tested in asyncio's event loop, which anyio's plugin runs."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_provider_stays() -> Iterator[None]:
    """Remove a test's additions to the catalogue after the test."""
    with registries():
        yield
