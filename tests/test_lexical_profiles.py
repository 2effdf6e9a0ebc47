"""Tokens of the two lexical profiles, lower case, and blank texts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a3s_actors.memory.lexical import (
    LEGACY_LEXICAL_PROFILE,
    LEXICAL_PROFILE,
    _ranges,
    _unicode17,
    fingerprint,
    has_alphanumeric,
    is_blank,
    legacy_tokens,
    lowercase,
    tokenizer,
    tokens,
)

SHARED = Path(os.environ.get("A3S_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))
TOKENS = SHARED / "golden" / "tables" / "tokens.jsonl"

ALPHANUMERIC = _ranges.code_points(_ranges.parse(_unicode17.ALPHANUMERIC))
CASED = _ranges.code_points(_ranges.parse(_unicode17.CASED))
IGNORABLE = _ranges.code_points(_ranges.parse(_unicode17.CASE_IGNORABLE))
LOWER = _ranges.lowercase_map(_unicode17.LOWERCASE)
CJK = _ranges.code_points(_ranges.parse(tokenizer._CJK))

patient = settings(deadline=None)  # the first example compiles the tables

# Characters where profiles, planes and cases meet, more often than chance would bring them together.
TEXTS = st.text(
    st.one_of(
        st.sampled_from("aZ9 _.'Σσς\u0130\u0345\u0307\u00adéÉß中文字、・゙゛ー\u2ff0ｶﾟ각\u1161\u3000\u212a"),
        st.sampled_from("\U00010400\U00010428\U0001d7ce\U0001f130\U0001f600\U00020000\U00030000\U000323af\U000e0100"),
        st.characters(),
        st.integers(0xD800, 0xDFFF).map(chr),
    ),
    max_size=40,
)
ASCII_TEXTS = st.text(st.characters(max_codepoint=127))


def profile_by_the_letter(text: str, *, cjk: frozenset[int]) -> set[str]:
    """The specification's sentence, character by character."""
    found: set[str] = set()
    word = run = ""
    for char in [*lowercase(text), " "]:
        if ord(char) in cjk:
            run += char
        elif run:
            found |= {run} | {run[at : at + 2] for at in range(len(run) - 1)}
            run = ""
        if ord(char) in ALPHANUMERIC and ord(char) not in cjk:
            word += char
        elif word:
            found.add(word)
            word = ""
    return found


def final_sigma_by_the_letter(text: str) -> str:
    """Condition Final_Sigma as the standard words it."""
    lowered = ""
    for at, char in enumerate(text):
        before = [ord(other) for other in text[:at] if ord(other) not in IGNORABLE]
        after = [ord(other) for other in text[at + 1 :] if ord(other) not in IGNORABLE]
        final = bool(before) and before[-1] in CASED and not (after and after[0] in CASED)
        lowered += "ς" if char == "Σ" and final else LOWER.get(ord(char), char)
    return lowered


def golden_lines() -> list[dict[str, object]]:
    if not TOKENS.exists():
        pytest.skip("the golden token table is not beside this checkout")
    return [json.loads(line) for line in TOKENS.read_text("utf-8").splitlines()]


def test_the_profiles_keep_their_stable_names() -> None:
    assert LEXICAL_PROFILE == "a3s.memory.lexical.word-cjk-bigram.v1"
    assert LEGACY_LEXICAL_PROFILE == "a3s.memory.lexical.word.v1"


