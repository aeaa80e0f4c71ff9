"""The transcripts of the commands: ``--write`` plays them anew.

    PYTHONPATH=tests python tools/transcripts.py --write

Each scene is played at a terminal of 80 columns; its transcript is a file of ``tests/cli/transcripts``.  The model is a
server on loopback.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.fault_server import HOLD, SSE_HEAD, STALL, FaultServer, chunk, events, http
from support.paths import TESTS
from support.stub_server import StubServer
from support.terminal import ENVIRONMENT, LAUNCH, LEFT_IN_DISORDER, LIMIT_S, Terminal, alike, screen_of

FOLDER = TESTS / "cli" / "transcripts"
COLUMNS = 80
_CONTINUES = re.compile(r"to continue: (fsm-agent [^\r\n]*)")
_SECRETS = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "HF_", "COLUMNS", "NO_COLOR", "FORCE_COLOR")


MODEL = "-m openai-chat:gpt-5-mini"
CTRL_C, CTRL_D = "\x03", "\x04"
CONTINUE = "the command that was printed"

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
    "desk.py": """
from fsm_agent import Agent
from tools import remove

desk = Agent("openai-chat:gpt-5-mini", name="ask", functions=[remove])
""",
    "letters.py": """
from dataclasses import dataclass, replace
from fsm_agent import Agent
from fsm_agent.flows import Flow, call, end, wait

@dataclass(frozen=True)
class Letter:
    about: str
    text: str = ""

@dataclass(frozen=True)
class Approve:
    by: str

writer = Agent("openai-chat:gpt-5-mini", name="writer")

@call(writer)
def drafting(d: Letter) -> str:
    return f"Write about {d.about}"

@wait(Approve)
def review(d: Letter) -> str:
    return d.text

sent = end("sent")
letters = Flow("letters", Letter, start=drafting, rows=[
    drafting.done(review, do=lambda d, a: replace(d, text=a)),
    review.done(sent),
])
""",
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
TIDY = f"fsm-agent ask 'Remove notes.txt.' {MODEL} --function tools:remove --store runs.db --run-id tidy"
RAIN = """fsm-agent flows run letters '{"about": "rain"}'"""
YES = (("[y/N]: ", "y\n"),)

SCENES: dict[str, Scene] = {
    "ask": Scene(
        [
            Act(f"fsm-agent ask 'What is 17 + 25?' {MODEL} --function tools:add"),
            Act(f"fsm-agent ask - {MODEL} --quiet", [("", f"Who are you?\n{CTRL_D}")]),
            Act(f"fsm-agent ask 'Who are you?' {MODEL} --store runs.db"),
            Act("fsm-agent ask 'Who are you?' -m nobody:gpt-5-mini"),
            Act(f"fsm-agent ask 'Who are you?' {MODEL} --set rounds=none"),
            Act(f"fsm-agent ask 'What is 17 + 25?' {MODEL} --function tools:subtract"),
        ],
        says(ADDS, "17 + 25 is 42.", "A model of few words, and of fewer lines.", "A model."),
    ),
    "chat": Scene(
        [
            Act(
                f"fsm-agent chat {MODEL} --function tools:add --store chats.db",
                [
                    ("> ", "What is 17 + 25?\n"),
                    ("> ", "Sure?\n"),
                    ("> ", "/undo\n"),
                    ("> ", "/draw\n"),
                    ("> ", "/fork other\n"),
                    ("> ", "/nothing\n"),
                    ("> ", "/help\n"),
                    ("> ", CTRL_D),
                ],
            )
        ],
        says(ADDS, "17 + 25 is 42.", "Quite sure."),
    ),
}

# Ctrl-C in each of these places; what was printed then is run next.

STREAMS = [SSE_HEAD + chunk(events({"choices": [{"delta": {"content": "The first"}}]}, done=False)), STALL]
WHOLE = [
    SSE_HEAD + chunk(events({"choices": [{"delta": {"content": "The first and the last."}, "finish_reason": "stop"}]}))
]
BUSY = [http({"error": {"message": "slow down"}}, status=429, retry_after="8")]  # as long as a Ctrl-C may take to come
WHO = f"fsm-agent ask 'Who are you?' {MODEL}"
_AT_IMPORT = """
import sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "fsm_agent.cli.commands":
            sys.stderr.write("it begins\\n")
            for _ in range(600):  # a signal that came before a pause would not end it
                time.sleep(0.1)
sys.meta_path.insert(0, Finder())
"""
_AT_COMMIT = """
import sqlite3, sys, time
connect = sqlite3.connect
class Connection(sqlite3.Connection):
    has_reply = is_over = False
    def execute(self, statement, *values):
        if statement == "COMMIT" and Connection.has_reply:
            Connection.has_reply, Connection.is_over = False, True
            sys.stderr.write("it writes\\n")
            for _ in range(600):
                time.sleep(0.1)
        return super().execute(statement, *self.seen(values))
    def executemany(self, statement, *values):
        return super().executemany(statement, *self.seen([[*rows] for rows in values]))
    def seen(self, values):
        if '"kind":"replied"' in str(values) and not self.is_over:
            Connection.has_reply = True
        return values
