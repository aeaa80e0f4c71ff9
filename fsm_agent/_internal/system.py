"""What the operating system and the import system give: forks, file locks, modules by name, places in code."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from types import CodeType
from typing import Any

try:
    import fcntl
except ImportError:  # on Windows
    HAVE_FLOCK = False
else:
    HAVE_FLOCK = True


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, until it is closed; return False if another holder has it.

    Args:
        descriptor: Of the open file.
        shared: Other shared locks are let in; an exclusive one is not.

    Raises:
        OSError: If the file system has no locks, as some of a network.
    """
    if not HAVE_FLOCK:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def at_fork(
    *,
    after_in_child: Callable[[], Any],
    before: Callable[[], Any] | None = None,
    after_in_parent: Callable[[], Any] | None = None,
) -> None:
    """Register functions as `os.register_at_fork` does; do nothing on Windows, where no process forks.

    Args:
        after_in_child: Called in the new process: threads, connections and locks of its parent are not its own.
        before: Called in the parent, for example to take a lock that no other thread may hold during the fork.
        after_in_parent: Called in the parent behind the fork.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            after_in_child=after_in_child,
            **{name: call for name, call in (("before", before), ("after_in_parent", after_in_parent)) if call},
        )


making = threading.RLock()  # held while an object is made that two threads must not make at once

at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)


def module_named(name: str) -> Any:
    """Return a module of a user's; that of the program that runs is not imported a second time.

    Raises:
        BaseException: Whatever the module raises when it is imported.
    """
    if name not in sys.modules and (main := sys.modules.get("__main__")) is not None and _is_program(main, name):
        return main
    return import_module(name)


def _is_program(main: Any, name: str) -> bool:
    """Return whether the program that runs is the module of this name."""
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # of python -m
        return bool(spec.name == name)
    file = getattr(main, "__file__", None)
    if not file or Path(file).stem != name.rpartition(".")[2]:
        return False
    with suppress(Exception):  # of a package around it; the import tells
        found = find_spec(name)
        return found is not None and found.origin is not None and Path(found.origin).samefile(file)
    return False


def place_of(error: BaseException) -> str:
    """Return ``shop.py:12``: the line of the user's code, not of a library that it calls; empty: not known."""
    place, at = "", error.__traceback__
    while at is not None:
        code, module = at.tb_frame.f_code, str(at.tb_frame.f_globals.get("__name__", ""))
        if _is_own(code, module.partition(".")[0]):
            place = f"{PurePath(code.co_filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return place


def with_place(text: str, error: BaseException) -> str:
    """Return what is said of an exception, with its place."""
    place = place_of(error)
    return f"{text} ({place})" if place else text


def _is_own(code: CodeType, package: str) -> bool:
    is_library = package == "fsm_agent" or package in sys.stdlib_module_names
    return not is_library and "site-packages" not in PurePath(code.co_filename).parts
