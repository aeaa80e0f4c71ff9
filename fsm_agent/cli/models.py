"""The options that commands share, and what they stand for: a client, functions, a prompt, settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from fsm_agent.call.limits import Limits
from fsm_agent.cli.options import load_function, pairs, settings_and_limits
from fsm_agent.cli.reporting import option
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.client import client_for
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.clients.local.model import SMOLLM2, find_model
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.library import named_prompt
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.providers.catalog import split_model
from fsm_agent.providers.provider import Provider

if TYPE_CHECKING:
    from fsm_agent.store.runs import Runs

EMBEDDED = "local:"
GUESSES = (
    "about two in three simple calls of this small model are right, and it may call a function that does not fit; check"
    " its arguments or name a larger model"
)
EMBEDDED_SETTINGS = {"temperature": "0", "seed": "1", "max_tokens": "256"}  # a small model may find no end

Model = Annotated[
    str,
    typer.Option("--model", "-m", help="The model, as provider:model; local: is the small embedded one."),
]
BaseUrl = Annotated[str | None, typer.Option(help="Where the provider listens, if not at its usual address.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else on stdout.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print each event as a line of JSON; the last is the result or the failure.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
Functions = Annotated[
    list[str] | None,
    typer.Option("--function", help="A function that the model may call, as module:name. Repeatable."),
]
NamedPrompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        help="A prompt, as root/name or a file that ends in .jinja, .md or .txt.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")]
Deps = Annotated[
    str | None,
    typer.Option(
        "--deps",
        metavar="MODULE:NAME",
        help="The deps of functions, or what makes them.",
    ),
]
Approve = Annotated[bool, typer.Option("--approve", help="Approve every function that the model calls.")]
Many = list[str] | None
SettingsAndLimits = Annotated[
    Many, typer.Option("--set", help="A setting or limit: temperature=0, max_tokens=99, rounds=3. Repeatable.")
]


def code_of(
    functions: list[str] | None, prompt: str | None, *, trusted: bool = True
) -> tuple[list[Function], Prompt | None]:
    """Return the functions and the prompt that the options name.

    A user who names a function in a command has chosen it: only one that requires approval needs a confirmation, unless
    the model is not trusted to call the right one.
    """
    named = [option("--function", load_function, function) for function in functions or ()]
    chosen = None if prompt is None else option("--prompt", named_prompt, prompt)
    if not trusted:
        return named, chosen
    if chosen is not None and chosen.offers:
        chosen = chosen.extend(functions=[_chosen(function) for function in chosen.offers])
    return [_chosen(function) for function in named], chosen


def code_for(
    model: str, base_url: str | None, functions: Many, prompt: str | None, screen: Screen, *, approve: bool
) -> tuple[list[Function], Prompt | None]:
    """Return the functions and the prompt for a model; say so if it may call one that does not fit."""
    is_guess = guesses(model, base_url)
    named, chosen = code_of(functions, prompt, trusted=approve or not is_guess)
    if is_guess and (named or (chosen is not None and chosen.offers)):
        screen.tell(GUESSES)
    return named, chosen


def _chosen(function: Function) -> Function:
    return Function.of(function, needs_approval=False) if function.needs_approval is None else function


def settings_of(model: str, base_url: str | None, options: Many, **defaults: str) -> tuple[Settings, Limits]:
    """Return the values of ``--set``, over those that the embedded model needs and the defaults of a command."""
    if is_embedded(model, base_url):
        defaults |= EMBEDDED_SETTINGS
    return option("--set", settings_and_limits, {**defaults, **option("--set", pairs, options or ())})


def provider_of(model: str) -> tuple[Provider, str]:
    """Return the provider and the name of the model that ``--model`` names.

    Raises:
        ConfigError: There is no such provider.
    """
    return option("--model", split_model, model)


def is_embedded(model: str, base_url: str | None) -> bool:
    """Return whether the model runs in a process of its own on this machine."""
    return base_url is None and provider_of(model)[0].is_embedded


def guesses(model: str, base_url: str | None) -> bool:
    """Return True if the model calls no function by itself: one is chosen and filled in for it, and may be wrong."""
    if not is_embedded(model, base_url):
        return False
    provider, name = provider_of(model)
    path = find_model(name or None)
    served = SMOLLM2.alias if path is None or SMOLLM2.is_at(path) else path.stem
    return provider.profile_of(served).function_calls == "guided"


@contextmanager
def connected(model: str, base_url: str | None, screen: Screen) -> Iterator[tuple[HttpClient, str]]:
    """Yield a client and the name of its model."""
    with client_for(model, base_url=base_url) as client:
        embedded = is_embedded(model, base_url)
        if (check := getattr(client, "check_available", None)) is not None and not embedded:
            check()  # a missing key is told before a run begins, which would be left in the store
        screen.resume()
        yield client, screen.start_embedded(split_model(model)[1]) if embedded else client.name


def kept_in(store: str | None) -> AbstractContextManager[Runs | None]:
    """Return the runs of the store that was named, to be opened; it is made if need be."""
    if store is None:
        return nullcontext()
    from fsm_agent.cli.runs.reading import opened

    return opened(store, must_exist=False)
