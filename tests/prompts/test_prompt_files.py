"""Does the front matter of a prompt file say what makes the prompt, and nothing else?"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from fsm_agent import Agent
from fsm_agent.errors import PromptError
from fsm_agent.messages import CodeExecution, WebSearch
from fsm_agent.prompts import Prompt, Prompts
from fsm_agent.prompts.template import PromptFileError
from fsm_agent.testing import Script

SHOP = '''
from enum import Enum
from fsm_agent.messages import HostedMCP
class Size(Enum):
    SMALL = "small"
    LARGE = "large"
def stock(item: str) -> int:
    """Count an item."""
    return 3
def told(*, error_message, attempt):
    return f"{attempt}: {error_message}"
def digits(text):
    return int(text)
docs = HostedMCP("docs", "https://mcp.example.org/v1", authorization="a-secret-token")
class inner:
    number = 5
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of prompts, next to the module ``promptshop``, which they may name."""
    (tmp_path / "promptshop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "prompts"
    sys.modules.pop("promptshop", None)


def write(path: Path, front: str = "", text: str = "Count {{ things }}.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"+++\n{front}\n+++\n{text}\n" if front else f"{text}\n", encoding="utf-8")
    return path


def loaded(folder: Path, front: str, **names: object) -> Prompt:
    write(folder / "shop/count.jinja", front)
    return Prompts("shop", directory=folder, names=names)("count")


def refusal(folder: Path, front: str, **names: object) -> str:
    with pytest.raises(PromptFileError) as caught:
        loaded(folder, front, **names)
    return str(caught.value)


class TestKeys:
    def test_they_are_the_arguments_of_a_prompt(self, folder):
        prompt = loaded(
            folder,
            """
output = "promptshop:Size"
functions = ["promptshop:stock"]
hosted_tools = ["code_execution", {kind = "web_search", allowed_domains = ["example.com"]}, "promptshop:docs"]
mode = "two_stage"
on_final = "Stop after {{ rounds }}."
on_exception = {function = "promptshop:told"}
[settings]
temperature = 0
stop = ["END"]
""",
        )
        import promptshop

        assert prompt.path == "shop/count"
        assert prompt.template == "Count {{ things }}."
        assert prompt.output is promptshop.Size
        assert [f.name for f in prompt.offers] == ["stock"]
        assert prompt.hosted_tools == (CodeExecution(), WebSearch(allowed_domains=("example.com",)), promptshop.docs)
        assert prompt.mode == "two_stage"
        assert prompt.on_final == "Stop after {{ rounds }}."
        assert prompt.handler_text("exception", error_message="no", attempt=2) == "2: no"
        assert prompt.settings == {"temperature": 0, "stop": ("END",)}

    def test_two_files_of_one_name_are_refused(self, folder):
        write(folder / "shop/count.md")
        write(folder / "shop/count.txt")
        with pytest.raises(PromptError, match=r"'shop/count'.*'count.md' and 'count.txt'"):
            Prompts("shop", directory=folder)("count")

    def test_overrides_go_before_it_and_what_they_replace_is_not_looked_up(self, folder):
        write(folder / "shop/count.jinja", 'output = "nowhere:Size"\nmode = "two_stage"')
        prompt = Prompts("shop", directory=folder)("count", output=float)
        assert (prompt.output, prompt.mode) == (float, "two_stage")


class TestNames:
    def test_those_that_the_caller_gives_go_first(self, folder):
        prompt = loaded(folder, 'output = "Color"\nfunctions = ["stock"]', Color=Literal["red"], stock=len)
        assert prompt.output == Literal["red"]
        assert [f.name for f in prompt.offers] == ["len"]

    def test_a_list_is_a_choice(self, folder):
        assert loaded(folder, 'output = ["yes", "no", 3]').output == Literal["yes", "no", 3]
        for wrong in ("[]", "[1.5]", '[["a"]]'):
            assert "output: " in refusal(folder, f"output = {wrong}")

    def test_unknown_ones(self, folder):
        for value, problem in [
            ("promptshop:Sise", "'Size'"),
            ("promptship:Size", "'promptship'"),
            ("Size", "'Size'"),
            ("1 + 1", "'1 + 1'"),
            ("__import__('os').system('x')", "output: "),
            ("os;import sys:path", "'os;import sys'"),
        ]:
            refused = refusal(folder, f'# one\noutput = "{value}"')
            assert problem in refused
            assert f"in the prompt file {str(folder / 'shop/count.jinja')!r}: line 3: output: " in refused

    @pytest.mark.parametrize(
        ("code", "error"),
        [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(3)", "SystemExit"), ("}", "SyntaxError")],
    )
    def test_a_module_that_cannot_be_imported(self, folder, code, error):
        (folder.parent / "brokenshop.py").write_text(code)
        refused = refusal(folder, 'output = "brokenshop:Size"')
        assert "'brokenshop:Size'" in refused
        assert error in refused


class TestParsers:
    def test_each_strategy_may_be_named_as_the_parser(self, folder):
        for parser, answer, value in (
            ('"verbatim"', " so ", " so "),
            ('"json_block"', 'x\n```json\n{"a": 1}\n```', {"a": 1}),
            ('{tagged = "answer"}', "<answer>7</answer>", "7"),
            ('{code = "sql"}', "```sql\nselect 1\n```", "select 1"),
            ('{keyword = ["yes", "no"]}', "I say no.", "no"),
            ("{regex = '(\\d+) EUR'}", "It is 12 EUR.", "12"),
            ('[{tagged = "answer"}, "verbatim"]', "plain", "plain"),
        ):
            assert loaded(folder, f"parser = {parser}").parse(answer) == value

    def test_wrong_ones(self, folder):
        for parser, name in (
            ('{taged = "answer"}', "'tagged'"),
            ('{tagged = "a", code = "b"}', "parser: "),
            ("5", "parser: "),
            ('"json_blok"', "'json_block'"),
            ('"promptshop:docs"', "parser: "),
        ):
            assert name in refusal(folder, f"parser = {parser}")


class TestProblems:
    @pytest.mark.parametrize(
        ("front", "line", "name"),
        [
            ('outptu = "int"', 2, "'output'"),
            ('\n\ntools = ["x:y"]', 4, "functions="),
            ('exception = "x"', 2, "on_exception="),
            ('template = "x"', 2, "'template'"),
            ('mode = "yes"', 2, "'two_stage'"),
            ('functions = "promptshop"', 2, "'promptshop'"),
            ("functions = {a = 1}", 2, "{'a': 1}"),
            ('hosted_tools = ["web_serch"]', 2, "'web_search'"),
            ('hosted_tools = [{kind = "web_search", max_uses = 0}]', 2, "max_uses"),
            ('hosted_tools = [{kind = "web"}]', 2, "web_search, code_execution, computer_use, mcp"),
            ("[settings]\ntop_p = 1\ntemprature = 0", 4, "'temperature'"),
            ('[settings]\ntemperature = "hot"', 3, "settings.temperature"),
            ("[settings]\nhosted_tools = []", 3, "hosted_tools"),
            ("settings = 5", 2, "settings: "),
            ('on_exception = "Again."', 2, "error_message"),
            ('on_final = "{{ rownds }}"', 2, "rownds"),
            ("on_final = 5", 2, "on_final: "),
            ('on_final = {file = "x"}', 2, "function"),
            ("on_final = {function = 5}", 2, "on_final: "),
            ("a = ", 2, "TOML"),
            ("x = 1\nx = 2", 3, "TOML"),
        ],
    )
    def test_each_names_file_line_and_what_is_right(self, folder, front, line, name):
        with pytest.raises(PromptFileError) as caught:
            loaded(folder, front)
        found = caught.value.problem
        assert (found.file, found.line) == (str(folder / "shop/count.jinja"), line)
        assert name in found.text
        assert not re.match(r"(\w+): \1\b", found.text), "a key is named once"
        assert str(caught.value).endswith(f"line {line}: {found.text}")

    def test_secrets_are_not_told(self, folder):
        front = 'hosted_tools = [{kind = "mcp", label = "d", url = "https://x/?key=s3cretkey", authorization = 5}]'
        assert "s3cretkey" not in refusal(folder, front)


class TestHandlers:
    """Each is a text, a function or a file beside."""

    def test_a_file_beside_with_front_matter_is_a_prompt(self, folder):
        write(folder / "shop/count.exception.md", 'output = "int"\n[settings]\ntemperature = 0', "{{ error_message }}")
        prompt = loaded(folder, 'parser = "promptshop:digits"\n[settings]\nmax_tokens = 9')
        with Script("three", "3") as script:
            assert Agent(script).call(prompt(things="x")).output == 3
        assert [(r.settings.temperature, r.settings.max_tokens) for r in script.requests] == [(None, 9), (0, 9)]
        assert [r.output.type for r in script.requests] == [str, int]

    def test_each_kind_may_be_a_file_beside(self, folder):
        for kind in ("exception", "interrupt", "final", "loop", "form"):
            needed = {"exception": "{{ error_message }}", "interrupt": "{{ call_results }}"}.get(kind, "")
            write(folder / f"shop/count.{kind}.txt", text=f"Told {needed}")
            assert getattr(loaded(folder, "mode = 'native'"), f"on_{kind}") == f"Told {needed}"

    def test_a_path_in_code(self, tmp_path, monkeypatch):
        file = write(tmp_path / "stop.md", text="Stop after {{ rounds }}.")
        assert Prompt("x", on_final=file).handler_text("final", rounds=2) == "Stop after 2."
        monkeypatch.chdir(tmp_path)
        prompt = Prompt("x", on_final=Path("stop.md"))
        file.unlink()
        assert prompt.extend(path="y").handler_text("final", rounds=1) == "Stop after 1."
        with pytest.raises(PromptError) as caught:
            Prompt("x", path="p", on_final=Path("stop.md"))
        assert f"'stop.md' of on_final of prompt 'p' is missing; searched: {str(file)!r}" in str(caught.value)

    def test_in_two_places(self, folder):
        write(folder / "shop/count.final.jinja", text="Stop.")
        assert "'count.final.jinja'" in refusal(folder, 'on_final = "End."')


class TestPlaces:
    def test_several_directories_in_order(self, tmp_path):
        write(tmp_path / "a/shop/one.md", text="mine")
        write(tmp_path / "b/shop/one.txt", text="theirs")
        write(tmp_path / "b/shop/two.jinja", text="theirs")
        prompts = Prompts("shop", directory=[tmp_path / "a", tmp_path / "b"])
        assert (prompts("one").template, prompts("two").template, prompts.names()) == ("mine", "theirs", ["one", "two"])
        with pytest.raises(PromptError) as caught:
            prompts("three")
        assert f"in {str(tmp_path / 'a')!r} or {str(tmp_path / 'b')!r}" in str(caught.value)

    def test_a_package(self, tmp_path, monkeypatch):
        write(tmp_path / "lampshop/prompts/shop/one.md", text="packaged")
        write(tmp_path / "here/shop/one.md", text="mine")
        (tmp_path / "lampshop/__init__.py").write_text("raise RuntimeError('not for this')")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert Prompts("shop", package="lampshop")("one").template == "packaged"
        assert Prompts("shop", directory=tmp_path / "here", package="lampshop")("one").template == "mine"

    def test_without_a_root_names_are_paths(self, folder):
        write(folder / "shop/count.md")
        write(folder / "top.md", text="at the top")
        prompts = Prompts(directory=folder)
        assert prompts.names() == ["shop/count", "top"]
        assert (prompts("shop/count").path, prompts("top").path) == ("shop/count", "top")
