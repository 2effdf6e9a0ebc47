"""Secrets are found before anything is stored, hashed or logged: detect-secrets' detectors, and a hook of the host.

Detectors of known shapes only. Those of high entropy are left out: they take a SHA-256 or a UUID for a secret, and
digests are what evidence is made of.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from a3s_actors.memory.errors import InvalidInput

__all__ = ["MASK", "Redacted", "Redactor"]

MASK: Final = "[redacted]"

_DETECTORS: Final = (
    ("artifactory", "ArtifactoryDetector"),
    ("aws", "AWSKeyDetector"),
    ("azure_storage_key", "AzureStorageKeyDetector"),
    ("basic_auth", "BasicAuthDetector"),
    ("cloudant", "CloudantDetector"),
    ("discord", "DiscordBotTokenDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("gitlab_token", "GitLabTokenDetector"),
    ("ibm_cloud_iam", "IbmCloudIamDetector"),
    ("ibm_cos_hmac", "IbmCosHmacDetector"),
    ("jwt", "JwtTokenDetector"),
    ("mailchimp", "MailchimpDetector"),
    ("npm", "NpmDetector"),
    ("openai", "OpenAIDetector"),
    ("pypi_token", "PypiTokenDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("softlayer", "SoftlayerDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("telegram_token", "TelegramBotTokenDetector"),
    ("twilio", "TwilioKeyDetector"),
)
# What the library does not know, or knows by its first line only.
_MORE: Final = (
    (
        "private-key",
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [^\n]*|\Z)", re.DOTALL),
    ),
    ("api-key", re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}")),
    ("google-api-key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}")),
    ("bearer-token", re.compile(r"\bbearer\s+([A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)),
)
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+~=.")
# The library's patterns go over a line many times: a long line is searched in overlapping pieces.
_PIECE: Final = 2048
_OVERLAP: Final = 512
_BEFORE: Final = 64
_SHORT: Final = 8
_EDGE: Final = re.compile(r"(?<!\w)(?=\S)")
_WORDS_SIGN: Final = re.compile(r"\w")
_SIGN: Final = re.compile(r"[:=](?![:=])")


@attrs.frozen
class Redacted:
    """A text without its secrets.

    Attributes:
        text: with each secret replaced by MASK.
        kinds: which kinds of secrets were found, sorted; empty when there was none.
    """

    text: str = attrs.field(repr=False)
    kinds: tuple[str, ...] = ()


class Redactor:
    """Finds secrets in texts.

    Args:
        hook: the host's own finder: returns the secrets that it sees in a text. What it raises is raised: a text that
            could not be searched is not used.
    """

    def __init__(self, hook: Callable[[str], Iterable[str]] | None = None) -> None:
        if hook is not None and not callable(hook):
            raise InvalidInput("redactor.hook", "must be callable")
        self._hook = hook

    def redact(self, text: str) -> Redacted:
        """Return a text with its secrets masked.

        A secret is masked wherever it stands in the text, together with the word that it is part of.

        Raises:
            InvalidInput: the hook gave something else than texts.
        """
        found: dict[str, str] = {}
        for kind, secret in self._find(text):
            found.setdefault(secret, kind)
        if not found:
            return Redacted(text)
        # The longest first: a part of a secret must not break the whole.
        for secret in sorted((each for each in found if len(each) >= _SHORT), key=len, reverse=True):
            text = text.replace(secret, MASK)
        text = _without_short(text, frozenset(each for each in found if len(each) < _SHORT))
        return Redacted(text, tuple(sorted(set(found.values()))))

    def _find(self, text: str) -> Iterator[tuple[str, str]]:
        for kind, pattern in _MORE:
            for match in pattern.finditer(text):
                yield kind, match[match.lastindex or 0]
        for line in text.splitlines():
            if line.strip():
                yield from _in_line(line)
        for secret in self._hook(text) if self._hook is not None else ():
            if not isinstance(secret, str):
                raise InvalidInput("redactor.hook", "must return texts")
            if secret.strip():
                yield "host", secret


def _in_line(line: str) -> Iterator[tuple[str, str]]:
    ends: dict[str, int] = {}  # of what each kind has found so far: a word of 100,000 signs is widened once
    for start in range(0, max(1, len(line) - _OVERLAP), _PIECE - _OVERLAP):
        piece = line[start : start + _PIECE]
        for kind, find in _detectors():
            for secret in find(piece):
                place = line.find(secret, start)
                if not secret or (place >= 0 and place + len(secret) <= ends.get(kind, 0)):
                    continue
                if place < 0 or not set(secret) <= _WORD:
                    yield kind, secret
                    continue
                begin, ends[kind] = _word(line, place, place + len(secret))
                yield kind, line[begin : ends[kind]].rstrip(".")


def _word(line: str, begin: int, end: int) -> tuple[int, int]:
    """Return where the word that holds a secret stands: a detector may match only the part that it knows."""
    while begin > 0 and line[begin - 1] in _WORD:
        begin -= 1
    while end < len(line) and line[end] in _WORD:
        end += 1
    return begin, end


def _without_short(text: str, secrets: frozenset[str]) -> str:
    """Mask secrets that may be part of any word, where they stand alone."""
    if not secrets:
        return text
    lengths = sorted({len(each) for each in secrets}, reverse=True)
    parts: list[str] = []
    done = 0
    for start in _EDGE.finditer(text):
        place = start.start()
        for length in lengths if place >= done else ():
            if text[place : place + length] in secrets and not _WORDS_SIGN.match(text, place + length):
                parts += (text[done:place], MASK)
                done = place + length
                break
    return "".join((*parts, text[done:]))


@functools.cache
def _detectors() -> tuple[tuple[str, Callable[[str], Iterable[str]]], ...]:
    # Imported with the first text: it takes 0.1 s.
    from importlib import import_module

    from detect_secrets.plugins import keyword

    found: list[tuple[str, Callable[[str], Iterable[str]]]] = []
    for module, name in _DETECTORS:
        plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        found.append((module.replace("_", "-"), plugin.analyze_string))
    assigned = keyword.KeywordDetector()
    patterns = keyword.CONFIG_DENYLIST_REGEX_TO_GROUP  # "password = …", also without quotes
    names = re.compile("|".join(keyword.DENYLIST), re.IGNORECASE)

    def assignments(line: str) -> Iterator[str]:
        # The detector gives the first of a line only, and its patterns are slow on long ones: each sign of an
        # assignment is looked at by itself.
        named = [match.end() for match in names.finditer(line)]
        done = 0
        for sign in _SIGN.finditer(line) if named else ():
            begin = max(0, sign.start() - _BEFORE)
            near = bisect.bisect_right(named, sign.start()) - 1
            if sign.start() < done or near < 0 or named[near] < begin:
                continue
            near_by = line[begin : sign.end() + _OVERLAP]
            for secret in assigned.analyze_string(near_by, denylist_regex_to_group=patterns):
                yield secret
                done = max(done, line.find(secret, begin) + len(secret))

    found.append(("keyword", assignments))
    return tuple(found)
