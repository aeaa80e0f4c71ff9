"""Does a text name the sources that its provider named for it, and the place that each is for?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import chat_bodies, gemini_bodies
from support.messages_bodies import message as blocks
from support.messages_bodies import whole
from support.recordings import RECORDED, needs_recorded
from support.response_bodies import body
from support.response_bodies import said as item
from support.response_bodies import whole as whole_response
from wire_check import CODECS, Case, cases, decoded

from fsm_agent.messages import Citation, Message, Opaque, Reasoning, Reply, Text
from fsm_agent.prompts import Dialog

PAGE = Citation(url="https://x/y", title="Y", start=3, end=5)
FLAT = {"type": "url_citation", "url": "https://x/y", "title": "Y", "start_index": 3, "end_index": 5}


def found(entries: Any) -> tuple[Citation, ...]:
    """What a chat completion names for its text."""
    (text,) = chat_bodies.whole(chat_bodies.completion({"content": "hi you", "annotations": entries})).message.parts
    assert isinstance(text, Text)
    return text.annotations


def test_citation_is_read_in_each_spelling() -> None:
    for entry, citation in [
        ({"type": "url_citation", "url_citation": {key: FLAT[key] for key in FLAT if key != "type"}}, PAGE),
        ({"type": "file_citation", "file_id": "f1", "filename": "a.txt", "index": 7}, Citation(title="a.txt")),
        ({"type": "char_location", "document_title": "t", "cited_text": "so"}, Citation(title="t", quote="so")),
        ({"type": "search_result_location", "source": "u", "cited_text": "so"}, Citation(url="u", quote="so")),
        ({"url": "u", "source": "web", "snippet": "so"}, Citation(url="u", quote="so")),
        ("https://x/y", Citation(url="https://x/y")),
    ]:
        assert found([entry]) == (citation,)


def test_what_is_no_citation_is_passed_over() -> None:
    for entries in [None, {}, "u", [None, 1, "", {}, {"url": 1}, {"source": "web"}]]:
        assert found(entries) == ()


CHUNKS = [{"web": {"uri": "u0", "title": "t0"}}, {"retrievedContext": {"title": "t1"}}, {"web": {}}, None]
SOURCES = [Citation(url="u0", title="t0"), Citation(title="t1")]


def supported(*indices: Any, **segment: Any) -> dict[str, Any]:
    support = {"segment": segment, "groundingChunkIndices": list(indices)}
    return {"groundingChunks": CHUNKS, "groundingSupports": [support]}


def grounded(metadata: Any, *texts: str) -> list[Any]:
    """What a response of Gemini names for each of its texts."""
    parts = [gemini_bodies.text(said) for said in texts]
    reply = gemini_bodies.whole(*parts, candidate={"groundingMetadata": metadata})
    return [list(part.annotations) for part in reply.message.parts if isinstance(part, Text)]


def test_gemini_counts_in_bytes() -> None:
    text = "Grüße an \N{SNOWMAN} und \N{GRINNING FACE}!"
    for start, word in (
        (0, "Grüße"),
        (text.index("\N{SNOWMAN}"), "\N{SNOWMAN} und"),
        (len(text) - 2, "\N{GRINNING FACE}!"),
    ):
        first = len(text[:start].encode())
        ((citation,),) = grounded(supported(0, startIndex=first, endIndex=first + len(word.encode())), text)
        assert (text[citation.start : citation.end], citation.url) == (word, "u0")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (None, []),
        ({"groundingChunks": CHUNKS, "groundingSupports": []}, SOURCES),
        (supported(0, 1, 2, 3, 4, -1, -4, "0", True), SOURCES),
        (supported(0, endIndex=2), [Citation(url="u0", title="t0", start=0, end=2)]),
        (supported(1, startIndex=1, endIndex=10**9), [Citation(title="t1", start=1, end=3)]),
        ({"groundingChunks": 1, "groundingSupports": [1, {"segment": 1}, {"groundingChunkIndices": [0]}]}, []),
    ],
)
def test_grounding_of_any_shape(metadata: Any, named: list[Citation]) -> None:
    assert grounded(metadata, "abc") == [named]


def test_citations_stand_on_the_last_text_and_have_no_place_in_several() -> None:
    metadata = supported(0, endIndex=2)
    assert grounded(metadata, "a", "b") == [[], [Citation(url="u0", title="t0")]]
    assert grounded(metadata) == []
    thought = gemini_bodies.text("hm", thought=True)
    candidate = {"groundingMetadata": metadata}
    reply = gemini_bodies.whole(gemini_bodies.text("abc"), thought, candidate=candidate)
    placed = Citation(url="u0", title="t0", start=0, end=2)
    assert reply.message.parts == (Text("abc", annotations=(placed,)), Reasoning(text="hm"))


KEYS = st.sampled_from(["groundingChunks", "groundingSupports", "segment", "groundingChunkIndices", "web"])
KEYS |= st.sampled_from(["uri", "url", "endIndex"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=20,
)


@given(json_values, st.text(min_size=1, max_size=5))
def test_anything_may_come(value: Any, text: str) -> None:
    assert all(isinstance(citation, Citation) for citation in (*found(value), *grounded(value, text)[0]))


def test_chat_names_them_whole_and_in_a_stream() -> None:
    source = Text("hi you", annotations=(PAGE,))
    assert found([FLAT]) == (PAGE,)
    chunks = chat_bodies.stream({"content": "hi "}, {"content": "you"}, {"annotations": [FLAT]})
    assert chat_bodies.streamed(chunks)[0].message.parts == (source,)


def test_perplexity_names_what_it_found_for_the_whole_reply() -> None:
    found_there = {"search_results": [{"title": "t", "url": "u", "snippet": "so"}]}
    for results, citation in ((found_there, Citation(url="u", title="t", quote="so")), ({}, Citation(url="u"))):
        reply = chat_bodies.whole(chat_bodies.completion({"content": "hi [1]"}, citations=["u"], **results))
        assert reply.message.parts == (Text("hi [1]", annotations=(citation,)),)


def test_responses_names_them_and_has_them_back() -> None:
    entry = item("hi you")
    entry["content"][0]["annotations"] = [FLAT]
    message = whole_response(body(entry)).message
    assert [part for part in message.parts if isinstance(part, Text)] == [Text("hi you", annotations=(PAGE,))]
    opaque = message.parts[0]
    assert isinstance(opaque, Opaque)
    assert opaque.data["content"][0]["annotations"] == [FLAT]


def test_anthropic_names_them_for_each_block() -> None:
    quoted = {"type": "page_location", "document_title": "t", "cited_text": "so"}
    reply = whole(blocks({"type": "text", "text": "a", "citations": [quoted]}, {"type": "text", "text": "b"}))
    source = Text("a", annotations=(Citation(title="t", quote="so"),))
    assert [part for part in reply.message.parts if isinstance(part, Text)] == [source, Text("b")]


def test_gemini_names_them_in_a_stream() -> None:
    candidate = {"groundingMetadata": supported(0, startIndex=0, endIndex=2)}
    chunks = [gemini_bodies.chunk(gemini_bodies.text(word), candidate=candidate) for word in ("hi ", "you")]
    reply, _ = gemini_bodies.streamed(gemini_bodies.sse(*chunks, gemini_bodies.response()))
    source = Text("hi you", annotations=(Citation(url="u0", title="t0", start=0, end=2),))
    assert reply.message.parts == (source,)


def test_they_survive_json_and_are_not_shown() -> None:
    message = Message.of("assistant", Text("hi you", annotations=(PAGE,)))
    assert tuple(Dialog.from_json(Dialog([message]).to_json())) == (message,)
    assert "https" not in repr(message)


def segments(case: Case) -> set[str]:
    """The words of all places that a recorded reply of Gemini says."""
    response = case["response"]
    lines = response.get("sse", "").splitlines()
    documents = [response["json"]] if "json" in response else [json.loads(line[6:]) for line in lines if line]
    candidates = [candidate for document in documents for candidate in document.get("candidates", ())]
    supports = [entry for one in candidates for entry in one.get("groundingMetadata", {}).get("groundingSupports", ())]
    return {entry["segment"]["text"] for entry in supports}


# Its recorder made one byte, "-", of the three of a dash, and what is said behind it is two bytes off.
SHIFTED = "pai-google-google-vertex-tool-combination-omits-include-server-side-tool-invocations-1-239e14"


@needs_recorded
def test_recorded_places_are_those_that_were_meant() -> None:
    """Gemini says the words of each place too, OpenAI puts a link there."""
    places = {"gemini": 0, "openai_responses": 0}
    for case in cases(RECORDED):
        outcome = decoded(CODECS[case["api"]], case)[0] if case["api"] in places else None
        texts = [part for part in outcome.message.parts if isinstance(part, Text)] if isinstance(outcome, Reply) else []
        cited = [(text.text, citation) for text in texts for citation in text.annotations if citation.start is not None]
        for text, citation in cited if case["id"] != SHIFTED else ():
            said = text[citation.start : citation.end]
            is_meant = said in segments(case) if case["api"] == "gemini" else said[:2] + said[-2:] == "([))"
            assert is_meant, (case["id"], said)
            places[case["api"]] += 1
    assert min(places.values()) > 9, places
