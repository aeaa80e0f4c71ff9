"""Does the inspector answer those who were given its address, and no one else?"""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import Any

import httpx
import pytest
from support.inspected_runs import shop, suspended
from support.inspector_pages import Pages

from fsm_agent import Agent
from fsm_agent.store import MemoryStore, Runs
from fsm_agent.testing import Script
from fsm_agent.web import inspector_app
from fsm_agent.web.auth import TokenAuth

PORT, TOKEN, PATH = 8123, "A-token-which-is-known-to-tests_Zz0123456789", "/abc"
OURS = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def runs() -> Runs:
    runs = Runs(MemoryStore())
    suspended(lambda: shop(runs).call("Where is my parcel?", run_id="r"))
    return runs


@pytest.fixture
def local(runs: Runs) -> Any:
    """The application as the command serves it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(routes=[Mount(PATH, inspector_app(runs))])
    return TokenAuth(app, token=TOKEN, port=PORT, path=f"{PATH}/")


@pytest.fixture
def cookie(local: Any) -> dict[str, str]:
    """The cookie of a browser that has received the token."""
    answer = Pages(local, origin=OURS).get(f"{PATH}/", token=TOKEN)
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


@pytest.fixture
def pages(local: Any, cookie: dict[str, str]) -> Pages:
    return Pages(local, cookie, OURS)


def is_untouched(runs: Runs) -> bool:
    row = runs.store.get("r")
    return row.due_s is None and len(row.waits) == 1 and not runs.store.load("r").signals


class TestTheDoor:
    def test_the_token_becomes_a_cookie_and_leaves_the_address(self, local):
        answer = Pages(local, origin=OURS).get(f"{PATH}/run", token=TOKEN, id="r")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{PATH}/run?id=r"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"fsm_agent_{PORT}=")
        assert TOKEN not in cookie
        assert {part.strip().lower() for part in cookie.split(";")[1:]} == {"httponly", "samesite=strict", "path=/abc/"}

    def test_the_cookie_lets_in(self, pages):
        assert pages.get(f"{PATH}/").status_code == 200
        assert pages.get(f"{PATH}/static/inspector.css").status_code == 200

    @pytest.mark.parametrize(
        "other",
        [lambda _: "", lambda _: "x", lambda _: TOKEN, lambda right: right[:-1], lambda right: right[::-1],
         lambda _: "\u00e4", lambda _: "a" * 5_000],
        ids=["none", "short", "token", "cut", "other", "latin", "long"],
    )  # fmt: skip
    def test_no_other_cookie_does(self, local, cookie, other):
        sent = other(cookie["cookie"].partition("=")[2])
        headers = {"cookie": f"fsm_agent_{PORT}={sent}".encode("latin-1")} if sent else {}
        for path in ("/", "/run?id=r", "/static/inspector.js", "/events", "/export?id=r", "/nothing"):
            answer = Pages(local, headers, OURS).get(PATH + path)  # type: ignore[arg-type]
            assert answer.status_code == 403
            assert "Where is my parcel" not in answer.text

    @pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.lower(), "\u00e4\ud7ff"])
    def test_a_guessed_token_gets_nothing(self, local, cookie, token):
        answer = Pages(local, cookie, OURS).get(f"{PATH}/", token=token)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert TOKEN not in answer.text

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "127.0.0.1", f"evil.example:{PORT}", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}",
         f"localhost.evil.example:{PORT}", f"user@127.0.0.1:{PORT}", "", f"[::1]:{PORT}", f"0.0.0.0:{PORT}"],
    )  # fmt: skip
    def test_another_host_gets_nothing(self, local, cookie, host):
        """Another site may have its name point here (DNS rebinding): then it would be of one origin with us."""
        for headers in ({"host": host}, {"host": host, **cookie}):
            for path in (f"{PATH}/", f"{PATH}/?token={TOKEN}", f"{PATH}/run?id=r"):
                answer = Pages(local, headers, OURS).get(path)
                assert answer.status_code == 421
                assert "set-cookie" not in answer.headers

    def test_localhost_is_ours(self, local, cookie):
        pages = Pages(local, cookie, f"http://localhost:{PORT}")
        assert pages.get(f"{PATH}/").status_code == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_another_page_reads_nothing(self, local, cookie, site):
        """Another port of this machine is the same site: its requests bring our cookie along."""
        answer = Pages(local, {**cookie, "sec-fetch-site": site}, OURS).get(f"{PATH}/run", id="r")
        assert answer.status_code == 403
        assert "parcel" not in answer.text

    def test_a_link_with_the_token_may_come_from_anywhere(self, local):
        answer = Pages(local, {"sec-fetch-site": "cross-site"}, OURS).get(f"{PATH}/", token=TOKEN)
        assert answer.status_code == 303

    def test_it_leads_nowhere_else(self, local, cookie):
        for path in ("//evil.example/", "/other", "/abcd/", "/"):
            answer = Pages(local, cookie, OURS).request("GET", f"{OURS}{path}?token={TOKEN}")
            assert answer.headers["location"] == f"{PATH}/"

    def test_secrets_are_compared_in_constant_time(self, local, cookie, monkeypatch):
        real, seen = hmac.compare_digest, list[Any]()

        def compare(a: Any, b: Any) -> bool:
            seen.append((a, b))
            return real(a, b)

        monkeypatch.setattr(hmac, "compare_digest", compare)
        Pages(local, {}, OURS).get(f"{PATH}/", token=TOKEN[:-1])
        Pages(local, cookie, OURS).get(f"{PATH}/")
        assert len(seen) >= 2


class TestForms:
    def fields(self, pages: Pages, **more: str) -> dict[str, str]:
        html = pages.get(f"{PATH}/run", id="r").text
        found = re.search(r'name="form" value="(\w+)"', html)
        assert found is not None
        return {"form": found[1], "id": "r", "key": "ask:4.0", "kind": "approved", **more}

    def post(self, pages: Pages, data: Any, act: str = "answer", **headers: str) -> httpx.Response:
        return pages.request("POST", f"{PATH}/do/{act}", data=data, headers=headers)

    def test_a_form_of_ours_is_taken(self, pages, runs):
        answer = self.post(pages, self.fields(pages), origin=OURS)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{PATH}/run?id=r"
        assert not is_untouched(runs)

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": f"http://127.0.0.1:{PORT}.evil.example"},
            {"origin": f"https://evil.example/127.0.0.1:{PORT}"},
            {"origin": ""},
            {"origin": "http://[::bad"},
            {"origin": OURS, "sec-fetch-site": "same-site"},
            {"origin": OURS, "sec-fetch-site": "cross-site"},
        ],
    )
    def test_a_form_of_another_page_is_not(self, pages, runs, headers):
        for act in ("answer", "cancel", "retry", "fork", "delete"):
            assert (
                self.post(pages, self.fields(pages, confirm="r", at="1", name="f"), act, **headers).status_code == 403
            )
        assert is_untouched(runs)
        assert len(runs.store.list()) == 1

    @pytest.mark.parametrize("form", ["", "x", TOKEN, "\u00e4"])
    def test_a_form_without_its_token_is_not(self, pages, runs, form):
        answer = self.post(pages, self.fields(pages, form=form), origin=OURS)
        assert answer.status_code == 403
        fields = self.fields(pages)
        del fields["form"]
        assert self.post(pages, fields, origin=OURS).status_code == 403
        assert is_untouched(runs)

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_nothing_is_done_by_another_method(self, pages, runs, method):
        headers = {"origin": OURS}
        answer = pages.request(method, f"{PATH}/do/cancel", params=self.fields(pages), headers=headers)
        assert answer.status_code in (403, 405)
        assert is_untouched(runs)

    def test_a_large_body_is_refused_before_it_is_there(self, runs):
        """It is read in pieces, and no further than is right."""
        app, taken = inspector_app(runs), 0

        async def receive() -> dict[str, Any]:
            nonlocal taken
            taken += 100_000
            return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}  # and no end

        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"ops"), (b"origin", b"http://ops")]
        scope = {"type": "http", "method": "POST", "path": "/do/answer", "headers": headers, "query_string": b"",
                 "root_path": "", "scheme": "http", "server": ("ops", 80), "http_version": "1.1"}  # fmt: skip
        asyncio.run(app(scope, receive, send))
        assert sent[0]["status"] == 413
        assert taken <= 1_200_000

    @pytest.mark.parametrize("body", [b"\xff\xfe", b"&".join([b"a=1"] * 300)], ids=["bytes", "fields"])
    def test_what_is_no_form_is_refused(self, pages, body):
        answer = pages.request("POST", f"{PATH}/do/answer", content=body, headers={"origin": OURS})
        assert answer.status_code == 413

    def test_an_unknown_act_is_none(self, pages, runs):
        assert self.post(pages, self.fields(pages), "drop", origin=OURS).status_code == 404
        assert is_untouched(runs)


class TestAnApplicationOfOnesOwn:
    def test_it_takes_forms_of_its_own_host(self, runs):
        assert Pages(inspector_app(runs)).do("cancel", "r", reason="enough").status_code == 303
        assert not is_untouched(runs)

    def test_behind_a_proxy_its_origins_are_named(self, runs):
        pages = Pages(inspector_app(runs, origins=["https://ops.example.com"]))
        assert pages.do("cancel", "r").status_code == 403
        pages.origin = "https://ops.example.com"
        assert pages.do("cancel", "r").status_code == 303

    def test_a_form_that_the_browser_says_is_from_elsewhere_is_refused(self, runs):
        for site, status in (("cross-site", 403), ("same-site", 403), ("none", 403), ("same-origin", 303)):
            pages = Pages(inspector_app(runs))
            data = {"form": pages.form_token("r"), "id": "r"}
            headers = {"origin": pages.origin, "sec-fetch-site": site}
            assert pages.request("POST", "/do/cancel", data=data, headers=headers).status_code == status

    def test_who_answers_is_who_has_signed_in(self, runs):
        pages = Pages(inspector_app(runs, user=lambda scope: f"ann from {scope['client'][0]}"))
        pages.do("answer", "r", key="ask:4.0", kind="approved")
        (post,) = runs.store.load("r").signals
        assert post.by == "ann from 127.0.0.1"

    def test_its_headers_let_nothing_in_from_elsewhere(self, runs):
        answer = Pages(inspector_app(runs)).get("/")
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert not any("unsafe" in source for source in policy.values())
        assert answer.headers["referrer-policy"] == "same-origin"  # no-referrer sends forms with the origin "null"
        assert answer.headers["cache-control"] == "no-store"


def test_the_file_that_is_served_is_one_of_ours(runs):
    pages = Pages(inspector_app(runs))
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/",
        "/static//etc/passwd",
    ):
        assert pages.get(path).status_code in (403, 404)


def test_no_key_is_on_a_page(monkeypatch):
    """Environment, signing keys and clients stay where they are."""
    secret = "sk-planted-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    runs = Runs(MemoryStore(), signing_key=secret * 2)
    agent = Agent(Script("Hi."), name="host", store=runs)
    agent.call("Hello", run_id="r")
    pages = Pages(inspector_app(runs, agents=[agent]))
    for path in ("/", "/run?id=r", "/moment?id=r&n=2", "/export?id=r", "/compare?a=r&b=r", "/news?id=r"):
        assert secret not in pages.get(path).text
