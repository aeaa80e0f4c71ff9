"""Are the probabilities of classes read rightly from the log probabilities of tokens?"""

from __future__ import annotations

import pytest

from fsm_agent.agents.classification.scores import ClassNames, Scores
from fsm_agent.testing import token_reply


def scores(names: list[str], *places: dict[str, float]) -> Scores:
    return ClassNames(names).scores(token_reply(*places).logprobs)


def masses(names: list[str], *places: dict[str, float]) -> dict[str, float]:
    return {name: round(mass, 6) for name, mass in scores(names, *places).masses.items()}


class TestOneToken:
    @pytest.mark.parametrize("spelling", [" True", "true", "TRUE", '"true', "\ntrue", "▁True", "**True", "True.", "Tr"])
    def test_spellings_of_one_class_are_added_up(self, spelling: str) -> None:
        assert masses(["True", "False"], {"True": 0.5, spelling: 0.2, "False": 0.1}) == {"True": 0.7, "False": 0.1} or (
            spelling == "True"
        )

    @pytest.mark.parametrize("other", ["maybe", "Truely", "x", "", " ", "<|im_end|>", "</s>", "?"])
    def test_other_tokens_are_left_out(self, other: str) -> None:
        found = scores(["True", "False"], {"True": 0.5, "False": 0.1, other: 0.3})
        assert found.coverage == pytest.approx(0.6)
        assert not found.shared

    def test_a_class_that_is_not_there_is_missing_and_no_likelier_than_the_least(self) -> None:
        found = scores(["yes", "no"], {"yes": 0.9, "sure": 0.01})
        assert found.missing == ("no",)
        assert found.floor == pytest.approx(0.01)

    def test_the_least_is_that_of_the_first_token(self) -> None:
        found = scores(["new york", "new jersey", "no"], {"new ": 0.9, "sure": 0.01}, {"york": 0.9, "x": 0.0001})
        assert found.missing == ("new jersey", "no")
        assert found.floor == pytest.approx(0.01)

    def test_case_counts_where_it_tells_classes_apart(self) -> None:
        assert masses(["US", "us"], {"US": 0.6, "us": 0.3, "Us": 0.05}) == {"US": 0.6, "us": 0.3}


class TestSharedTokens:
    NAMES = ("unhappy", "unsure", "dislike", "disagree")

    def test_the_next_token_tells_apart(self) -> None:
        found = masses(["unhappy", "unsure", "glad"], {"un": 0.8, "glad": 0.2}, {"happy": 0.75, "sure": 0.25})
        assert found == {"unhappy": 0.6, "unsure": 0.2, "glad": 0.2}

    def test_a_beginning_that_the_answer_did_not_take_is_told(self) -> None:
        found = scores([*self.NAMES], {"un": 0.6, "dis": 0.3}, {"happy": 0.5, "sure": 0.5})
        assert found.shared == {"dis": pytest.approx(0.3)}
        assert found.coverage == pytest.approx(0.6)

    def test_several_tokens_deep(self) -> None:
        names = ["very good", "very bad", "so so"]
        found = masses(names, {"very": 0.9, "so": 0.1}, {" ": 1.0}, {"bad": 0.7, "good": 0.3})
        assert found == {"very good": 0.27, "very bad": 0.63, "so so": 0.1}

    @pytest.mark.parametrize("end", ["", "<|im_end|>", ".", "\n"])
    def test_a_class_that_begins_another(self, end: str) -> None:
        found = masses(["art", "artist"], {"art": 1.0}, {end: 0.6, "ist": 0.4})
        assert found == {"art": 0.6, "artist": 0.4}

    @pytest.mark.parametrize(
        ("names", "length"), [(["a", "b"], 0), (["true", "Try", "no"], 2), (["art", "artist"], 3), (["x y", "x  z"], 2)]
    )
    def test_how_much_is_shared(self, names: list[str], length: int) -> None:
        assert ClassNames(names).longest_shared() == length


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("yes", "yes"),
        (' "Yes".\n', "yes"),
        ("**NO**", "no"),
        ("yes no", None),
        ("yesno", None),
        ("", None),
        ("ye", None),
    ],
)
def test_an_answer_is_a_class_but_for_quotes_stops_and_case(text: str, name: str | None) -> None:
    assert ClassNames(["yes", "no"]).named(text) == name
