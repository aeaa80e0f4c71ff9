"""Does the site build, strictly and without the network, and does every link lead somewhere?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from html.parser import HTMLParser
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import hooks
import pytest
import yaml
from msgspec import Struct
from support.packages import PACKAGES
from support.paths import ROOT

DOCS = ROOT / "docs"
ASSETS = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
FULL_S = 60  # of the processor's time


class Loader(yaml.SafeLoader):
    """Reads the configuration of the site, whose tags name objects of Python."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, tag, node: tag)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)


def paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [path for entry in (nav.values() if isinstance(nav, dict) else nav) for path in paths(entry)]


def test_every_page_is_in_the_navigation_once():
    made = {"reference/", "changes.md", "contributing.md", *hooks.EXAMPLES.values()}
    listed = [path for path in paths(SITE["nav"]) if path not in made]
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(there)


def test_nothing_is_fetched_from_elsewhere():
    assert SITE["theme"]["font"] is False
    assert not [path for path in SITE.get("extra_javascript", []) + SITE["extra_css"] if "//" in path]


class Page(HTMLParser):
    """The links, assets and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        is_no_asset = tag == "link" and given.get("rel") in {"canonical", "prev", "next", "alternate"}
        if ASSETS.get(tag, "") in given and not is_no_asset:
            self.assets.append(given[ASSETS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for library in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(library, reason="the site needs the [docs] extra")
    folder = tmp_path_factory.mktemp("site")
    without_network = "http://127.0.0.1:9"
    environment = os.environ | dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), without_network)
    before = os.times()
    began = time.monotonic()
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    spent_s = sum(os.times()[2:4]) - sum(before[2:4])
    print(f"built in {spent_s:.1f} s of the processor, {time.monotonic() - began:.0f} s on the clock")
    assert spent_s < FULL_S
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """The pages by their address."""
    found = {}
    for file in site.rglob("*.html"):
        address = "/" + file.relative_to(site).as_posix().removesuffix("index.html")
        found[address] = Page(file.read_text("utf-8"))
    return found


def _target(page: str, link: str) -> tuple[str, str]:
    parts = urlsplit(urljoin(page, link))
    return unquote(parts.path), unquote(parts.fragment)


@pytest.mark.nightly
@pytest.mark.timeout(600)
class TestBuilt:
    def test_every_link_leads_somewhere(self, site, pages):
        broken = defaultdict(list)
        count = 0
        for address, page in pages.items():
            if address == "/404.html":
                continue  # its links are those of the site's address
            for link in (*page.links, *page.assets):
                if urlsplit(link).scheme or link.startswith("//"):
                    continue
                count += 1
                path, anchor = _target(address, link)
                file = site / path.lstrip("/")
                if path.endswith("/") or path in pages:
                    if path not in pages or (anchor and anchor not in pages[path].anchors):
                        broken[address].append(link)
                elif not file.is_file():
                    broken[address].append(link)
        print(f"{len(pages)} pages, {count} links")
        assert dict(broken) == {}
        assert count > 5_000

    def test_links_to_the_repository_lead_to_files_that_are_there(self, pages):
        base = f"{SITE['repo_url']}/blob/main/"
        links = [link for page in pages.values() for link in page.links if link.startswith(base)]
        named = {link.removeprefix(base).partition("#")[0] for link in links}
        assert len(named) > 20
        assert {name for name in named if not (ROOT / name).exists()} == set()

    def test_no_asset_is_from_elsewhere(self, pages):
        for address, page in pages.items():
            assert [asset for asset in page.assets if "//" in asset and not asset.startswith("data:")] == [], address

    def test_no_page_asks_for_the_stars_of_the_repository(self, site):
        """The script of the theme asks for each element of this component."""
        texts = [file.read_text("utf-8") for file in site.rglob("*.html")]
        assert all("md-source__repository" in text for text in texts)
        assert not any('data-md-component="source"' in text for text in texts)

    def test_every_public_name_has_an_entry(self, pages):
        for package in PACKAGES:
            anchors = pages[f"/reference/{package}/"].anchors
            names = {f"fsm_agent.{package}.{name}" for name in import_module(f"fsm_agent.{package}").__all__}
            assert names - anchors == set()

    def test_the_reference_lists_the_fields_of_values(self, site):
        for package in PACKAGES:
            text = (site / "reference" / package / "index.html").read_text("utf-8")
            room = import_module(f"fsm_agent.{package}")
            for name, kind in ((each, getattr(room, each)) for each in room.__all__):
                if isinstance(kind, type) and issubclass(kind, Struct) and "Args:" not in (kind.__doc__ or ""):
                    entry = text.partition(f'id="fsm_agent.{package}.{name}"')[2].partition('<h2 id="fsm_agent')[0]
                    own = get_annotations(kind)
                    assert [each for each in kind.__struct_fields__ if each in own and each not in entry] == [], name

    def test_it_can_be_searched_and_read_by_programs(self, site):
        found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
        assert any("FlowSuspended" in one["text"] for one in found)
        boosts = {one["location"]: one.get("boost", 1) for one in found}
        assert boosts["changes/"] < boosts["runs/"] < boosts["concepts/"], "what a word means comes before its history"
        listed = (site / "llms.txt").read_text("utf-8")
        assert listed.startswith(f"# {SITE['site_name']}\n\n> ")
        for path in paths(SITE["nav"]):
            if (DOCS / path).is_file():
                assert path.removesuffix("index.md").removesuffix(".md") in listed
        assert "## Policies" in (site / "llms-full.txt").read_text("utf-8")