def test_every_golden_line_gives_its_tokens_and_lower_case() -> None:
    lines = golden_lines()
    assert len(lines) == 50
    for line in lines:
        text = str(line["text"])
        assert lowercase(text) == line["lower"], line
        assert sorted(tokens(text)) == line["tokens"], line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Don't panic_now 3.14", "don t panic now 3 14"),
        ("中", "中"),
        ("中文", "中文"),
        ("中文字", "中文字 中文 文字"),
        ("中中中", "中中中 中中"),
        ("mixed中英mixed文abc", "mixed 中英 文 abc"),
        ("カ・タ、ナ", "カ・タ カ・ ・タ ナ"),  # U+30FB is on the list of CJK code points, U+3001 is not
        ("か\u3099き", "か\u3099き か\u3099 \u3099き"),
        ("\u2ff0", "\u2ff0"),
        ("々〆〇〥", "々〆〇 々〆 〆〇 〥"),
        ("\U00020000\U00020001中", "\U00020000\U00020001中 \U00020000\U00020001 \U00020001中"),
        ("中\U000323af\U000323b0", "中\U000323af \U000323b0"),  # the list ends before extension J: letters, a word
        ("\U0001f600go\U0001f600中", "go 中"),
        ("a\U00010400b", "a\U00010428b"),
        ("\u0130stanbul", "i stanbul"),
        ("cafe\u0301s", "cafe s"),
        ("a\ud800b\udfff中", "a b 中"),
        ("nul\0nul", "nul"),
    ],
)
def test_a_text_gives_these_tokens(text: str, expected: str) -> None:
    assert tokens(text) == frozenset(expected.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("东京333m高い", "东京333m高い"),
        ("数据，库", "数据 库"),
        ("カ・タ", "カ タ"),
        ("\u2ff0", ""),
        ("Word\U00020000\U0001f600x", "word\U00020000 x"),
    ],
)
def test_the_legacy_profile_has_words_only(text: str, expected: str) -> None:
    assert legacy_tokens(text) == frozenset(expected.split())


@patient
@given(TEXTS)
def test_the_profiles_do_what_the_specification_says_character_by_character(text: str) -> None:
    assert tokens(text) == profile_by_the_letter(text, cjk=CJK)
    assert legacy_tokens(text) == profile_by_the_letter(text, cjk=frozenset())


@patient
@given(TEXTS, TEXTS)
def test_texts_joined_by_a_separator_have_the_tokens_of_both(left: str, right: str) -> None:
    # A semicolon is neither cased nor case-ignorable: it ends words for the final sigma as well.
    assert tokens(f"{left};{right}") == tokens(left) | tokens(right)
    assert legacy_tokens(f"{left};{right}") == legacy_tokens(left) | legacy_tokens(right)


@patient
@given(ASCII_TEXTS)
def test_on_ascii_both_profiles_are_equal(text: str) -> None:
    assert tokens(text) == legacy_tokens(text)


@patient
@given(ASCII_TEXTS)
def test_the_ascii_path_gives_what_the_general_path_gives(text: str) -> None:
    assert tokens(text) == tokens(f"{text};—") == tokens(f"{text};\U0001f600")


@patient
@given(TEXTS)
def test_tokens_are_lower_case_and_tokens_of_themselves(text: str) -> None:
    for token in tokens(text):
        assert token in tokens(token)
        assert lowercase(token) == token


@patient
@given(TEXTS)
def test_a_text_with_an_alphanumeric_character_has_a_token(text: str) -> None:
    assert has_alphanumeric(text) == any(ord(char) in ALPHANUMERIC for char in text)
    if has_alphanumeric(text):
        assert tokens(text)
    assert has_alphanumeric(lowercase(text)) == bool(legacy_tokens(text))


@patient
@given(TEXTS)
def test_lower_case_is_idempotent_and_follows_the_final_sigma_rule(text: str) -> None:
    assert lowercase(text) == final_sigma_by_the_letter(text)
    assert lowercase(lowercase(text)) == lowercase(text)


