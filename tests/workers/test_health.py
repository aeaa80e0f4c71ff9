"""Does a worker report its health correctly, to its program, to probes and to Prometheus, and nothing more?"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from types import SimpleNamespace

import pytest
from support import shop_agent as shop
from support.workers import Away, Patient, create, rows, run, wait_until, working

from fsm_agent import Agent, ConfigError
from fsm_agent.messages import Question
from fsm_agent.store import MemoryStore, SqliteStore, Suspension
from fsm_agent.testing import Script
from fsm_agent.workers import Worker, health


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def found_in(text: str, prefix: str) -> dict[str, float]:
    """Return the values without labels whose names begin so, by the rest of their names."""
    lines = [line.split(" ") for line in text.splitlines() if line.startswith(prefix)]
    return {name.removeprefix(prefix): float(value) for name, value in lines}


MODES = pytest.mark.parametrize("mode", [{"tasks": 5}, {"threads": 2}])


@MODES
def test_it_is_alive_before_it_claims_a_run(mode):
    found = []

    class Watched(MemoryStore):
        def claim(self, *args, **options):
            found.append(worker.health().is_alive)
            return super().claim(*args, **options)

    worker = Worker([Agent(Script(), name="x")], Watched())
    assert run(worker, mode, once=True) == 0
    assert found
    assert all(found)


@MODES
class TestHealth:
    def test_it_begins_works_and_ends(self, mode):
        store, model = MemoryStore(), Patient(expected=2)
        agent = Agent(model, name="x")
        create(store, agent, "one", "two")
        worker = Worker([agent], store)
        health = worker.health()
        assert (health.is_alive, health.is_ready, health.held, health.last_step_s) == (False, False, 0, None)
        with working(worker, **mode):
            assert model.all_asked.wait(30)
            health = worker.health()
            assert (health.is_alive, health.is_ready, health.held, health.advanced) == (True, True, 2, 0)
            assert worker.held_by_agent() == {"x": 2}
            worker.stop()
            assert (worker.health().is_alive, worker.health().is_ready) == (True, False)
            model.may_answer.set()
        health = worker.health()
        assert (health.is_alive, health.is_ready, health.held, health.advanced) == (False, False, 0, 2)
        assert health.last_step_s is not None
        assert abs(health.last_step_s - rows(store)["one"].updated_s) < 3600

    @pytest.mark.system
    def test_a_store_that_is_away_makes_it_unready(self, mode):
        store = Away(10**9)
        worker = Worker([shop.shop()], store)
        with working(worker, **mode):
            wait_until(lambda: worker.health().is_alive and not worker.health().is_ready)
            store.failures = 0
            wait_until(lambda: worker.health().is_ready)

    @pytest.mark.system
    def test_what_hangs_is_not_alive(self, mode, monkeypatch):
        """A loop that a function blocks; threads are watched from outside of their runs."""
        monkeypatch.setattr(health, "ALIVE_S", 0.2)
        may_end, is_begun = threading.Event(), threading.Event()

        class Blocks:
            def on_stepped(self, event):
                is_begun.set()
                may_end.wait(30)

        agent = Agent(Script("hi"), name="x", hooks=[Blocks()])
        store = MemoryStore()
        create(store, agent, "one")
        worker = Worker([agent], store)
        with working(worker, **mode):
            assert is_begun.wait(30)
            wait_until(lambda: worker.health().is_alive is ("threads" in mode))
            may_end.set()
            wait_until(lambda: rows(store)["one"].is_ended)
            wait_until(lambda: worker.health().is_alive)


def said_without_a_port(worker: Worker, path: str) -> str:
    """What a probe is answered on a pair of sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        health._Handler(theirs, ("", 0), SimpleNamespace(worker=worker))
        theirs.shutdown(socket.SHUT_WR)
        return ours.makefile().read()


