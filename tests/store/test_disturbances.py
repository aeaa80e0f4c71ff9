"""Does every run in Postgres end once, whatever dies, freezes, is cut off, or has a wrong clock?"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crowd import Crowd, Often, forked
from support.postgres import NO_POOLER, NOT_HERE, Network, PostgresServer, pooler_program, programs

HOUR_S = 3600.0
WITHIN_S = 500.0  # on a very busy machine; else within half a minute
LEASE_S = 1.5  # of workers that others are to succeed by time
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9"),
    pytest.mark.skipif(programs() is None, reason=NOT_HERE),
]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of each test: some crash it."""
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def crowded(server: PostgresServer, tmp_path: Path) -> Callable[..., Crowd]:
    def crowd(*workers: tuple[str, float], runs: int = 60, **options: Any) -> Crowd:
        return Crowd(forked(), server.url(), tmp_path, workers or [(server.url(), 0.0)] * 4, runs=runs, **options)

    return crowd


def test_the_server_is_killed_and_started_again(
    server: PostgresServer, crowded: Callable[..., Crowd], say: Callable[[str], None]
):
    restarts = []

    def restart() -> None:
        if len(restarts) == 6 or not crowd.has_gone_on():
            return
        server.stop("immediate")
        time.sleep(0.2 * (len(restarts) % 3))
        server.start()
        restarts.append(1)

    crowd = crowded(doubt_s=1.0)
    crowd.drive(Often(0.5, 1.5, restart, after_s=0.7), WITHIN_S, lambda: len(restarts) > 3)
    say(f"{len(restarts)} crashes of the server; {crowd.assert_ended_once()}")
    assert len(restarts) > 3


def test_the_network_is_cut(server: PostgresServer, crowded: Callable[..., Crowd], say: Callable[[str], None]):
    """It carries nothing for a while, or nothing back, or ends connections, sometimes in the middle of a commit."""
    cuts = {"stalls": 0, "halves": 0, "resets": 0}
    with closing(Network(server.port)) as network, closing(Network(server.port)) as other:
        crowd = crowded(
            *[(server.url(port=one.port), 0.0) for one in (network, other) * 2], runs=100, lease_s=LEASE_S, doubt_s=1.0
        )

        def cut() -> None:
            if not crowd.has_gone_on():
                return
            one = crowd.random.choice([network, other])
            how = crowd.random.choice([*cuts])
            cuts[how] += 1
            if how != "resets":
                one.stall(is_half=how == "halves")
                is_long = crowd.random.random() < 0.2  # others succeed
                time.sleep(LEASE_S + 1.0 if is_long else crowd.random.uniform(0.1, 0.6))
                if crowd.random.random() < 0.5:
                    one.reset()
                one.heal()
            else:
                one.reset()

        crowd.drive(Often(0.05, 0.3, cut, after_s=0.5), WITHIN_S, lambda: sum(cuts.values()) > 10)
    say(f"{cuts}; {crowd.assert_ended_once()}")
    assert sum(cuts.values()) > 10


def test_workers_are_frozen_and_woken_after_their_leases(crowded: Callable[..., Crowd], say: Callable[[str], None]):
    crowd = crowded(lease_s=LEASE_S, doubt_s=1.0, runs=80)
    thaws_s: dict[int, float] = {}
    freezes = 0

    def freeze() -> None:
        nonlocal freezes
        for pid in [pid for pid, at_s in thaws_s.items() if time.monotonic() > at_s]:
            os.kill(pid, signal.SIGCONT)
            crowd.frozen.discard(pid)
            del thaws_s[pid]
        awake = [process for process in crowd.processes if process.pid not in thaws_s]
        if len(awake) > 2 and freezes < 12 and crowd.has_gone_on():
            freezes += 1
            victim = crowd.random.choice(awake)
            os.kill(victim.pid, signal.SIGSTOP)
            crowd.frozen.add(victim.pid)
            thaws_s[victim.pid] = time.monotonic() + crowd.random.uniform(LEASE_S + 0.5, LEASE_S + 2.0)

    crowd.drive(Often(0.1, 0.6, freeze, after_s=0.5), WITHIN_S, lambda: freezes > 5)
    say(f"{freezes} freezes; {crowd.assert_ended_once()}")
    assert freezes > 5


def test_workers_whose_clocks_differ_by_an_hour_are_killed(
    server: PostgresServer, crowded: Callable[..., Crowd], say: Callable[[str], None]
):
    workers = [(server.url(), ahead_s) for ahead_s in (HOUR_S / 60, HOUR_S, -HOUR_S)]
    crowd = crowded(*workers, lease_s=LEASE_S, doubt_s=1.0)
    crowd.drive(Often(0.3, 0.9, crowd.kill_one), WITHIN_S, lambda: crowd.deaths > 5)
    say(crowd.assert_ended_once())
    assert crowd.deaths > 5


@pytest.mark.skipif(pooler_program() is None, reason=NO_POOLER)
def test_a_pooler_stands_between(server: PostgresServer, crowded: Callable[..., Crowd], say: Callable[[str], None]):
    with closing(server.pooler()) as pooler:
        address = f"{server.url(port=pooler.port)}&pooled=yes"
        crowd = crowded(*[(address, 0.0)] * 4, lease_s=LEASE_S, doubt_s=1.0)
        crowd.drive(Often(0.3, 0.9, crowd.kill_one), WITHIN_S, lambda: crowd.deaths > 5)
    say(crowd.assert_ended_once())
    assert crowd.deaths > 5
