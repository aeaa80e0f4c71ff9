"""An example service: it puts runs into the store, says how they are, and takes a person's answers.

Workers drive the runs, so the service needs no threads for them and may be restarted at any time.  It asks for no
login: put one before it.

    curl -d '{"text": "Where is order 7?"}' http://127.0.0.1:8000/tickets/t-1     # 202
    curl http://127.0.0.1:8000/tickets/t-1                                        # its state, its question, its reply
    curl -d '{"approve": true}' http://127.0.0.1:8000/tickets/t-1/answer
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from agents import DESK

from fsm_agent import Approved, CallFailed, Denied, FsmAgentError
from fsm_agent.store import RunExists, Runs, RunUnknown
from fsm_agent.workers.health import register_runs

MOST_BYTES = 64 * 1024  # of a request
LATE_S = 60.0  # a run that waits longer for a worker makes the service unhealthy


class Service(ThreadingHTTPServer):
    """The server, with the agent and its store."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], store: str) -> None:
        self.runs = Runs(store)
        self.desk = replace(DESK, store=self.runs)
        super().__init__(address, Handler)

    def metrics(self) -> bytes:
        """Return what waits in the store, for Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        register_runs(self.runs, registry)
        text: bytes = generate_latest(registry)
        return text


class Handler(BaseHTTPRequestHandler):
    """Answers one request after the other of a connection."""

    server: Service
    timeout = 30.0

    def do_GET(self) -> None:
        match [unquote(part) for part in self.path.split("/")[1:]]:
            case ["healthz"]:
                health = self.server.runs.all.health()
                is_good = health.oldest_due_s < LATE_S
                self._say(HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE, {"due": health.due})
            case ["metrics"]:
                self._send(HTTPStatus.OK, self.server.metrics(), "text/plain; version=0.0.4")
            case ["tickets", name]:
                self._try(lambda: (HTTPStatus.OK, self._ticket(name)))
            case _:
                self._say(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    def do_POST(self) -> None:
        match [unquote(part) for part in self.path.split("/")[1:]]:
            case ["tickets", name]:
                self._try(lambda: self._begin(name))
            case ["tickets", name, "answer"]:
                self._try(lambda: self._answer(name))
            case _:
                self._say(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    def _begin(self, name: str) -> tuple[HTTPStatus, Any]:
        text = self._body().get("text")
        if not isinstance(text, str):
            return HTTPStatus.BAD_REQUEST, {"error": 'a body such as {"text": "Where is order 7?"} is right'}
        run = self.server.desk.runs.submit(text, run_id=name)
        return HTTPStatus.ACCEPTED, {"ticket": run.run_id}

    def _answer(self, name: str) -> tuple[HTTPStatus, Any]:
        approve = self._body().get("approve")
        if not isinstance(approve, bool):
            return HTTPStatus.BAD_REQUEST, {"error": 'a body such as {"approve": true} is right'}
        answer = Approved() if approve else Denied(reason="a person said no")
        self.server.desk.runs.get(name).answer(answer, by="the desk")
        return HTTPStatus.ACCEPTED, {"ticket": name}

    def _ticket(self, name: str) -> dict[str, Any]:
        run = self.server.desk.runs.get(name)
        row = self.server.runs.all.store.get(name)
        found: dict[str, Any] = {"ticket": name, "state": row.state, "questions": run.questions}
        if row.is_ended:
            try:
                found["reply"] = run.result(timeout_s=5.0).output
            except CallFailed as error:
                found["error"] = type(error).__name__
        return found

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 < length <= MOST_BYTES:
            raise ValueError(f"a body of 1 to {MOST_BYTES} bytes is right")
        body = json.loads(self.rfile.read(length))
        return body if isinstance(body, dict) else {}

    def _try(self, act: Any) -> None:
        try:
            status, found = act()
        except RunUnknown:
            status, found = HTTPStatus.NOT_FOUND, {"error": "there is no such ticket"}
        except RunExists:
            status, found = HTTPStatus.CONFLICT, {"error": "there is another ticket of this name"}
        except (FsmAgentError, ValueError) as error:
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        self._say(status, found)

    def _say(self, status: HTTPStatus, found: Any) -> None:
        self._send(status, json.dumps(found).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: names of tickets are the users'."""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    with Service((options.host, options.port), os.environ["FSM_AGENT_STORE"]) as service:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=service.shutdown).start())
        service.serve_forever()
        service.runs.close()


if __name__ == "__main__":
    main()
