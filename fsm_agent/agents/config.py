"""The configuration of agents, as data and as files."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from fsm_agent._internal.values import field_names, from_data
from fsm_agent.errors import ConfigError
from fsm_agent.functions.function import described_errors
from fsm_agent.mistakes import wrong
from fsm_agent.providers.hosted_tools import RUN_BY

Config: TypeAlias = "AgentConfig | Mapping[str, Any] | str | Path"

MAX_FILE_BYTES = 1_000_000


class SubAgentConfig(BaseModel):
    """One identity of an agent: its model, its system prompt, its limits.  What is unset is the agent's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="'provider:model'")
    system: str = Field(default="", description="the system prompt")
    limits: dict[str, Any] = Field(default_factory=dict, description="see `Limits`")
    settings: dict[str, Any] = Field(default_factory=dict, description="see `Settings`")


class AgentConfig(BaseModel):
    """The configuration of an agent, as data for `build_agent`.  Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent_type: str | None = Field(default=None, description="the registered kind")
    name: str | None = Field(default=None, description="for traces and snapshots; the kind's name by default")
    model: str | None = Field(default=None, description="'provider:model' of every sub-agent that names none")
    limits: dict[str, Any] = Field(default_factory=dict, description="of every sub-agent; see `Limits`")
    settings: dict[str, Any] = Field(default_factory=dict, description="of every sub-agent; see `Settings`")
    agent_configs: dict[str, SubAgentConfig] = Field(default_factory=dict, description="by sub-agent")

    @classmethod
    def of(cls, config: Config) -> AgentConfig:
        """Return the configuration, checked.

        Args:
            config: A configuration, a mapping, or the path of a file that ends in ``.toml`` or ``.json``.

        Raises:
            ConfigError: It is not valid, or there is no such file; the error names the file, each field that is
                wrong, and what an unknown key may have meant.
        """
        if isinstance(config, AgentConfig):
            return config
        source = f" in {str(config)!r}" if isinstance(config, str | Path) else ""
        values = _read(Path(config)) if isinstance(config, str | Path) else config
        if not isinstance(values, Mapping):
            raise wrong(f"the agent's configuration{source}", values, "a mapping, or the path of a file,", ConfigError)
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(f"the agent's configuration{source} is not valid:\n{_explained(error)}") from error


def _read(file: Path) -> Any:
    """Return what a configuration file says."""
    if file.suffix not in (".toml", ".json"):
        raise ConfigError(
            f"the configuration file {str(file)!r} does not end in '.toml' or '.json'; what another reader makes of it"
            " is taken as well: build_agent(yaml.safe_load(text)), say"
        )
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(f"the configuration file {str(file)!r} has more than {MAX_FILE_BYTES} bytes")
        text = content.decode("utf-8-sig")
        return tomllib.loads(text) if file.suffix == ".toml" else from_json(text)
    except OSError as error:
        raise ConfigError(f"the configuration file {str(file)!r} cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {str(file)!r} is not {file.suffix[1:].upper()}: {error}") from error


def made(type_: Any, key: str, name: str, values: Mapping[str, Any]) -> Any:
    """Return a value of ``type_``, which is `Limits` or `Settings`, for the sub-agent ``name``.

    Raises:
        ConfigError: It names what is unknown or wrong under ``key``.
    """
    known = field_names(type_)
    if unknown := sorted(values.keys() - set(known)):
        hints = "; ".join(f"{key}.{word} is unknown{meant(word, known)}" for word in unknown)
        raise ConfigError(f"{hints} (sub-agent {name!r}); known: {listed(known)}")
    try:
        return from_data(values, type_)
    except ValueError as error:  # no cause, and nothing that was given: a hosted tool may hold a key
        kinds = f"; kinds of hosted tools: {listed(RUN_BY)}" if ".kind:" in str(error) else ""
        raise ConfigError(f"{key}.{error}{kinds}") from None


def _explained(error: ValidationError) -> str:
    hints = []
    for item in error.errors(include_url=False):
        if item["type"] == "extra_forbidden":
            fields = AgentConfig.model_fields if len(item["loc"]) == 1 else SubAgentConfig.model_fields
            word = str(item["loc"][-1])
            hints.append(f"{word!r} is unknown{meant(word, fields)}; known: {listed(fields)}")
    return "\n".join([described_errors(error), *hints])


def meant(word: str, known: Iterable[str]) -> str:
    """Return the part of a message that says which word was probably meant."""
    close = get_close_matches(word, [*known], n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def listed(known: Iterable[str]) -> str:
    """Return the words of which one would have been right."""
    return ", ".join(sorted(known)) or "none"