@patient
@given(st.text(st.sampled_from("ΑΣσa.'\u0345\u0301\u00b7\u02b0 1ς中\U00010400")))
def test_lower_case_of_long_known_characters_equals_pythons(text: str) -> None:
    assert lowercase(text) == text.lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u1c89", "\u1c8a"),  # Unicode 16: unknown to Python 3.11 to 3.13
        ("\ua7d4", "\ua7d5"),  # Unicode 17
        ("\U00016ea0", "\U00016ebb"),  # Unicode 17
        ("ΟΔΟΣ", "οδος"),
        ("ΟΔΟ\u0301Σ. Σ", "οδο\u0301ς. σ"),
        ("Α'Σ'Α", "α'σ'α"),
        ("İI", "i\u0307i"),
        ("ẞ", "ß"),
        ("K", "k"),
        ("ÀÉ\ud800", "àé\ud800"),
    ],
)
def test_lower_case_is_pinned(text: str, expected: str) -> None:
    assert lowercase(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "\t\n\v\f\r", "\x85\xa0", "\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"]
)
def test_white_space_alone_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize(
    "char", ["\x1c", "\x1d", "\x1e", "\x1f", "\0", "\u180e", "\u200b", "\u2060", "\ufeff", "\ud800"]
)
def test_what_only_looks_like_white_space_is_not_blank(char: str) -> None:
    assert not is_blank(char)
    assert not is_blank(f" {char}\u3000")


@pytest.mark.parametrize("text", ["", "!? …", "\u0301", "😀", "㍿", "\u2ff0", "_"])
def test_marks_and_symbols_are_not_alphanumeric(text: str) -> None:
    assert not has_alphanumeric(text)


@pytest.mark.parametrize("text", ["a", "…é", "½", "٣", "中", "\u0345", "🄰", "😀\U00010428", "\U000323af"])
def test_letters_and_numbers_of_any_script_are_alphanumeric(text: str) -> None:
    assert has_alphanumeric(text)


def test_the_fingerprint_moves_only_on_purpose() -> None:
    # Changing this value means that every stored index is rebuilt.
    assert fingerprint() == "sha256:6bb62677672f39ad2d30d71785ab6be73210c7aa6464482c561d1ef8c502d4ef"


@pytest.mark.parametrize("part", ["ALPHANUMERIC", "LOWERCASE", "CASED", "CASE_IGNORABLE"])
def test_the_fingerprint_changes_with_each_table(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fingerprint()
    monkeypatch.setattr(_unicode17, part, getattr(_unicode17, part) + " 10fffd")
    assert fingerprint.__wrapped__() != usual


@pytest.mark.parametrize("part", ["_CJK", "_ALGORITHM_VERSION"])
def test_the_fingerprint_changes_with_the_algorithm(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fingerprint()
    monkeypatch.setattr(tokenizer, part, "2")
    assert fingerprint.__wrapped__() != usual


def test_a_long_run_of_one_cjk_character_has_two_tokens() -> None:
    run = "中" * (64 * 1024 // 3)
    assert tokens(run) == {run, "中中"}


def test_a_query_of_a_million_words_keeps_them_all() -> None:
    assert len(tokens(" ".join(map(str, range(1_000_000))))) == 1_000_000


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "中" * n,
        lambda n: " ".join(f"é{at}" for at in range(n)),
        lambda n: "😀" * n,
        lambda n: "a\U00010428" * n,
        lambda n: "中\U00020000" * n,
        lambda n: ("aΣ" + "'" * 50) * (n // 50),
        lambda n: "aΣ" + "'" * n,
        lambda n: "é" + "\u0301" * n,
    ],
    ids=["cjk run", "words", "emoji", "alternating word", "alternating run", "sigmas", "ignorables", "marks"],
)
def test_the_cost_is_linear_in_the_text(make: Callable[[int], str]) -> None:
    def best(text: str) -> float:
        samples = []
        for _ in range(5):
            start = time.process_time()
            tokens(text)
            samples.append(time.process_time() - start)
        return min(samples)

    short, long = make(10_000), make(160_000)
    tokens(short)  # the patterns are compiled
    # Sixteen times the text; a quadratic step would take 256 times as long.
    assert best(long) < 64 * best(short) + 0.05
