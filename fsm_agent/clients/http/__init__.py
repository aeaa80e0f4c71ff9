"""HTTP under an `HttpClient`: two transports of httpx, over pools of connections on h11.

Every request goes through an `httpx.Client` or `httpx.AsyncClient`: one over these pools, or one that a user brings
(`Network.client`, `Network.async_client`).  `PooledTransport` serves all threads of a client, `AsyncPooledTransport`
its event loops; both can be used with httpx alone, and their errors are those of httpx.  They share all decisions: the
framing (`http1`) and the bookkeeping (`ledger`); they differ only in how they wait.

**Ownership of connections.**  An idle one belongs to its pool, any other to the one request that uses it; there is no
pipelining.  The one used last is reused first.  At the limit of connections, further requests queue up, first come,
first served, and are handed a connection, or a slot for one.  A slot is not a number but the connection object itself,
so none can leak, not even to Ctrl-C.  A pool belongs to its process: after a fork the child forgets what it inherited,
closes nothing of it, and takes none of its locks.

**Reuse of connections.**  A connection is reused only if the request was sent completely; the response is complete,
has been read, and had no byte behind it; neither side wanted the connection closed; a check just before reuse finds it
open and without unsolicited bytes; and it was idle for no more than `ledger.IDLE_S`.  So a duplicate or unsolicited
reply never answers another request, unless it arrives while that one is in flight, where HTTP/1.1 cannot tell them
apart.  httpcore is less strict (1.0.9), so over httpx's own transport each HTTP/1.1 request has its own connection.

**Resending.**  A server may close an idle connection at the moment a request is sent over it.  When a reused
connection ends within `http1.RESEND_WITHIN_S` of the request without a byte of a reply, the server has hardly read it,
and the pool sends it once more, over a new connection.  Everything else is a failure: the caller decides about retries
(`Limits.recalls`).

**Bounds.**  `Network` bounds each step: connecting, each piece of a request and of a response, waiting for a
connection.  The timeouts travel in the request's extension ``timeout``, as in all of httpx; ``fsm_agent.deadline``
(`Deadline`) bounds them all together.  Each wait is bounded by the time left, so slow bytes cannot outlast it. The
head, trailers and framing of a response are bounded by `http1.MAX_HEAD_BYTES`, interim responses by
`http1.MAX_INTERIM_RESPONSES`, the decompressed body by `Network.max_reply_bytes`, and its unread part by
`http1.MAX_UNREAD_BYTES`.  After an error response to an upload the rest is not sent.  The request of a thread is ended
from another thread by the `fsm_agent.runtime.abort.Abort` in its extension ``fsm_agent.abort``, and all requests of a
client by closing it: wherever they wait, except for resolving a host's name.

**Over other transports** `watch` keeps deadlines, aborts and closing, as far as it can from outside: no HTTP/1.1
connection is reused, as above; any number of interim responses is read; a response during an upload is read after it,
under asyncio not even then if the server has hung up; an `Abort` does not reach a request that waits for a connection;
and with HTTP/2, whose connections are shared, a thread's deadline is checked when bytes arrive, and no connection is
closed for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsm_agent.clients.http.async_pool import AsyncPooledTransport as AsyncPooledTransport
    from fsm_agent.clients.http.network import Network as Network
    from fsm_agent.clients.http.prepared_request import Deadline as Deadline
    from fsm_agent.clients.http.sync_pool import PooledTransport as PooledTransport

_HOME = {
    "AsyncPooledTransport": "async_pool",
    "Deadline": "prepared_request",
    "Network": "network",
    "PooledTransport": "sync_pool",
}

__all__ = ["AsyncPooledTransport", "Deadline", "Network", "PooledTransport"]

if not TYPE_CHECKING:  # a type checker that saw it would take any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
