"""Is what a test sets in force where it should be, and nowhere else?"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from fsm_agent._internal.scope import ScopedValue

T = TypeVar("T")


@pytest.fixture
def volume() -> ScopedValue[int]:
    return ScopedValue("volume", 0)


def in_a_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread that was started without a context."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_the_default_holds_outside_of_every_block(volume: ScopedValue[int]):
    assert volume.get() == 0
    with volume.set(1):
        assert volume.get() == 1
    assert volume.get() == 0


def test_the_innermost_block_wins_and_the_outer_one_is_back_after_it(volume: ScopedValue[int]):
    with volume.set(1):
        with volume.set(2):
            assert volume.get() == 2
        assert volume.get() == 1


def test_a_block_ends_with_an_exception(volume: ScopedValue[int]):
    with pytest.raises(ZeroDivisionError), volume.set(1):
        raise ZeroDivisionError
    assert volume.get() == 0


def test_a_thread_without_a_context_sees_what_was_set_last(volume: ScopedValue[int]):
    with volume.set(1), volume.set(2):
        assert in_a_thread(volume.get) == 2
    assert in_a_thread(volume.get) == 0


def test_threads_that_set_different_values_do_not_see_each_others(volume: ScopedValue[int]):
    both = threading.Barrier(2)
    seen: dict[int, int] = {}

    def listen(value: int) -> None:
        with volume.set(value):
            both.wait(10)
            seen[value] = volume.get()
            both.wait(10)

    threads = [threading.Thread(target=listen, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {1: 1, 2: 2}


def test_tasks_that_set_different_values_do_not_see_each_others(volume: ScopedValue[int]):
    async def listen(value: int, both: asyncio.Barrier) -> int:
        with volume.set(value):
            async with both:
                heard = volume.get()
            async with both:
                return heard

    async def main() -> list[int]:
        both = asyncio.Barrier(2)
        return await asyncio.gather(listen(1, both), listen(2, both))

    assert asyncio.run(main()) == [1, 2]


def test_a_task_that_outlives_its_block_sees_the_block_around_it(volume: ScopedValue[int]):
    with volume.set(1):
        with volume.set(2):
            later = contextvars.copy_context()
            assert later.run(volume.get) == 2
        assert later.run(volume.get) == 1
    assert later.run(volume.get) == 0


def test_a_block_may_be_closed_in_another_context(volume: ScopedValue[int]):
    """For example, pytest may tear down a fixture in another task."""
    block = volume.set(1)
    contextvars.copy_context().run(block.__enter__)
    assert volume.get() == 1
    block.__exit__(None, None, None)
    assert volume.get() == 0