class TestProbes:
    def test_each_path_says_what_it_is_asked(self):
        worker = Worker([shop.shop()], MemoryStore())
        for path in ("/live", "/ready", "/health"):
            assert " 503 " in said_without_a_port(worker, path)
        worker.heartbeat.beat()
        assert said_without_a_port(worker, "/live").endswith("\nalive\n")
        assert said_without_a_port(worker, "/ready?verbose=1").endswith("\nready\n")
        assert json.loads(said_without_a_port(worker, "/health").splitlines()[-1])["is_ready"]
        assert 'fsm_agent_worker_steps_total{agent="shop"} 0.0' in said_without_a_port(worker, "/metrics")
        assert " 404 " in said_without_a_port(worker, "/etc/passwd")
        worker.stop()
        assert "not ready" in said_without_a_port(worker, "/ready")

    @pytest.mark.system
    def test_paths(self):
        agent = shop.shop()
        store = MemoryStore()
        worker = Worker([agent], store)
        with health.HealthServer(worker, 0) as server:
            assert server._server.server_address[0] == "127.0.0.1", "it listens on this machine alone"
            assert [get(server.port, path)[0] for path in ("/live", "/ready", "/health")] == [503, 503, 503]
            with working(worker, tasks=2):
                wait_until(lambda: worker.health().is_ready)
                assert get(server.port, "/live") == (200, "alive\n")
                assert get(server.port, "/ready?verbose=1") == (200, "ready\n")
                status, body = get(server.port, "/health")
                assert (status, json.loads(body)["is_ready"], json.loads(body)["held"]) == (200, True, 0)
                assert get(server.port, "/etc/passwd")[0] == 404
                assert get(server.port, "/live", "POST")[0] == 501
                worker.stop()
                assert get(server.port, "/ready") == (503, "not ready\n")
        with pytest.raises(ConnectionRefusedError):
            get(server.port, "/live")

    @pytest.mark.system
    @pytest.mark.parametrize("read_s", [60.0, 0.5])
    def test_clients_that_are_many_or_slow_are_hung_up_on(self, read_s, monkeypatch):
        """Those that are more than there is room for, and then those that take too long; the others are answered."""
        monkeypatch.setattr(health, "READ_S", read_s)
        monkeypatch.setattr(health._Handler, "timeout", 60.0)
        with health.HealthServer(Worker([shop.shop()], MemoryStore()), 0) as server:
            slow = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(health.CONNECTIONS)]
            try:
                for client in slow:
                    client.sendall(b"GET /live HTT")
                if read_s == 0.5:
                    for client in slow:
                        assert client.recv(100) == b""
                else:
                    wait_until(lambda: not server._server._room._value)
                    with pytest.raises((http.client.HTTPException, OSError)):
                        get(server.port, "/live")
            finally:
                for client in slow:
                    client.close()
            wait_until(lambda: server._server._room._value == health.CONNECTIONS)
            assert get(server.port, "/live")[0] == 503

    @pytest.mark.system
    @pytest.mark.parametrize("request_", [b"\x16\x03\x01\x00\xa5" * 50, b"GET " + b"/" * 100_000, b"\r\n\r\n", b""])
    def test_garbage_is_refused(self, request_, capfd):
        with health.HealthServer(Worker([shop.shop()], MemoryStore()), 0) as server:
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                answer = b""
                try:
                    client.sendall(request_)
                    client.shutdown(socket.SHUT_WR)
                    while more := client.recv(65536):
                        answer += more
                except OSError:  # it has hung up
                    pass
            assert not answer or b"400" in answer or b"414" in answer
            assert b"Python" not in answer
            assert get(server.port, "/live")[0] == 503
        assert capfd.readouterr() == ("", "")


