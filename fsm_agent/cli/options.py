"""Options that several commands share, and what they stand for: stores, clients, models and settings.

`fsm_agent.cli.loading` loads the agents and functions that they name.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FunctionType
from typing import Annotated, Any
from urllib.parse import unquote

import typer
from pydantic_core import from_json

from fsm_agent._internal.masking import MASK
from fsm_agent._internal.structs import field_names, from_data
from fsm_agent.call.limits import Limits
from fsm_agent.call.record import State
from fsm_agent.cli.errors import option
from fsm_agent.cli.loading import load_callable, load_object
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.named_clients import client_for
from fsm_agent.errors import UsageError, hint
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.library import named_prompt
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.providers.catalog import split_model
from fsm_agent.store.runs import Runs

MAX_PIPED_BYTES = 10_000_000
KEY_VARIABLE = "FSM_AGENT_SIGNING_KEY"  # not an option, because other users see command lines
EMBEDDED = "local:"
EMBEDDED_SETTINGS = {"temperature": "0", "seed": "1", "max_tokens": "256"}  # a small model may never stop
GUESSES = (
    "about two in three simple calls of this small model are right, and it may call a function that does not fit; check"
    " its arguments or name a larger model"
)
NAMED_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

Many = list[str] | None
Model = Annotated[
    str,
    typer.Option("--model", "-m", metavar="MODEL", help="The model, as provider:model; local: is the embedded one."),
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="The URL of the provider.")]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON object on stdout.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print each event as a JSON line.")]
Functions = Annotated[
    Many, typer.Option("--function", metavar="MODULE:NAME", help="A function that the model may call. Repeatable.")
]
NamedPrompt = Annotated[
    str | None, typer.Option("--prompt", metavar="PROMPT", help="The prompt, as root/name or as a file.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")]
Deps = Annotated[str | None, typer.Option("--deps", metavar="MODULE:NAME", help="The deps that functions receive.")]
Approve = Annotated[bool, typer.Option("--approve", help="Approve every function call.")]
SettingsAndLimits = Annotated[
    Many, typer.Option("--set", metavar="NAME=VALUE", help="A setting or limit, such as rounds=3. Repeatable.")
]
_STORE = typer.Option(
    "--store", metavar="STORE", envvar="FSM_AGENT_STORE", help="The store: a file, an address, or module:name."
)
StoreOption = Annotated[str, _STORE]
OptionalStore = Annotated[str | None, _STORE]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of the run.")]
AgentsModule = Annotated[
    str, typer.Option("--agents", metavar="MODULE", help="The module with the agents, or module:name.")
]
By = Annotated[str | None, typer.Option(metavar="USER", help="The user who does this; by default, you.")]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="RUN", help="The name of the run; by default, a new one.")
]
Create = Annotated[bool, typer.Option("--create", help="Create a missing store.")]


def seconds_of(span: str) -> float:
    """Return how many seconds there are in a time span such as ``30d``."""
    if (found := _SPAN.fullmatch(span)) is None:
        raise typer.BadParameter(f"expected a span of time such as 90s, 15m, 12h, 30d or 8w, got {span!r}")
    return float(found[1]) * _SECONDS[found[2]]


def span(help: str) -> Any:
    """Return an option for a time span, which the command gets in seconds."""
    return typer.Option(parser=seconds_of, metavar="SPAN", help=help)


@contextmanager
def open_store(store: str, *, must_exist: bool = True, makes: str = "", read_only: bool = False) -> Iterator[Runs]:
    """Yield the runs in a store, and close the store afterwards.

    Args:
        store: A path, a Postgres URL, or the ``module:name`` of a `Store`, a `Runs`, or a function that returns one of
            these.
        must_exist: Whether to refuse to create a missing store.
        makes: The option that lets the command create a missing store.  The error suggests it.
        read_only: Whether to open the store for reading only.  This does not apply to a ``module:name``.
    """
    is_there = "://" in store or os.path.exists(os.path.expanduser(store))
    found: Any = store
    if NAMED_OBJECT.fullmatch(store) and not is_there:
        named = load_object(store, "store")
        found, read_only = named() if isinstance(named, FunctionType) else named, False
    elif must_exist and not is_there:
        remedy = f"; pass {makes} to make it" if makes else ""
        raise UsageError(f"expected a store that 'ask --store' or Agent(store=…) has made, got {store!r}{remedy}")
    signing_key = os.environ.get(KEY_VARIABLE) or None
    runs = found if isinstance(found, Runs) else Runs(found, signing_key=signing_key, read_only=read_only)
    try:
        yield runs
    finally:
        runs.close()


def open_if_named(store: str | None) -> AbstractContextManager[Runs | None]:
    """Return a context manager that yields a store's runs, or None without a store.  A missing store is created."""
    return nullcontext() if store is None else open_store(store, must_exist=False)


