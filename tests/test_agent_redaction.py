"""Redaction: keys of many kinds are masked whole; digests, ids and prose are left alone; hostile texts cost no more."""

from __future__ import annotations

import hashlib
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3s_actors.agent import MASK, Redactor
from a3s_actors.memory import InvalidInput

# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "gitlab": "glpat-" + "aB3dE5fG7hI9jK1lM3nO",
    "slack": "xoxb-" + "123456789012-123456789012-aB3dE5fG7hI9jK1lM3nO5pQ7",
    "stripe": "sk_live_" + "aB3dE5fG7hI9jK1lM3nO5pQ7",
    "openai": "sk-proj-" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "anthropic": "sk-ant-api03-" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "npm": "//registry.npmjs.org/:_authToken=" + "npm_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "basic auth": "https://alice:" + "hunter2secret" + "@example.com/repo.git",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA" + "\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_and_masked_wherever_it_stands(kind: str) -> None:
    secret = SECRETS[kind]
    found = Redactor().redact(f"Please use {secret} today.\nAgain: {secret}\n")
    assert found.kinds
    assert MASK in found.text
    tail = secret.split("=")[-1].split(":")[-1].split("@")[0] if kind in {"npm", "basic auth"} else secret
    assert tail not in found.text
    assert found.text.startswith("Please use")


@pytest.mark.parametrize(
    "text",
    [
        f"sha256:{hashlib.sha256(b'x').hexdigest()}",
        hashlib.sha1(b"x").hexdigest(),
        str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
        "https://example.com/wiki/Deploying_on_Tuesdays?from=2026-01-02&to=2026-02-03#top",
        "我们在星期二部署包裹服务。",
        "荷物サービスは火曜日にデプロイします。",
        "The token bucket refills ten times a second.",
        "if a == b: return c",
        "a3s-code-candidate-" + hashlib.sha256(b"y").hexdigest(),
        "",
    ],
)
def test_digests_ids_and_prose_are_no_secrets(text: str) -> None:
    assert Redactor().redact(text) == Redactor().redact(text)
    assert Redactor().redact(text).kinds == ()
    assert Redactor().redact(text).text == text


@pytest.mark.parametrize("place", [0, 1500, 2040, 2048, 4090, 100_000])
def test_a_secret_on_a_long_line_is_found_wherever_it_begins(place: int) -> None:
    secret = SECRETS["github"]
    text = "x " * (place // 2) + secret + " y" * 3000
    assert secret not in Redactor().redact(text).text


def test_the_hosts_hook_adds_secrets_of_its_own() -> None:
    found = Redactor(lambda text: ["Project Nightjar"] if "Nightjar" in text else []).redact("About Project Nightjar.")
    assert found.text == f"About {MASK}."
    assert found.kinds == ("host",)


def test_a_hook_that_gives_no_texts_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"redactor\.hook"):
        Redactor(lambda _: [b"bytes"]).redact("x")  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"redactor\.hook"):
        Redactor("no hook")  # type: ignore[arg-type]


def test_what_a_hook_raises_is_raised() -> None:
    def hook(text: str) -> list[str]:
        raise OSError("the key service is down")

    with pytest.raises(OSError, match="key service"):
        Redactor(hook).redact("x")


@given(st.text(max_size=300))
def test_any_text_can_be_redacted_and_a_redacted_one_is_left_alone(text: str) -> None:
    once = Redactor().redact(text)
    assert Redactor().redact(once.text).text == once.text or once.kinds


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a", "=", "password=", "A1b2", "-----BEGIN ", "eyJ.", "\n", ": ", "漢"])
def test_the_cost_grows_with_the_length_and_not_with_its_square(unit: str) -> None:
    def cost(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]
        start = time.process_time()
        Redactor().redact(text)
        return time.process_time() - start

    cost(1000)
    small = max(min(cost(16_000) for _ in range(2)), 0.002)
    # Eight times as long: 64 times the cost would be a square. In between lies plenty of room for noise.
    assert min(cost(128_000) for _ in range(2)) < 32 * small
