"""Find and mask the secret parts of requests, URLs and texts that are shown or logged.

What a run stores is masked only by the user's ``redact``, which `fsm_agent.runtime.drive_loop`,
`fsm_agent.store.recorder` and `fsm_agent.store.runs` apply.

A secret is recognized by its name (`is_secret_name`), by its position in a URL (`secrets_in_url`, `path_tokens`), by
its format (API keys, tokens and account numbers from known services), or because a caller declared it secret, as with
``api_key``.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

MASK = "***"
MIN_CHARS = 3  # shorter values are not masked
MIN_ANYWHERE_CHARS = 8  # shorter values are masked only as whole words, since they may be parts of other words
MIN_HELD_CHARS = 16  # the shortest key of a client that `mask_keys` masks
MAX_HELD = 256  # keys of clients; a program may renew its key every hour
MIN_PIECE_CHARS = 4  # the shortest masked piece of a secret that was cut

# Placeholder keys in the documentation of servers without keys, and similar common words.
_PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "test", "unused", "ollama", "lm-studio", "not-needed"})
_NAME = re.compile(
    r"auth|key|token|secret|pass|pwd|credential|cookie|signature|(?<![a-z])sig(?![a-z])|session|subscription|jwt"
    r"|organi[sz]ation|project|account|header",  # --header, of a command line
    re.IGNORECASE,
)
_TOKEN_WORD = re.compile(r"key|token|secret|pass", re.IGNORECASE)  # in a segment of a path; more would mask plain words
_OPEN_QUERY = frozenset({"alt", "api-version", "version", "beta", "model", "region", "stream"})

# A word begins here, also after an escape inside JSON or a URL: "\\nsk-…", "%20sk-…".
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
# Repetitions that something must follow are bounded, so a search is linear.
_KEY = re.compile(
    _START + r"(?:(?:sk|gsk|csk|xai|pplx|hf|nvapi|tgp|fw|r8|ghp|github_pat)[-_][A-Za-z0-9_-]{12,}"
    r"|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9._-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,500}\.[A-Za-z0-9._-]{10,}|[Bb]earer [A-Za-z0-9._~+/=-]{12,}"
    r"|(?:org|proj|acct)[-_](?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{12,}|accounts/[0-9a-f]{32}|projects/[0-9]{6,})"
)
_GAP = re.compile(r"\.\.\.|…")
_CUT = re.compile(r"\.\.\.|…|[\"')\]}]{0,3}\Z")
# A name in JSON and its value, which may be cut.  Fewer names are secret here, since a call may be about an account.
_ARGUMENT = re.compile(r'("(?:[^"\\]|\\.){0,200}+"\s*:\s*)("(?:[^"\\]|\\.)*+"?|[^\s,{}\[\]"]++)')
_SECRET_ARGUMENT = re.compile(
    r"password|passwd|passphrase|passcode|pwd|secret|credential|api_?key|private_?key|(?<!max_)token(?!s)|authori[sz]ation"
    r"|cookie|cvv|(?<![a-z])pin(?![a-z])",
    re.IGNORECASE,
)
_ESCAPED_BY_DOTNET = re.compile("[\"&'+<>`]")  # in JSON
_SCALAR = re.compile(r'"(?:[^"\\]++|\\.)*+"|-?[0-9][0-9.eE+-]*+')  # a string or number of JSON


def is_secret_name(name: str) -> bool:
    """Return whether the value of a header, parameter, option or variable with this name is secret."""
    return _NAME.search(name) is not None


def secrets_in_headers(headers: Iterable[tuple[str, str]], *, all_names: bool = False) -> Iterator[str]:
    """Yield the secrets in headers: values, credentials after a scheme (``Bearer …``), and cookies.

    With ``all_names``, every long value counts as a secret.
    """
    for name, value in headers:
        is_declared = is_secret_name(name)
        if not (is_declared or all_names):
            continue
        scheme, _, credentials = value.strip().partition(" ")
        words = [word for piece in re.split(r"[\s;]+", value) for word in (piece, piece.partition("=")[2])]
        long = [word for word in (value, *words) if len(word) >= MIN_ANYWHERE_CHARS]
        yield from [value, credentials or scheme, *long] if is_declared else long


def secrets_in_url(url: str) -> Iterator[str]:
    """Yield the user and password in a URL, raw and decoded, and the secret values in its query."""
    user = _authority(url).rpartition("@")[0]
    yield from filter(None, [user, user.partition(":")[2], urllib.parse.unquote(user.partition(":")[2])])
    for name, value in _query(url):
        if is_secret_name(name) or (name.lower() not in _OPEN_QUERY and len(value) >= MIN_ANYWHERE_CHARS):
            yield value


def secrets_in_proxies() -> Iterator[str]:
    """Yield the secrets in the proxy URLs that the environment names."""
    from urllib.request import getproxies_environment  # imports an HTTP client

    for url in getproxies_environment().values():
        yield from secrets_in_url(url)


def path_tokens(url: str) -> Iterator[str]:
    """Yield a URL's path segments that may be tokens: long ones with a digit, mixed case, or a word such as ``key``."""
    for step in _path(url).split("/"):
        text = urllib.parse.unquote(step)
        is_mixed = len(text) >= 2 * MIN_ANYWHERE_CHARS and not (text.islower() or text.isupper() or text.istitle())
        has_digit = any(map(str.isdigit, text))
        if len(text) >= MIN_ANYWHERE_CHARS and (has_digit or is_mixed or _TOKEN_WORD.search(text)):
            yield from (step, text)


