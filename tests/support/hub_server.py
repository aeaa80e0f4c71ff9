"""A stand-in for the Hugging Face Hub: models, their files, ranges, and the faults of a network."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from support.http_stub import HttpStubServer

REVISION = "a" * 40
_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


class HubServer(HttpStubServer):
    """The Hub on loopback, for as long as it is entered.

    Args:
        repos: The files of each repository, by its name.

    Attributes:
        breaks_after_bytes: The next body is cut off after so many bytes; None: it is whole.
        commit: The revision that every response states.
        damages: Bodies have another last byte than their checksums say.
        etag: What files are stored under; None: their checksums.
        gated: Repositories whose licence nobody has accepted.
        listing: What is said of every repository; None: the truth.
        requests: Method, path and ``Range`` of each request.
        tokens: What came as ``Authorization``.
    """

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repos = repos
        self.breaks_after_bytes: int | None = None
        self.commit = REVISION
        self.damages = False
        self.etag: str | None = None
        self.gated: set[str] = set()
        self.listing: bytes | None = None
        self.requests: list[tuple[str, str, str]] = []
        self.tokens: list[str] = []
        hub = self

        class Handler(_Handler):
            served = hub

        super().__init__(Handler)
        self.url = self.root


class _Handler(BaseHTTPRequestHandler):
    served: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        hub, path = self.served, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        hub.tokens.append(self.headers.get("Authorization", ""))
        if found := re.match(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?$", path):
            self._model(found[1])
        elif found := re.match(rf"/([^/]+/[^/]+)/resolve/(?:main|{REVISION})/(.+)$", path):
            self._file(found[1], found[2], has_body)
        else:
            self._refused(404, "EntryNotFound")

    def _model(self, repo: str) -> None:
        files = self.served.repos.get(repo)
        if files is None:
            return self._refused(401, "RepoNotFound")  # as the Hub says it to those whom it does not know
        siblings = [
            {
                "rfilename": name,
                "size": len(content),
                "blobId": hashlib.sha1(content).hexdigest(),
                "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130},
            }
            for name, content in files.items()
        ]
        listing = {"id": repo, "sha": self.served.commit, "siblings": siblings}
        self._send(200, self.served.listing or json.dumps(listing).encode(), {}, has_body=True)
        return None

    def _file(self, repo: str, name: str, has_body: bool) -> None:
        hub = self.served
        if repo in hub.gated:
            return self._refused(403, "GatedRepo")
        content = hub.repos.get(repo, {}).get(name)
        if content is None:
            return self._refused(404, "EntryNotFound")
        digest = hub.etag or hashlib.sha256(content).hexdigest()
        headers = {
            "ETag": f'"{digest}"',
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(content)),
            "X-Repo-Commit": hub.commit,
            "Accept-Ranges": "bytes",
        }
        if hub.damages:
            content = content[:-1] + bytes([content[-1] ^ 1])
        status, begin = 200, 0
        if found := _RANGE.match(self.headers.get("Range", "")):
            status, begin = 206, int(found[1])
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        self._send(status, content[begin:], headers, has_body)
        return None

    def _refused(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, has_body=True)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], has_body: bool) -> None:
        hub = self.served
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD" or not has_body:
            return
        if status in (200, 206) and hub.breaks_after_bytes is not None and "ETag" in headers:
            body, hub.breaks_after_bytes = body[: hub.breaks_after_bytes], None
            self.close_connection = True
        self.wfile.write(body)
