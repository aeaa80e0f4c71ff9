"""Convert the options of a command line to functions, agents, prompts and settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from fsm_agent._internal.values import field_names, from_data
from fsm_agent.agents.config import imported, loaded, within
from fsm_agent.agents.runnable import Runnable
from fsm_agent.call.limits import Limits
from fsm_agent.errors import UsageError, hint
from fsm_agent.functions.context import check_deps
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import Attachment, Document, Image, Message, bytes_of, is_url, url_suffix
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import render
from fsm_agent.validation import shown

MAX_PIPED_BYTES = 10_000_000
MAX_ATTACHED_BYTES = 50_000_000
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def load_function(named: str) -> Function:
    """Return the function that ``module:name`` names; modules in the working directory are found, too.

    Raises:
        UsageError: The name has another form, or its object cannot be called by a model.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    return Function.of(load_callable(named))


def load_callable(named: str) -> Any:
    """Return what ``module:name`` names and can be called.

    Raises:
        UsageError: The name has another form, or its object cannot be called.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    target = load_object(named, "function")
    if not callable(target):
        raise UsageError(f"{named!r}: expected something that can be called, got {_show_value(target)}")
    return target


def load_object(named: str, kind: str = "object") -> Any:
    """Return what ``module:name`` names.

    Raises:
        UsageError: The name has another form.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    with modules_here():
        return loaded(named, kind)


def load_deps(named: str | None, drives: Iterable[Runnable] = ()) -> Any:
    """Return the deps that ``module:name`` is, a value or a function of (agent, extra, user); None: there are none.

    Args:
        named: The name.
        drives: The agents and flows that are driven with them.

    Raises:
        UsageError: The name has another form, or they are neither, or of no use to an agent.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    deps = None if named is None else load_object(named, "deps")
    check_deps(deps)
    for runnable in drives:
        runnable._check_deps(deps)
    return deps


def _show_value(value: object) -> str:
    try:
        return shown(value)
    except Exception:  # of the `__repr__` of a user's class
        return f"a {type(value).__name__}"


def load_runnables(named: str) -> tuple[list[Runnable], list[Prompt]]:
    """Return the agents, flows and orchestrators of ``module``, or those that ``module:name`` is or contains.

    Sub-agents are among them, and the prompts of the module are returned as well.

    Raises:
        UsageError: The module has no agent, or several of one name.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    module_name, colon, path = named.partition(":")
    module = _import_module(module_name, named)
    if colon:
        target = within(module, path, named)
        found = [*target.values()] if isinstance(target, Mapping) else target
        found = [*found] if isinstance(found, Iterable) else [found]
        if wrong := [item for item in found if not isinstance(item, Runnable)]:
            raise UsageError(f"{named!r}: expected an Agent, or a list or dict of Agents, got {_show_value(wrong[0])}")
    else:
        found = [item for item in vars(module).values() if isinstance(item, Runnable)]
    inner = [getattr(item, "flow", None) for item in found]  # whose runs are those of its orchestrator
    found = [item for item in found if not any(item is flow for flow in inner)]
    agents = list({id(agent): agent for item in found for agent in item._sub_runnables}.values())
    if not agents:
        raise UsageError(f"expected a module with an Agent, or 'module:name', got {named!r}")
    by_name: dict[str, Runnable] = {}
    for agent in agents:
        if (other := by_name.setdefault(agent.name, agent)) is not agent:
            kinds = f"a runnable of type {type(other).__name__} and one of type {type(agent).__name__}"
            right = "pass name=… to one, by which it finds its runs"
            raise UsageError(f"{named!r}: expected different names, got {kinds}, both named {agent.name!r}; {right}")
    return agents, [value for value in vars(module).values() if isinstance(value, Prompt)]


def _import_module(name: str, named: str) -> Any:
    with modules_here():
        return imported(name, named)


@contextmanager
def modules_here(*folders: Path) -> Iterator[None]:
    """Have modules in the working directory and in ``folders`` found, for now before those that are installed."""
    here = [str(folder) for folder in (Path.cwd(), *folders)]
    sys.path[:0] = here
    try:
        yield
    finally:
        for folder in here:
            sys.path.remove(folder)
            sys.path.append(folder)  # last from now on: nothing here hides installed modules


def written_task(task: str | None, *, is_needed: bool) -> str | None:
    """Return the task, after what is piped into the command: ``cat report.txt | fsm-agent ask "Sum it up."``.

    Args:
        task: The task; '-', or None if one is needed, is what is piped in.
        is_needed: There is no prompt that could stand without one.

    Raises:
        UsageError: What is piped in is too long.
    """
    if task is None and not is_needed:
        return None
    if task != "-" and sys.stdin.isatty():
        return task
    piped = _piped()
    if task is None or task == "-":
        return piped or None
    return f"{piped}\n\n{task}" if piped else task


