"""Do the commands of prompts show all that there is, and all that is wrong?"""

from __future__ import annotations

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.prompts import Prompts

MODULE = '''
from dataclasses import dataclass
@dataclass
class Order:
    item: str
def stock(item: str) -> int:
    """Count."""
    return 1
names = {"Order": Order, "stock": stock}
number = 5
'''
FILES = {
    "shop/order.jinja": """+++
output = "wareshop:Order"
functions = ["wareshop:stock"]
hosted_tools = ["web_search"]
[settings]
temperature = 0
+++
{% include "shop/_tone.md" %}
Take the order: {{ text }}
""",
    "shop/_tone.md": "You are friendly.\n",
    "shop/order.exception.md": "No: {{ error_message }}\n",
    "shop/plain.txt": "Say hello.\n",
}
BROKEN = {
    "shop/broken.md": '+++\noutptu = "int"\n\nsettings = {temprature = 0}\n+++\nCount {{ things\n',
    "shop/order.excption.md": "x",
    "shop/gone.final.md": "x",
    "shop/two words.txt": "x",
    "shop/plain.md": "x",
    "shop/_part.md": "{% if %}",
    "shop/linked.md": '{% include "../wareshop.py" %}',
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "wareshop.py").write_text(MODULE)
    write(tmp_path, FILES)
    yield tmp_path
    sys.modules.pop("wareshop", None)


def write(folder, files) -> None:
    for name, text in files.items():
        (folder / "prompts" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "prompts" / name).write_text(text)


def prompts(*arguments: str, code: int = 0):
    ended = CliRunner().invoke(app, ["prompts", *arguments], prog_name="fsm-agent", catch_exceptions=False)
    assert ended.exit_code == code, ended.output
    return ended


class TestList:
    def test_each_is_a_signature(self):
        assert prompts("list").stdout.splitlines() == [
            "shop/order(text) -> Order",
            "  functions: stock",
            "  hosted tools: WebSearch()",
            "shop/plain() -> str",
        ]

    def test_as_json(self):
        order, plain = json.loads(prompts("list", "--json").stdout)
        assert (order["prompt"], order["variables"], order["output"]) == ("shop/order", ["text"], "Order")
        assert (plain["prompt"], plain["file"]) == ("shop/plain", "prompts/shop/plain.txt")

    def test_a_broken_one_does_not_hide_the_others(self, folder):
        write(folder, {"shop/broken.md": BROKEN["shop/broken.md"]})
        assert prompts("list").stdout.splitlines()[0] == "shop/broken: 3 problem(s), see 'prompts check'"
        assert len(json.loads(prompts("list", "--json").stdout)[0]["problems"]) == 3

    def test_prompts_of_another_directory_or_package_are_listed(self, folder):
        (folder / "prompts").rename(folder / "texts")
        assert "shop/plain() -> str" in prompts("list", "--directory", "texts").stdout
        assert "demo/task(a, b) -> str" in prompts("list").stdout  # the package's own
        (folder / "warehouse").mkdir()
        (folder / "texts").rename(folder / "warehouse/prompts")
        assert "shop/plain() -> str" in prompts("list", "--package", "warehouse").stdout

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("--directory", "nope"), "'nope' is no directory"),
            (("--package", "nope"), "the package 'nope' is not installed"),
            (("--names", "wareshop:number"), "a mapping such as {'Order': Order} would be right"),
            (("--names", "wareshop"), "names no object: 'module:name' would"),
        ],
    )
    def test_wrong_options(self, arguments, problem):
        said = re.sub(r"[│╭╮╰╯─\s]+", " ", prompts("list", *arguments, code=2).stderr)
        assert problem in said


class TestCheck:
    def test_nothing_is_wrong(self):
        assert prompts("check").stdout == "2 prompt(s) checked: nothing is wrong\n"
        assert json.loads(prompts("check", "--json").stdout) == {"prompts": 2, "problems": []}

    def test_all_problems_of_all_files(self, folder):
        write(folder, BROKEN)
        ended = prompts("check", code=1)
        lines = ended.stdout.splitlines()
        assert [line for line in lines if not line.startswith("  ")] == [
            "prompts/shop/_part.md:1",
            "prompts/shop/broken.md:2",
            "prompts/shop/broken.md:4",
            "prompts/shop/broken.md:6",
            "prompts/shop/gone.final.md",
            "prompts/shop/linked.md:1",
            "prompts/shop/order.excption.md",
            "prompts/shop/plain.md",
            "prompts/shop/two words.txt",
            "4 prompt(s) checked: 9 problem(s)",
        ]
        said = ended.stdout
        for told in (
            "there is no key 'outptu': did you mean 'output'?",
            "settings: there is no setting 'temprature': did you mean 'temperature'?",
            "there is no handler 'excption': did you mean 'exception'?",
            "it is a handler, and there is no prompt 'gone'",
            "the prompt 'shop/plain' is in 'plain.md' and 'plain.txt': one of them would be right",
            "'../wareshop.py' is no name of a template",
        ):
            assert f"\n  {told}" in said

    def test_what_is_named_is_looked_up(self, folder):
        (folder / "wareshop.py").write_text("Order = int")
        assert "there is no 'stock' in 'wareshop:stock'" in prompts("check", code=1).stdout

    def test_the_packages_own_are_right(self, folder):
        assert "nothing is wrong" in prompts("check", "--directory", str(Prompts("demo").directories[0])).stdout


class TestShow:
    def test_all_that_makes_it(self):
        lines = prompts("show", "shop/order").stdout.splitlines()
        assert lines[:8] == [
            "shop/order(text) -> Order",
            "  functions: stock",
            "  hosted tools: WebSearch()",
            "  settings: temperature=0",
            "  on exception: No: {{ error_message }}",
            "  includes: shop/_tone.md",
            "  file: prompts/shop/order.jinja",
            f"  fingerprint: {json.loads(prompts('show', 'shop/order', '--json').stdout)['fingerprint']}",
        ]
        assert lines[-1] == "Take the order: {{ text }}"

    def test_what_would_drive_a_terminal_is_not_shown(self, folder):
        write(folder, {"shop/evil.txt": "a\x1b[31mred"})
        assert "\x1b" not in prompts("show", "shop/evil").stdout
