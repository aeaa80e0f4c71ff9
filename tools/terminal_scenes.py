"""Commands at a terminal, beside a model that is a server on loopback; `terminal_pictures` draws what is seen."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.stub_server import StubServer
from support.terminal import ENVIRONMENT, LAUNCH, LEFT_IN_DISORDER, LIMIT_S, Terminal, screen_of

_SECRETS = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "HF_", "COLUMNS", "NO_COLOR", "FORCE_COLOR")

MODEL = "-m openai-chat:gpt-5-mini"
CTRL_D = "\x04"

FILES = {
    "tools.py": '''
import threading
from fsm_agent import function

@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@function(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is removed"

@function
def wait() -> str:
    """Wait for a person."""
    with open("/dev/tty", "w") as terminal:
        terminal.write("\\a")  # nobody sees it, and a test can wait for it
    threading.Event().wait()
    return "nobody came"
''',
}


class Act(NamedTuple):
    """One command.

    Attributes:
        line: It, as it is typed in a shell.
        keys: What a person types at a terminal when a text is seen; when it begins, for an empty text.
        program: What runs with its arguments, for one that is stopped in a place.
    """

    line: str
    keys: Sequence[tuple[str, str]] = ()
    program: str = LAUNCH


class Scene(NamedTuple):
    """Commands in one folder, beside one server."""

    acts: Sequence[Act]
    server: Callable[[], AbstractContextManager[Any]] = lambda: StubServer(())


def asks(name: str, arguments: str = "{}") -> dict[str, Any]:
    """A message of the model that calls a function."""
    called = [{"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": None, "tool_calls": called}


def says(*messages: str | dict[str, Any]) -> Callable[[], StubServer]:
    return lambda: StubServer(messages)


ADDS, REMOVES = asks("add", '{"a": 17, "b": 25}'), asks("remove", '{"path": "notes.txt"}')


@contextmanager
def stage(scene: Scene) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the files of all scenes, and the environment that leads to its server."""
    with tempfile.TemporaryDirectory(prefix="fsm-", dir="/tmp") as name, scene.server() as server:
        folder = Path(name) / "here"
        for path, text in FILES.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.lstrip("\n"))
        environment = {
            key: value
            for key, value in ENVIRONMENT.items()
            if not key.startswith(_SECRETS) and not key.endswith(("_API_KEY", "_TOKEN", "_BASE_URL", "_ENDPOINT"))
        }
        environment |= {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "sk-of-the-pictures",
            "HF_HOME": f"{name}/hub",
            "HF_ENDPOINT": server.base_url.removesuffix("/v1"),
            "TMPDIR": name,
            "LC_ALL": "C.UTF-8",
            "USER": "ann",
            "LOGNAME": "ann",
        }
        yield folder, environment


def at_terminal(act: Act, folder: Path, environment: dict[str, str], *, columns: int) -> tuple[str, str]:
    """Return all that was written, and the screen and the status."""
    words = shlex.split(act.line)[1:]
    with Terminal(*words, program=act.program, columns=columns, folder=folder, environment=environment) as terminal:
        for text, keys in act.keys:
            if text:
                terminal.read_until(text)
            terminal.type(keys)
        terminal.read_until()
        status = terminal.process.wait(LIMIT_S)
        assert LEFT_IN_DISORDER not in terminal.seen, terminal.seen
        return terminal.seen, f"{screen_of(terminal.seen, columns)}\n[{status}]"
