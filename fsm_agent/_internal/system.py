"""Services from the operating system and the import system: forks, file locks, modules by name, and places in code."""

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
    """Lock an open file until it is closed.  Return False if another holder has locked it.

    Raises:
        OSError: If the file system does not support locks, as with some network file systems.
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
    """Register functions as `os.register_at_fork` does, but do nothing on Windows, where processes do not fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            after_in_child=after_in_child,
            **{name: call for name, call in (("before", before), ("after_in_parent", after_in_parent)) if call},
        )


making = threading.RLock()  # for making objects that two threads must not make at once

at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)


def module_named(name: str) -> Any:
    """Return a user's module, without importing it again if it is the running program."""
    if name not in sys.modules and (main := sys.modules.get("__main__")) is not None and _is_program(main, name):
        return main
    return import_module(name)


def _is_program(main: Any, name: str) -> bool:
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # started with python -m
        return bool(spec.name == name)
    file = getattr(main, "__file__", None)
    if not file or Path(file).stem != name.rpartition(".")[2]:
        return False
    with suppress(Exception):  # a broken outer package; the import will report it
        found = find_spec(name)
        return found is not None and found.origin is not None and Path(found.origin).samefile(file)
    return False


def place_of(error: BaseException) -> str:
    """Return the line of the user's own code that raised an exception, such as ``shop.py:12``, or ``""`` if unknown."""
    place, at = "", error.__traceback__
    while at is not None:
        code, module = at.tb_frame.f_code, str(at.tb_frame.f_globals.get("__name__", ""))
        if _is_own(code, module.partition(".")[0]):
            place = f"{PurePath(code.co_filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return place


def with_place(text: str, error: BaseException) -> str:
    """Return an exception's text, with the place in the user's code where it was raised."""
    place = place_of(error)
    return f"{text} ({place})" if place else text


def _is_own(code: CodeType, package: str) -> bool:
    is_library = package == "fsm_agent" or package in sys.stdlib_module_names
    return not is_library and "site-packages" not in PurePath(code.co_filename).parts