def _piped() -> str:
    data = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)
    if len(data) > MAX_PIPED_BYTES:
        raise UsageError(f"pipe: expected at most {MAX_PIPED_BYTES} bytes, got more; pipe in a part, or pass -a FILE")
    return data.decode("utf-8", "replace").strip()


def attachments_of(sources: Iterable[str]) -> list[Attachment]:
    """Return the pictures, PDFs and texts at these paths and http(s) URLs.

    Raises:
        UsageError: One is none of these, or all of them are too large.
    """
    found = [_attachment(source) for source in sources]
    size = sum(len(item.data or b"") for item in found)
    if size > MAX_ATTACHED_BYTES:
        raise UsageError(f"files: expected at most {MAX_ATTACHED_BYTES} bytes in all, got {size}")
    return found


def _attachment(source: str) -> Attachment:
    if is_url(source):
        return Image.of(source) if url_suffix(source) in _PICTURES else Document.of(source)
    data = bytes_of(Path(source), "attachment")
    try:
        return Image.of(data)
    except UsageError:
        pass
    try:
        return Document.of(data, name=Path(source).name)
    except UsageError:
        kinds = "a PNG, JPEG, GIF or WebP picture, a PDF, or text in UTF-8"
        raise UsageError(f"expected {kinds}, got {source!r}") from None


def dialog_of(
    task: str | None,
    prompt: Prompt | None,
    variables: Mapping[str, str],
    system: str,
    attachments: Sequence[Attachment] = (),
) -> Dialog:
    """Return the dialog of a task.

    Args:
        task: Text; of a prompt, its variable ``task``.
        prompt: The prompt that holds the task, if any.
        variables: More variables of the prompt.
        system: The system prompt's text; empty for none.
        attachments: What goes with the text.

    Raises:
        UsageError: The task is empty, or the variables are not those of the prompt.
    """
    values = dict(variables)
    if task is not None and "task" in values:
        raise UsageError(f"variable 'task': expected one value, got two: {task!r:.60} and {values['task']!r:.60}")
    if task is not None:
        values["task"] = task
    if not (task or prompt):
        raise UsageError("expected something to ask, got nothing; pass a text, or a prompt")
    expected = prompt.variables if prompt else frozenset({"task"})
    if unknown := sorted(values.keys() - expected):
        there = (", ".join(sorted(expected)) or "it has none") if prompt else "none, without a prompt"
        raise UsageError(f"expected a variable of the prompt ({there}), got {unknown[0]!r}")
    if missing := sorted(expected - values.keys()):
        raise UsageError(f"expected the variable {missing[0]!r} of the prompt, got none; pass '{missing[0]}=…'")
    text = render(prompt.template, values) if prompt else values["task"]
    messages = [Message.of("system", system)] if system else []
    return Dialog([*messages, Message.of("user", text, *attachments)], top_prompt=prompt)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Return the value of each ``name=value``.

    Raises:
        UsageError: One has another form, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not (name and equals):
            raise UsageError(f"expected 'name=value', got {option!r}")
        if name in values:
            raise UsageError(f"{name}: expected one value, got two: {values[name]!r} and {value!r}")
        values[name] = value
    return values


def settings_and_limits(options: Mapping[str, str]) -> tuple[Settings, Limits]:
    """Return settings and limits, of which no two have one name; each value is JSON, or else text.

    Raises:
        UsageError: There is no such setting or limit, or its value is of the wrong type.
    """
    of_settings, of_limits = (set(field_names(kind)) for kind in (Settings, Limits))
    if unknown := sorted(options.keys() - of_settings - of_limits):
        known = sorted(of_settings | of_limits)
        raise UsageError(f"expected a setting or limit, got {unknown[0]!r}{hint(unknown[0], known)}")
    values = {name: _value(name, text) for name, text in options.items()}
    return (
        _valid(Settings, {name: value for name, value in values.items() if name in of_settings}),
        _valid(Limits, {name: value for name, value in values.items() if name in of_limits}),
    )


def _value(name: str, text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text
    except TypeError:  # for half of a surrogate pair, which stands for a byte
        raise UsageError(f"{name}: expected text in UTF-8, got {text!r}") from None


def _valid(kind: type, values: Mapping[str, Any]) -> Any:
    try:
        return from_data(values, kind)
    except ValueError as error:
        raise UsageError(str(error)) from error


def store_option(store: str) -> str:
    """Return the option that names a store, for a command that people are shown; a password is left out."""
    return f"--store {shlex.quote(shown_store(store))}"


def shown_store(store: str) -> str:
    """Return the path or address of a store without a password."""
    scheme, colon, rest = store.partition("://")
    if not (colon and "@" in rest):
        return store
    login, _, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}@{place}"