def without_store(option: str) -> typer.BadParameter:
    """Return the error for an option that needs a store."""
    return typer.BadParameter("expected the store of the run, got none; pass --store runs.db", param_hint=option)


def store_option(store: str) -> str:
    """Return the option that names a store, for a command that is shown.  The password is left out."""
    return f"--store {shlex.quote(shown_store(store))}"


def shown_store(store: str) -> str:
    """Return a store's path or URL without the password, whether that is in the user part or in the query."""
    scheme, colon, rest = store.partition("://")
    if not colon:
        return store
    login, at, place = rest.rpartition("@")
    if "?" in login:  # a password may hold "?" and "@", so where it begins and ends is uncertain
        return f"{scheme}://{MASK}"
    address, mark, query = f"{login.partition(':')[0]}{at}{place}".partition("?")
    shown = "&".join([part for part in query.split("&") if "password" not in unquote(part.partition("=")[0])])
    return f"{scheme}://{address}{mark if shown else ''}{shown}"


def deps_option(named: str | None) -> str:
    """Return the option that names the deps, after a space, for a command that is shown; "" if there are no deps."""
    return "" if named is None else f" --deps {shlex.quote(named)}"


def code_for(
    model: str, base_url: str | None, functions: Many, prompt: str | None, screen: Screen, *, approve: bool = False
) -> tuple[list[Function], Prompt | None]:
    """Return the functions and the prompt that the options name.

    A user who names a function has chosen it, so only functions that require approval need to be confirmed.  If the
    model may call the wrong function, the user is warned, and every call must be confirmed.
    """
    named = [option("--function", lambda name: Function.of(load_callable(name)), name) for name in functions or ()]
    chosen = None if prompt is None else option("--prompt", named_prompt, prompt)
    offers = () if chosen is None else chosen.offers
    if guesses(model, base_url):
        if named or offers:
            screen.tell(GUESSES)
        if not approve:
            return named, chosen
    if chosen is not None and offers:
        chosen = chosen.extend(functions=[*map(_without_doubt, offers)])
    return [*map(_without_doubt, named)], chosen


def _without_doubt(function: Function) -> Function:
    return Function.of(function, needs_approval=False) if function.needs_approval is None else function


def is_embedded(model: str, base_url: str | None) -> bool:
    """Return whether the model runs in a child process on this machine."""
    return base_url is None and option("--model", split_model, model)[0].is_embedded


def guesses(model: str, base_url: str | None) -> bool:
    """Return whether the client chooses functions and arguments on the model's behalf, and so may choose wrongly."""
    if not is_embedded(model, base_url):
        return False
    from fsm_agent.clients.local.model import SMOLLM2, find_model

    provider, name = split_model(model)
    path = find_model(name or None)
    served = SMOLLM2.alias if path is None or SMOLLM2.is_at(path) else path.stem
    return provider.profile_of(served).function_calls == "guided"


