"""A long coding session beside other libraries: ``PYTHONPATH=tests python -m benchmarks.long_session [ROUNDS]``.

Each library plays the same session (`support.coding_session`) against a server on this machine that speaks chat
completions, and has to stay within 32,000 tokens.  All summarize from 24,000 tokens on; what is kept then is each
library's default.  What is counted is what arrives at the server.

The other libraries are installed from PyPI into environments of their own, in a folder of the temporary folder that is
kept for the next time; ``BENCH_VENVS`` names another.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from support.coding_session import HARD, Model, session

PEERS = Path(__file__).with_name("long_session_peers.py")
TESTS = PEERS.parents[1]
OUTPUT_TOKENS = 50


class Library(NamedTuple):
    """A library, and what of it is installed; nothing: it is here already."""

    which: str
    name: str
    packages: tuple[str, ...] = ()


LIBRARIES = (
    Library("fsm_agent", "fsm_agent, `Budget(hard=32_000)`"),
    Library("pydantic_ai", "pydantic-ai, `ProcessHistory`", ("pydantic-ai-slim[openai]",)),
    Library(
        "pydantic_ai_harness",
        "pydantic-ai-harness, `SummarizingCompaction`",
        ("pydantic-ai-harness>=0.60", "pydantic-ai-slim[openai]"),  # an older one would suit a newer pydantic-ai better
    ),
    Library("langchain", "langchain, `SummarizationMiddleware`", ("langchain", "langgraph", "langchain-openai")),
)


def completion(number: int, said: str, arguments: dict[str, Any] | None, tokens: int) -> bytes:
    """Return a chat completion as OpenAI sends it."""
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if arguments is not None:
        called = {"name": "read", "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"call_{number:020}", "type": "function", "function": called}]
    usage = {"prompt_tokens": tokens, "completion_tokens": OUTPUT_TOKENS, "total_tokens": tokens + OUTPUT_TOKENS}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if arguments is not None else "stop"}
    head = {"id": f"c{number}", "object": "chat.completion", "created": 1_795_000_000, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": usage}).encode()


@contextmanager
def served(model: Model) -> Iterator[str]:
    """Serve a model, and yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = completion(len(model.sizes) + len(model.summary_sizes), *model.answer(body))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def python_of(library: Library) -> str:
    """Return the interpreter that has a library, installed if it is not yet there."""
    if not library.packages:
        return sys.executable
    folder = Path(os.environ.get("BENCH_VENVS", Path(tempfile.gettempdir()) / "long-session-venvs")) / library.which
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *library.packages], check=True)
    return str(python)


def versions(library: Library, python: str) -> str:
    names = [re.split(r"[\[>]", package)[0] for package in library.packages]
    if not names:
        return f"fsm-agent {version('fsm-agent')}"
    listing = f"from importlib.metadata import version as v; print(*[f'{{n}} {{v(n)}}' for n in {names}], sep=', ')"
    return subprocess.run([python, "-c", listing], check=True, capture_output=True, text=True).stdout.strip()


def play(library: Library, python: str, rounds: int) -> Model:
    """Play the session, and return the model with what it was sent."""
    model = Model(session(rounds))
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OPENAI_API_KEY": "k", "LANGSMITH_TRACING": "false"}
    with served(model) as base_url:
        subprocess.run([python, str(PEERS), library.which, base_url, str(rounds)], check=True, env=environment)
    return model


def row(name: str, model: Model) -> str:
    every = [*model.sizes, *model.summary_sizes]
    cells = (
        name,
        f"{len(model.sizes):,}",
        f"{len(model.summary_sizes):,}",
        f"{sum(every) / 1e6:.1f}",
        f"{sum(model.summary_sizes) / 1e6:.1f}",
        f"{max(every):,}",
        f"{sum(size > HARD for size in every):,}",
        f"{sum(model.extending) / len(model.extending):.1%}",
    )
    return f"| {' | '.join(cells)} |"


HEADINGS = (
    "requests",
    "summaries",
    "tokens sent, millions",
    "of them for summaries",
    "largest request, tokens",
    f"above {HARD:,}",
    "extend the one before",
)


def main(rounds: int = 1_000) -> None:
    print(f"{rounds:,} rounds · {datetime.now(UTC):%Y-%m-%d} · CPython {platform.python_version()}\n")
    print(f"|  | {' | '.join(HEADINGS)} |\n|---|{'---:|' * len(HEADINGS)}")
    used = []
    for library in LIBRARIES:
        python = python_of(library)
        print(row(library.name, play(library, python, rounds)), flush=True)
        used.append(versions(library, python))
    print("\n" + "; ".join(used))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
