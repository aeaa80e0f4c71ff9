"""Does a configuration say everything that an agent takes, and is each mistake in it named?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from support import configured

from fsm_agent import AgentBase, AgentConfig, CallFailed, ConfigError, Limits, Prompt, Settings, build_agent
from fsm_agent.clients import register_client
from fsm_agent.functions import register_function
from fsm_agent.messages import WebSearch
from fsm_agent.testing import Script, function_call, registries

KEY = "sk-hunter2hunter2hunter2"
WHOLE = """
agent_type = "paper"
prompts = "prompts"
system_path = "paper/system"
prompt = "paper/task"
model = "openai:gpt-5-mini"
[limits]
rounds = 2
[settings]
temperature = 0.5
[[settings.hosted_tools]]
kind = "web_search"
allowed_domains = ["example.com"]
[global.limits]
parse_retries = 1
[agent_configs.editor]
functions = ["add"]
output = "support.configured:Report"
approve = "support.configured:approve"
hooks = ["support.configured:Steps"]
stop_when = "support.configured:stop"
check = "support.configured:judge"
context = ["support.configured:last_message"]
keep = ["support.configured:last_message"]
results = "support.configured:results"
prices = "support.configured:prices"
[agent_configs.editor.client]
api_key = "${EDITOR_KEY}"
base_url = "https://example.invalid/v1"
headers = {x-team = "press"}
"""
WRITERS = {
    "toml": lambda: WHOLE,
    "yaml": lambda: yaml.safe_dump(tomllib.loads(WHOLE), sort_keys=False),
    "json": lambda: json.dumps(tomllib.loads(WHOLE), indent=2),
}


@pytest.fixture(autouse=True)
def _scopes(monkeypatch):
    monkeypatch.setenv("EDITOR_KEY", KEY)
    with registries():
        register_function(configured.add)

        class Paper(AgentBase):
            agent_type = "paper"
            agent_group = ("editor", "author")

            def call(self, task, **kwargs):
                return self.agents["editor"].call(task, **kwargs).output

        yield


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "prompts" / "paper").mkdir(parents=True)
    (tmp_path / "prompts" / "paper" / "task.jinja").write_text("Write: {{ task }}\n")
    (tmp_path / "prompts" / "paper" / "system.jinja").write_text("You write.\n")
    return tmp_path


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("toml", "[limits]\nrounds = 1\nrounds = 2\n"),
        ("yaml", "limits:\n  rounds: 1\n  rounds: 2\n"),
        ("json", '{"limits": {"rounds": 1, "rounds": 2}}'),
    ],
)
def test_no_format_takes_a_key_twice(tmp_path, format_, text):
    (tmp_path / f"twice.{format_}").write_text(text)
    with pytest.raises(ConfigError, match="rounds" if format_ != "toml" else "line 3"):
        AgentConfig.of(tmp_path / f"twice.{format_}")


@pytest.mark.parametrize("format_", WRITERS)
def test_a_configuration_says_everything_in_each_format(paper, format_):
    (paper / f"paper.{format_}").write_text(WRITERS[format_](), encoding="utf-8-sig")  # as Windows marks it
    with build_agent(paper / f"paper.{format_}") as agent:
        editor = agent.agents["editor"]
        assert editor.client.name == "openai:gpt-5-mini"
        assert [function.name for function in editor.functions] == ["add"]
        assert editor.output is configured.Report
        assert isinstance(editor.hooks[0], configured.Steps)
        assert (editor.results, editor.prices) == (configured.results, configured.prices)
        assert (editor.approve, editor.stop_when, editor.check) == (
            configured.approve,
            configured.stop,
            configured.judge,
        )
        assert isinstance(editor.system, Prompt)
        assert (editor.limits.rounds, editor.limits.parse_retries) == (2, 1)
        assert editor.settings.hosted_tools == (WebSearch(allowed_domains=("example.com",)),)
        assert KEY not in repr(agent.config) + repr(editor) + agent.config.model_dump_json()


MISTAKES = [  # what stands in the file, what takes its place, and the key and what would be right
    ('model = "openai', 'modelz = "openai', "modelz", "model"),
    ("rounds = 2", "roundz = 2", "limits.roundz", "rounds"),
    ("rounds = 2", 'rounds = "two"', "limits.rounds", ""),
    ("temperature = 0.5", "temperaturez = 0.5", "settings.temperaturez", "temperature"),
    ("temperature = 0.5", 'temperature = "hot"', "settings.temperature", ""),
    ('kind = "web_search"', 'kind = "web_serch"', "settings.hosted_tools", "web_search"),
    ("allowed_domains", "allowed_domainz", "settings.hosted_tools", "allowed_domains"),
    ("parse_retries", "parse_retriez", "global.limits.parse_retriez", "parse_retries"),
    ("output = ", "outputz = ", "agent_configs.editor.outputz", "output"),
    ("configured:Report", "configured:Raport", "agent_configs.editor.output", "Report"),
    ("hooks = [", "hooks = 3 #", "agent_configs.editor.hooks", ""),
    ("base_url = ", "base_urlz = ", "agent_configs.editor.client.base_urlz", "base_url"),
]


@pytest.mark.parametrize(("old", "new", "key", "right"), MISTAKES, ids=[f"{m[2]}, {m[1]}" for m in MISTAKES])
def test_a_mistake_is_named_with_its_file_its_key_and_what_would_be_right(paper, old, new, key, right):
    (paper / "paper.toml").write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        build_agent(paper / "paper.toml")
    assert KEY not in "".join(traceback.format_exception(caught.value))
    message = str(caught.value)
    assert str(paper / "paper.toml") in message
    (said,) = [line for line in message.splitlines() if key in line]
    assert right in said


@pytest.mark.parametrize("format_", ["yaml", "json"])
def test_so_it_is_in_other_formats(paper, format_):
    (paper / f"paper.{format_}").write_text(WRITERS[format_]().replace("rounds", "roundz"))
    with pytest.raises(ConfigError, match=r"limits\.roundz.*'rounds'"):
        build_agent(paper / f"paper.{format_}")


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ConfigError) as caught:
        AgentConfig.of({"modle": "x:y", "limits": {"ronuds": 1, "depth": "two"}, "global": {"hooks": 3}})
    for key in ("modle", "limits.ronuds", "limits.depth", "global.hooks"):
        assert f"\n  {key}:" in str(caught.value)


def test_a_mistake_of_two_keys_names_both():
    with pytest.raises(ConfigError, match=r"\n  \w.*system_path") as caught:
        AgentConfig.of({"system": "You write.", "system_path": "paper/system"})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("key", ["agent_type", "model"])
def test_what_is_needed_is_named(paper, key):
    lines = [line for line in WHOLE.splitlines() if not line.startswith(f"{key} =")]
    (paper / "paper.toml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=f"(?s)paper.toml.*{key}"):
        build_agent(paper / "paper.toml")


# What a configuration says


def editor(*layers: str, **code: Any) -> Any:
    """The sub-agent of a configuration in TOML."""
    return build_agent({**tomllib.loads("\n".join(("agent_type = 'paper'", *layers))), **code}).agents["editor"]


class TestLayers:
    """Keys of the sub-agent, then of the agent, then of ``global``, then of the class."""

    def test_the_nearest_wins(self):
        three = ("system = 'top'", "model = 'x:top'", "[global]", "system = 'far'", "model = 'x:far'", "store = 'f.db'")
        near = editor(*three, "[agent_configs.editor]", "system = 'near'")
        assert (near.system, near.model, Path(near.store)) == ("near", "x:top", Path("f.db"))

    def test_tables_are_merged_key_by_key(self):
        near = editor(
            "model = 'x:y'",
            "limits = {rounds = 2, recalls = 1}",
            "global = {limits = {rounds = 1, depth = 2}, settings = {seed = 4}}",
            "agent_configs = {editor = {limits = {recalls = 0}, settings = {max_tokens = 9}}}",
        )
        assert near.limits == Limits(rounds=2, recalls=0, depth=2)
        assert near.settings == Settings(seed=4, max_tokens=9)

    @pytest.mark.parametrize("profile", ["creative", "balanced", "deterministic"])
    def test_a_preset_becomes_settings_of_the_request(self, script, profile):
        client = script("Done.")
        build_agent({"agent_type": "paper", "profile": profile}, client=client)("Write.")
        sent = client.requests[0].settings
        assert sent.temperature == {"creative": 1.0, "balanced": 0.7, "deterministic": 0.0}[profile]
        assert sent.seed == (1 if profile == "deterministic" else None)

    def test_settings_win_over_presets_and_the_nearest_preset_counts(self):
        assert editor("model='x:y'", "profile='creative'", "global={settings={temperature=0.3}}").settings == Settings(
            temperature=0.3
        )
        near = editor("model='x:y'", "profile='creative'", "agent_configs={editor={profile='deterministic'}}")
        assert near.settings == Settings(temperature=0.0, seed=1)

    def test_overrides_change_tables_key_by_key(self):
        config = {"agent_type": "paper", "model": "x:y", "limits": {"rounds": 2, "depth": 1}}
        agent = build_agent(config, model="x:z", limits={"rounds": 7}, settings=Settings(seed=3), name="daily")
        assert agent.name == "daily"
        assert agent.agents["author"].limits == Limits(rounds=7, depth=1)
        assert agent.agents["author"].settings == Settings(seed=3)
        assert agent.agents["author"].model == "x:z"
        assert config["limits"] == {"rounds": 2, "depth": 1}
        changed = AgentConfig.of(agent.config, limits={"rounds": 8})
        assert (changed.limits, agent.config.limits["rounds"]) == ({"rounds": 8, "depth": 1}, 7)

    @pytest.mark.parametrize("override", [{"modle": "x:y"}, {"limits": {"round": 3}}, {"profile": "creativ"}])
    def test_a_wrong_override_is_refused(self, override):
        with pytest.raises((ConfigError, TypeError), match=r"modle|limits.round|creativ"):
            build_agent({"agent_type": "paper", "model": "x:y"}, **override)

    def test_code_may_be_given_in_a_mapping(self, script):
        seen = configured.Steps()
        client = script(function_call("add", a=1, b=2), '{"text": "3"}')
        own = {"functions": [configured.add], "output": configured.Report, "hooks": (seen,)}
        agent = build_agent({"agent_type": "paper", "agent_configs": {"editor": own}}, client=client)
        assert agent.agents["editor"].call("Add.").output == configured.Report(text="3")
        assert seen.triggers == ["begun", "functions_asked", "returned", "answered"]

    def test_a_system_prompt_from_a_path(self, paper, script):
        (paper / "paper.toml").write_text("agent_type='paper'\nprompts='prompts'\nsystem_path='paper/system'\n")
        client = script("Done.", "Done.")
        build_agent(paper / "paper.toml", client=client)("Write.")
        (paper / "paper.toml").write_text("agent_type='paper'\nsystem_path='prompts/paper/system.jinja'\n")
        build_agent(paper / "paper.toml", client=client)("Write.")
        assert [request.messages[0].text for request in client.requests] == ["You write.", "You write."]

    def test_prompts_beside_the_file_need_no_key(self, paper, script, tmp_path_factory, monkeypatch):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        (elsewhere / "prompts" / "paper").mkdir(parents=True)
        (elsewhere / "prompts" / "paper" / "system.jinja").write_text("You read.")
        monkeypatch.chdir(elsewhere)
        (paper / "paper.toml").write_text("agent_type='paper'\nsystem_path='paper/system'\n")
        client = script("Done.", "Done.")
        build_agent(paper / "paper.toml", client=client)("Write.")
        (paper / "prompts").rename(paper / "others")
        build_agent(paper / "paper.toml", client=client)("Write.")
        assert [request.messages[0].text for request in client.requests] == ["You write.", "You read."]

    def test_paths_stay_beside_the_file_when_the_program_changes_its_folder(self, paper, script, monkeypatch):
        (paper / "paper.toml").write_text("agent_type='paper'\nname='daily'\nstore='runs.db'\n")
        monkeypatch.chdir(paper)
        agent = build_agent("paper.toml", client=script("Done.", "Done."))
        others = agent.changed(limits={"rounds": 1})
        monkeypatch.chdir("/")
        assert [one("Write.") for one in (agent, others)] == ["Done.", "Done."]
        assert (paper / "runs.db").is_file()

    def test_the_store_may_be_in_the_home_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        agent = build_agent({"agent_type": "paper", "model": "x:y", "store": "~/runs.db"})
        assert agent.store == tmp_path / "runs.db"

    def test_the_store_may_be_an_address(self):
        address = "postgresql://agents@db.invalid/work?schema=orders"
        agent = build_agent({"agent_type": "paper", "model": "x:y", "store": address})
        assert agent.store == address

    def test_a_kind_may_be_its_class(self, script):
        config = {"agent_type": "support.configured:Report"}
        with pytest.raises(ConfigError, match="agent_type"):
            build_agent(config)
        with pytest.raises(ConfigError, match=r"agent_type.*Raport.*Report"):
            build_agent({"agent_type": "support.configured:Raport"})
        with pytest.raises(ConfigError, match=r"agent_type.*suport"):
            build_agent({"agent_type": "suport:Report"})


class TestConstructed:
    """A configuration made by its constructor is like one that was read."""

    VALUES: ClassVar[dict[str, Any]] = {
        "model": "x:${NO_SUCH_MODEL:-y}",
        "limits": {"rounds": 2},
        "global": {"settings": {"seed": 3}},
        "agent_configs": {"editor": {"functions": (configured.add,)}},
    }

    def test_it_is_equal(self):
        assert AgentConfig(**self.VALUES) == AgentConfig.of(self.VALUES)

    def test_it_keeps_its_keys_when_others_are_changed(self):
        changed = AgentConfig.of(AgentConfig(**self.VALUES), limits={"depth": 1}, name="daily")
        assert changed == AgentConfig.of(self.VALUES, limits={"depth": 1}, name="daily")
        assert (changed.model, changed.limits) == (self.VALUES["model"], {"rounds": 2, "depth": 1})

    @pytest.mark.parametrize("key", ["model", "system", "agent_type"])
    def test_a_missing_variable_is_named_with_its_key(self, key):
        values = {"agent_type": "paper", "model": "x:y", key: "${NO_SUCH_KEY}"}
        with pytest.raises(ConfigError, match=rf"{key}: .*NO_SUCH_KEY"):
            build_agent(AgentConfig(**values))

    def test_a_reference_inside_a_default_is_refused(self):
        with pytest.raises(ConfigError, match=r"system: .*NO_SUCH_KEY"):
            build_agent({"agent_type": "paper", "model": "x:y", "system": "${NO_SUCH_KEY:-${EDITOR_KEY}}"})

    def test_no_message_of_the_constructor_shows_a_key(self):
        with pytest.raises(ValueError, match=r"client\.api_key") as caught:
            AgentConfig(client={"api_key": KEY})
        assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_sub_agent_has_no_class():
    with pytest.raises(ConfigError, match=r"agent_configs\.editor\.agent_type.*answer"):
        build_agent({"agent_type": "paper", "agent_configs": {"editor": {"agent_type": "paper"}}})


class TestClients:
    def test_each_sub_agent_has_its_own(self, monkeypatch):
        client = {"api_key": "${EDITOR_KEY}", "base_url": "https://example.invalid/v1"}
        agent = build_agent(
            {"agent_type": "paper", "model": "openai:m", "agent_configs": {"editor": {"client": client}}}
        )
        with agent:
            endpoint = agent.agents["editor"].client._access.locate()
            assert endpoint.headers["authorization"] == f"Bearer {KEY}"
            assert agent.agents["author"].model == "openai:m"
        assert "closed" in repr(agent.agents["editor"].client)

    @pytest.mark.parametrize(
        ("client", "says"),
        [
            ({"api_key": KEY}, "client.api_key"),
            ({"headers": {"x-api-key": KEY}}, "x-api-key"),
            ({"api_key": [KEY]}, "client.api_key"),
            ({"api_key": "${NO_SUCH_KEY}"}, "NO_SUCH_KEY"),
            ({"base_url": "x${EDITOR_KEY}"}, "base_url"),
        ],
    )
    def test_no_message_shows_a_key(self, client, says):
        with pytest.raises(ConfigError) as caught:
            build_agent({"agent_type": "paper", "model": "openai:m", "client": client})
        assert says in str(caught.value)
        assert KEY not in "".join(traceback.format_exception(caught.value))

    def test_one_that_is_no_http_wire_has_a_name(self):
        asked = []
        register_client("cabin", lambda model: asked.append(model) or Script("Done."))
        agent = build_agent({"agent_type": "paper", "model": "cabin:big"})
        assert agent("Write.") == "Done."
        assert asked == ["big"]

    def test_an_unknown_one_is_named_with_those_there_are(self):
        register_client("cabin", lambda model: Script())
        agent = build_agent({"agent_type": "paper", "model": "cabn:big"})
        with pytest.raises(CallFailed, match=r"cabn.*cabin") as e:
            agent("Write.")
        assert isinstance(e.value.__cause__, ConfigError)


class TestReferences:
    def test_they_are_replaced_where_they_are_used_and_nowhere_else(self, monkeypatch):
        monkeypatch.setenv("TONE", "terse")
        monkeypatch.setenv("ROUNDS", "7")
        monkeypatch.setenv("HEAT", "0.5")
        config = AgentConfig.of(
            {
                "agent_type": "paper",
                "model": "${MODEL:-x:y}",
                "system": "Be ${TONE}; $${TONE} costs ${env:HEAT} $",
                "limits": {"rounds": "${ROUNDS}"},
                "settings": {"temperature": "${HEAT}"},
                "profile": "${PROFILE:-creative}",
            }
        )
        near = build_agent(config).agents["editor"]
        assert (near.model, near.system) == ("x:y", "Be terse; ${TONE} costs 0.5 $")
        assert (near.limits.rounds, near.settings.temperature) == (7, 0.5)
        assert "terse" not in repr(config) + config.model_dump_json()
        assert config.system == "Be ${TONE}; $${TONE} costs ${env:HEAT} $"

    @pytest.mark.parametrize(
        ("key", "value", "says"),
        [
            ("limits", {"rounds": "${EDITOR_KEY}"}, "limits.rounds"),
            ("settings", {"cache": "${EDITOR_KEY}"}, "settings.cache"),
            ("profile", "${EDITOR_KEY}", "profile"),
            ("system", "${1}", "system"),
            ("functions", ["${EDITOR_KEY}"], "functions[0]"),
            ("system_path", "${EDITOR_KEY}", "system_path"),
        ],
    )
    def test_one_that_does_not_fit_is_named_without_its_value(self, key, value, says):
        with pytest.raises(ConfigError) as caught:
            build_agent({"agent_type": "paper", "model": "x:y", key: value})
        assert says in str(caught.value)
        assert KEY not in "".join(traceback.format_exception(caught.value))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
)


MERGES = [*zip("abcdefghijklmnopqrstuv", "bcdefghijklmnopqrstuvw", strict=True)]


class TestBounds:
    @pytest.mark.parametrize(
        "text",
        [
            LAUGHS,
            "a: [" + "x," * 4_000 + "]",
            "a: &a [*a]",
            "a: &a {x: 1}\n" + "".join([f"{new}: &{new} {{<<: [*{old}, *{old}]}}\n" for old, new in MERGES]),
            "a: " + "[" * 1000,
            "- " * 1000,
            "a: " + "1:" * 10_000 + "1",
            "a: !!python/object/apply:os.system [ls]",
            "a: !!binary x",
            "a: !!bool maybe",
            "model: x:y\nmodel: x:z",
            "1: x",
            "a: 'x",
            "a: b: c",
            "--- {}\n--- {}",
            "a: \x00",
            "a: *b",
            "<<: 3",
        ],
        ids=lambda value: value[:20],
    )
    @pytest.mark.timeout(20)
    def test_yaml_is_read_within_bounds(self, tmp_path, monkeypatch, text):
        monkeypatch.setattr("fsm_agent.agents.config_files.MAX_VALUES", 2000)  # ten times as many take seconds
        (tmp_path / "a.yml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            build_agent(tmp_path / "a.yml")
        assert str(tmp_path / "a.yml") in str(caught.value)
        assert len(str(caught.value)) < 1000

    @pytest.mark.timeout(20)
    def test_a_key_of_toml_has_a_bounded_number_of_parts(self, tmp_path):
        (tmp_path / "a.toml").write_text("x = 1\na" + ".a" * 400_000 + " = 1")
        with pytest.raises(ConfigError, match="line 2"):
            build_agent(tmp_path / "a.toml")

    def test_aliases_and_merges_within_them_are_taken(self, tmp_path):
        (tmp_path / "a.yaml").write_text(
            "agent_type: paper\nmodel: x:y\nagent_configs:\n  author: &a {limits: {rounds: 1}, system: Write.}\n"
            "  editor:\n    <<: *a\n    system: 2026-11-22\n"
        )
        near = build_agent(tmp_path / "a.yaml").agents["editor"]
        assert (near.limits.rounds, near.system) == (1, "2026-11-22")

    def test_a_message_shows_a_bounded_number_of_problems(self):
        with pytest.raises(ConfigError) as caught:
            AgentConfig.of({"x" * 100_000 + str(index): "y" * 100_000 for index in range(100)})
        assert len(str(caught.value)) < 20_000
        assert len(str(caught.value).splitlines()) < 50

    def test_what_contains_itself_is_refused(self):
        config: dict[str, Any] = {"agent_type": "paper"}
        config["settings"] = {"extra_body": config}
        with pytest.raises(ConfigError):
            AgentConfig.of(config)


@pytest.mark.system
def test_without_pyyaml_an_error_says_what_to_install(tmp_path):
    (tmp_path / "a.yaml").write_text("model: x:y")
    code = "import sys; sys.modules['yaml'] = None; from fsm_agent import AgentConfig; AgentConfig.of('a.yaml')"
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "ConfigError" in ran.stderr
    assert "fsm-agent[yaml]" in ran.stderr


def test_the_schema_takes_what_is_right():
    schema = AgentConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    assert "global" in schema["properties"]
    assert {"rounds", "deadline_s"} <= schema["properties"]["limits"]["properties"].keys()
    assert schema["properties"]["settings"]["additionalProperties"] is False
