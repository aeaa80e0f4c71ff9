"""Modules by their names, as users write them in files and options."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def module_named(name: str) -> Any:
    """Return a module of a user's; that of the program that runs is not imported a second time.

    Raises:
        BaseException: As the module does when it is imported.
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