class TestMetrics:
    @pytest.mark.system
    def test_counts(self):
        prometheus = pytest.importorskip("prometheus_client.parser")
        agent, other = shop.shop(), Agent(Script("hi"), name='o"th\\er')
        store = MemoryStore()
        create(store, agent, "one", "two")
        create(store, other, "three")
        worker = Worker([agent, other], store)
        assert asyncio.run(worker.arun(tasks=2, once=True)) == 3
        with health.HealthServer(worker, 0) as server:
            status, text = get(server.port, "/metrics")
        assert status == 200
        found = {
            (sample.name, sample.labels.get("agent", "")): sample.value
            for family in prometheus.text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert found["fsm_agent_worker_advanced_runs_total", "shop"] == 2
        assert found["fsm_agent_worker_advanced_runs_total", 'o"th\\er'] == 1
        assert found["fsm_agent_worker_steps_total", "shop"] == 2 * rows(store)["one"].n
        assert found["fsm_agent_worker_failed_drives_total", "shop"] == 0
        assert found["fsm_agent_worker_held_runs", "shop"] == 0
        assert found["fsm_agent_worker_alive", ""] == 0
        assert found["fsm_agent_worker_last_step_timestamp_seconds", ""] == worker.health().last_step_s

    def test_runs_of_the_store_are_counted(self, tmp_path, monkeypatch):
        """Those of agents without a worker, too; and a program without a worker can tell them."""
        prometheus = pytest.importorskip("prometheus_client")
        monkeypatch.setattr(health, "READING_S", 0.0)
        agent, other, now_s = shop.shop(), Agent(Script("hi"), name="other"), 1e9
        store = SqliteStore(tmp_path / "runs.db", lambda: now_s)
        create(store, agent, "one", "two", "three")
        create(store, other, "theirs")
        worker, registry = Worker([agent], store), prometheus.CollectorRegistry()
        health.register_runs(worker.runs, registry)
        assert store.claim("w", for_s=1e6, run="three") is not None
        worker.advance()
        now_s += 300.0
        text = health.metrics_text(worker)
        right = {"due": 2, "oldest_due_seconds": 300, "held": 1, "asked": 1, "stuck": 0}
        assert found_in(text, "fsm_agent_runs_") == right
        assert found_in(text, "fsm_agent_store_") == {"up": 1}
        assert found_in(prometheus.generate_latest(registry).decode(), "fsm_agent_runs_")["held"] == 1
        stuck = Question("stuck", "stuck", "{}")
        store.append(store.claim("w", for_s=9.0, run="two"), 0, (), Suspension(state="Stuck", questions=(stuck,)))
        found = found_in(health.metrics_text(worker), "fsm_agent_runs_")
        assert (found["asked"], found["stuck"], found["due"]) == (2, 1, 1)
        store.close()
        assert found_in(health.metrics_text(worker), "fsm_agent_runs_") == {}
        assert found_in(health.metrics_text(worker), "fsm_agent_store_") == {"up": 0}

    def test_the_store_is_asked_now_and_then_whoever_asks(self, monkeypatch):
        pytest.importorskip("prometheus_client")
        monkeypatch.setattr(health, "READING_S", 600.0)
        begun, may_end, asked = threading.Event(), threading.Event(), []

        class Slow(MemoryStore):
            def health(self):
                asked.append(1)
                begun.set()
                assert may_end.wait(30)
                return super().health()

        worker = Worker([shop.shop()], Slow())
        thread = threading.Thread(target=health.metrics_text, args=(worker,))
        thread.start()
        assert begun.wait(30)
        assert found_in(health.metrics_text(worker), "fsm_agent_store_") == {"up": 0}, (
            "it waits for another one's answer"
        )
        may_end.set()
        thread.join(30)
        assert [found_in(health.metrics_text(worker), "fsm_agent_store_") for _ in range(3)] == [{"up": 1}] * 3
        assert len(asked) == 1
        monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
        for refused in (
            lambda: health.register_runs(worker.runs, None),
            lambda: health.metrics_text(worker),
        ):
            with pytest.raises(ConfigError, match=r"fsm-agent\[metrics\]"):
                refused()
