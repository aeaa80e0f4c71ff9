"""Are agents found by their kind, and are configurations checked?"""

from __future__ import annotations

import asyncio
import enum
import json
import traceback
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from fsm_agent import AgentBase, AgentConfig, ConfigError, Context, Limits, Prompt, Settings, build_agent
from fsm_agent.agents import AsyncAgentBase
from fsm_agent.testing import Script, registries


@pytest.fixture(autouse=True)
def _forget():
    with registries():
        yield


def weather() -> type[AgentBase]:
    class Weather(AgentBase):
        agent_type = "weather"
        agent_group = ("forecaster", "editor")

        def call(self, task, **kwargs):
            forecast = self.agents["forecaster"].call(task).output
            return self.agents["editor"].call(f"Shorten: {forecast}").output

    return Weather


CONFIG = {
    "agent_type": "weather",
    "model": "openai:gpt-5-mini",
    "limits": {"rounds": 2},
    "agent_configs": {
        "forecaster": {"system": "You forecast.", "limits": {"recalls": 0}},
        "editor": {"model": "openai:gpt-5", "settings": {"temperature": 0}},
    },
}
SECRET = {"kind": "mcp", "label": "docs", "url": "ftp://hunter2", "headers": {"x-key": "hunter2"}}


def test_a_subclass_registers_itself_and_is_built(script):
    weather()
    one = script("Rain, later sun.", "Mixed.")
    agent = build_agent(CONFIG, client=one)
    assert agent("Berlin?") == "Mixed."
    assert [r.messages[0].text for r in one.requests] == ["You forecast.", "Shorten: Rain, later sun."]


def test_the_configuration_reaches_the_sub_agents():
    weather()
    agents = build_agent(CONFIG).agents
    assert agents["forecaster"].limits == Limits(rounds=2, recalls=0)
    assert (agents["editor"].model, agents["editor"].settings) == ("openai:gpt-5", Settings(temperature=0))
    assert [a.name for a in agents.values()] == ["weather/forecaster", "weather/editor"]


def test_an_agent_without_a_group_is_its_own_sub_agent(script):
    class Echo(AgentBase):
        agent_type = "echo"

        def call(self, task, **kwargs):
            return self.agents["echo"].call(task).output

    assert build_agent({"model": "x:y"}, "echo", client=script("hi"))("hi") == "hi"


def test_a_kind_may_be_an_enum_member(script):
    class Kind(enum.Enum):
        ECHO = "echo"

    class Echo(AgentBase):
        agent_type = Kind.ECHO

        def call(self, task, **kwargs):
            return task

    assert build_agent({"model": "x:y"}, Kind.ECHO)("hi") == "hi"


def test_two_classes_of_one_kind_are_refused_and_a_reload_is_not():
    first = weather()
    second = weather()
    assert first is not second
    assert type(build_agent(CONFIG)) is second
    with pytest.raises(ConfigError, match=r"weather.*Other.*Weather"):

        class Other(AgentBase):
            agent_type = "weather"

            def call(self, task, **kwargs): ...


def test_abstract_bases_stay_out():
    class Base(AgentBase, register=False):
        agent_type = "base"

    class Unnamed(AgentBase):
        pass

    with pytest.raises(ConfigError, match="base"):
        build_agent({"model": "x:y"}, "base")
    with pytest.raises(TypeError):
        Unnamed({"model": "x:y"})


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"agent_type": "wether"}, "wether.*weather"),
        ({}, "agent_type"),
        ({**CONFIG, "agent_configs": {"author": {}}}, "author.*editor"),
        ({**CONFIG, "settings": {"hosted_tools": [SECRET]}}, "docs"),
        ({"agent_type": "weather"}, "forecaster.*model"),
    ],
)
def test_mistakes_in_a_configuration_are_named(config, names):
    weather()
    with pytest.raises(ValueError, match=names) as caught:
        build_agent(config)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [("agent_group", "editor"), ("agent_type", 3), ("agent_type", "shop:Weather"), ("expertise", 3)],
)
def test_an_attribute_that_is_no_name_is_a_mistake_and_registers_nothing(name, value):
    with pytest.raises(ConfigError, match=name):
        type("Oops", (AgentBase,), {"agent_type": "oops", "__module__": __name__, name: value})
    with pytest.raises(ConfigError, match="agent_type"):  # which lists the kinds that are known
        build_agent({"model": "x:y"})


