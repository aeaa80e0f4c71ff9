"""HTTP transport: how a request reaches a model's server, and how the reply comes back.

A *transport* takes one request (`OutgoingRequest`) and returns a response with status, headers and a body to be read
piece by piece (`transport`).  Its errors are those of httpx, whose transports users may bring.  There are three, two of
them our own, on h11: `sync_pool` for all threads of a client, `async_pool` for each of its event loops, and
`httpx_adapter` for proxies, HTTP/2 and whatever users bring.  The two pools share what decides: the framing (`http1`)
and the bookkeeping (`ledger`); they differ in how they wait.

**Who owns a connection.**  An idle one belongs to its pool, any other to the one request that uses it; there is no
pipelining.  The one used last is used next.  When as many requests are under way as may be, the others queue up, first
come, first served, and are handed a connection, or a place for one.  A place is no number but the connection itself, so
it cannot be lost, not even to Ctrl-C.  A pool belongs to its process: after a fork the child forgets what it inherited,
closes nothing of it, and takes none of its locks.

**When it may be used again.**  When the request was sent whole; when its response is whole, has been read, and came
without a byte behind it; when neither side wanted the connection closed; when, looked at just before it is used again,
it has not ended and nothing has come unasked; and not after `transports.KEPT_S` without use.  So a reply that comes
twice, or that nobody asked for, never answers another request, unless it comes in the very moment in which that one is
under way, where HTTP/1.1 cannot tell them apart.  httpcore does not look that closely (1.0.9), so over httpx each
HTTP/1.1 request has a connection of its own.

**What is sent again.**  A server may close an idle connection in the moment in which a request is sent over it.  When
a connection that has been used before ends within `http1.RESEND_WITHIN_S` of the request without a byte of a reply, the
server has hardly read it, and the pool sends it once more, over a new connection.  Everything else is a failure:
whether to ask again, and at what price, is the caller's to decide (`Limits.recalls`).

**What bounds what.**  `Network` bounds each step: connecting, each piece of a request and of a response, waiting for a
turn; `deadline` bounds them all together.  A thread gives its socket the time left before each piece, so nothing that
drips can outlast it; under asyncio the caller's timeout ends the task.  Of a response's head, trailers and framing
there may be `http1.MAX_HEAD_BYTES`, and before it `http1.MAX_INTERIM_RESPONSES`; of its body, decompressed,
`Network.max_reply_bytes` (`fsm_agent.clients.response_reader`); of a body that nobody takes, `http1.MAX_UNREAD_BYTES`
are held.  A server that answers an upload with an error gets no more of it.  A request of a thread is ended from
another thread by an `fsm_agent.runtime.abort.Abort`, and all of a client's by closing it: wherever they wait, except
for the look-up of a host's name.

**What differs over httpx**, because it cannot be helped from here: no connection of HTTP/1.1 is used again, as above;
any number of interim responses is read; what a server says in the middle of an upload is heard when it is over, by
asyncio not even then if the server has hung up; an `Abort` does not reach who waits for a connection; and with HTTP/2,
whose connections are shared, a thread's deadline is looked at when bytes come, and nobody hangs up.
"""