@contextmanager
def connected(model: str, base_url: str | None, screen: Screen) -> Iterator[tuple[HttpClient, str]]:
    """Yield a client and the name of its model.

    A missing key or address is reported here, before a run is added to the store.
    """
    with client_for(model, base_url=base_url) as client:
        embedded = is_embedded(model, base_url)
        if not embedded:
            check_client(client)
        screen.resume()
        yield client, _start_embedded(split_model(model)[1], screen) if embedded else client.name


def _start_embedded(path: str, screen: Screen) -> str:
    """Start the embedded model's server, fetching the model if needed, and return the model's name."""
    from fsm_agent.clients.local.model import SMOLLM2
    from fsm_agent.clients.local.server import local_server

    def fetching(done_bytes: int, total_bytes: int) -> None:
        screen.status.state = f"fetching the model: {done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB"

    screen.status.state = "starting the model"
    server = local_server(path or None, say=screen.tell, progress=fetching)
    screen.status.state = State.SEEDED
    return SMOLLM2.name if server.model == SMOLLM2.alias else server.model


def check_client(client: Any) -> None:
    """Check that a client has the key and the address that it needs."""
    if (check := getattr(client, "check_available", None)) is not None:
        check()


def settings_of(model: str, base_url: str | None, options: Many, **defaults: str) -> tuple[Settings, Limits]:
    """Return the settings and limits from ``--set``, with defaults for the embedded model and the command."""
    if is_embedded(model, base_url):
        defaults |= EMBEDDED_SETTINGS
    return option("--set", settings_and_limits, {**defaults, **option("--set", pairs, options or ())})


def settings_and_limits(options: Mapping[str, str]) -> tuple[Settings, Limits]:
    """Return settings and limits from options.  Each value is read as JSON if it is valid JSON, otherwise as text."""
    of_settings, of_limits = (set(field_names(kind)) for kind in (Settings, Limits))
    if unknown := sorted(options.keys() - of_settings - of_limits):
        known = sorted(of_settings | of_limits)
        raise UsageError(f"expected a setting or limit, got {unknown[0]!r}{hint(unknown[0], known)}")
    values = {name: _value(name, text) for name, text in options.items()}
    try:
        return (
            from_data({name: value for name, value in values.items() if name in of_settings}, Settings),
            from_data({name: value for name, value in values.items() if name in of_limits}, Limits),
        )
    except ValueError as error:
        raise UsageError(_JSON_TYPE.sub(lambda found: _PLAIN_WORDS[found[1]], str(error))) from error


def _value(name: str, text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text
    except TypeError:  # a lone surrogate, which stands for an invalid byte
        raise UsageError(f"{name}: expected text in UTF-8, got {text!r}") from None


_PLAIN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a JSON list",
    "object": "a JSON object",
}
_JSON_TYPE = re.compile(rf"(?<=: expected )({'|'.join(_PLAIN_WORDS)})( \| null)?(?=, got )")


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Return the value of each ``name=value``."""
    values: dict[str, str] = {}
    for given in options:
        name, equals, value = given.partition("=")
        if not (name and equals):
            raise UsageError(f"expected 'name=value', got {given!r}")
        if name in values:
            raise UsageError(f"{name}: expected one value, got two: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def written_task(task: str | None, *, is_needed: bool) -> str | None:
    """Return the piped input followed by the task, as in ``cat report.txt | fsm-agent ask "Sum it up."``.

    Args:
        task: The task.  '-' stands for the piped input alone, as does None if a task is needed.
        is_needed: Whether the command needs a task.  With a prompt, it needs none.
    """
    if task is None and not is_needed:
        return None
    if task != "-" and sys.stdin.isatty():
        return task
    data = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)
    if len(data) > MAX_PIPED_BYTES:
        raise UsageError(f"pipe: expected at most {MAX_PIPED_BYTES} bytes, got more; pipe in a part")
    piped = data.decode("utf-8", "replace").strip()
    if task is None or task == "-":
        return piped or None
    return f"{piped}\n\n{task}" if piped else task


def user_or(by: str | None) -> str:
    """Return ``by`` or, if it is None, the current user's name, or "" if that is unknown."""
    if by is not None:
        return by
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""