class TestOfAClass:
    @pytest.mark.parametrize("config", [CONFIG, AgentConfig.of(CONFIG)])
    def test_it_is_built_with_its_options(self, script, config):
        kind = weather()
        agent = build_agent(kind, config, client=script("Rain, later sun.", "Mixed."))
        assert type(agent) is kind
        assert agent("Berlin?") == "Mixed."

    def test_it_need_not_be_registered(self, script):
        class Echo(AgentBase, register=False):
            def __init__(self, config, *, client=None, prefix=""):
                super().__init__(config, client=client)
                self.prefix = prefix

            def call(self, task, **kwargs):
                return self.prefix + self.agents["Echo"].call(task).output

        assert build_agent(Echo, {"model": "x:y"}, client=script("hi"), prefix="> ")("hi") == "> hi"
        with pytest.raises(ConfigError, match="Echo"):
            build_agent({"model": "x:y"}, "Echo")

    def test_a_configuration_for_another_is_refused(self):
        with pytest.raises(ConfigError, match=r"agent_type.*wether"):
            build_agent(weather(), {**CONFIG, "agent_type": "wether"})

    def test_without_a_configuration_it_is_refused(self):
        with pytest.raises(ConfigError, match="configuration"):
            build_agent(weather())
        with pytest.raises(ConfigError, match="dict"):
            build_agent(dict, CONFIG)


def test_async_agents(script):
    class Weather(AsyncAgentBase):
        agent_type = "aweather"

        async def call(self, task, **kwargs):
            return (await self.agents["aweather"].acall(task)).output

    async def main() -> str:
        async with build_agent({"model": "x:y"}, "aweather", client=script("Sun.")) as agent:
            return (await agent.acall("Berlin?")).output

    assert asyncio.run(main()) == "Sun."


class Next(BaseModel):
    """What an agent hands on, and to whom."""

    to: Literal["critic", "writer", "End"]
    communicate: str


def test_calling_an_agent_hands_its_keywords_on():
    class Echo(AgentBase):
        agent_type = "echo"

        def answer(self, task: str, context: Context[Any]) -> list[Any]:
            return [task, context.deps, context.depth]

    class AsyncEcho(AgentBase):
        agent_type = "aecho"

        async def call(self, task: str, context: Context[Any]) -> list[Any]:
            return [task, context.deps, context.depth]

    for kind in ("echo", "aecho"):
        agent = build_agent({"model": "x:y"}, kind, client=Script())
        assert agent("hi", deps={"unit": "m"}) == ["hi", {"unit": "m"}, 0]
        assert agent.call("hi", extra={"ticket": 3}).extra == {"ticket": 3}


def test_agents_hand_on_to_each_other_until_one_says_end(script):
    class Office(AgentBase):
        agent_type = "office"
        agent_group = ("writer", "critic")

        def call(self, task, **kwargs):
            at = Next(to="writer", communicate=task)
            while at.to != "End":
                at = self.agents[at.to].call(Prompt("{{ text }}", output=Next)(text=at.communicate)).output
            return at.communicate

    def said(to: str, text: str) -> str:
        return json.dumps({"to": to, "communicate": text})

    one = script(said("critic", "Rain."), said("lawyer", "Mixed?"), said("writer", "Mixed?"), said("End", "Mixed."))
    assert build_agent({"model": "x:y"}, "office", client=one)("Berlin?") == "Mixed."
    asked = [request.messages[-1].text for request in one.requests]
    assert (asked[0], asked[1], asked[3]) == ("Berlin?", "Rain.", "Mixed?")
    assert "lawyer" in asked[2]


class TestFiles:
    def test_a_folder_is_no_file(self, tmp_path):
        (tmp_path / "a.toml").mkdir()
        with pytest.raises(ConfigError, match=r"a\.toml"):
            build_agent(tmp_path / "a.toml")

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.toml", b"model = "),
            ("a.json", b"{"),
            ("a.json", b"[" * 100_000),
            ("a.toml", b"a = " + b"[" * 100_000),
            ("a.toml", b"\xff"),
            ("a.json", b"[1]"),
            ("a.json", b" " * 1_000_001),
            ("a.toml", b"modle = 'x:y'"),
            ("a.ini", b"model = x:y"),
        ],
        ids=lambda value: repr(value)[:12],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path, name, content):
        weather()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            build_agent(str(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
