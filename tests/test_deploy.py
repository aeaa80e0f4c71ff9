"""Does what `deploy/` says work?  Its commands run as OS processes on loopback, as no test has containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.ports import free_port
from support.postgres import NOT_HERE, PostgresServer, programs
from support.stub_server import StubServer

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = ROOT / "deploy"
SECRETS = {"db_password": "pass word'$7", "model_key": "sk-of-nobody"}
ASKS = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"number": "7"}'}}


def compose() -> dict[str, Any]:
    """Return the compose file as compose reads it, without variables."""
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", (DEPLOY / "compose.yaml").read_text("utf-8"))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_no_secret_is_in_the_file_and_no_port_is_open_to_others() -> None:
    made = compose()
    assert {name: Path(secret["file"]).parent.name for name, secret in made["secrets"].items()} == {
        "db_password": "secrets",
        "model_key": "secrets",
    }
    for name, service in made["services"].items():
        assert set(service["secrets"]) <= set(made["secrets"]), name
        for variable, value in service["environment"].items():
            assert not re.search("PASSWORD$|KEY$", variable), f"{name} has {variable} in the open"
            assert set(re.findall("/run/secrets/(\\w+)", value)) <= set(service["secrets"])
            assert "@" not in value or re.fullmatch(r"postgresql://\w+@.*", value), "a password in the address"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_the_image_has_what_there_is() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    copied = [name for line in re.findall(r"^COPY (.*)$", text, re.M) for name in line.split()[:-1]]
    assert {name for name in copied if not (ROOT / name).exists()} == set()
    assert {f"deploy/{path.name}" for path in DEPLOY.glob("*.[ps][yh]")} <= set(copied)
    extras = re.findall(r"^(\w+) = \[$", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert set(re.findall(r"/src\[([\w,]+)\]", text)[0].split(",")) <= set(extras)
    assert re.search(r"^USER \d+$", text, re.M), "it runs as root"


class Stack:
    """The services of the compose file but the database, as OS processes."""

    def __init__(self, server: PostgresServer, model: str, folder: Path) -> None:
        self._services, self._folder = compose()["services"], folder
        self._changed = {"/run/secrets": str(folder), "db:5432": f"127.0.0.1:{server.port}", "0.0.0.0": "127.0.0.1"}
        self._changed |= {self._services["worker-1"]["environment"]["OPENAI_BASE_URL"]: model}
        self._changed |= {"openai:": "openai-chat:"}
        self.ports: dict[str, int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        service = self._services[name]
        self.ports[name] = free_port()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        environment |= {key: self._here(name, value) for key, value in service["environment"].items()}
        environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        command = ["sh", "run.sh", *shlex.split(self._here(name, service["command"]))]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, cwd=DEPLOY, env=environment, stdout=log, stderr=log)

    def is_healthy(self, name: str) -> bool:
        test = [self._here(name, word) for word in self._services[name]["healthcheck"]["test"][1:]]
        return subprocess.run([sys.executable, *test[1:]], cwd=DEPLOY, stderr=subprocess.DEVNULL).returncode == 0

    def grace_s(self, name: str) -> float:
        return float(self._services[name].get("stop_grace_period", "10s").removesuffix("s"))

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['service']}{path}", data, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def _here(self, name: str, text: str) -> str:
        for there, here in {**self._changed, "8080": str(self.ports[name]), "8000": str(self.ports[name])}.items():
            text = text.replace(there, here)
        return text

    def logs(self) -> str:
        return "".join(path.read_text("utf-8") for path in self._folder.glob("*.log"))

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait(30)


def until(condition: Callable[[], object], stack: Stack, patience_s: float = 180.0) -> None:
    ends_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_s, stack.logs()
        time.sleep(0.05)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    if programs() is None:
        pytest.skip(NOT_HERE)
    server = PostgresServer()
    try:
        with psycopg.connect(server.url().partition("?")[0], autocommit=True) as connection:
            password = psycopg.sql.Literal(SECRETS["db_password"])
            connection.execute(psycopg.sql.SQL("CREATE ROLE agents LOGIN PASSWORD {}").format(password))
            connection.execute("CREATE DATABASE work OWNER agents")
            rules = server.folder / "data" / "pg_hba.conf"
            rules.write_text(f"host all agents 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            connection.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        server.close()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_ticket_is_done_by_workers_one_of_which_dies(server: PostgresServer, tmp_path: Path) -> None:
    """Asked and answered over the service, with the secrets in files.  All processes leave well when they are told
    to.
    """
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    for name, secret in SECRETS.items():
        (tmp_path / name).write_text(f"{secret}\n")
    model = StubServer([{"role": "assistant", "content": None, "tool_calls": [ASKS]}, "It was paid back.", "Monday."])
    with model:
        stack = Stack(server, model.base_url, tmp_path)
        try:
            names = [name for name in compose()["services"] if name != "db"]
            assert names == ["worker-1", "worker-2", "service"]
            for name in names:
                stack.start(name)
            for name in names:
                until(lambda name=name: stack.is_healthy(name), stack)  # type: ignore[misc]
            assert stack.ask("/tickets/t-1", {"text": "Pay order 7 back."})[0] == 202
            until(lambda: "ask:1.0" in json.loads(stack.ask("/tickets/t-1")[1])["questions"], stack)
            stack.running["worker-1"].kill()
            assert stack.ask("/tickets/t-1/answer", {"approve": True})[0] == 202
            until(lambda: "reply" in json.loads(stack.ask("/tickets/t-1")[1]), stack)
            assert json.loads(stack.ask("/tickets/t-1")[1])["reply"] == "It was paid back."
            assert not stack.is_healthy("worker-1")
            stack.running["worker-1"].wait(30)
            stack.start("worker-1")
            assert stack.ask("/tickets/t-2", {"text": "Where is order 8?"})[0] == 202
            until(lambda: json.loads(stack.ask("/tickets/t-2")[1]).get("reply") == "Monday.", stack)
            assert "fsm_agent_runs_oldest_due_seconds 0.0" in stack.ask("/metrics")[1]
            wrong = {"/tickets/t-3": 404, "/else": 404, "/tickets/t-1/answer": 404}
            assert {path: stack.ask(path)[0] for path in wrong} == wrong
            for path, body, status in (
                ("/tickets/t-1", {"text": "Another one."}, 409),
                ("/tickets/t-1/answer", {"approve": True}, 400),
                ("/tickets/t-4", {"text": 7}, 400),
                ("/tickets/t-4", {"text": "x" * 70_000}, 400),
            ):
                assert stack.ask(path, body)[0] == status
            until(lambda: stack.is_healthy("worker-1"), stack)
            for name, process in stack.running.items():
                arguments = Path(f"/proc/{process.pid}/cmdline")
                assert not arguments.exists() or not any(one in arguments.read_text() for one in SECRETS.values())
                process.send_signal(signal.SIGTERM)
                assert process.wait(stack.grace_s(name)) == 0, name
        finally:
            stack.close()
    assert not any(secret in stack.logs() for secret in SECRETS.values())
