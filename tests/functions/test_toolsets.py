"""Are exactly the intended functions offered: these names, that version, for this caller?"""

from __future__ import annotations

import pickle
import warnings
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import PromptError, UsageError
from fsm_agent.functions import Function, Toolset
from fsm_agent.prompts import Prompt


def named(name: str, version: str = "", *depends_on: str, **policy: Any) -> Function:
    return Function(name=name, version=version, depends_on=depends_on, **policy)


def names(offered: Any) -> list[str]:
    return [function.name for function in getattr(offered, "functions", offered)]


def versions(offered: Any) -> dict[str, str]:
    return {function.name: function.version for function in getattr(offered, "functions", offered)}


LOGIN, BUY, LOOK = named("login"), named("buy", "", "login"), named("look")
SHOP = Toolset([LOGIN, BUY, LOOK], name="shop")
OLD, NEW, NEWEST = named("search", "9"), named("search", "10"), named("search", "10.1")
SEARCH = Toolset([OLD, NEWEST, NEW, LOOK], name="web")


class Server:
    """A source of functions that is no toolset."""

    functions = (LOGIN, LOOK)


class TestMaking:
    def test_of_functions_callables_and_sources(self):
        assert names(Toolset([len, Server()])) == ["len", "login", "look"]
        assert names(Toolset(Server())) == ["login", "look"]
        assert Toolset([len, SEARCH]).pick("search@9") is OLD
        assert Toolset(SHOP).name == "shop"
        assert Toolset(SHOP, name="mine").name == "mine"
        assert versions(Toolset([SEARCH.only("search"), Server(), len])) == {
            **{"search": "10.1", "login": "", "look": "", "len": ""}
        }

    def test_with_the_type_of_its_deps(self):
        assert names(Toolset[object]([len]).prefixed("a_")) == ["a_len"]
        assert names(pickle.loads(pickle.dumps(Toolset[object]([LOGIN])))) == ["login"]

    def test_what_is_no_list(self):
        for wrong in (LOGIN, len, "len", 5, None):
            with pytest.raises(UsageError, match="list"):
                Toolset(wrong)
            with pytest.raises(UsageError, match="list"):
                Prompt("x", functions=wrong)

    def test_an_error_of_a_source_is_not_taken_for_another_kind_of_item(self):
        class Broken:
            @property
            def functions(self) -> tuple[Function, ...]:
                raise AttributeError("'Function' has no 'nosuch'")

        for items in ([Broken()], Broken()):
            with pytest.raises(AttributeError, match="nosuch"):
                Toolset(items)

    def test_two_of_one_name_and_version(self):
        with pytest.raises(PromptError, match=r"'web': .*search@9"):
            Toolset([OLD, named("search", "9")], name="web")
        with pytest.raises(PromptError, match="login"):
            Toolset([LOGIN, LOGIN])
        with pytest.raises(PromptError, match="look"):
            Toolset([SHOP, SEARCH])


class TestDependencies:
    def test_a_circle_is_named(self):
        circle = [named("a", "", "b"), named("b", "", "c"), named("c", "", "a"), named("d", "", "a")]
        for make in (lambda f: Prompt("x", path="task", functions=f), lambda f: Toolset(f, name="shop")):
            with pytest.raises(PromptError) as caught:
                make(circle)
            steps = str(caught.value).rpartition(": ")[2].split(" -> ")
            assert steps[0] == steps[-1]
            assert set(steps) == {"a", "b", "c"}
            needs = {"a": "b", "b": "c", "c": "a"}
            assert all(needs[one] == other for one, other in pairwise(steps))

    def test_an_unknown_one_is_named_with_what_was_probably_meant(self):
        with pytest.raises(PromptError, match=r"'buy' of prompt 'task' .*'login'"):
            Prompt("x", path="task", functions=[LOGIN, named("buy", "", "log_in")])
        with pytest.raises(PromptError, match=r"'buy' of toolset 'shop' .*'login'"):
            SHOP.without("login")

    def test_a_long_chain_is_no_circle(self):
        chain = [named("f0"), *[named(f"f{n}", "", f"f{n - 1}") for n in range(1, 2000)]]
        assert len(Toolset(chain).functions) == 2000
        with pytest.raises(PromptError, match="cycle"):
            Toolset([named("f0", "", "f1999"), *chain[1:]])

    @given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
    def test_a_circle_is_found_where_there_is_one(self, edges):
        needs = {f"f{n}": tuple({f"f{b}" for a, b in edges if a == n}) for n in range(8)}
        met: set[str] = set()
        while ready := [name for name in needs if name not in met and met.issuperset(needs[name])]:
            met.update(ready)
        functions = [named(name, "", *others) for name, others in needs.items()]
        if len(met) == 8:
            assert len(Toolset(functions).functions) == 8
        else:
            with pytest.raises(PromptError, match="cycle"):
                Toolset(functions)


