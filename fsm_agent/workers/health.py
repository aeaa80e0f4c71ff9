"""Reports the health of a worker to its own program, to probes over HTTP, and to Prometheus.

`HealthServer` answers only ``GET`` requests for ``/live``, ``/ready``, ``/health`` and ``/metrics``.  It reports counts
and times, but never the content of runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.structs import Value, to_json
from fsm_agent.errors import ConfigError
from fsm_agent.named_objects import needing
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import RunsHealth

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from fsm_agent.workers.worker import Worker

BEAT_S = 1.0  # how often a worker reports that it is alive
ALIVE_S = 30.0  # a worker that has not reported for this long counts as hanging
READ_S = 5.0  # how long a client may take for its request
READING_S = 1.0  # how long a count of the runs in the store is reused
CONNECTIONS = 8  # how many connections are served at a time; others are closed
_log = logging.getLogger("fsm_agent")


class WorkerHealth(Value, frozen=True, kw_only=True):
    """The health of a worker.

    Attributes:
        is_alive: Whether the worker is running and has reported in the last 30 seconds.
        is_ready: Whether the worker is alive and can claim runs, because it is not stopping and its store answers.
        held: The number of runs that the worker is driving now.
        advanced: How many times the worker has advanced a run.
        last_step_s: The Unix time at which one of its runs last took a step, or None before the first step.
    """

    is_alive: bool
    is_ready: bool
    held: int
    advanced: int
    last_step_s: float | None


COUNTED = {  # what a worker counts by agent
    "advanced_runs": "Times that a run was advanced.",
    "steps": "Steps that runs took.",
    "failed_drives": "Times that a run could not be driven.",
    "lost_leases": "Runs that another process has taken.",
}


class Heartbeat:
    """A thread-safe record that a worker keeps of its work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beat_s: float | None = None  # monotonic; None if not running
        self.is_store_away = False
        self.last_step_s: float | None = None
        self.counts = {what: Counter[str]() for what in COUNTED}  # by agent
        self.store_failures = 0

    def beat(self) -> None:
        """Record that the worker is alive."""
        self._beat_s = time.monotonic()

    def end(self) -> None:
        """Record that the worker has stopped."""
        self._beat_s = None

    @property
    def is_beating(self) -> bool:
        """Whether the worker has recently reported that it is alive."""
        beat_s = self._beat_s
        return beat_s is not None and time.monotonic() - beat_s < ALIVE_S

    def count(self, what: str, agent: str) -> None:
        """Add one to one of the counters in `COUNTED`."""
        with self._lock:
            self.counts[what][agent] += 1
        if what == "steps":
            self.last_step_s = time.time()

    def note_store(self, *, is_away: bool) -> None:
        """Record whether the store answered."""
        self.is_store_away = is_away
        self.store_failures += is_away


class HealthServer:
    """Answers health probes for a worker over HTTP, in separate threads.

    Args:
        worker: The worker.
        port: The TCP port, or 0 for any free port.
        host: The address to listen on.  Every client that can reach it can read how many runs there are, so the default
            can be reached only from this machine.

    Attributes:
        port: The port that the server listens on.

    Raises:
        OSError: If the port is taken.
    """

    def __init__(self, worker: Worker, port: int, host: str = "127.0.0.1") -> None:
        self._server = _Server((host, port), worker)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name="fsm_agent health")

    def __enter__(self) -> HealthServer:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], worker: Worker) -> None:
        self.worker = worker
        self._room = threading.Semaphore(CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket | Any, client_address: Any) -> None:
        closer = threading.Timer(READ_S, _hang_up, (request,))  # the timeout of a socket restarts at each byte
        closer.daemon = True
        closer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            closer.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hung up."""


def _hang_up(request: socket) -> None:
    try:
        request.shutdown(2)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_S
    server: _Server

    def do_GET(self) -> None:
        health = self.server.worker.health()
        match self.path.partition("?")[0]:
            case "/live":
                self._say(health.is_alive, "alive\n" if health.is_alive else "not alive\n")
            case "/ready":
                self._say(health.is_ready, "ready\n" if health.is_ready else "not ready\n")
            case "/health":
                self._say(health.is_alive, to_json(health), "application/json")
            case "/metrics":
                self._say_metrics()
            case _:
                self.send_error(HTTPStatus.NOT_FOUND, "expected /live, /ready, /health or /metrics")

    def _say_metrics(self) -> None:
        try:
            text = metrics_text(self.server.worker)
        except ConfigError as error:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, str(error))
        else:
            self._say(True, text, "text/plain; version=0.0.4; charset=utf-8")

    def _say(self, is_good: bool, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "fsm_agent"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because there are probes every few seconds."""


