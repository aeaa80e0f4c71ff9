"""Do hosted tools, servers and settings of a prompt reach just the requests that it governs?"""

from __future__ import annotations

import pytest

from fsm_agent import Agent, Limits, Message, Prompt, PromptError, Settings, UsageError, function
from fsm_agent.messages import CodeExecution, HostedMCP, WebSearch
from fsm_agent.testing import Script, function_call

DOCS = HostedMCP("docs", "https://mcp.example.org/v1")


@function
def look(where: str) -> str:
    """Look somewhere."""
    return where


@function
def ask(question: str) -> str:
    """Ask a person."""
    return question


class Server:
    """A source of functions whose tools change, as an MCP server's may."""

    def __init__(self, *functions) -> None:
        self.tools = functions
        self.asked = 0

    @property
    def functions(self):
        self.asked += 1
        return tuple(self.tools)


def hosted(script: Script) -> list[tuple]:
    return [request.settings.hosted_tools for request in script.requests]


def temperatures(script: Script) -> list[float | None]:
    return [request.settings.temperature for request in script.requests]


class TestHostedTools:
    def test_they_are_offered_beside_the_agents(self):
        with Script("one", "two") as script:
            agent = Agent(script, settings=Settings(hosted_tools=(CodeExecution(),)))
            agent.call(Prompt("x", hosted_tools=[WebSearch(), DOCS]))
            agent.call("y")
        assert hosted(script) == [(CodeExecution(), WebSearch(), DOCS), (CodeExecution(),)]

    def test_of_two_of_one_name_the_prompts_is_offered(self):
        with Script("one") as script:
            agent = Agent(script, settings=Settings(hosted_tools=(WebSearch(), CodeExecution())))
            agent.call(Prompt("x", hosted_tools=[WebSearch(max_uses=3)]))
        assert hosted(script) == [(WebSearch(max_uses=3), CodeExecution())]

    def test_the_last_request_has_none(self):
        with Script(function_call("look", where="a"), "done") as script:
            prompt = Prompt(
                "x", functions=[look], hosted_tools=[WebSearch()], on_final=Prompt("!", hosted_tools=[DOCS])
            )
            Agent(script, limits=Limits(rounds=1)).call(prompt)
        assert hosted(script) == [(WebSearch(),), ()]
        assert [request.functions for request in script.requests] == [prompt.offers, ()]

    def test_nor_has_it_the_agents_or_those_of_another_handler(self):
        handler = Prompt("{{ error_message }}", hosted_tools=[DOCS], output=float)
        with Script(function_call("look", where="a"), "five", "5.5") as script:
            prompt = Prompt("x", functions=[look], hosted_tools=[WebSearch()], output=int, on_exception=handler)
            settings = Settings(hosted_tools=(CodeExecution(),))
            assert Agent(script, limits=Limits(rounds=1), settings=settings).call(prompt).output == 5.5
        assert hosted(script) == [(CodeExecution(), WebSearch()), (), ()]

    def test_nor_has_the_second_of_two_stages(self):
        with Script("words", "5") as script:
            Agent(script).call(Prompt("x", functions=[look], hosted_tools=[WebSearch()], output=int, mode="two_stage"))
        assert hosted(script) == [(WebSearch(),), ()]

    @pytest.mark.parametrize(
        ("handler", "offered"),
        [
            ("{{ error_message }}", (WebSearch(),)),
            (lambda error_message, attempt: "No.", (WebSearch(),)),
            (Prompt("{{ error_message }}"), ()),
            (Prompt("{{ error_message }}", hosted_tools=[DOCS]), (DOCS,)),
        ],
        ids=["text", "function", "prompt", "prompt with its own"],
    )
    def test_the_branch_has_those_of_its_handler(self, handler, offered):
        with Script("five", "5") as script:
            Agent(script).call(Prompt("x", output=int, hosted_tools=[WebSearch()], on_exception=handler))
        assert hosted(script) == [(WebSearch(),), offered]

    @pytest.mark.parametrize(
        "tools", [[WebSearch(), WebSearch(max_uses=1)], ["web_search"], WebSearch()], ids=["twice", "text", "no list"]
    )
    def test_wrong_ones(self, tools):
        with pytest.raises(UsageError, match="hosted_tools"):
            Prompt("x", path="p", hosted_tools=tools)


class TestSettings:
    def test_they_go_over_the_agents_and_below_the_calls(self):
        with Script("one", "two", "three") as script:
            agent = Agent(script, settings=Settings(temperature=1, max_tokens=9))
            prompt = Prompt("x", settings={"temperature": 0})
            agent.call(prompt)
            agent.call(prompt, args={"temperature": 0.5})
            agent.call("y")
        assert temperatures(script) == [0, 0.5, 1]
        assert {request.settings.max_tokens for request in script.requests} == {9}

    @pytest.mark.parametrize(
        ("handler", "temperature"),
        [("{{ error_message }}", 0), (Prompt("{{ error_message }}", settings={"temperature": 1}), 1)],
    )
    def test_a_handler_has_its_own_over_the_tasks(self, handler, temperature):
        with Script("five", "5") as script:
            prompt = Prompt("x", output=int, settings={"temperature": 0, "seed": 7}, on_exception=handler)
            Agent(script).call(prompt)
        assert temperatures(script) == [0, temperature]
        assert {request.settings.seed for request in script.requests} == {7}

    @pytest.mark.parametrize(
        ("settings", "name"),
        [
            ({"temprature": 0}, "temprature.*temperature"),
            ({"temperature": "hot"}, "settings.temperature"),
            ({"hosted_tools": ()}, "hosted_tools"),
            (Settings(), "settings"),
        ],
    )
    def test_wrong_ones(self, settings, name):
        with pytest.raises(UsageError, match=name):
            Prompt("x", settings=settings)


class TestServers:
    def test_they_are_asked_for_each_call_and_not_before(self):
        server = Server(look)
        prompt = Prompt("x", functions=[server])
        assert (server.asked, prompt.is_fixed) == (0, False)
        with Script("one", "two", "three") as script:
            agent = Agent(script)
            dialog = agent.call(prompt).dialog
            server.tools = [look, len]
            agent.call(prompt)
            server.tools = [ask]
            agent.call(dialog.append(Message.of("user", "more")))
        assert [[f.name for f in request.functions] for request in script.requests] == [
            ["look"],
            ["look", "len"],
            ["ask"],
        ]

    def test_their_names_are_checked_when_they_are_asked(self):
        prompt = Prompt("x", path="p", functions=[look, Server(look)])
        with Script() as script, pytest.raises(PromptError, match="look"):
            Agent(script).call(prompt)
