"""Is what a class of agents says what its agents are made with, or refused?"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fsm_agent import Agent, AgentBase, ConfigError, Denied, Limits, MemoryStore, Prompt, Settings, function
from fsm_agent.call import Price
from fsm_agent.context import keep_last, mask
from fsm_agent.runtime import ResultPipeline
from fsm_agent.testing import Script, function_call, registries


@pytest.fixture(autouse=True)
def _forget():
    with registries():
        yield


@function
def erase(path: str) -> str:
    """Erase a file."""
    erased.append(path)
    return "gone"


erased: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_is_erased():
    erased.clear()


def refuse(call: Any) -> bool:
    return False


def stop_at_once(context: Any) -> str:
    return "enough"


def judge(output: Any) -> Any:
    return output


def system_of(deps: Any) -> str:
    return f"You serve {deps}."


class Told:
    def on_done(self, event: Any) -> None: ...


# For each argument of an agent: what a class says, and what an agent of it is then made with.
SAID: dict[str, Any] = {
    "model": Script(),
    "system": system_of,
    "functions": (erase,),
    "output": int,
    "prompt": Prompt("Do this: {{ task }}", path="do/this"),
    "name": "cleaner",
    "limits": Limits(rounds=2, deadline_s=9),
    "settings": Settings(temperature=0.5),
    "stop_when": stop_at_once,
    "check": judge,
    "approve": refuse,
    "finalizer": "In short: {{ answer }}",
    "keep": (keep_last(9),),
    "context": (mask(keep_rounds=7), keep_last(3)),
    "results": ResultPipeline(),
    "prices": Price(input_micro_usd=1, output_micro_usd=2),
    "hooks": (Told(),),
    "store": MemoryStore(),
    "environment": {"threads": 3},
}


def class_with(**attributes: Any) -> Any:
    return type("Cleaner", (AgentBase,), {"expertise": "You clean.", **attributes})


def made_with(cls: Any, **options: Any) -> Agent[Any, Any]:
    (agent,) = cls(**{"client": Script()} | options).agents.values()
    return agent


@pytest.mark.parametrize("way", ["attribute", "static method", "inherited", "of a mixin"])
def test_each_argument_of_an_agent_is_an_attribute_of_its_class(way):
    names = [name for name in inspect.signature(Agent).parameters if name != "prompt"]
    said = {name: staticmethod(SAID[name]) if callable(SAID[name]) else SAID[name] for name in names}
    if way != "static method":
        said = {name: SAID[name] for name in names}
    if way == "inherited":
        cls = type("Sub", (class_with(**said),), {})
    elif way == "of a mixin":
        cls = type("Sub", (type("Mixin", (), said), AgentBase), {"expertise": "You clean."})
    else:
        cls = class_with(**said)
    agent = made_with(cls, client=None)
    assert {name: getattr(agent, name) for name in names} == {name: SAID[name] for name in names}


def test_the_prompt_of_a_class_asks_for_the_task():
    script = Script("1")
    class_with(prompt=SAID["prompt"])(client=script).call("tidy")
    assert script.requests[0].messages[-1].text == "Do this: tidy"


def test_a_profile_is_a_preset_under_the_settings():
    agent = made_with(class_with(profile="deterministic", settings={"temperature": 0.2}))
    assert (agent.settings.temperature, agent.settings.seed) == (0.2, 1)


def test_a_system_prompt_and_a_task_are_found_by_their_paths(tmp_path):
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean/system.jinja").write_text("You polish.")
    (tmp_path / "clean/task.jinja").write_text("Polish {{ task }}.")
    script = Script("Done.")
    class_with(prompts=str(tmp_path), system_path="clean/system", prompt="clean/task")(client=script).call("it")
    assert [message.text for message in script.requests[0].messages] == ["You polish.", "Polish it."]


@pytest.mark.parametrize("ask", [refuse, staticmethod(refuse)])
def test_an_approver_of_a_class_is_asked(ask):
    cls = class_with(functions=[erase], approve=ask)
    cls(client=Script(function_call("erase", path="/"), "Nothing was done.")).call("tidy")
    assert erased == []


def test_functions_that_the_body_defines_are_methods():
    class Careful(AgentBase, register=False):
        functions = (erase,)
        reason = "never"

        def system(self) -> str:
            return f"You are {self.name}."

        def approve(self, call: Any) -> Any:
            return Denied(self.reason)

        def stop_when(self, context: Any) -> str | None:
            return f"{self.name} has seen enough" if context.iteration > 1 else None

    script = Script(function_call("erase", path="/"), function_call("erase", path="/etc"))
    result = Careful(client=script, name="careful").call("tidy")
    assert result.ending.detail == "careful has seen enough"
    assert erased == []
    assert script.requests[0].messages[0].text == "You are careful."
    assert "never" in script.requests[1].messages[-1].parts[0].text


def test_nearer_is_the_configuration_then_that_of_the_sub_agent_then_arguments():
    cls = class_with(limits=Limits(rounds=1, handoffs=1, parallel=1, recalls=1), settings={"temperature": 0.1})
    config = {
        "global": {"limits": {"handoffs": 2, "parallel": 2, "recalls": 2}},
        "limits": {"parallel": 3, "recalls": 3},
        "agent_configs": {"Cleaner": {"limits": {"recalls": 4}}},
    }
    limits = made_with(cls, config=config, settings={"temperature": 0.7}).limits
    assert (limits.rounds, limits.handoffs, limits.parallel, limits.recalls) == (1, 2, 3, 4)
    assert made_with(cls, config=config, settings={"temperature": 0.7}).settings.temperature == 0.7
    assert made_with(cls, approve=refuse).approve is refuse


def test_of_several_sub_agents_each_has_what_the_class_says():
    class Pair(AgentBase, register=False):
        agent_group = {"one": {"limits": Limits(rounds=1)}, "other": {"model": "openai:m"}}  # noqa: RUF012
        approve = refuse
        limits = Limits(recalls=0)
        model = "openai:gpt-5-mini"

        def call(self, task: str, **kwargs: Any) -> str:
            return ""

    pair = Pair()
    assert [agent.approve for agent in pair.agents.values()] == [refuse, refuse]
    assert [agent.model for agent in pair.agents.values()] == ["openai:gpt-5-mini", "openai:m"]
    assert (pair.agents["one"].limits.rounds, pair.agents["other"].limits.recalls) == (1, 0)
    assert [agent.model for agent in Pair(model="openai:x").agents.values()] == ["openai:x"] * 2


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("aprove", refuse, "approve"),
        ("chekc", refuse, "check"),
        ("modle", "openai:m", "model"),
        ("hook", [], "hooks"),
        ("max_retries", 5, "parse_retries"),
        ("client", Script(), "model"),
        ("temperature", 0, "settings"),
        ("agent_configs", {}, "agent_group"),
        ("instructions", "You clean.", "system"),
    ],
)
def test_what_nothing_would_read_is_an_error_of_the_class_statement(name, value, right):
    for bases in ((AgentBase,), (type("Mixin", (), {name: value}), AgentBase)):
        with pytest.raises(ConfigError, match=f"{name}.*{right}"):
            type("Sub", bases, {name: value} if len(bases) == 1 else {})


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [("profile", "creativ", "profile"), ("limits", {"rouds": 3}, "limits.rouds"), ("settings", 3, "settings")],
)
def test_a_value_that_cannot_be_right_is_an_error_of_the_class_statement(name, value, key):
    with pytest.raises(ConfigError, match=key):
        class_with(**{name: value})


def test_all_else_is_the_class_s_own():
    class Own(AgentBase, register=False):
        expertise = "You count."
        score = 3
        tone = "friendly"
        page_limit = 5
        model_path = "m.bin"

        def tools(self) -> list[str]:
            return []

        @property
        def history(self) -> list[str]:
            return []

    assert Own(client=Script("1"))("?") == "1"


@pytest.mark.parametrize("name", ["approve", "name"])
def test_what_its_agents_were_made_with_cannot_be_set_later(name):
    agent = class_with()(client=Script())
    with pytest.raises(AttributeError, match=name):
        setattr(agent, name, SAID[name])


def test_nor_can_it_be_set_before_they_are_made():
    class Early(AgentBase, register=False):
        expertise = "You clean."

        def __init__(self, **options: Any) -> None:
            self.tone = "friendly"  # one of its own
            self.approve = refuse
            super().__init__(**options)

    with pytest.raises(AttributeError, match="approve"):
        Early(client=Script())
