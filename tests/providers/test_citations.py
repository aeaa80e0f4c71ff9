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
from fsm_agent.providers.citations import citations, cited, grounding

PAGE = Citation(url="https://x/y", title="Y", start=3, end=5)
FLAT = {"type": "url_citation", "url": "https://x/y", "title": "Y", "start_index": 3, "end_index": 5}


@pytest.mark.parametrize(
    ("entry", "citation"),
    [
        (FLAT, PAGE),
        ({"type": "url_citation", "url_citation": {key: FLAT[key] for key in FLAT if key != "type"}}, PAGE),
        ({"type": "file_citation", "file_id": "f1", "filename": "a.txt", "index": 7}, Citation(title="a.txt")),
        ({"url": "u", "title": "t", "cited_text": "so"}, Citation(url="u", title="t", quote="so")),
        ({"type": "char_location", "document_title": "t", "cited_text": "so"}, Citation(title="t", quote="so")),
        ({"type": "search_result_location", "source": "u", "cited_text": "so"}, Citation(url="u", quote="so")),
        ({"url": "u", "source": "web", "snippet": "so"}, Citation(url="u", quote="so")),
        ("https://x/y", Citation(url="https://x/y")),
    ],
)
def test_citation_is_read_in_each_spelling(entry: Any, citation: Citation) -> None:
    assert citations([entry]) == (citation,)


@pytest.mark.parametrize("entries", [None, [], {}, "u", [None, 1, "", {}, {"url": 1}, {"source": "web"}]])
def test_what_is_no_citation_is_passed_over(entries: Any) -> None:
    assert citations(entries) == ()


def test_citations_stand_on_the_last_text() -> None:
    thought = Reasoning(text="hm")
    one, two = Text("a"), Text("b")
    assert cited([thought, one, Text("")], (PAGE,)) == [thought, Text("a", annotations=(PAGE,)), Text("")]
    placeless = Citation(url="https://x/y", title="Y")
    assert cited([one, thought, two, thought], (PAGE,)) == [one, thought, Text("b", annotations=(placeless,)), thought]
    assert cited([thought], (PAGE,)) == [thought]
    assert cited([one], ()) == [one]


CHUNKS = [{"web": {"uri": "u0", "title": "t0"}}, {"retrievedContext": {"title": "t1"}}, {"web": {}}, None]
SOURCES = [Citation(url="u0", title="t0"), Citation(title="t1")]


def supported(*indices: Any, **segment: Any) -> dict[str, Any]:
    support = {"segment": segment, "groundingChunkIndices": list(indices)}
    return {"groundingChunks": CHUNKS, "groundingSupports": [support]}


def test_gemini_counts_in_bytes() -> None:
    text = "Grüße an \N{SNOWMAN} und \N{GRINNING FACE}!"
    for start, word in (
        (0, "Grüße"),
        (text.index("\N{SNOWMAN}"), "\N{SNOWMAN} und"),
        (len(text) - 2, "\N{GRINNING FACE}!"),
    ):
        first = len(text[:start].encode())
        (citation,) = grounding(supported(0, startIndex=first, endIndex=first + len(word.encode())), text)
        assert (text[citation.start : citation.end], citation.url) == (word, "u0")


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        (None, []),
        ({}, []),
        ({"groundingChunks": CHUNKS}, SOURCES),
        ({"groundingChunks": CHUNKS, "groundingSupports": []}, SOURCES),
        (supported(0, 1, 2, 3, 4, -1, -4, "0", True), SOURCES),
        (supported(0, endIndex=2), [Citation(url="u0", title="t0", start=0, end=2)]),
        (supported(1, startIndex=1, endIndex=10**9), [Citation(title="t1", start=1, end=3)]),
        ({"groundingChunks": 1, "groundingSupports": [1, {"segment": 1}, {"groundingChunkIndices": [0]}]}, []),
    ],
)
def test_grounding_of_any_shape(metadata: Any, found: list[Citation]) -> None:
    assert list(grounding(metadata, "abc")) == found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "groundingChunks",
                    "groundingSupports",
                    "segment",
                    "groundingChunkIndices",
                    "web",
                    "uri",
                    "url",
                    "endIndex",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(json_values, st.text(max_size=5))
def test_anything_may_come(value: Any, text: str) -> None:
    assert all(isinstance(citation, Citation) for citation in (*citations(value), *grounding(value, text)))


def test_chat_names_them_whole_and_in_a_stream() -> None:
    source = Text("hi you", annotations=(PAGE,))
    whole_body = chat_bodies.completion({"content": "hi you", "annotations": [FLAT]})
    assert chat_bodies.CODEC.decode(200, {}, whole_body).message.parts == (source,)
    decoder = chat_bodies.CODEC.decoder({})
    decoder.feed(chat_bodies.stream({"content": "hi "}, {"content": "you"}, {"annotations": [FLAT]}))
    assert decoder.finish().message.parts == (source,)


def test_perplexity_names_what_it_found_for_the_whole_reply() -> None:
    found = {"citations": ["u"], "search_results": [{"title": "t", "url": "u", "snippet": "so"}]}
    document = json.loads(chat_bodies.completion({"content": "hi [1]"}))
    (text,) = chat_bodies.CODEC.decode(200, {}, json.dumps({**document, **found}).encode()).message.parts
    assert text == Text("hi [1]", annotations=(Citation(url="u", title="t", quote="so"),))
    del found["search_results"]
    (text,) = chat_bodies.CODEC.decode(200, {}, json.dumps({**document, **found}).encode()).message.parts
    assert text == Text("hi [1]", annotations=(Citation(url="u"),))


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


def test_gemini_names_them_whole_and_in_a_stream() -> None:
    metadata = supported(0, startIndex=0, endIndex=2)
    source = Text("hi you", annotations=(Citation(url="u0", title="t0", start=0, end=2),))
    candidate = {"groundingMetadata": metadata}
    said = gemini_bodies.text("hi you")
    assert gemini_bodies.whole(said, candidate=candidate).message.parts == (source,)
    chunks = [gemini_bodies.chunk(gemini_bodies.text(word), candidate=candidate) for word in ("hi ", "you")]
    reply, _ = gemini_bodies.streamed(gemini_bodies.sse(*chunks, gemini_bodies.response()))
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
        found = [(text.text, citation) for text in texts for citation in text.annotations if citation.start is not None]
        for text, citation in found if case["id"] != SHIFTED else ():
            said = text[citation.start : citation.end]
            is_meant = said in segments(case) if case["api"] == "gemini" else said[:2] + said[-2:] == "([))"
            assert is_meant, (case["id"], said)
            places[case["api"]] += 1
    assert min(places.values()) > 9, places
