"""The inspector: its pages, their updates, and its forms' actions.  It keeps only a small cache of runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fsm_agent._internal.structs import to_json
from fsm_agent._internal.text import pretty
from fsm_agent._internal.text import shown as shown_text
from fsm_agent.call.question_forms import (
    FormError,
    outcome_from_form,
    question_form,
    question_subject,
    question_text,
)
from fsm_agent.errors import FsmAgentError, UsageError
from fsm_agent.functions.context import LATER
from fsm_agent.prompts.prompt import by_path
from fsm_agent.store.errors import NotAsked, RunUnknown
from fsm_agent.store.history import RunHistory, read
from fsm_agent.store.listing import is_undriven
from fsm_agent.store.runs import Runs, opened
from fsm_agent.store.store import Run, RunCount, Store
from fsm_agent.store.watching import watched_run
from fsm_agent.validation import require
from fsm_agent.web import run_list
from fsm_agent.web.auth import OriginCheck, derive_token, is_same, new_token
from fsm_agent.web.entries import diff_runs, list_failures, name_processes, read_past, tell_entries, timeline
from fsm_agent.web.machines import draw_machine
from fsm_agent.web.requests import read_body
from fsm_agent.web.run_list import Filters, find_runs, run_state
from fsm_agent.web.translate import or_quiet

AGAIN_S = 0.25  # delay before looking again for a missing run or an unreadable store
BEAT_S = 15.0  # how often a comment is sent, so that closed pages are noticed
MOST_PAGES = 32  # pages with a stream at the same time
ALL = ""  # in place of a run's name: the newest of all runs
GONE, AWAY, REPLACED = "gone", "away", "replaced"  # marks: unknown run, unreadable store, or another file in its place


class News:
    """Streams of *marks*, where a run's mark is a string that changes whenever the run changes.

    A page that gets a new mark requests the new contents itself, so slow pages block nothing.
    """

    def __init__(self, runs: Runs, file: Path | None = None) -> None:
        self._runs, self._file = runs, file
        self._identity = self._identify()
        self._pages: set[asyncio.Future[None]] = set()  # a future is done when its stream has to end
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of pages have a stream."""
        return len(self._pages) >= MOST_PAGES

    def mark(self, run: str = ALL) -> str:
        """Return the current mark of a run or, by default, of the newest run."""
        return self._mark_of(lambda: watched_run(self._runs.store, run))

    async def marks(self, run: str = ALL) -> AsyncGenerator[str]:
        """Yield a run's mark whenever it changes."""
        page = asyncio.get_running_loop().create_future()
        self._pages.add(page)
        mark = ""
        try:
            while not (page.done() or self._is_closed):
                news = asyncio.wrap_future(self._runs.watcher.watch(run, partial(self._is_news, mark)))
                try:
                    await asyncio.wait([news, page], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if not news.cancelled() and (found := self._mark_of(news.result)) != mark:
                    mark = found
                    yield mark
                else:
                    await asyncio.wait([page], timeout=AGAIN_S)
        finally:
            self._pages.discard(page)

    def close(self) -> None:
        """End all streams.  This is thread-safe."""
        self._is_closed = True
        for page in [*self._pages]:
            with suppress(RuntimeError):  # its loop is closed
                page.get_loop().call_soon_threadsafe(_end, page)

    def _is_news(self, mark: str, row: Run | None) -> bool:
        return self._mark_of(lambda: row) != mark

    def _mark_of(self, look: Callable[[], Run | None]) -> str:
        if self._identify() != self._identity:
            return REPLACED
        try:
            row = look()
        except RunUnknown:
            return GONE
        except (FsmAgentError, OSError):
            return AWAY
        return hashlib.blake2b(to_json(row).encode(), digest_size=8).hexdigest() if row else "-"

    def _identify(self) -> tuple[int, int] | None:
        """Return the identity of the store's file, which changes if another file takes its place, or None."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return -1, -1
        return found.st_dev, found.st_ino


def _end(page: asyncio.Future[None]) -> None:
    if not page.done():
        page.set_result(None)


ACTS = frozenset({"answer", "cancel", "retry", "fork", "delete"})
SHOWN = 200  # entries in a page; the machine and the timeline show all, and a page loads earlier ones on demand
MOST_BODY = 1_000_000  # bytes of a form
_MOST_FIELDS = 200
_KEPT = 8  # cached runs
_COUNTED_S = 20.0  # how long counts of all runs are cached
_HERE = Path(__file__).parent
# A question's key, and for each field of the answer, what is wrong with it and the text that was typed
Failed: TypeAlias = tuple[str, Mapping[str, str], Mapping[str, str]]


class Inspector:
    """The handlers of the inspector; see `inspector_app`."""

    def __init__(
        self,
        runs: Runs,
        *,
        name: str = "runs",
        file: Path | None = None,
        agents: Sequence[Any] = (),
        prompts: Sequence[Any] = (),
        is_read_only: bool = False,
        user: Callable[[Mapping[str, Any]], str] | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self.runs, self.name = runs, name
        self.is_read_only = is_read_only or runs.store.is_read_only
        self.news = News(runs, file)
        are_agents = isinstance(agents, Sequence) and all(hasattr(agent, "name") for agent in agents)
        require("agents", agents, are_agents, "a list of agents and flows")
        self._agents = {agent.name: agent for agent in agents}
        self._prompts = by_path(prompts)
        self._form_token = derive_token(new_token(), "forms")
        self._user = user or _signed_in
        self._read = lru_cache(_KEPT)(lambda row: read(runs, row.id))
        self._counts: tuple[float, Sequence[RunCount]] = (0.0, ())
        self.app = Starlette(
            routes=[
                Route("/", self.list),
                Route("/run", self.run),
                Route("/items", self.items),
                Route("/moment", self.moment),
                Route("/picture", self.picture),
                Route("/news", self.run_news),
                Route("/compare", self.compare),
                Route("/export", self.export),
                Route("/events", self.events),
                Route("/do/{act}", self.do, methods=["POST"]),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            middleware=[Middleware(OriginCheck, origins=origins, forms=True)],
            exception_handlers=dict.fromkeys((FsmAgentError, OSError, RecursionError), self._failed),
        )

    def close(self) -> None:
        """End all streams, but leave the store open."""
        self.news.close()

    # Pages

    def html(self, request: Request, template: str, **values: Any) -> str:
        base = request.scope.get("root_path", "")
        shared = {"base": base, "form": self._form_token, "store": self.name, "is_read_only": self.is_read_only}
        rendered: str = _templates().get_template(template).render(shared, **values)
        return rendered.encode("utf-8", "replace").decode()  # a damaged journal may have a lone surrogate

    def list(self, request: Request) -> Response:
        """Respond with the list of runs, or with only its rows."""
        filters = Filters.of(request.query_params)
        found = find_runs(self.runs.store, filters)
        values = {"found": found, "filters": filters, "mark": self.news.mark()}
        if "rows" in request.query_params:
            return HTMLResponse(self.html(request, "rows.html", **values))
        counts = self._counted()
        return HTMLResponse(
            self.html(
                request,
                "list.html",
                **values,
                agents=sorted({count.agent for count in counts}),
                states=sorted({count.state for count in counts if count.state}),
                asked=sum([count.count for count in counts if count.waits_for and not count.is_ended]),
                failed=sum([count.count for count in counts if count.is_failed]),
                total=sum([count.count for count in counts]),
            )
        )

    def run(self, request: Request) -> Response:
        return self._run_page(request, _name(request))

    def _run_page(self, request: Request, run: str, failed: Failed | None = None) -> Response:
        mark = self.news.mark(run)
        reading = self.read(run)
        last, count = _number(request, "until", 0), len(reading.entries)
        until = last if 0 < last <= count else count
        values = self._values(reading, _inside(request, reading), failed)
        values |= {"items": tell_entries(reading, until - SHOWN, until), "mark": mark, "until": until}
        return HTMLResponse(self.html(request, "run.html", **values), 200 if failed is None else 422)

    def _values(self, reading: RunHistory, inside: str, failed: Failed | None = None) -> dict[str, Any]:
        key, errors, typed = failed or ("", {}, {})
        asked = [] if reading.run.is_ended else [question_form(question) for question in reading.run.waits]
        return {
            "r": reading,
            "run": reading.run,
            "inside": inside,
            "labels": name_processes(reading),
            "machine": draw_machine(reading, reading.processes[inside]),
            "timeline": timeline(reading),
            "questions": [(form, errors, typed) if form.key == key else (form, {}, {}) for form in asked],
            "answered": {post.key: post for post in reading.signals},
            "tried": list_failures(tell_entries(reading, len(reading.entries) - SHOWN))[-5:]
            if reading.run.is_failed
            else [],
            "has_code": reading.header.agent in self._agents,
        }

    def items(self, request: Request) -> Response:
        """Respond with the items for the requested entries of a run."""
        reading = self.read(_name(request))
        items = tell_entries(reading, _number(request, "after", 0), _number(request, "until", len(reading.entries)))
        return HTMLResponse(self.html(request, "items.html", items=items, run=reading.run))

    def picture(self, request: Request) -> Response:
        reading, path = self.read(_name(request)), request.query_params.get("inside", "")
        if path not in reading.processes:
            raise UsageError(f"expected a path inside the run, got {path!r:.200}")
        drawn = draw_machine(reading, reading.processes[path])
        return HTMLResponse(self.html(request, "machine.html", machine=drawn, inside=path))

    def moment(self, request: Request) -> Response:
        """Respond with a run's state after an entry, using the agent's code if it is available."""
        name, n = _name(request), _number(request, "n", 0)
        reading = self.read(name)
        if not 0 <= n <= len(reading.entries):
            raise UsageError(f"the run {name!r} has no entry {n}")
        definition = self._definition(reading)
        folded = None if definition is None else read_past(self.runs, name, n, definition)
        values = {"moment": reading.at(n), "past": folded, "labels": name_processes(reading), "r": reading}
        return HTMLResponse(self.html(request, "moment.html", **values))

    def compare(self, request: Request) -> Response:
        a, b = [self.read(request.query_params.get(name, "")) for name in "ab"]
        return HTMLResponse(self.html(request, "compare.html", a=a, b=b, c=diff_runs(a, b)))

    def export(self, request: Request) -> Response:
        lines = self.runs.export(_name(request))
        headers = {"content-disposition": 'attachment; filename="run.jsonl"'}
        return StreamingResponse((f"{line}\n" for line in lines), media_type="application/jsonl", headers=headers)

    def read(self, run: str) -> RunHistory:
        """Return a run.  Unless it has pending signals, it is cached until it changes in the store."""
        store = self.runs.store
        row = store.get(run)  # a second signal would not change it
        return read(self.runs, run) if store.pending_signals([run]) else self._read(row)

    def _counted(self) -> Sequence[RunCount]:
        """Return the run counts, which are cached because counting reads all runs."""
        at_s, counts = self._counts
        if time.monotonic() - at_s > _COUNTED_S or not at_s:
            counts = self.runs.store.stats()
            self._counts = time.monotonic(), counts
        return counts

    def _definition(self, reading: RunHistory) -> Any:
        """Return the factory of a run's process, or None if the run's code is not available here."""
        agent = self._agents.get(reading.header.agent)
        return None if agent is None else agent._definition_of_run(reading.header, LATER, self._prompts)

    # News

    async def events(self, request: Request) -> Response:
        """Respond with a stream of the marks of a run or, by default, of the newest run."""
        if self.news.is_full:
            return PlainTextResponse(f"{MOST_PAGES} pages already follow runs; close one", 503, {"retry-after": "5"})
        marks = self.news.marks(request.query_params.get("id", ALL))
        return StreamingResponse(_as_events(or_quiet(marks, BEAT_S)), media_type="text/event-stream")

    def run_news(self, request: Request) -> Response:
        """Respond with what has happened in a run after an entry, as pieces of the run's page."""
        name = _name(request)
        mark = self.news.mark(name)
        if mark == GONE:
            return JSONResponse({"mark": mark})
        reading = self.read(name)
        values = self._values(reading, _inside(request, reading))
        after = _number(request, "after", 0)
        undone = [entry.undoes_to for entry in reading.entries[after:] if entry.undoes_to is not None]
        after = min([after, *undone])  # entries that a retry has undone look different now
        values["items"] = tell_entries(reading, after, after + SHOWN)
        pieces = {piece: self.html(request, f"{piece}.html", **values) for piece in ("head", "asks", "inside", "items")}
        news = {"mark": mark, "timeline": values["timeline"], **pieces}
        return Response(json.dumps(news), media_type="application/json")

    # Acts

    async def do(self, request: Request) -> Response:
        """Carry out a form's action, then show the run."""
        act = request.path_params["act"]
        if act not in ACTS:
            return PlainTextResponse("unknown action", 404)
        if self.is_read_only:
            return PlainTextResponse("the inspector is read-only; open it, and its store, for writing", 403)
        form = await _form(request)
        if form is None:
            return PlainTextResponse(f"expected a form of at most {MOST_BODY} bytes, got none or a larger one", 413)
        if not is_same(form.get("form", ""), self._form_token):
            return PlainTextResponse("expected a form of this inspector, got another; reload the page", 403)
        return await run_in_threadpool(self._do, request, act, form)

    def _do(self, request: Request, act: str, form: Mapping[str, str]) -> Response:
        run, base = form.get("id", ""), request.scope.get("root_path", "")
        try:
            shown = self._act(act, run, form, self._user(request.scope))
        except FormError as error:
            return self._run_page(request, run, (form.get("key", ""), error.errors, form))
        return RedirectResponse(f"{base}/run?{urlencode({'id': shown})}" if shown else f"{base}/", 303)

    def _act(self, act: str, run: str, form: Mapping[str, str], by: str) -> str:  # noqa: C901  # one an action
        """Carry out an action, and return the name of the run to show, or "" for the list."""
        match act:
            case "answer":
                key = form.get("key", "")
                question = next((one for one in self.runs.store.get(run).waits if one.key == key), None)
                if question is None:
                    raise NotAsked(f"the run {run!r} no longer asks {key!r}")
                self.runs.answer(run, {key: outcome_from_form(question, form)}, by=by)
            case "cancel":  # its next driver ends it
                self.runs.cancel(run, form.get("reason", ""), by=by)
            case "retry":
                self.runs.retry(run, by=by)
            case "fork":  # if the agent's code is known, the fork waits as the original did there
                at, name = form.get("at", ""), form.get("name", "").strip()
                if not name:
                    raise UsageError("expected a name for the fork, got none")
                if not (at.isascii() and at.isdigit() and len(at) < 10):
                    raise UsageError(f"entry: expected a number, got {at!r:.200}")
                return str(self.runs.fork(run, int(at), name, self._definition(self.read(run)), by=by))
            case "delete":
                if form.get("confirm") != run:
                    raise UsageError(f"expected the name of the run to delete it, got another; type {run!r}")
                if conversation := self.runs.needed_by(run):
                    raise UsageError(f"the run stays: the conversation {conversation!r} cannot be read without it")
                self.runs.store.delete(run)
                return ""
        return run

    def _failed(self, request: Request, error: Exception) -> Response:
        status = 404 if isinstance(error, RunUnknown) else 409
        if request.url.path.rpartition("/")[2] in ("items", "moment", "news", "picture"):
            return PlainTextResponse(shown_text(error), status)
        return HTMLResponse(self.html(request, "error.html", error=shown_text(error)), status)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("fsm_agent.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        {name: getattr(run_list, name) for name in ("ago", "clock", "money", "since", "span", "tokens")}
    )
    found.filters.update(pretty=pretty, shown=shown_text)
    found.filters["json"] = lambda value: json.dumps(value, separators=(",", ":"))
    found.globals.update(run_state=run_state, is_undriven=is_undriven)
    found.globals.update(question_subject=question_subject, question_text=question_text)
    return found


def inspector_app(
    runs: Runs | Store | str | os.PathLike[str],
    *,
    name: str = "runs",
    agents: Sequence[Any] = (),
    read_only: bool = False,
    user: Callable[[Mapping[str, Any]], str] | None = None,
    origins: Collection[str] = (),
) -> Starlette:
    """Return the inspector as an ASGI application.  Mount it behind your own authentication.

    The inspector does not authenticate users: anyone who can reach it can see all runs in the store and answer their
    questions.  It accepts forms only from its own pages.  ``fsm-agent inspect`` serves it on this machine, protected by
    a token.

    Args:
        runs: The runs to show: a store, its file or address, or an agent's runs.
        name: The name of the store, for display.
        agents: Agents and flows whose code replays their runs to show the dialog and data at each step.
        read_only: Whether to refuse every action that writes.  A store that is open for reading only is never written
            to.
        user: A function that returns the name of the person who answers, given the ASGI scope.  The default is the name
            found by Starlette's authentication.
        origins: The origins of the pages, such as ``https://ops.example.com``, if a proxy changes the Host in requests.
            If empty, the Host determines the origin.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=MemoryStore())
        >>> app = inspector_app(agent.runs.all, agents=[agent])        # Mount("/runs", app) behind a login of one's own
    """
    inspector = Inspector(opened(runs), name=name, agents=agents, is_read_only=read_only, user=user, origins=origins)
    return inspector.app


def _signed_in(scope: Mapping[str, Any]) -> str:
    return str(getattr(scope.get("user"), "display_name", ""))


def _name(request: Request) -> str:
    name = request.query_params.get("id", "")
    if not name:
        raise UsageError("expected the name of a run, got none; pass ?id=…")
    return name


def _inside(request: Request, reading: RunHistory) -> str:
    """Return the path of the requested process, or "" (the run itself) if it is unknown."""
    inside = request.query_params.get("inside", "")
    return inside if inside in reading.processes else ""


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


async def _form(request: Request) -> Mapping[str, str] | None:
    """Return a form's fields, or None if the body is too large or not a form."""
    body = await read_body(request, MOST_BODY)
    if len(body) > MOST_BODY:
        return None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return None


async def _as_events(marks: AsyncIterator[str | None]) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    async for mark in marks:
        yield ": here\n\n" if mark is None else f"data: {mark}\n\n"
