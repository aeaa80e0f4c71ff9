"""Do the commands of prompts show all that there is, and all that is wrong?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ran, refused

from fsm_agent.prompts import Prompts

MODULE = '''
from dataclasses import dataclass
@dataclass
class Order:
    item: str
def stock(item: str) -> int:
    """Count."""
    return 1
number = 5
'''
FILES = {
    "order.jinja": """+++
output = "wareshop:Order"
functions = ["wareshop:stock"]
[settings]
temperature = 0
+++
{% include "shop/_tone.md" %}
Take the order: {{ text }}
""",
    "_tone.md": "You are friendly.\n",
    "order.exception.md": "No: {{ error_message }}\n",
    "plain.txt": "Say hello.\n",
}
BROKEN = {
    "broken.md": '+++\noutptu = "int"\n+++\nCount {{ things\n',
    "order.excption.md": "x",
    "gone.final.md": "x",
    "two words.txt": "x",
    "plain.md": "x",
    "_part.md": "{% if %}",
    "linked.md": '{% include "../wareshop.py" %}',
}


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    (here / "wareshop.py").write_text(MODULE)
    (here / "prompts/shop").mkdir(parents=True)
    write(here, FILES)
    return here


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / "prompts/shop" / name).write_text(text)


def prompts(*words: str, code: int = 0) -> str:
    return str(ran("prompts", *words, code=code).stdout)


def test_check_has_signatures_and_a_broken_one_hides_no_other(folder: Path):
    signatures = ["shop/order(text) -> Order", "shop/plain() -> str"]
    assert prompts("check").splitlines()[:2] == signatures
    write(folder, {"broken.md": BROKEN["broken.md"]})
    told = prompts("check", code=1).splitlines()
    assert told[:2] == signatures
    assert "3 prompt(s) checked: 1 problem(s)" in told


def test_prompts_of_another_directory_or_package_are_checked(folder: Path):
    (folder / "prompts").rename(folder / "texts")
    assert "shop/plain() -> str" in prompts("check", "--directory", "texts")
    assert "demo/task(a, b) -> str" in prompts("check")  # the package's own
    (folder / "warehouse").mkdir()
    (folder / "texts").rename(folder / "warehouse/prompts")
    assert "shop/plain() -> str" in prompts("check", "--package", "warehouse")
    for words, at_fault in (
        (("--directory", "nope"), "'nope'"),
        (("--package", "nope"), "'nope'"),
        (("--names", "wareshop:number"), "--names"),
    ):
        assert at_fault in refused("prompts", "check", *words, code=2)


def test_check_tells_the_first_problem_of_each_file(folder: Path):
    assert "2 prompt(s) checked: no problems" in prompts("check")
    assert prompts("check", "--directory", str(Prompts("demo").directories[0]))
    write(folder, BROKEN)
    told = prompts("check", code=1)
    assert [line.partition("shop/")[2] for line in told.splitlines() if line.startswith("prompts/")] == [
        *("_part.md:1", "broken.md:2", "gone.final.md", "linked.md:1"),
        *("order.excption.md", "plain.md", "two words.txt"),
    ]
    for name in ("'outptu'", "'excption'", "'gone'", "'plain.md' and 'plain.txt'", "'../wareshop.py'"):
        assert name in told


def test_what_a_prompt_names_is_looked_up(folder: Path):
    (folder / "wareshop.py").write_text("Order = int")
    assert "'wareshop:stock'" in prompts("check", code=1)


def test_show_tells_all_that_makes_it_and_drives_no_terminal(folder: Path):
    shown = prompts("show", "shop/order")
    for told in ("temperature=0", "No: {{ error_message }}", "shop/_tone.md", "prompts/shop/order.jinja"):
        assert told in shown
    assert "fingerprint: " in shown
    assert shown.splitlines()[-1] == "Take the order: {{ text }}"
    write(folder, {"evil.txt": "a\x1b[31mred"})
    assert "\x1b" not in prompts("show", "shop/evil")
