"""Anthropic's client against the running gateway."""

import anthropic
import pytest
from harness import MESSAGES, TEXT


def create(client, model="sim-chat", **options):
    return client.messages.create(model=model, messages=MESSAGES, max_tokens=10, **options)


def test_a_message(gateway):
    with gateway.anthropic() as client:
        raw = client.messages.with_raw_response.create(model="sim-chat", messages=MESSAGES, max_tokens=10)
    answer = raw.parse()
    assert (answer.content[0].text, answer.stop_reason) == (TEXT, "max_tokens")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 10)
    assert gateway.story(answer._request_id) == ["admitted", "settled"]
    assert raw.headers["anthropic-ratelimit-requests-limit"] == "100000"
    assert int(raw.headers["anthropic-ratelimit-tokens-remaining"]) < 1000000
    assert "tenant:acme/tpm" in raw.headers["ratelimit"]


def test_a_stream(gateway):
    with gateway.anthropic() as client:
        with client.messages.stream(model="sim-chat", messages=MESSAGES, max_tokens=10) as stream:
            said = "".join(stream.text_stream)
            final = stream.get_final_message()
            request_id = stream.response.headers["request-id"]
    assert said == final.content[0].text == TEXT
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("max_tokens", 7, 10)
    assert gateway.ended(request_id)[-1]["event"] == "settled"


def test_events_pass_as_they_are(gateway):
    with gateway.anthropic() as client:
        events = [event.type for event in create(client, stream=True)]
    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events.count("content_block_delta") == 10


def test_a_rate_limit_is_waited_out(gateway, slept):
    with gateway.anthropic("slow", max_retries=1) as client:
        create(client)
        with pytest.raises(anthropic.RateLimitError) as caught:
            create(client)
    error = caught.value.body["error"]
    assert (error["type"], error["reason"]) == ("rate_limit_error", "request_rate_exceeded")
    assert len(slept) == 1 and 50 < slept[0] <= 60, slept
    assert caught.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


def test_a_budget_is_not_retried(gateway, slept):
    with gateway.anthropic("poor", max_retries=2) as client:
        create(client)
        with pytest.raises(anthropic.APIStatusError) as caught:
            create(client)
    assert (caught.value.status_code, caught.value.body["error"]["reason"]) == (402, "budget_exceeded")
    assert slept == []


def test_errors_have_the_classes_that_people_catch(gateway, slept):
    for key, model, options, error_class, code in [
        ("nobody", "sim-chat", {}, anthropic.AuthenticationError, "key_unknown"),
        ("slow", "sim-slow", {}, anthropic.PermissionDeniedError, "model_not_allowed"),
        ("acme", "sim-chat", {"extra_body": {"max_tokens": -1}}, anthropic.BadRequestError, "request_invalid"),
        ("acme", "sim-error-before", {}, anthropic.InternalServerError, "upstream_failed"),
        ("acme", "sim-429", {}, anthropic.RateLimitError, "upstream_busy"),
    ]:
        with gateway.anthropic(key) as client, pytest.raises(error_class) as caught:
            create(client, model, **options)
        assert caught.value.body["type"] == "error"
        assert caught.value.body["error"]["details"]["error_code"] == code
        assert caught.value.request_id
        assert f"test-{key}" not in str(caught.value)
    with gateway.anthropic() as client, pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.count_tokens(model="sim-chat", messages=MESSAGES)
    assert caught.value.body["error"]["type"] == "not_found_error"
    assert slept == []


@pytest.mark.parametrize("model, code", [
    ("sim-error-mid-stream", "upstream_broken"),
    ("sim-overlong", "output_limit_passed"),
])
def test_a_stream_that_ends_badly_raises(gateway, model, code):
    with gateway.anthropic() as client:
        stream = create(client, model, stream=True)
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(stream)
    assert caught.value.body["error"]["details"]["error_code"] == code
    assert gateway.ended(stream.response.headers["request-id"])[-1]["event"] == "unresolved"


def test_leaving_a_stream_frees_its_slot_and_settles(gateway):
    with gateway.anthropic("queue") as client:
        stream = create(client, "sim-slow", stream=True)
        next(iter(stream))
        stream.close()
        # The tenant's only slot: this waits in the queue until the stream that was left has ended.
        create(client)
    assert gateway.story(stream.response.headers["request-id"]) == ["admitted", "settled"]


def test_what_is_frozen_is_told(gateway):
    assert gateway.post("/admin/freeze", {"tenant": "acme", "reason": "an incident"}).status_code == 200
    with gateway.anthropic() as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            create(client)
        assert "an incident" in caught.value.body["error"]["message"]
        gateway.post("/admin/thaw", {"tenant": "acme"})
        create(client)
