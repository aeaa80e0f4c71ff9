"""Makes an OS process that is started with it lack what Windows lacks, and then runs a program.

``python without_posix.py program.py argument…``.  The standard library and ``mcp`` are imported beforehand, since they
look at names that only their other half has on Windows.
"""

from __future__ import annotations

import asyncio.subprocess
import logging.handlers
import multiprocessing.connection
import os
import runpy
import signal
import sqlite3
import ssl
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from types import ModuleType

with suppress(ImportError):  # it comes with an extra, and asks by the platform
    import mcp.server.stdio  # noqa: F401
USED = (asyncio.subprocess, logging.handlers, multiprocessing.connection, sqlite3, ssl, subprocess, tempfile)
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
OF_OS = (
    *("O_ASYNC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "WNOWAIT", "chown", "fchmod", "fork", "geteuid", "getpgid"),
    *("getuid", "killpg", "mkfifo", "register_at_fork", "set_blocking", "setsid", "waitid"),
)
OF_SIGNAL = (
    *("SIGALRM", "SIGCHLD", "SIGHUP", "SIGIO", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGWINCH"),
    *("pthread_sigmask", "setitimer", "set_wakeup_fd", "siginterrupt"),
)


def forget() -> None:
    """Remove the names, and let no import find the modules."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            vars(module).pop(name, None)
    here, sys.platform = sys.platform, "win32"  # these ask for it by name; the standard library would not bear it
    sys.modules["msvcrt"] = ModuleType("msvcrt")
    import_module("fsm_agent.clients.local.server")

    sys.platform = here


if __name__ == "__main__":
    forget()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