def shown_url(url: str) -> str:
    """Return a decoded URL without its user and fragment, and with query values masked unless they are harmless."""
    scheme, separator, _ = url.partition("://")
    host, path = _authority(url).rpartition("@")[2], urllib.parse.unquote(_path(url))
    query = "&".join([f"{name}={value if name.lower() in _OPEN_QUERY else MASK}" for name, value in _query(url)])
    bare = f"{scheme}{separator}{host}{path}" if separator else f"{host}{path}"
    return f"{bare}?{query}" if query else bare


def _authority(url: str) -> str:
    return _address(url).partition("/")[0]


def _path(url: str) -> str:
    _, slash, path = _address(url).partition("/")
    return slash + path


def _address(url: str) -> str:
    head = re.split("[?#]", url, maxsplit=1)[0]
    return head.partition("://")[2] if "://" in head else head


def _query(url: str) -> list[tuple[str, str]]:
    return urllib.parse.parse_qsl(url.partition("#")[0].partition("?")[2], keep_blank_values=True)


class Secrets:
    """Secret values, which are masked in all spellings that may occur in text.

    Short values match only as whole words.  Placeholders such as ``none`` are ignored.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset([value.strip() for value in values])

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"

    @cached_property
    def _spellings(self) -> list[str]:
        """The spellings, longest first, so that one within another is masked along with the longer one."""
        real = [value for value in self._values if len(value) >= MIN_CHARS and value.lower() not in _PLACEHOLDERS]
        return sorted({spelling for value in real for spelling in _spelled(value)}, key=len, reverse=True)

    @cached_property
    def _words(self) -> re.Pattern[str] | None:
        short = [re.escape(spelling) for spelling in self._spellings if len(spelling) < MIN_ANYWHERE_CHARS]
        return re.compile(f"{_START}(?:{'|'.join(short)})(?![A-Za-z0-9])") if short else None

    def mask(self, text: str) -> str:
        """Mask these secrets, pieces of them in text that was cut, and likely keys."""
        for spelling in self._spellings:
            if len(spelling) >= MIN_ANYWHERE_CHARS:
                text = _without_pieces(text.replace(spelling, MASK), spelling)
        if self._words is not None:
            text = self._words.sub(MASK, text)
        return _KEY.sub(MASK, text)

    def mask_json(self, text: str) -> str:
        """Return a JSON document with the secrets in its strings and numbers masked.  The result is still valid JSON.

        Raises:
            RecursionError: If the document is nested too deeply.
        """

        def masked(scalar: re.Match[str]) -> str:
            hidden = self.mask(scalar[0])
            return hidden if hidden == scalar[0] or scalar[0].startswith('"') else f'"{MASK}"'

        whole = self.mask(text)
        try:
            json.loads(whole)
        except ValueError:  # a number was masked, or a word such as true
            return _SCALAR.sub(masked, text)
        return whole


def masked_arguments(text: str) -> str:
    """Return a function's JSON arguments, which may have been cut, with passwords and likely keys masked."""
    named = _ARGUMENT.sub(lambda item: f'{item[1]}"{MASK}"' if _SECRET_ARGUMENT.search(item[1]) else item[0], text)
    return mask_keys(named)