sqlite3.connect = lambda *arguments, **options: connect(*arguments, **{**options, "factory": Connection})
"""


def faults(*scripts: Any) -> Callable[[], FaultServer]:
    return lambda: FaultServer(*scripts)


def when(text: str) -> Sequence[tuple[str, str]]:
    """Ctrl-C when ``text`` is seen."""
    return ((text, CTRL_C),)


SCENES |= {
    "ctrl-c-at-the-start": Scene([Act(WHO, when("it begins"), program=_AT_IMPORT + LAUNCH)]),
    "ctrl-c-while-a-model-loads": Scene(
        [
            Act("fsm-agent ask 'Who are you?' -m local:hf:stand/in:Q4_K_M", when("starting the model")),
        ],
        faults([HOLD]),
    ),
    "ctrl-c-while-it-streams": Scene(
        [
            Act(WHO, when("The first")),
            Act(f"{WHO} --store runs.db --run-id who", when("The first")),
            Act(CONTINUE, when("The first")),
            Act(CONTINUE),
        ],
        faults(STREAMS, STREAMS, STREAMS, WHOLE),
    ),
    "ctrl-c-at-a-question": Scene([Act(TIDY, when("[y/N]: ")), Act(CONTINUE, YES)], says(REMOVES, "It is gone.")),
    "ctrl-c-while-a-function-runs": Scene(
        [
            Act(f"fsm-agent ask Wait. {MODEL} --function tools:wait --store runs.db --run-id wait", when("\a")),
            Act(CONTINUE, when("\a")),
            Act("fsm-agent runs show wait --store runs.db"),
        ],
        says(asks("wait")),
    ),
    "ctrl-c-in-a-backoff": Scene(
        [Act(f"{WHO} --store runs.db --run-id who", when("Backoff (")), Act(CONTINUE)],
        faults(BUSY, WHOLE),
    ),
    "ctrl-c-while-it-writes": Scene(
        [Act(f"{WHO} --store runs.db --run-id who", when("it writes"), program=_AT_COMMIT + LAUNCH), Act(CONTINUE)],
        says("A model.", "A model, still."),
    ),
    "ctrl-c-while-a-flow-writes": Scene(
        [
            Act(f"{RAIN} --store runs.db --run-id rain", when("it writes"), program=_AT_COMMIT + LAUNCH),
            Act(CONTINUE),
            Act("""fsm-agent flows answer letters rain review '{"by": "ann"}' --store runs.db"""),
            Act(CONTINUE),
        ],
        says("It rains.", "It rains, still."),
    ),
    "ctrl-c-in-a-chat": Scene(
        [
            Act(
                f"fsm-agent chat {MODEL} --store chats.db",
                [
                    ("> ", "Who are you?\n"),
                    ("last.", ""),
                    ("> ", "Sure?\n"),
                    ("The first", CTRL_C),
                    ("> ", "x"),
                    ("x", CTRL_C),
                ],
            ),
            Act(CONTINUE, [("> ", "/undo\n"), ("> ", CTRL_D)]),
        ],
        faults(WHOLE, STREAMS),
    ),
    "ctrl-c-elsewhere": Scene(
        [
            Act("fsm-agent agents new weather"),
            Act(f"fsm-agent agents run weather/weather.toml 'How many?' {MODEL}", when("left out")),
            Act(
                """fsm-agent flows run letters '{"about": "rain"}' --store runs.db --run-id rain""", when("drafting ·")
            ),
            Act("fsm-agent worker --agents desk --store runs.db", when("ends it")),
            Act(f"fsm-agent demo {MODEL}", when("(begun)")),
        ],
        faults([HOLD], [HOLD], [HOLD]),
    ),
}


def transcript(name: str) -> str:
    """Play a scene, and return what was seen."""
    with stage(SCENES[name]) as (folder, environment):
        seen, played = "", list[str]()
        for act in SCENES[name].acts:
            if act.line == CONTINUE:
                printed = _CONTINUES.findall(re.sub(r"\x1b\[[\d;]*m", "", seen))
                assert printed, f"no command goes on with it: {seen}"
                act = act._replace(line=printed[-1])
            seen, shown = at_terminal(act, folder, environment, columns=COLUMNS)
            played.append(f"$ {alike(act.line)}\n{shown}")
    return "\n\n".join(played)


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
            "OPENAI_API_KEY": "sk-of-the-transcripts",
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


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit("PYTHONPATH=tests python tools/transcripts.py --write [SCENE …]")
    for name in sys.argv[2:] or SCENES:
        file_of(name).write_text(f"{transcript(name)}\n", "utf-8")
        print(os.path.relpath(file_of(name)))
