"""Configuration files of MCP servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from fsm_agent._internal.hints import guess
from fsm_agent._internal.references import expanded
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import ConfigError
from fsm_agent.mcp.client import MCPServer, ServerOptions

_MAX_BYTES = 1024 * 1024
_PARTS = ("mcpServers", "servers")  # the latter in VS Code
_STDIO = ("command", "args", "env", "cwd")
_HTTP = ("url", "headers")
_KINDS = {"stdio": _STDIO, "http": _HTTP, "streamable-http": _HTTP, "streamableHttp": _HTTP, "sse": _HTTP}
_COERCING = ConfigDict(coerce_numbers_to_str=True)
_SHAPES: dict[str, tuple[TypeAdapter[Any], str]] = {
    "command": (TypeAdapter(str), "a string"),
    "args": (TypeAdapter(list[str], config=_COERCING), "a list of strings"),
    "env": (TypeAdapter(dict[str, str], config=_COERCING), "an object of strings"),
    "cwd": (TypeAdapter(str), "a string"),
    "url": (TypeAdapter(str), "a string"),
    "headers": (TypeAdapter(dict[str, str], config=_COERCING), "an object of strings"),
    "type": (TypeAdapter(str), "a string"),
    "disabled": (TypeAdapter(bool), "true or false"),
}


@with_options_shown(ServerOptions)
def mcp_servers(config: str | Path | Mapping[str, Any], **options: Unpack[ServerOptions]) -> dict[str, MCPServer]:
    """Return the servers of a configuration in the format of Claude, Cursor, VS Code and others; none is started.

    ``{"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers", "type"}}}``, or ``"servers"``;
    other top-level keys are ignored.  A server with ``"disabled": true`` is left out.  In all strings ``${VAR}`` (or
    ``${env:VAR}``) is replaced by the environment variable, ``${VAR:-default}`` by the default if it is missing or
    empty.

    Args:
        config: A file, or the content of one.
        options: Options of every server; see `ServerOptions`.  ``prefix`` is by default the server's name.

    Returns:
        The servers by name, in the file's order.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, a value is wrong, or a variable is missing.

    Examples:
        >>> servers = mcp_servers({"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}})
        >>> list(servers)
        ['time']
    """
    named = _servers(config if isinstance(config, Mapping) else _read_config_file(Path(config)))
    made = {name: _server(name, entry, options) for name, entry in named.items()}
    return {name: server for name, server in made.items() if server is not None}


def _read_config_file(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the MCP configuration {str(path)!r} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"the MCP configuration {str(path)!r}: expected at most {_MAX_BYTES} bytes, got more")
    try:
        config = from_json(content)
    except ValueError as error:
        raise ConfigError(f"the MCP configuration {str(path)!r}: expected JSON: {error}") from error
    return _object(config, f"the MCP configuration {str(path)!r}")


def _servers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in _PARTS:
        if part in config:
            return _object(config[part], repr(part))
    hints = [hint for word in config if (hint := guess(word, _PARTS))]
    raise ConfigError(
        "an MCP configuration: expected its servers under 'mcpServers' or 'servers', got"
        f" neither{next(iter(hints), '')}"
    )


def _server(name: str, entry: Any, options: ServerOptions) -> MCPServer | None:
    label = f"MCP server {name!r}"
    entry = _object(entry, label)
    for key in entry:
        if key not in _SHAPES:
            raise ConfigError(f"{label}: unknown key {key!r}{guess(key, _SHAPES)}; known: {', '.join(_SHAPES)}")
    if "disabled" in entry and _valid("disabled", entry["disabled"], label):
        return None
    settings = {key: _valid(key, _expanded(value, f"{key!r} of {label}"), label) for key, value in entry.items()}
    kind = _kind(settings, label)
    own = cast("ServerOptions", {"prefix": name, **options, "name": name})
    if _KINDS[kind] is _HTTP:
        return MCPServer.http(settings["url"], headers=settings.get("headers"), sse=kind == "sse", **own)
    return MCPServer.stdio(
        settings["command"], *settings.get("args", ()), env=settings.get("env"), cwd=settings.get("cwd"), **own
    )


def _kind(settings: Mapping[str, Any], label: str) -> str:
    kind = settings.get("type") or ("http" if "url" in settings else "stdio")
    if kind not in _KINDS:
        raise ConfigError(f"{label}: unknown 'type' {kind!r}{guess(kind, _KINDS)}; known: {', '.join(_KINDS)}")
    main, *_ = keys = _KINDS[kind]
    if not settings.get(main):
        raise ConfigError(f"{label}: expected {main!r}, which the type {kind!r} needs, got none; add it")
    for key in settings:
        if key not in (*keys, "type", "disabled"):
            raise ConfigError(f"{label}: unknown key {key!r} of the type {kind!r}; known: {', '.join(keys)}")
    return str(kind)


def _valid(key: str, value: Any, label: str) -> Any:
    adapter, wanted = _SHAPES[key]
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise ConfigError(f"{key!r} of {label}: expected {wanted}, got another value") from None  # which may be secret


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what}: expected a JSON object, got another value")
    return value


def _expanded(value: Any, label: str) -> Any:
    match value:
        case str():
            try:
                return expanded(value, os.environ, label)
            except ValueError as error:
                raise ConfigError(str(error)) from None
        case list():
            return [_expanded(item, label) for item in value]
        case dict():
            return {key: _expanded(item, f"{key!r} in {label}") for key, item in value.items()}
    return value
