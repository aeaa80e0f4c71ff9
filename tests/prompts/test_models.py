"""Do values that are marked with their type say it in JSON, and nowhere that a model sees?"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fsm_agent import Agent, PromptError
from fsm_agent.prompts import PromptModel, TypeMarked
from fsm_agent.testing import Script


class Concept(TypeMarked, PromptModel):
    """A concept."""

    reasoning: str = Field(examples=["because"])
    high_concept: str = Field(examples=["a world"])


class Profile(TypeMarked, PromptModel):
    type_name: ClassVar[str] = "profile.v2"

    name: str = Field(examples=["Mai"])


class Strict(TypeMarked, BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int


CONCEPT = Concept(reasoning="because", high_concept="a world")


class TestDump:
    def test_in_json_and_in_data(self) -> None:
        expected = {"__type": "Concept", "reasoning": "because", "high_concept": "a world"}
        assert CONCEPT.model_dump() == expected
        assert CONCEPT.model_dump_json() == '{"__type":"Concept","reasoning":"because","high_concept":"a world"}'
        assert TypeAdapter(Concept).dump_python(CONCEPT, mode="json") == expected


class TestSchema:
    def test_no_json_schema_has_it(self) -> None:
        for mode in ("validation", "serialization"):
            schema = Concept.model_json_schema(mode=mode)
            assert list(schema["properties"]) == ["reasoning", "high_concept"]
            assert "__type" not in str(schema)

    def test_no_request_to_a_model_has_it(self) -> None:
        model = Script('{"reasoning": "r", "high_concept": "h"}')
        assert Agent(model, output=Concept).call("Go").output == Concept(reasoning="r", high_concept="h")
        (request,) = model.requests
        assert "__type" not in repr(request.messages) + str(request.output)


class TestLoading:
    def test_without_it(self) -> None:
        assert Concept.model_validate_json('{"reasoning": "because", "high_concept": "a world"}') == CONCEPT
        assert Strict.model_validate({"n": 1}) == Strict(n=1)

    def test_what_was_dumped_is_equal_where_nothing_else_is_allowed(self) -> None:
        assert Strict.model_validate_json(Strict(n=1).model_dump_json()) == Strict(n=1)
        given = {"__type": "Strict", "n": 1}
        assert Strict.model_validate(given) == Strict(n=1)
        assert given == {"__type": "Strict", "n": 1}, "what was given stays as it was"

    @pytest.mark.parametrize(("kind", "name"), [(Concept, "Profile"), (Profile, "Profile")])
    def test_a_wrong_one_is_refused(self, kind: type[Concept | Profile], name: str) -> None:
        document = {"__type": name, "name": "Mai", "reasoning": "r", "high_concept": "h"}
        with pytest.raises(ValidationError, match=rf"__type.*'{kind.type_name}'.*'{name}'"):
            kind.model_validate(document)


class TestDeclaration:
    @pytest.mark.parametrize("name", ["", None])
    def test_a_name_that_is_none_is_refused(self, name: Any) -> None:
        with pytest.raises(PromptError, match=r"type_name of .*Wrong"):
            type("Wrong", (TypeMarked,), {"type_name": name, "__annotations__": {}, "__module__": __name__})
