"""The command ``fsm-agent``: its entry point, and the message to show if the extra is missing.

The commands are in `commands`, their options in `options`, and their output in `output` and `terminal`.  The rest of
the package does not import this one.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

EXTRA = ("typer", "rich")  # only the command needs these

if TYPE_CHECKING:
    from fsm_agent.cli.commands import app as app
    from fsm_agent.cli.output import TerminalHook as TerminalHook
else:

    def __getattr__(name: str) -> object:
        """Load a name with the libraries that it needs, or say how to install them."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        try:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in EXTRA:
                raise
            needs = f"{name} needs {error.name}; run pip install 'fsm-agent[cli]'"
            raise ImportError(needs, name=error.name) from error


__all__ = ["TerminalHook", "app"]
_HOMES = {"TerminalHook": "output", "app": "commands"}


def _open_streams() -> None:
    """Open closed standard streams, as after ``>&-``, on the null device, so that no other file gets their numbers."""
    for name in ("stdin", "stdout", "stderr"):  # in this order, since each gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def main() -> None:
    """Run the command, which always ends with an exit code and never with a traceback."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a stream may be closed, or of another type
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        import_module("fsm_agent.cli.commands").app(prog_name="fsm-agent")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        sys.exit(f"fsm-agent: the command needs {missing!r}; run pip install 'fsm-agent[cli]'")
    except OSError as error:  # such as help to a full disk
        with suppress(OSError, ValueError):
            sys.stderr.write(f"fsm-agent: {type(error).__name__}: {error}\n")
        import_module("fsm_agent.cli.terminal").discard_output()
        sys.exit(1)
    except KeyboardInterrupt:  # before a command has begun
        sys.stderr.write("fsm-agent: interrupted\n")
        sys.exit(130)
