"""The keys of a configuration of agents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Unpack

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fsm_agent._internal.redaction import MASK, Secrets, is_secret_name
from fsm_agent._internal.references import has_reference, referenced
from fsm_agent._internal.values import field_names
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.agents.config.files import read_file
from fsm_agent.agents.config.source import MAX_KEY_CHARS, MAX_PROBLEMS, Keys, Problem, Source
from fsm_agent.agents.config.tables import PRESETS, Table, checked_profile, filled, texts_in, unfilled
from fsm_agent.agents.options import ConfigOverrides
from fsm_agent.call.limits import Limits
from fsm_agent.errors import ConfigError
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.messages.reply import Settings
from fsm_agent.validation import shown, wrong

Config: TypeAlias = "AgentConfig | Mapping[str, Any] | str | Path"

LIMITS, SETTINGS = Table(Limits), Table(Settings)
_WORDS = {  # of other libraries, and of other places
    **WORDS,
    **{name: f"settings.{name}" for name in field_names(Settings)},
    **{name: f"limits.{name}" for name in field_names(Limits)},
    **dict.fromkeys(("api_key", "base_url"), "a key of client"),
    **dict.fromkeys(("agents", "sub_agents"), "agent_configs"),
    "system_prompt_path": "system_path",
    "expertise": "system",
    "defaults": "global",
}


def _end(text: str) -> PydanticCustomError:
    """Return an error whose text follows the keys in a message."""
    return PydanticCustomError("end", "{text}", {"text": text})


def _name_or_object(value: Any) -> Any:
    """Refuse a value that is neither a name nor an object from code."""
    if value is None or isinstance(value, bool | int | float | list | tuple | Mapping):
        raise _end(f": expected 'module:name', got {shown(value)}")
    if isinstance(value, str) and not all(value.partition(":")):
        raise _end(f": expected an object as 'module:name', got {shown(value)}")
    return value


def _name_or_function(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | list | tuple | Mapping) or value == "":
        raise _end(f": expected the name of a registered function, or 'module:name', got {shown(value)}")
    return value


def _reference(value: str) -> str:
    if not has_reference(value):
        raise _end(": expected a variable such as '${MY_KEY}', got a key; put the key into the environment")
    return value


def _open_headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if is_secret_name(name) and not has_reference(text):
            raise _end(f": expected a variable such as '${{MY_KEY}}' for the header {name!r:.60}, which may be secret")
    return value


LISTED = BeforeValidator(lambda value: list(value) if isinstance(value, tuple) else value)
_NAME = WithJsonSchema({"type": "string"})
Name: TypeAlias = Annotated[Any, BeforeValidator(_name_or_object), _NAME]
FunctionName: TypeAlias = Annotated[Any, BeforeValidator(_name_or_function), _NAME]


class _Keys(BaseModel):
    """Keys of a configuration.  Unknown ones are errors, and no value is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Return the keys that were set, without secrets."""
        return [(name, _masked(name, getattr(self, name))) for name in sorted(self.model_fields_set)]


class ClientConfig(_Keys):
    """How a model is reached."""

    api_key: Annotated[str, AfterValidator(_reference)] | None = Field(
        default=None, description="a variable of the environment, '${MY_KEY}'; by default the provider's"
    )
    base_url: str | None = Field(default=None, description="by default the provider's")
    headers: Annotated[dict[str, str], AfterValidator(_open_headers)] = Field(
        default_factory=dict, description="sent with every request"
    )
    wire: str | None = Field(default=None, description="of a provider with two; by default what a request needs")


class SubAgentConfig(_Keys):
    """One identity of an agent.  Unset keys come from the agent, then from ``global``, then from the class."""

    model: str | None = Field(default=None, description="'provider:model'")
    client: ClientConfig | None = Field(default=None, description="how the model is reached")
    system: str = Field(default="", description="the system prompt")
    system_path: str | None = Field(
        default=None, description="the system prompt by its path, as root/name, or a file that ends in .jinja"
    )
    functions: Annotated[list[FunctionName], LISTED] = Field(
        default_factory=list, description="registered functions by name, or as module:name"
    )
    output: Name | None = Field(default=None, description="the type of the answer, as module:name")
    profile: Annotated[str, AfterValidator(checked_profile)] | None = Field(
        default=None,
        description="a preset of settings, over which those that are set win",
        json_schema_extra={"examples": list(PRESETS)},
    )
    settings: Annotated[dict[str, Any], SETTINGS] = Field(default_factory=dict, description="see `Settings`")
    limits: Annotated[dict[str, Any], LIMITS] = Field(default_factory=dict, description="see `Limits`")
    approve: Name | None = Field(default=None, description="who is asked about function calls, as module:name")
    hooks: Annotated[list[Name], LISTED] = Field(
        default_factory=list, description="listeners to events, as module:name"
    )
    finalizer: str = Field(default="", description="words the answer once more, with {{ answer }} in it")
    stop_when: Name | None = Field(default=None, description="ends a call at a reply, as module:name")
    check: Name | None = Field(default=None, description="judges each answer, as module:name")
    context: Annotated[list[Name], LISTED] = Field(
        default_factory=list, description="passes, and perhaps a Budget at the end, as module:name"
    )
    keep: Annotated[list[Name], LISTED] = Field(
        default_factory=list, description="passes that choose what the next turn inherits, as module:name"
    )
    results: Name | None = Field(default=None, description="what is done to results of functions, as module:name")
    prices: Name | None = Field(default=None, description="what the model's tokens cost, as module:name")
    store: str | None = Field(default=None, description="the file in which calls are kept as runs")

    @model_validator(mode="after")
    def _one_system_prompt(self) -> SubAgentConfig:
        if self.system and self.system_path:
            raise _end(": expected either system or system_path, got both; remove one")
        return self


class AgentConfig(SubAgentConfig):
    """The configuration of an agent, as data for `build_agent`.  Unknown keys are errors.

    A text may refer to variables of the environment, ``${VAR}`` or ``${VAR:-default}``; a configuration holds and shows
    the reference, never the value.

    Examples:
        >>> config = AgentConfig(model="openai:gpt-5-mini", limits={"rounds": 8})
        >>> config.model
        'openai:gpt-5-mini'
    """

    schema_: str | None = Field(default=None, alias="$schema", description="for editors")
    agent_type: str | None = Field(default=None, description="the registered kind, or its class as module:name")
    name: str | None = Field(default=None, description="for traces and snapshots; the kind's name by default")
    prompt: Any = Field(
        default=None,
        description="the prompt of a task, {{ task }} in it, by its path, as root/name, or a file that ends in .jinja",
        json_schema_extra={"type": "string"},
    )
    prompts: str | None = Field(default=None, description="the folder of prompts; relative to the file")
    global_: SubAgentConfig = Field(
        default_factory=SubAgentConfig, alias="global", description="of every sub-agent that does not set it itself"
    )
    agent_configs: dict[str, SubAgentConfig] = Field(default_factory=dict, description="by sub-agent")

    _source: Source = PrivateAttr(default_factory=Source)
    _merged: dict[str, Any] = PrivateAttr(default_factory=dict)

    @classmethod
    @with_options_shown(ConfigOverrides)
    def of(cls, config: Config, **overrides: Unpack[ConfigOverrides]) -> AgentConfig:
        """Return the configuration, checked.

        Args:
            config: A configuration, a mapping, or the path of a file that ends in ``.toml``, ``.yaml`` or ``.json``.
            overrides: Keys in place of those given; tables are changed key by key.

        Raises:
            ConfigError: The configuration is not valid, or the file does not exist.  The error names the file, and each
                wrong key with its line and what was expected.
        """
        values: Any
        if isinstance(config, AgentConfig):
            if not overrides:
                return config
            values, source = config._merged, config._source
        elif isinstance(config, str | Path):
            values, source = read_file(Path(config))
        else:
            values, source = config, Source()
        if not isinstance(values, Mapping):
            where = f" in {str(config)!r}" if source.file is not None else ""
            raise wrong(f"the agent's configuration{where}", values, "a mapping, or the path of a file", ConfigError)
        merged = _merged(values, overrides)
        checked = cls._checked(merged, source)
        checked._source, checked._merged = source, merged
        return checked

    @classmethod
    def _checked(cls, merged: dict[str, Any], source: Source) -> AgentConfig:
        try:
            problems = [Problem(*item) for item in unfilled(merged)]
            checked = cls.model_validate(merged)
        except ValidationError as error:
            problems += map(_problem, error.errors(include_url=False, include_context=False)[: MAX_PROBLEMS + 1])
        except RecursionError:
            raise source.error([Problem((), "expected a flatter configuration, got one nested too deep")]) from None
        if problems:
            raise source.error(problems)
        return checked

    def error(self, keys: Keys, text: str) -> ConfigError:
        """Return the error for a mistake in this configuration, without values of variables: see `Problem`."""
        return self._source.error([Problem(keys, self.secrets.mask(text))])

    @property
    def secrets(self) -> Secrets:
        """The values of the variables that it refers to."""
        return Secrets([value for text in texts_in(self._merged) for value in referenced(text, os.environ)])

    @property
    def folder(self) -> Path:
        """The folder to which paths are relative."""
        return self._source.folder

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the agent itself, with references replaced."""
        value = getattr(self, key)
        return default if value is None else filled(value)


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with changes, table by table."""
    merged = dict(values)
    for key, change in changes.items():
        known = merged.get(key)
        both = isinstance(known, Mapping) and isinstance(change, Mapping)
        merged[key] = _merged(known, change) if both else change  # type: ignore[arg-type]
    return merged


def _problem(item: Any) -> Problem:
    """Return the errors of pydantic, in our words."""
    keys: Keys = item["loc"]
    if item["type"] == "end":
        return Problem(keys, item["msg"])
    if item["type"] == "extra_forbidden":
        word, known = str(keys[-1])[:MAX_KEY_CHARS], _known(keys)
        text = remedy(word, known, {} if "client" in keys else _WORDS)
        listed = "" if "there are" in text else f"; known: {', '.join(known)}"
        return Problem(keys, f": {word!r} is unknown{text}{listed}")
    if keys[-1] == "model" and hasattr(item["input"], "acomplete"):
        return Problem(keys, f": expected 'provider:model', got {shown(item['input'])}; pass it as client=…")
    actual = MASK if any(is_secret_name(str(key)) for key in keys) else shown(item["input"])
    return Problem(keys, f": {item['msg']} (given: {actual})")


def _known(keys: Keys) -> list[str]:
    """Return the known keys at the place of the last key."""
    kind = ClientConfig if "client" in keys[:-1] else AgentConfig if len(keys) == 1 else SubAgentConfig
    return sorted(keys_of(kind))


def keys_of(kind: type[BaseModel]) -> list[str]:
    """Return the keys of a configuration, as they are written."""
    return [field.alias or name for name, field in kind.model_fields.items()]


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked("", item) for item in value]
    return MASK if is_secret_name(name) and isinstance(value, str) and not has_reference(value) else value