class TestNames:
    def test_only_and_without(self):
        assert names(SHOP.only("look", "login")) == ["login", "look"]
        assert names(SHOP.without("buy", "look")) == ["login"]
        assert names(SHOP.only()) == []
        assert names(SHOP.without()) == names(SHOP) == ["login", "buy", "look"]

    def test_an_unknown_name_is_refused(self):
        for method in (SHOP.only, SHOP.without, SHOP.pick, lambda name: SHOP.renamed({name: "x"})):
            with pytest.raises(UsageError, match=r"'shop' .*'look'"):
                method("lok")
            with pytest.raises(UsageError, match=r"'zzz'; .*login, buy, look"):
                method("zzz")

    def test_a_prefix_is_put_before_names_and_dependencies(self):
        made = SHOP.prefixed("shop_")
        assert names(made) == ["shop_login", "shop_buy", "shop_look"]
        assert made.functions[1].depends_on == ("shop_login",)
        assert BUY.depends_on == ("login",)
        with pytest.raises(UsageError, match=r"'shop\.login'"):
            SHOP.prefixed("shop.")

    def test_new_names_are_followed_by_dependencies(self):
        made = SHOP.renamed({"login": "sign_in", "look": "login"})
        assert names(made) == ["sign_in", "buy", "login"]
        assert made.functions[1].depends_on == ("sign_in",)
        swapped = SHOP.renamed({"login": "buy", "buy": "login"})
        assert {f.name: f.depends_on for f in swapped} == {"buy": (), "login": ("buy",), "look": ()}
        with pytest.raises(PromptError, match="look"):
            SHOP.renamed({"login": "look"})


class TestVersions:
    def test_versions_compare_as_people_read_them(self):
        rising = ["", "beta", "0.9", "1", "1.2", "1.9", "1.10-rc1", "1.10-rc2", "1.10", "1.10.1", "v2", "10", "2026.1"]
        for lower, higher in pairwise(rising):
            for both in ((lower, higher), (higher, lower)):
                assert Toolset([named("f", version) for version in both]).pick("f").version == higher

    def test_the_highest_is_offered(self):
        assert versions(SEARCH) == {"search": "10.1", "look": ""}
        assert versions(SEARCH.for_call()) == {"search": "10.1", "look": ""}
        assert SEARCH.pick("search") is NEWEST

    def test_a_certain_one(self):
        assert SEARCH.pick("search@9") is OLD
        assert versions(SEARCH.only("search@9")) == {"search": "9"}
        assert versions(SEARCH.without("search@10.1")) == {"search": "10", "look": ""}
        assert versions(SEARCH.only("search")) == {"search": "10.1"}
        with pytest.raises(UsageError, match=r"'search@11'.*search@10"):
            SEARCH.pick("search@11")
        with pytest.raises(UsageError, match=r"'serch@9'.*'search'"):
            SEARCH.pick("serch@9")

    def test_one_of_several_gets_a_name_of_its_own(self):
        made = Toolset([SEARCH, named("read", "", "search")]).renamed({"search@9": "search_old"})
        assert versions(made) == {"search_old": "9", "search": "10.1", "look": "", "read": ""}
        assert made.functions[-1].depends_on == ("search",)
        made = Toolset([SEARCH, named("read", "", "search")]).renamed({"search@10.1": "search_new"})
        assert versions(made) == {"search": "10", "search_new": "10.1", "look": "", "read": ""}
        assert made.functions[-1].depends_on == ("search",)


