"""Tools that a provider runs itself.

They are given in `Settings.hosted_tools`.  A codec encodes the tools that the wire and the model support, and refuses
any other tool or option before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from msgspec import field

from fsm_agent._internal.masking import path_tokens, secrets_in_headers, secrets_in_url
from fsm_agent._internal.structs import Tagged, Value, is_whole
from fsm_agent.errors import UsageError

Environment = Literal["browser", "desktop", "mobile", "windows", "mac", "linux", "ubuntu"]
ContextSize = Literal["low", "medium", "high"]
# When a call needs approval.  "auto" asks if there is an approver, and "manual" means the same as "always".
Approval = Literal["never", "auto", "manual", "always"]

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DOMAIN = re.compile(r"[^\s/:@]{1,253}(/[^\s]{0,500})?")


class UserLocation(Value, frozen=True, kw_only=True):
    """The user's approximate location, for local search results.

    Examples:
        >>> WebSearch(user_location=UserLocation(country="PT", city="Lisbon")).user_location.city
        'Lisbon'
    """

    country: str | None = None  # two letters, as in ISO 3166-1
    region: str | None = None
    city: str | None = None
    timezone: str | None = None  # such as "Europe/Vienna"


class WebSearch(Tagged, frozen=True, kw_only=True, tag="web_search"):
    """Searches the web.

    Examples:
        >>> Settings(hosted_tools=(WebSearch(max_uses=2),)).hosted_tools[0].max_uses
        2
    """

    allowed_domains: tuple[str, ...] = ()  # such as "example.com"; () allows all
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None  # the maximum number of searches per request
    context_size: ContextSize | None = None  # how much of the results the model sees
    user_location: UserLocation | None = None

    def __post_init__(self) -> None:
        for name in ("allowed_domains", "blocked_domains"):
            domains = _checked_texts(self, name)
            if wrong := [domain for domain in domains if not _DOMAIN.fullmatch(domain)]:
                raise _wrong(self, name, wrong[0], "a domain like 'example.com', with no scheme")
        if self.allowed_domains and self.blocked_domains:
            raise UsageError(f"expected either allowed_domains or blocked_domains, got both: {self!r}")
        if self.max_uses is not None:
            _check_count(self, "max_uses")
        if self.context_size is not None:
            _check_choice(self, "context_size", get_args(ContextSize))


class CodeExecution(Tagged, frozen=True, kw_only=True, tag="code_execution"):
    """Runs code that the model writes, in the provider's sandbox.

    Examples:
        >>> Settings(hosted_tools=(CodeExecution(),)).hosted_tools
        (CodeExecution(),)
    """


class ComputerUse(Tagged, frozen=True, kw_only=True, tag="computer_use"):
    """Lets the model request clicks, key presses and screenshots on a computer.

    Each request is a call to ``computer``, which is handled by the agent's function of that name.  If there is no such
    function, the call waits until a person or a program provides the outcome.  An image in the result is the new
    screen.

    OpenAI sends ``actions``, a list of ``{"type": "click", "x": 12, "y": 40, …}``; the model ``computer-use-preview``
    sends one ``action``.  Anthropic sends ``action``, such as ``"left_click"``, and its arguments: ``coordinate``,
    ``text``, ``scroll_direction``, ….  Google sends ``action``, such as ``"click_at"``, and its arguments; ``x`` and
    ``y`` range from 0 to 999, and the result must contain the ``url`` of the page.

    If the provider requires confirmation of an action, the action needs approval even if there is no approver, unless
    the function has ``needs_approval=False``.

    Examples:
        >>> def perform(**action):
        ...     # move, click or type here; then return the address and a picture of the screen
        ...     return {"url": "https://shop.example"}, Image.of("https://shop.example/screen.png")
        >>> computer = Function(name="computer", parameters={"type": "object"}, call=perform)
        >>> settings = Settings(hosted_tools=(ComputerUse(width=1024, height=768),))
        >>> agent = Agent(Script("Done."), functions=[computer], settings=settings)
    """

    width: int = 1280  # the width in pixels
    height: int = 800
    environment: Environment = "browser"

    def __post_init__(self) -> None:
        _check_count(self, "width")
        _check_count(self, "height")
        _check_choice(self, "environment", get_args(Environment))


class HostedMCP(Tagged, frozen=True, tag="mcp"):
    """An MCP server that the provider connects to.

    With ``require_approval``, each call to one of the server's tools is preceded by a call to a function named after
    the server's label, with the tool's ``name`` and ``arguments`` as its arguments.  If the approver allows that call,
    the provider runs the tool.  `Modified` denies the call, because the provider would run the tool with the model's
    arguments.  With ``"auto"``, approval is requested only if there is an approver.

    The authorization, the headers and the address may contain a key, so they do not appear in any repr or error
    message.

    Examples:
        >>> HostedMCP("wiki", "https://mcp.example.org/mcp", allowed_tools=("search",)).label
        'wiki'
    """

    hidden = ("url", "authorization", "headers")

    label: str  # the server's name for the model
    url: str
    allowed_tools: tuple[str, ...] = ()  # () allows all
    authorization: str | None = None  # an OAuth access token
    headers: Mapping[str, str] = field(default_factory=dict)  # headers to send to the server
    require_approval: Approval = "never"

    def __hash__(self) -> int:
        return hash((self.label, self.url))

    def __copy__(self) -> HostedMCP:
        return self

    def __deepcopy__(self, _: object) -> HostedMCP:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError(
            f"the MCP server {self.label!r} cannot be pickled: its url, authorization and headers may hold a secret;"
            " create it in the other process"
        )

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or not _LABEL.fullmatch(self.label):
            raise _wrong(self, "label", self.label, "up to 64 letters, digits, '-' and '_'")
        if not _is_address(self.url):
            raise UsageError(f"the url of MCP server {self.label!r}: expected one like 'https://host/mcp'")
        _checked_texts(self, "allowed_tools")
        _check_choice(self, "require_approval", get_args(Approval))
        if not isinstance(self.authorization, str | None) or self.authorization == "":
            raise UsageError(f"the authorization of MCP server {self.label!r}: expected a token as a string, or None")
        if not isinstance(self.headers, Mapping):
            got = type(self.headers).__name__
            raise UsageError(f"the headers of MCP server {self.label!r}: expected a mapping of strings, got a {got}")
        for name, value in self.headers.items():
            if not (isinstance(name, str) and isinstance(value, str) and f"{name}{value}".isprintable() and name):
                raise UsageError(f"the header {name!r} of MCP server {self.label!r}: expected printable text")

    @property
    def secrets(self) -> Iterator[str]:
        """The tool's secret values, which must not be shown."""
        if self.authorization:
            yield self.authorization
        yield from secrets_in_headers(self.headers.items(), all_names=True)
        yield from (self.url, *secrets_in_url(self.url), *path_tokens(self.url))


