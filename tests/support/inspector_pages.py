"""The inspector in this OS process: its pages, read as a browser would read them, and its forms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx

ORIGIN = "http://ops.example"
HEADERS = {  # of each answer: a page loads, runs and shows only what its own service sends, and no other site has it
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Markup(HTMLParser):
    """What a page is made of: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of each element of a kind that has these."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [found for name, found in self.elements if name == tag and wanted.items() <= found.items()]

    def assert_harmless(self) -> None:
        """Nothing in it runs but the one script, and nothing is fetched from elsewhere."""
        for tag, attributes in self.elements:
            assert tag not in ("iframe", "object", "embed", "base", "style"), tag
            assert not [name for name in attributes if name.startswith("on") or name == "style"], attributes
            if tag == "script":
                assert re.fullmatch(r"(/[\w-]+)*/static/inspector\.js", attributes.get("src", "")), attributes
            for name in ("href", "src", "action", "formaction", "xlink:href"):
                value = attributes.get(name, "")
                assert value.startswith(("/", "#", "data:image/")) or not value, (tag, name, value)
                assert not value.startswith("//"), (tag, name, value)


class Pages:
    """A browser's view of an application.

    Args:
        app: The application.
        headers: Sent with each request.
    """

    def __init__(self, app: Any, headers: Mapping[str, str] | None = None, origin: str = ORIGIN) -> None:
        self.app, self.headers, self.origin = app, dict(headers or {}), origin

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url=self.origin) as client:
                headers = {**self.headers, **options.pop("headers", {})}
                return await client.request(method, path, headers=headers, **options)

        answer = asyncio.run(ask())
        if answer.status_code < 600 and "referrer-policy" in answer.headers:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        return answer

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def page(self, path: str, status: int = 200, **query: Any) -> Markup:
        answer = self.get(path, **query)
        assert answer.status_code == status, (answer.status_code, answer.text[:500])
        markup = Markup(answer.text)
        markup.assert_harmless()
        return markup

    def form_token(self, run: str) -> str:
        return self.page("/run", id=run).all("input", name="form")[0]["value"]

    def do(self, act: str, run: str, **fields: str) -> httpx.Response:
        """Post a form as a page of the inspector would."""
        data = {"form": self.form_token(run), "id": run, **fields}
        return self.request("POST", f"/do/{act}", data=data, headers={"origin": self.origin})

    def fields(self, run: str, key: str) -> dict[str, str]:
        """The fields of a question's form by their labels, with their names; choices by type."""
        html = self.get("/run", id=run).text
        form = re.search(rf'<form class="ask[^>]*data-ask="{re.escape(key)}".*?</form>', html, re.DOTALL)
        assert form is not None, key
        found = dict[str, str]()
        for field in re.findall(r'<div class="field.*?</div>', form[0], re.DOTALL):
            label = re.search(r"<(?:span|legend)>([^<]*)", field)
            name = re.search(r'name="([^"]*)"', field)
            assert label is not None
            assert name is not None
            found[label[1].strip()] = name[1]
        return found