class TestShares:
    SHARED = SEARCH.without("search@10.1")

    def test_where_a_point_falls(self):
        made = Toolset([named("f", version) for version in "abc"])
        for shares, point, version in (
            *(((0.9, 0.1, 0), 0, "a"), ((0.9, 0.1, 0), 0.8999, "a"), ((0.9, 0.1, 0), 0.9, "b")),
            *(((0.9, 0.1, 0), 0.9999, "b"), ((0, 0, 1), 0, "c"), ((1, 0, 0), 0.9999999999999999, "a")),
            *(((0.2, 0.3, 0.5), 0.2, "b"), ((0.2, 0.3, 0.5), 0.5, "c")),
        ):
            routed = made.route("f", dict(zip("abc", shares, strict=True)), lambda point=point: point)
            assert versions(routed.for_call()) == {"f": version}

    def test_a_version_without_a_share_is_never_picked(self):
        routed = SEARCH.route("search", {"9": 1}, lambda: 0.99)
        assert versions(routed.for_call())["search"] == "9"
        assert versions(routed)["search"] == "9"

    def test_who_is_not_admitted_leaves_the_share_to_the_others(self):
        routed = self.SHARED.route("search", {"9": 0.5, "10": 0.5}, lambda: 0.1).filtered(
            lambda function, deps: function.version != deps
        )
        assert versions(routed.for_call("9"))["search"] == "10"
        assert versions(routed.for_call("10"))["search"] == "9"

    def test_the_number_is_asked_for_whoever_is_admitted(self):
        asked: list[int] = []

        def choose() -> float:
            asked.append(1)
            return 0.0

        routed = self.SHARED.route("search", {"9": 0.5, "10": 0.5}, choose).filtered(lambda function, deps: False)
        assert routed.for_call() == ()
        assert asked == [1]

    def test_what_makes_no_sense(self):
        for shares, name in (
            ({"8": 1}, "'8'"),
            ({"9": -0.5, "10": 1.5}, "search@9: .*-0.5"),
            ({"9": True}, "True"),
            ({"9": float("nan")}, "nan"),
            ({"9": "1"}, "'1'"),
            ({"9": 0.9, "10": 0.2}, r"1\.1"),
            ({}, r"0\.0"),
        ):
            with pytest.raises(UsageError, match=name):
                SEARCH.route("search", shares, Random(7).random)
        with pytest.raises(UsageError, match="'serch'"):
            SEARCH.route("serch", {"9": 1}, Random(7).random)
        with pytest.raises(UsageError, match=r"choose: .*0.5"):
            SEARCH.route("search", {"9": 1}, 0.5)
        for point in (1, -0.1, None, "0.5", True, float("nan")):
            with pytest.raises(UsageError, match="choose of function 'search'"):
                SEARCH.route("search", {"9": 1}, lambda point=point: point).for_call()


class TestFilters:
    def test_each_agent_call_is_asked_for_anew(self):
        made = SHOP.filtered(lambda function, deps: function.name != "look" or deps == "ann")
        assert names(made.for_call("ann")) == ["login", "buy", "look"]
        assert names(made.for_call("bob")) == ["login", "buy"]
        assert names(made) == ["login", "buy", "look"]

    def test_what_depends_on_what_is_not_offered_is_not_offered(self):
        chain = Toolset([LOGIN, BUY, named("pay", "", "buy"), LOOK])
        assert names(chain.filtered(lambda function, deps: function.name != "login").for_call()) == ["look"]

    def test_they_hold_for_their_own_functions_under_their_old_names(self):
        made = SHOP.filtered(lambda function, deps: function.name != "look").prefixed("a_")
        assert names(Toolset([made, LOOK]).for_call()) == ["a_login", "a_buy", "look"]

    @pytest.mark.parametrize(
        "made",
        [SHOP.filtered(lambda function, deps: False), SHOP.route("look", {"": 1}, lambda: 0.5)],
        ids=["filter", "share"],
    )
    def test_no_list_offers_to_everybody_what_is_kept_from_some(self, made):
        assert made.decides_per_call
        assert Toolset([made]).decides_per_call
        assert made.prefixed("a_").decides_per_call
        assert not Toolset(made.for_call()).decides_per_call
        for use in (
            list,
            lambda toolset: Prompt("x", functions=toolset),
            lambda toolset: Prompt("x", functions=[toolset]),
        ):
            with pytest.raises(UsageError, match="toolset 'shop'"):
                use(made)

    def test_what_is_no_filter(self):
        async def later(function: Function, deps: Any) -> bool:
            return True

        class Later:
            async def __call__(self, function: Function, deps: Any) -> bool:
                return True

        for wrong in (5, later, Later(), lambda function: True):
            with pytest.raises(UsageError, match="filter"):
                SHOP.filtered(wrong)
        with pytest.raises(UsageError, match="filter of function 'login'"):
            SHOP.filtered(lambda function, deps: None).for_call()


class TestDeprecation:
    OLD = named("search", "1", deprecated="use search@2")
    BOTH = Toolset([OLD, named("search", "2")])

    @pytest.mark.parametrize(
        "pick",
        [
            lambda toolset: toolset.pick("search@1"),
            lambda toolset: toolset.only("search@1"),
            lambda toolset: toolset.without("search@2").for_call(),
        ],
    )
    def test_who_picks_it_is_warned(self, pick):
        with pytest.warns(DeprecationWarning, match="search@1 .*: use search@2") as warned:
            pick(self.BOTH)
        assert warned[0].filename == __file__
        assert len(warned) == 1

    def test_who_does_not_is_not(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert versions(self.BOTH.for_call()) == {"search": "2"}
            self.BOTH.pick("search")
            self.BOTH.only("search")