def unmasked(given: Any, shown: Any, original: Any) -> Any:
    """Return edited JSON data, with the original values in place of masks that were left unchanged."""
    if isinstance(given, dict) and isinstance(shown, dict):
        return {k: unmasked(v, shown.get(k), original.get(k)) if k in shown else v for k, v in given.items()}
    if isinstance(given, list) and isinstance(shown, list) and len(given) == len(shown):
        return [unmasked(*three) for three in zip(given, shown, original, strict=True)]
    return original if isinstance(shown, str) and given == shown else given  # a mask is a string


_held: dict[str, None] = {}  # the keys of the clients in this OS process, the newest last


def hold_key(key: str) -> None:
    """Make `mask_keys` mask a client's key, whatever its format.  Short keys are ignored, because they may be words."""
    if len(key) >= MIN_HELD_CHARS and key not in _held:
        _held[key] = None
        if len(_held) > MAX_HELD:
            _held.pop(next(iter(_held)), None)


def mask_keys(text: str) -> str:
    """Return text in which likely keys and clients' keys are masked, except for their first characters."""
    for key in tuple(_held):
        text = text.replace(key, f"{key[:4]}{MASK}")
    return _KEY.sub(lambda key: f"{key[0][:4]}{MASK}", text)


def _without_pieces(text: str, secret: str) -> str:
    """Mask the beginning of a secret before a cut or a gap in the text, and the end of one after a gap."""
    spans = []  # start and end of each
    index = text.find(secret[:MIN_PIECE_CHARS])
    while index >= 0:
        size = MIN_PIECE_CHARS
        while size < len(secret) and text.startswith(secret[size], index + size):
            size += 1
        if _CUT.match(text, index + size):
            spans.append((index, index + size))
        index = text.find(secret[:MIN_PIECE_CHARS], index + 1)
    for gap in _GAP.finditer(text):
        first = text[gap.end() : gap.end() + MIN_PIECE_CHARS]
        start = secret.find(first) if len(first) == MIN_PIECE_CHARS else -1
        while start >= 0 and not text.startswith(secret[start:], gap.end()):
            start = secret.find(first, start + 1)
        if start >= 0:
            spans.append((gap.end(), gap.end() + len(secret) - start))
    masked, last = "", 0
    for start, end in sorted(spans):
        masked += text[last:start] + MASK
        last = max(last, end)
    return masked + text[last:]


def _spelled(value: str) -> Iterator[str]:
    """Yield a value unchanged, escaped for JSON and for URLs, and as it looks at any position within Base64 text."""
    yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield value.replace("/", r"\/")  # in the JSON of PHP
    yield _ESCAPED_BY_DOTNET.sub(lambda found: f"\\u{ord(found[0]):04X}", value)
    yield from (urllib.parse.quote(value, safe=""), urllib.parse.quote(value), urllib.parse.quote_plus(value))
    if len(value) < MIN_ANYWHERE_CHARS:
        return
    data = value.encode("utf-8", "surrogatepass")
    for shift in range(3):
        # Each character holds six bits, so the first and the last one may also hold bits of their neighbours.
        first, last = -(-shift * 8 // 6), (shift + len(data)) * 8 // 6
        for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * shift + data).decode()[first:last]