HostedTool: TypeAlias = WebSearch | CodeExecution | ComputerUse | HostedMCP


def check_hosted_tools(tools: Sequence[HostedTool], owner: str = "settings.hosted_tools") -> None:
    """Check that a value is a tuple of tools without duplicates.

    The error does not show the tools, because they may contain secrets.
    """
    if not isinstance(tools, tuple):
        raise UsageError(f"{owner}: expected a tuple, such as (WebSearch(),), got a {type(tools).__name__}")
    seen = set[tuple[str, str]]()
    for tool in tools:
        if not isinstance(tool, WebSearch | CodeExecution | ComputerUse | HostedMCP):
            right = "WebSearch, CodeExecution, ComputerUse or HostedMCP"
            raise UsageError(f"{owner}: expected {right}, got a {type(tool).__name__}")
        name = name_of(tool)
        if name in seen:
            raise UsageError(f"{owner}: expected each tool once, got {tool!r} and another of that name; remove one")
        seen.add(name)


def name_of(tool: HostedTool) -> tuple[str, str]:
    """Return ``(kind, label)`` for a tool.  The label is "" unless the tool is an MCP server."""
    return tool.kind, tool.label if isinstance(tool, HostedMCP) else ""


def merged(tools: Sequence[HostedTool], over: Sequence[HostedTool]) -> tuple[HostedTool, ...]:
    """Return the tools in both sequences.  If two have the same name, the one from ``over`` wins."""
    return tuple({name_of(tool): tool for tool in (*tools, *over)}.values())


def secrets_of(tools: Sequence[HostedTool]) -> frozenset[str]:
    """Return the secret values in the tools."""
    return frozenset([secret for tool in tools if isinstance(tool, HostedMCP) for secret in tool.secrets])


def _wrong(tool: Any, name: str, value: Any, right: str) -> UsageError:
    return UsageError(f"{type(tool).__name__}.{name}: expected {right}, got {value!r:.100}")


def _checked_texts(tool: Any, name: str) -> tuple[str, ...]:
    values = getattr(tool, name)
    if not isinstance(values, tuple) or not all(isinstance(value, str) and value for value in values):
        raise _wrong(tool, name, values, "a tuple of texts")
    return values


def _check_count(tool: Any, name: str) -> None:
    if not is_whole(value := getattr(tool, name), 1):
        raise _wrong(tool, name, value, "a number of at least 1")


def _check_choice(tool: Any, name: str, choices: Sequence[str]) -> None:
    if getattr(tool, name) not in choices:
        raise _wrong(tool, name, getattr(tool, name), f"one of {', '.join(map(repr, choices))}")


def _is_address(url: Any) -> bool:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except (ValueError, TypeError, AttributeError):
        return False
    return is_whole and url.isprintable() and " " not in url
