"""Is who waits woken at once, and nobody else?"""

from __future__ import annotations

import contextvars
import threading

import pytest

from fsm_agent.runtime.abort import Abort, Aborted, abort_in_force


def test_who_waits_is_woken_now_and_later() -> None:
    abort, woken = Abort(), list[str]()
    abort.add(early := lambda: woken.append("early"))
    abort.add(gone := lambda: woken.append("gone"))
    abort.discard(gone)
    assert woken == []
    abort.set()
    abort.add(lambda: woken.append("late"))
    abort.discard(early)
    assert woken == ["early", "late"]


def test_who_is_no_longer_there_is_not_being_woken() -> None:
    """So what it would have ended may go to somebody else."""
    abort, has_begun, may_end = Abort(), threading.Event(), threading.Event()
    order: list[str] = []

    def wake() -> None:
        has_begun.set()
        may_end.wait(5)
        order.append("woken")

    def leave() -> None:
        abort.discard(wake)
        order.append("left")

    abort.add(wake)
    threads = [threading.Thread(target=abort.set)]
    threads[0].start()
    has_begun.wait(5)
    threads.append(threading.Thread(target=leave))
    threads[1].start()
    may_end.set()
    for thread in threads:
        thread.join(5)
    assert order == ["woken", "left"]


def test_it_is_in_force_where_it_was_put_and_in_threads_begun_there() -> None:
    def ask() -> list[Abort | None]:
        found = [abort_in_force()]
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=[lambda: found.append(abort_in_force())])
        thread.start()
        thread.join(5)
        return found

    abort, inner = Abort(), Abort()
    assert abort_in_force() is None
    assert abort.run(ask) == [abort, abort]
    assert abort.run(lambda: [inner.run(abort_in_force), abort_in_force()]) == [inner, abort]
    assert abort_in_force() is None


def test_what_is_given_up_is_not_begun() -> None:
    abort = Abort()
    abort.set()
    with pytest.raises(Aborted):
        abort.run(pytest.fail, "it was begun")
    assert abort_in_force() is None


def test_it_is_no_failure() -> None:
    assert not issubclass(Aborted, Exception)