def metrics_text(worker: Worker) -> str:
    """Return a worker's metrics in the Prometheus text format."""
    with needing("metrics", "a report of metrics"):
        from prometheus_client import CollectorRegistry, generate_latest
    registry = CollectorRegistry()
    registry.register(_WorkerCollector(worker))
    registry.register(worker.runs_collector)
    text: bytes = generate_latest(registry)
    return text.decode()


def register_runs(runs: Runs, registry: CollectorRegistry) -> None:
    """Add metrics about the runs in a store to your program's registry, without a worker.

    Workers report these metrics too, but only while they run.

    Raises:
        ConfigError: If prometheus-client is not installed.
    """
    with needing("metrics", "a report of metrics"):
        import prometheus_client  # noqa: F401
    registry.register(RunsCollector(runs))


class RunsCollector:
    """A thread-safe collector of metrics about the runs in a store.

    The store is queried at most once every `READING_S` seconds, by one thread at a time.  Other threads get the last
    result.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._reading = threading.Lock()
        self._read_at_s = -READING_S  # monotonic
        self._last: RunsHealth | None = None  # None if the store does not answer, or has not answered yet

    def describe(self) -> tuple[()]:
        return ()

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        if self._reading.acquire(blocking=False):
            try:
                if time.monotonic() - self._read_at_s >= READING_S:
                    self._last = self._read()
                    self._read_at_s = time.monotonic()
            finally:
                self._reading.release()
        runs = self._last
        yield GaugeMetricFamily("fsm_agent_store_up", "Whether the store of the runs answers.", runs is not None)
        for name, text in _RUNS.items() if runs is not None else ():
            yield GaugeMetricFamily(f"fsm_agent_runs_{name}", text, getattr(runs, name.replace("seconds", "s")))

    def _read(self) -> RunsHealth | None:
        try:
            return self._runs.health()
        except Exception as error:  # from the store
            _log.warning("the runs could not be counted: %s", error)
            return None


_RUNS = {  # the metrics of `RunsHealth`
    "due": "Runs that wait for a driver.",
    "oldest_due_seconds": "How long the oldest due run has waited, in seconds.",
    "held": "Runs that have a driver.",
    "asked": "Runs with open questions.",
    "stuck": "Runs that the code of their workers cannot drive.",
}


class _WorkerCollector:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        worker, heartbeat, health = self._worker, self._worker.heartbeat, self._worker.health()
        yield GaugeMetricFamily("fsm_agent_worker_alive", "Whether the worker is alive.", health.is_alive)
        yield GaugeMetricFamily("fsm_agent_worker_ready", "Whether the worker claims runs.", health.is_ready)
        yield GaugeMetricFamily(
            "fsm_agent_worker_last_step_timestamp_seconds", "Unix time of the last step.", health.last_step_s or 0.0
        )
        held = GaugeMetricFamily("fsm_agent_worker_held_runs", "Runs that are driven now.", labels=["agent"])
        for agent, count in worker.held_by_agent().items():
            held.add_metric([agent], count)
        yield held
        for what, text in COUNTED.items():
            family = CounterMetricFamily(f"fsm_agent_worker_{what}", text, labels=["agent"])
            for agent in worker.agents:
                family.add_metric([agent], heartbeat.counts[what][agent])
            yield family
        yield CounterMetricFamily(
            "fsm_agent_worker_store_failures", "Failures of the store (each is tried again).", heartbeat.store_failures
        )
