"""Where code of the user raised an exception, in a few words."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import CodeType


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
