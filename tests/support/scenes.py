"""The scenes whose transcripts are kept: commands, the files and models that they need, and what a person types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from support.fault_server import HOLD, SSE_HEAD, STALL, FaultServer, chunk, events, http
from support.stub_server import StubServer
from support.terminal import LAUNCH

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
    "prompts/shop/greet.jinja": "Greet {{ name }} in one sentence.\n",
    "prompts/shop/count.jinja": '+++\noutput = "int"\n+++\nHow many words has {{ text }}?\n',
    "broken/shop/greet.jinja": "Greet {{ name }.\n",
}


class Act(NamedTuple):
    """One command.

    Attributes:
        line: It, as it is typed in a shell.
        keys: What a person types at a terminal when a text is seen; when it begins, for an empty text.
        piped: Standard input where there is no terminal.
        program: What runs with its arguments, for one that is stopped in a place.
    """

    line: str
    keys: Sequence[tuple[str, str]] = ()
    piped: str = ""
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
NO = (("[y/N]: ", "n\n"),)
YES = (("[y/N]: ", "y\n"),)
DEMO = (
    *(ADDS, "The answer is 42.", '{"name": "Maria Silva", "age": 34, "city": "Lisbon"}', "A week has 7 days."),
    *('{"value": 7}', "Positive", asks("erase", '{"path": "notes.txt"}'), "It is gone."),
)

SCENES: dict[str, Scene] = {
    "ask": Scene(
        [
            Act(f"fsm-agent ask 'What is 17 + 25?' {MODEL} --function tools:add"),
            Act(f"fsm-agent ask - {MODEL} --quiet", [("", f"Who are you?\n{CTRL_D}")], "Who are you?\n"),
            Act(f"fsm-agent ask 'Who are you?' {MODEL} --store runs.db"),
            Act("fsm-agent ask 'Who are you?' -m nobody:gpt-5-mini"),
            Act(f"fsm-agent ask 'Who are you?' {MODEL} --set rounds=none"),
            Act(f"fsm-agent ask 'What is 17 + 25?' {MODEL} --function tools:subtract"),
        ],
        says(ADDS, "17 + 25 is 42.", "A model of few words, and of fewer lines.", "A model."),
    ),
    "ask-approval": Scene([Act(TIDY, NO), Act("fsm-agent runs list --store runs.db")], says(REMOVES, "It stays.")),
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
                "What is 17 + 25?\nSure?\n/undo\n/draw\n/fork other\n/nothing\n/help\n",
            )
        ],
        says(ADDS, "17 + 25 is 42.", "Quite sure."),
    ),
    "demo": Scene([Act(f"fsm-agent demo {MODEL}")], says(*DEMO)),
    "runs": Scene(
        [
            Act(TIDY, NO),
            Act(f"fsm-agent ask 'Who are you?' {MODEL} --store runs.db --run-id who"),
            Act("fsm-agent runs list --store runs.db"),
            Act("fsm-agent runs list --store runs.db --asked"),
            Act("fsm-agent runs show who --store runs.db"),
            Act("fsm-agent runs show nobody --store runs.db"),
            Act("fsm-agent runs diagram who --store runs.db --format dot --output who.dot"),
            Act("fsm-agent runs diff who tidy --store runs.db"),
            Act("fsm-agent runs replay who --store runs.db --agents desk"),
            Act("fsm-agent runs prune --keep 0 --dry-run --store runs.db"),
            Act("fsm-agent runs delete who --store runs.db"),
        ],
        says(REMOVES, "It stays.", "A model.", "A model."),
    ),
    "agents": Scene(
        [
            Act("fsm-agent agents new weather"),
            Act("fsm-agent agents check weather/weather.toml"),
            Act("fsm-agent agents list weather/weather.toml"),
            Act(f"fsm-agent agents run weather/weather.toml 'How many words has this?' {MODEL}"),
            Act("fsm-agent agents new Weather"),
        ],
        says('{"text": "Four.", "confidence": 0.9}'),
    ),
    "flows": Scene(
        [
            Act("fsm-agent flows list letters"),
            Act("fsm-agent flows check letters"),
            Act("fsm-agent flows diagram letters --format mermaid"),
            Act(f"{RAIN} --store runs.db --run-id rain"),
            Act("""fsm-agent flows answer letters rain review '{"by": "ann"}' --store runs.db"""),
            Act("fsm-agent flows run letters --run-id rain --store runs.db"),
            Act("fsm-agent flows run letters 7 --store runs.db"),
        ],
        says("It rains."),
    ),
    "prompts": Scene(
        [
            Act("fsm-agent prompts list"),
            Act("fsm-agent prompts show shop/count"),
            Act("fsm-agent prompts check"),
            Act("fsm-agent prompts check --directory broken"),
        ]
    ),
    "models": Scene(
        [
            Act("fsm-agent models list"),
            Act("fsm-agent models path hf:Qwen/Qwen3-4B-GGUF"),
            Act("fsm-agent models path nothing"),
        ]
    ),
    "help": Scene([Act("fsm-agent --help"), Act("fsm-agent runs --help"), Act("fsm-agent ask --help")]),
    "providers": Scene([Act("fsm-agent providers list")]),
    "diagram": Scene([Act("fsm-agent diagram"), Act("fsm-agent diagram --output call.dot")]),
    "worker": Scene(
        [
            Act(TIDY, NO),
            Act("fsm-agent worker --agents desk --store runs.db --once"),
            Act("fsm-agent worker --agents nothing --store runs.db --once"),
        ],
        says(REMOVES, "It stays."),
    ),
}

# Ctrl-C in each of these places; what was printed then is run next.

STREAMS = [SSE_HEAD + chunk(events({"choices": [{"delta": {"content": "The first"}}]}, done=False)), STALL]
WHOLE = [
    SSE_HEAD + chunk(events({"choices": [{"delta": {"content": "The first and the last."}, "finish_reason": "stop"}]}))
]
BUSY = [http({"error": {"message": "slow down"}}, status=429, retry_after="3")]
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
