"""Can templates be made of others, and only of those in their folder?"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from fsm_agent.errors import PromptError
from fsm_agent.prompts import Prompt, Prompts


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "prompts"


def write(folder: Path, **texts: str) -> Prompts:
    """Write files of the root ``shop``; ``__`` in a name stands for its dot."""
    (folder / "shop").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / "shop" / f"{name}.jinja").write_text(text)
    return Prompts("shop", directory=folder)


class TestJoined:
    def test_an_included_file_keeps_its_lines(self, folder):
        prompts = write(folder, task='A {{ x }}\n{% include "shop/_b.jinja" %}\nC\n', _b="B {{ y }}\n")
        assert prompts("task").render(x=1, y=2).text == "A 1\nB 2\nC"
        assert prompts("task").variables == {"x", "y"}

    def test_what_is_set_around_an_included_file_is_none_of_its_variables(self, folder):
        text = '{% for good in goods %}{% include "shop/_line.jinja" %}{% endfor %}'
        prompts = write(folder, task=text, _line="{{ good }}{{ mark }}")
        assert prompts("task").variables == {"goods", "mark"}
        assert prompts("task").render(goods=["a", "b"], mark="!").text == "a!b!"

    def test_missing_variables_of_a_part_are_named(self, folder):
        prompts = write(folder, task='{% include "shop/_b.jinja" %}', _b="{{ y }}")
        with pytest.raises(PromptError, match=r"variable\(s\) y;"):
            prompts("task").render()

    def test_a_value_is_never_a_template(self, folder):
        prompts = write(folder, task='{% include "shop/_b.jinja" %}', _b="{{ y }}")
        assert prompts("task").render(y='{% include "shop/task.jinja" %}{{ z }}').text.startswith("{% include")

    def test_without_a_root_a_file_names_those_below_the_folder(self, folder):
        write(folder, task='{% include "_b.jinja" %}', _b="B")
        assert Prompts(directory=folder / "shop")("task").render().text == "B"

    def test_two_prompts_of_one_text_and_other_parts(self, folder, tmp_path):
        text = '{% include "shop/_b.jinja" %}'
        one = write(folder, task=text, _b="one")("task")
        other = write(tmp_path / "other", task=text, _b="{{ two }}")("task")
        assert (one.render().text, other.render(two=2).text) == ("one", "2")
        assert one.template != other.template
        assert one.fingerprint != other.fingerprint

    def test_it_can_be_copied_and_pickled(self, folder):
        prompt = write(folder, task='{% include "shop/_b.jinja" %}', _b="{{ y }}")("task")
        for made in (pickle.loads(pickle.dumps(prompt)), copy.deepcopy(prompt), prompt.extend(path="z")):
            assert made.render(y=5).text == "5"
        assert pickle.loads(pickle.dumps(prompt)).fingerprint == prompt.fingerprint
        assert Prompt(prompt.template).variables == {"y"}


class TestNothingElse:
    def test_no_name_leads_out(self, folder):
        for name in [
            "../secret.txt",
            "shop/../../secret.txt",
            "/etc/hostname",
            "",
            ".",
            "a//b",
            "shop\\\\x",
            "~/x",
            ".x",
        ]:
            prompts = write(folder, task=f'x\n{{% include "{name}" %}}')
            with pytest.raises(PromptError, match=r"line 2: "):
                prompts("task")

    def test_no_link_leads_out(self, folder):
        prompts = write(folder, task='{% include "shop/_l.jinja" %}')
        (folder / "shop/_l.jinja").symlink_to(folder.parent / "secret.txt")
        with pytest.raises(PromptError, match=r"_l.jinja.*link"):
            prompts("task")

    def test_no_value_chooses_a_file(self, folder):
        for text in ["{% include x %}", '{% extends "a" ~ x %}', '{% import ["a", x] as m %}']:
            prompts = write(folder, task=text)
            with pytest.raises(PromptError, match="computed"):
                prompts("task")

    def test_a_missing_one(self, folder):
        prompts = write(folder, task='x\n\n{% include "shop/_b.md" %}')
        with pytest.raises(PromptError) as caught:
            prompts("task")
        assert "line 3: the template 'shop/_b.md' is missing; searched: " in str(caught.value)
        assert str(folder / "shop/_b.md") in str(caught.value)

    def test_a_circle(self, folder):
        prompts = write(folder, task='{% include "shop/_b.jinja" %}', _b='{% include "shop/task.jinja" %}')
        with pytest.raises(PromptError, match=r".*task\.jinja -> .*_b\.jinja -> .*task\.jinja"):
            prompts("task")

    def test_what_is_wrong_in_a_part(self, folder):
        prompts = write(folder, task='{% include "shop/_b.jinja" %}', _b="one\n{{ y")
        with pytest.raises(PromptError, match=r"_b\.jinja': the template is wrong in line 2"):
            prompts("task")

    def test_they_are_bounded(self, folder):
        parts = {f"_p{n}": "x" for n in range(101)}
        prompts = write(folder, task="".join([f'{{% include "shop/{name}.jinja" %}}' for name in parts]), **parts)
        with pytest.raises(PromptError, match="at most 100 "):
            prompts("task")
        (folder / "shop/_p100.jinja").write_text("")
        again = [*parts][:100] * 2
        write(folder, task="".join([f'{{% include "shop/{name}.jinja" %}}' for name in again]))
        assert prompts("task").render().text == "x" * 200, "each counts once"

    def test_code_cannot_be_reached(self, folder):
        prompts = write(
            folder, task='{% import "shop/_m.jinja" as m %}{{ m.f.__globals__ }}', _m="{% macro f() %}{% endmacro %}"
        )
        with pytest.raises(PromptError):
            prompts("task").render()
