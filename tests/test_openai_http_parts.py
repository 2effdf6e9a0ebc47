"""The parts of the HTTP model client that do no I/O: events, waits, addresses, keys, policies, bodies, assembly."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import sys
from email.utils import formatdate
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.agent.errors import ModelProtocolError
from a3s_actors.agent.model import FinishReason, ModelMessage, ModelRequest, ModelUsage, Role, ToolCall, ToolDefinition
from a3s_actors.memory.errors import InvalidInput, LimitExceeded
from a3s_backends.openai_http import OpenAiHttpPolicy, api_key_from_environment, open_openai_http
from a3s_backends.openai_http.address import Address
from a3s_backends.openai_http.assembly import Assembly
from a3s_backends.openai_http.decoding import decode_answer, told_code
from a3s_backends.openai_http.encoding import encode_request
from a3s_backends.openai_http.failures import Failure
from a3s_backends.openai_http.key import ApiKey
from a3s_backends.openai_http.retrying import retry_after_seconds, wait_before_retry
from a3s_backends.openai_http.sse import SseParser

KEY = "sk-canary-KEY-31337"


# Server-sent events


def parsed(*pieces: bytes) -> list[bytes]:
    parser = SseParser()
    return [*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_with_line_feed_carriage_return_or_both(end: bytes) -> None:
    assert parsed(end.join([b"data: a", b"", b"data: b", b"data: c", b"", b""])) == [b"a", b"b\nc"]


def test_comments_other_fields_and_empty_events_are_skipped() -> None:
    text = b": ping\n\nevent: x\nid: 7\nretry: 9\ndata:a\n\ndata\n\ndata:\n\nnothing\n\n\n\ndata:  b\n\n"
    assert parsed(text) == [b"a", b" b"]


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    assert parsed(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_the_last_event_counts_without_an_empty_line_after_it() -> None:
    assert parsed(b"data: a\n\ndata: b\n") == parsed(b"data: a\n\ndata: b") == [b"a", b"b"]


LINES = st.lists(
    st.sampled_from([b"data: a", b"data:", b"data: \xc3\xa9\xf0\x9f\x98\x80", b": c", b"", b"", b"x: y", b"data: {}"])
)


@given(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    LINES,
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=1),
    st.lists(st.integers(0, 200)),
)
def test_the_same_bytes_give_the_same_events_however_they_are_cut(
    mark: bytes, lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    text = mark + b"".join(line + ends[place % len(ends)] for place, line in enumerate(lines))
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert parsed(*pieces) == parsed(text) == parsed(*(bytes([byte]) for byte in text))


@given(st.lists(st.binary(max_size=20)))
def test_no_bytes_break_the_parser_and_how_they_are_cut_does_not_matter(pieces: list[bytes]) -> None:
    assert parsed(*pieces) == parsed(b"".join(pieces))


# Waits


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        ("99999999999999999999", 1e20),
        ("9" * 50, None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("١٢", None),
        ("soon", None),
        (formatdate(1_000_060, usegmt=True), 60.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("Mon, 99 Foo 2026 00:00:00 GMT", None),
        ("Mon, 12 Jan 1970 13:47:40", 60.0),
        ("Mon, 12 Jan 1970 13:47:40 GMT" + " " * 9 + "x" * 99, None),
    ],
)
def test_retry_after_is_a_number_or_a_date_or_nothing(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, 1_000_000.0) == seconds


def test_waits_double_up_to_a_bound_and_chance_takes_at_most_half() -> None:
    policy = OpenAiHttpPolicy(max_attempts=10, backoff_initial=1, backoff_max=5)
    failure = Failure(reason="connect", retried=True)
    assert [wait_before_retry(policy, failure, n, 1.0) for n in (1, 2, 3, 4, 9)] == [1, 2, 4, 5, 5]
    assert [wait_before_retry(policy, failure, n, 0.0) for n in (1, 2, 3)] == [0.5, 1, 2]
    assert wait_before_retry(policy, failure, 1, 77.0) == 1
    assert wait_before_retry(policy, failure, 10, 1.0) is None
    assert wait_before_retry(policy, Failure(reason="tls"), 1, 1.0) is None


def test_a_server_is_waited_for_as_long_as_it_asks_within_the_policy() -> None:
    policy = OpenAiHttpPolicy(max_retry_after=20)
    assert wait_before_retry(policy, Failure(reason="x", retried=True, retry_after=20.0), 1, 1.0) == 20
    assert wait_before_retry(policy, Failure(reason="x", retried=True, retry_after=0.1), 1, 1.0) == 0.5
    assert wait_before_retry(policy, Failure(reason="x", retried=True, retry_after=20.1), 1, 1.0) is None


# Addresses, keys, policies


@pytest.mark.parametrize(
    ("base", "url", "encrypted", "local"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions", True, False),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions", True, False),
        ("http://localhost:11434/v1", "http://localhost:11434/v1/chat/completions", False, True),
        ("HTTP://LOCALHOST", "HTTP://LOCALHOST/chat/completions", False, True),
        ("http://127.9.9.9", "http://127.9.9.9/chat/completions", False, True),
        ("http://[::1]:80/v1", "http://[::1]:80/v1/chat/completions", False, True),
        ("http://192.168.0.2/v1", "http://192.168.0.2/v1/chat/completions", False, False),
        ("http://localhost.example.com", "http://localhost.example.com/chat/completions", False, False),
    ],
)
def test_a_base_url_becomes_an_address(base: str, url: str, encrypted: bool, local: bool) -> None:
    address = Address.parse(base)
    assert (address.url, address.encrypted, address.local) == (url, encrypted, local)


BAD_URLS = [
    "",
    "api.openai.com/v1",
    "ftp://host/v1",
    "file:///etc/passwd",
    "https://",
    "https:///v1",
    "https://user:canary@host/v1",
    "https://canary@host/v1",
    "https://:@host/v1",
    "https://host/v1?key=canary",
    "https://host/v1?",
    "https://host/v1#canary",
    "https://host/v1#",
    "https://host:99999/v1",
    "https://host:0/v1",
    "https://host:x/v1",
    "https://[::1/v1",
    "https://ho st/v1",
    "https://host/v1\n",
    "https://ho\tst/v1",
    "http://localhost\\@evil.example/v1",
    "https://hôst/v1",
    "https://host/\x00",
    b"https://host",
    None,
]


@pytest.mark.parametrize("base", BAD_URLS)
async def test_a_base_url_that_is_more_or_less_than_an_address_is_refused_and_not_repeated(base: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        async with open_openai_http(base, "m"):
            pass
    assert caught.value.field == "baseUrl"
    assert "canary" not in str(caught.value)


async def test_a_key_goes_over_plain_http_to_another_machine_only_when_the_policy_says_so() -> None:
    with pytest.raises(InvalidInput, match="unencrypted"):
        async with open_openai_http("http://192.0.2.1/v1", "m", api_key=KEY):
            pass
    with pytest.raises(InvalidInput, match="unencrypted"):
        async with open_openai_http("http://192.0.2.1/v1", "m", api_key=lambda: KEY):
            pass
    async with (
        open_openai_http("http://192.0.2.1/v1", "m", api_key=KEY, policy=OpenAiHttpPolicy(allow_plain_http=True)),
        open_openai_http("http://192.0.2.1/v1", "m"),
        open_openai_http("https://192.0.2.1/v1", "m", api_key=KEY),
    ):
        pass


@pytest.mark.parametrize("key", ["", " ", "a b", "canary\n", "canary\r\nx-evil: 1", "schlüssel", "a" * 9000, 5, b"k"])
async def test_a_key_that_fits_into_no_header_is_refused_and_not_repeated(key: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        async with open_openai_http("https://host", "m", api_key=key):
            pass
    assert caught.value.field == "apiKey"
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("model", ["", " ", "\ud800", "m" * 300, 7])
async def test_a_model_without_a_name_is_refused(model: Any) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        async with open_openai_http("https://host", model):
            pass


def test_a_key_is_in_no_repr_no_pickle_and_no_copy() -> None:
    key = ApiKey(KEY)
    assert KEY not in repr(key)
    assert key.authorization() == f"Bearer {KEY}"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            leak(key)


async def test_a_client_shows_no_key_and_cannot_be_pickled() -> None:
    async with open_openai_http("https://host/secret-path", "gpt", api_key=KEY) as client:
        assert repr(client) == "<OpenAiHttpModelClient 'gpt' at 'host'>"
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(client)
    assert "closed" in repr(client)


def test_a_key_from_the_environment_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    read = api_key_from_environment("SOME_KEY")
    with pytest.raises(InvalidInput, match="SOME_KEY is not set"):
        read()
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    assert read() == KEY


@pytest.mark.parametrize("field", ["connect", "read", "total", "backoff_initial", "backoff_max", "max_retry_after"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**9, True, "5", None])
def test_a_policys_times_are_bounded_seconds(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match="seconds"):
        OpenAiHttpPolicy(**{field: value})


@pytest.mark.parametrize(
    "given",
    [
        {"connect": 0},
        {"read": 0},
        {"total": 0},
        {"max_attempts": 0},
        {"max_attempts": 11},
        {"max_attempts": 2.0},
        {"max_response_bytes": 1023},
        {"max_response_bytes": 1 << 31},
        {"max_concurrent_requests": 0},
        {"max_concurrent_requests": 1001},
        {"backoff_initial": 9, "backoff_max": 8},
        {"allow_plain_http": 1},
        {"max_tokens_field": "tokens"},
        {"max_tokens_field": []},
    ],
)
def test_a_policy_out_of_its_bounds_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        OpenAiHttpPolicy(**given)


# Bodies


def encoded(request: ModelRequest, **more: Any) -> Any:
    given: dict[str, Any] = {"model": "m", "max_tokens_field": "max_tokens", **more}
    return json.loads(encode_request(request, **given))


def test_a_request_says_no_more_than_it_has_to() -> None:
    request = ModelRequest(messages=[ModelMessage(role=Role.USER, content="hi")])
    assert encoded(request) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_a_request_carries_everything_that_was_asked() -> None:
    call = ToolCall(id="c1", name="look", arguments='{"q": 1}')
    request = ModelRequest(
        messages=[
            ModelMessage(role=Role.SYSTEM, content="be ☃"),
            ModelMessage(role=Role.ASSISTANT, tool_calls=[call]),
            ModelMessage(role=Role.ASSISTANT, content="well", tool_calls=[call]),
            ModelMessage(role=Role.TOOL, content="", tool_call_id="c1"),
        ],
        tools=[ToolDefinition(name="look", description="looks", parameters=MappingProxyType({"type": "object"}))],
        json_object=True,
        temperature=0.0,
        max_output_tokens=7,
    )
    calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}]
    function = {"name": "look", "description": "looks", "parameters": {"type": "object"}}
    assert encoded(request, max_tokens_field="max_completion_tokens", stream=True, stream_usage=True) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be ☃"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "assistant", "content": "well", "tool_calls": calls},
            {"role": "tool", "content": "", "tool_call_id": "c1"},
        ],
        "tools": [{"type": "function", "function": function}],
        "temperature": 0.0,
        "max_completion_tokens": 7,
        "response_format": {"type": "json_object"},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def nested() -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"d": deep}
    return deep


@pytest.mark.parametrize("parameters", [{"canary": object()}, {"x": "canary\ud800"}, {1j: 2}, nested(), {"x": {1, ""}}])
def test_parameters_of_a_tool_that_are_no_json_are_refused_without_a_trace_of_the_request(parameters: Any) -> None:
    tool = ToolDefinition(name="t", description="", parameters=parameters)
    request = ModelRequest(messages=[ModelMessage(role=Role.USER, content="prompt")], tools=[tool])
    if parameters == {"x": {1, ""}}:
        assert encoded(request)["tools"][0]["function"]["parameters"]["x"]  # a set is written as a list
        return
    with pytest.raises(InvalidInput) as caught:
        encoded(request)
    assert caught.value.field == "request.tools"
    assert caught.value.__context__ is None


# Answers


def reply(value: object) -> Any:
    assembly = Assembly(iter(["made-1", "made-2"]).__next__)
    assembly.add_whole(decode_answer(value if isinstance(value, bytes) else json.dumps(value).encode()))
    return assembly.reply()


def choice(**more: object) -> dict[str, object]:
    return {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop", **more}]}


def calling(*calls: object) -> dict[str, object]:
    return choice(message={"content": None, "tool_calls": calls})


GOOD_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("function_call", FinishReason.OTHER),
        ("other", FinishReason.OTHER),
        ("", FinishReason.OTHER),
        ("canary" * 1000, FinishReason.OTHER),
        (None, FinishReason.OTHER),
    ],
)
def test_an_unknown_finish_reason_is_other(said: str | None, reason: FinishReason) -> None:
    assert reply(choice(finish_reason=said)).finish_reason is reason


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (b'{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}', (3, 4)),
        (b'{"prompt_tokens":3}', (3, 0)),
        (b'{"prompt_tokens":-3,"completion_tokens":"4"}', (0, 0)),
        (b'{"prompt_tokens":true,"completion_tokens":1.5}', (0, 0)),
        (b'{"prompt_tokens":null,"completion_tokens":[]}', (0, 0)),
        (b'{"prompt_tokens":' + b"9" * 30 + b',"completion_tokens":5}', (0, 5)),
        (b'{"prompt_tokens":' + b"9" * 5000 + b',"completion_tokens":5}', (0, 0)),
        (b'{"prompt_tokens":1e400,"completion_tokens":5}', (0, 0)),
        (b"null", (0, 0)),
        (b"[]", (0, 0)),
        (b'"much"', (0, 0)),
        (b"{}", (0, 0)),
    ],
)
def test_a_usage_that_is_no_count_of_tokens_counts_as_nothing(usage: bytes, counted: tuple[int, int]) -> None:
    text = b'{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":' + usage + b"}"
    assert reply(text).usage == ModelUsage(input_tokens=counted[0], output_tokens=counted[1])
    assert reply(text).content == "ok"


@pytest.mark.parametrize(
    ("model", "kept"), [("gpt", "gpt"), ("", None), (5, None), (None, None), ("x" * 257, None), ({}, None)]
)
def test_the_servers_name_of_the_model_is_kept_when_it_is_one(model: object, kept: str | None) -> None:
    assert reply({**choice(), "model": model}).model == kept


def test_a_duplicate_key_counts_as_its_last_value() -> None:
    assert reply(b'{"choices":[],"choices":[{"message":{"content":"a","content":"b"}}]}').content == "b"


def test_a_refusal_is_text_behind_a_content_filter() -> None:
    got = reply(choice(message={"content": None, "refusal": "no"}))
    assert (got.content, got.finish_reason) == ("no", FinishReason.CONTENT_FILTER)


def test_tool_calls_come_without_content_and_one_without_an_id_gets_one() -> None:
    bare = {"function": {"name": "g"}}
    got = reply(calling(GOOD_CALL, {**bare, "id": ""}, bare))
    assert got.content == ""
    assert [(call.id, call.name, call.arguments) for call in got.tool_calls] == [
        ("a", "f", "{}"),
        ("made-1", "g", ""),
        ("made-2", "g", ""),
    ]


BAD_CALLS: list[list[object]] = [
    [5],
    [{"id": "a"}],
    [{**GOOD_CALL, "id": 5}],
    [{**GOOD_CALL, "id": " "}],
    [{**GOOD_CALL, "function": "canary"}],
    [{**GOOD_CALL, "function": {"name": "", "arguments": "{}"}}],
    [{**GOOD_CALL, "function": {"name": "f", "arguments": {"canary": 1}}}],
    [{**GOOD_CALL, "function": {"name": "f", "arguments": 5}}],
    [GOOD_CALL, GOOD_CALL],
    [{**GOOD_CALL, "id": f"c{n}"} for n in range(129)],
]
MALFORMED = [
    b"",
    b"canary",
    b"<html>canary",
    b'{"choices":[',
    b"[]",
    b"null",
    b"{}",
    b'"canary"',
    b'{"choices":null}',
    b'{"choices":[]}',
    b'{"choices":{}}',
    b'{"choices":"canary"}',
    b'{"choices":[null]}',
    b'{"choices":[{}]}',
    b'{"choices":[{"message":null}]}',
    b'{"choices":[{"message":"canary"}]}',
    b'{"choices":[{"message":{"content":5}}]}',
    b'{"choices":[{"message":{"content":["canary"]}}]}',
    b'{"choices":[{"message":{"content":NaN}}]}',
    b'{"choices":[{"message":{"content":"a"},"finish_reason":7}]}',
    b'{"choices":[{"message":{"content":"a"}}],"usage":NaN}',
    b'{"choices":[{"message":{"content":"a"}}]} canary',
    b'{"choices":[{"message":{"content":"canary\xff"}}]}',
    b'{"choices":[{"message":{"content":"canary\xed\xa0\x80"}}]}',
    b'{"choices":[{"message":{"content":"canary\\ud800"}}]}',
    b'{"choices":[{"message":{"content":"canary\\udc00x"}}]}',
    b'{"choices":[{"message":{"content":"canary\\ud800\\u0041"}}]}',
    b'{"choices":[{"message":{"content":"a\ncanary"}}]}',
    b'{"choices":' + b"[" * 100_000,
    b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"choices":[{"message":{"content":"a"}}]}',
    b'{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}]}',
    b'{"choices":[{"index":1,"message":{"content":"a"}}]}',
    *(json.dumps(calling(*calls)).encode() for calls in BAD_CALLS),
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:60]))
def test_a_malformed_answer_is_refused_without_its_text(text: bytes) -> None:
    with pytest.raises(ModelProtocolError) as caught:
        reply(text)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_error_names_the_field_of_another_type() -> None:
    with pytest.raises(ModelProtocolError) as caught:
        reply(choice(message={"content": 5}))
    assert caught.value.field == "choices[0].message.content"


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(text: bytes) -> None:
    with pytest.raises(ModelProtocolError):
        reply(text)
    assert told_code(text) is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error":{"code":"context_length_exceeded","message":"canary"}}', "context_length_exceeded"),
        (b'{"error":{"code":"canary"}}', None),
        (b'{"error":{"code":5}}', None),
        (b'{"error":{"code":["context_length_exceeded"]}}', None),
        (b'{"error":"context_length_exceeded"}', None),
        (b"<html>", None),
        (b'{"error":' + b"[" * 100_000, None),
    ],
)
def test_only_known_codes_are_taken_from_a_servers_error(body: bytes, code: str | None) -> None:
    assert told_code(body) == code


# Installing and importing


async def test_without_httpx_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "a3s_backends.openai_http.connections", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs httpx.*pip install 'a3s-actors\[openai\]'"):
        async with open_openai_http("https://host", "m"):
            pass
