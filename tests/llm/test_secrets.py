"""Redaction: a secret in any form, and nothing else."""

from __future__ import annotations

import json

import pytest

from marl_gem.llm.secrets import MASK, hide_in_urls, is_secret_name, redact, redact_body, redact_message, url_secrets
from tests.secret_forms import forms, new_key, traces

KEYS = {
    "every kind of character": new_key(),
    "letters and digits": new_key("-"),
    "quoted": new_key("%2F%20+"),
    "backslashes": "\\\\\\\\" + new_key("-") + "\\\\\\",
    "not ASCII": "ключ-секрет-пароль-ü-0123456789abcdef",
}


@pytest.mark.parametrize("form", forms("x"))
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_redacted_in_every_form(kind: str, form: str) -> None:
    key = KEYS[kind]
    shown = redact(f"before {forms(key)[form]} after", [key])
    assert MASK in shown and traces(shown, key) == []
    assert shown.startswith("before ") and shown.endswith(" after")
    left = shown.removeprefix("before ").removesuffix(" after").replace(MASK, "")
    assert len(left) <= 12, "of base64 what belongs to the neighbours stays"


@pytest.mark.parametrize("kind", ["every kind of character", "letters and digits"])
def test_other_texts_stay_as_they_are(kind: str) -> None:
    key = KEYS[kind]
    other = new_key()
    texts = [*forms(other).values(), "sk-canary-", key[:20], "", "\\" * 500, "%25" * 200, "&amp;" * 200, "a b\n\t" * 50]
    assert [redact(text, [key]) for text in texts] == texts


def test_json_stays_json() -> None:
    key = KEYS["every kind of character"]
    data = {"a": [f"x {key} y", 1.5, None, {"deep": f'{{"inner": {json.dumps(key)}}}'}], key: "\ud800"}
    body = redact_body(json.dumps(data).encode(), [key])
    assert json.loads(body) == {"a": [f"x {MASK} y", 1.5, None, {"deep": f'{{"inner": "{MASK}"}}'}], MASK: "\ud800"}
    assert redact_body(b'{"a": 1}', [key]) == b'{"a": 1}'
    assert traces(redact_body(b"<html>\xff" + key.encode() + b"\xfe", [key]), key) == []


def test_a_hostile_text_takes_no_time() -> None:
    """The time grows with the length of the text, not with its square; seconds would show otherwise."""
    key = KEYS["backslashes"]
    for piece in ("\\", "\\\\u005c", "%25", "&amp;", "s", key[:20]):
        assert MASK not in redact(piece * 5_000, [key])


def test_short_secrets_stay_in_answers_and_go_from_messages_where_they_are_words() -> None:
    assert redact("the answer is EMPTY", ["EMPTY"]) == "the answer is EMPTY"
    assert redact_message("EMPTY is no key; EMPTYING, none", ["EMPTY"]) == f"{MASK} is no key; EMPTYING, none"
    assert redact_message("a key", ["a", ""]) == "a key"


SECRET_NAMES = """
    key api_key api-key token access_token auth authorization sig client_secret credential X-Amz-Credential password pwd
    code sessionid jwt
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name) and is_secret_name(name.upper())
    assert url_secrets(f"http://h/v1?a=b&{name}=x%20y#frag") == ["x y"]
    assert hide_in_urls(f"m@http://h/v1?a=b&{name}=x%20y&c=d") == f"m@http://h/v1?a=b&{name}={MASK}&c=d"


def test_other_names_and_parts_of_urls() -> None:
    assert not any(map(is_secret_name, ["api-version", "model", "user", "region", "stream"]))
    assert url_secrets("http://user:pass%40word@h/v1?api-version=7#access_token=t") == ["pass@word", "t"]
    assert url_secrets("http://token@h/v1") == ["token"] and url_secrets("http://h/v1") == url_secrets("") == []
    assert hide_in_urls("m@htp:/user:p@ss@h/v1, or http://k@h") == f"m@htp:/{MASK}@h/v1, or http://{MASK}@h"
    assert hide_in_urls("claude@20250101 a@b x=1?") == "claude@20250101 a@b x=1?"
