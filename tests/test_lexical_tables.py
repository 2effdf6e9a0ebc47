"""The generated Unicode 17 tables: consistent in themselves, with the running Python, and with the golden sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from a3s_actors.memory.lexical import _ranges, _unicode17, has_alphanumeric, is_blank, lowercase, tokenizer

SHARED = Path(os.environ.get("A3S_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))
TABLES = SHARED / "golden" / "tables"
SURROGATES = range(0xD800, 0xE000)
SETS = {
    "ALPHANUMERIC": (_unicode17.ALPHANUMERIC, 149_106),
    "WHITE_SPACE": (_unicode17.WHITE_SPACE, 25),
    "CASED": (_unicode17.CASED, 4_632),
    "CASE_IGNORABLE": (_unicode17.CASE_IGNORABLE, 2_794),
}


def every_code_point() -> list[int]:
    return [code for code in range(sys.maxunicode + 1) if code not in SURROGATES]


@pytest.fixture(scope="module")
def golden() -> Any:
    path = TABLES / "unicode.json"
    if not path.exists():
        pytest.skip("the golden Unicode tables are not beside this checkout")
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("name", SETS)
def test_a_table_is_sorted_disjoint_and_complete(name: str) -> None:
    table, count = SETS[name]
    ranges = _ranges.parse(table)
    assert all(first <= last <= sys.maxunicode for first, last in ranges)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges))
    assert sum(last - first + 1 for first, last in ranges) == count
    assert _ranges.ranges_of(_ranges.code_points(ranges)) == ranges
    assert not _ranges.code_points(ranges) & set(SURROGATES)


def test_the_cjk_ranges_are_sorted_and_disjoint() -> None:
    ranges = _ranges.parse(tokenizer._CJK)
    assert all(first <= last for first, last in ranges)
    assert all(left[1] < right[0] for left, right in pairwise(ranges))
    assert sum(last - first + 1 for first, last in ranges) == 113_666


def test_the_lower_case_map_is_complete_and_settled() -> None:
    mapping = _ranges.lowercase_map(_unicode17.LOWERCASE)
    assert len(mapping) == 1_488
    assert list(mapping) == sorted(mapping)
    assert [code for code, lower in mapping.items() if len(lower) > 1] == [0x130]
    assert mapping[0x130] == "i\u0307"
    assert not any(ord(char) in mapping for lower in mapping.values() for char in lower)
    # The tokenizer chooses its patterns once for both: no mapping leads out of the basic plane or into it.
    assert all((code > 0xFFFF) == (ord(char) > 0xFFFF) for code, lower in mapping.items() for char in lower)
    assert mapping.keys() <= _ranges.code_points(_ranges.parse(_unicode17.CASED))


@pytest.mark.skipif(unicodedata.unidata_version > "17.0.0", reason="this Python knows characters after Unicode 17")
def test_the_tables_contain_what_the_running_python_knows() -> None:
    alphanumeric = _ranges.code_points(_ranges.parse(_unicode17.ALPHANUMERIC))
    mapping = _ranges.lowercase_map(_unicode17.LOWERCASE)
    for code in every_code_point():
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Cn":
            continue
        if category[0] in "LN":
            assert code in alphanumeric, f"{code:x}"
        if category in {"Po", "Pd", "Ps", "Pe", "Sm", "Sc", "Zs", "Cc", "Cf"}:
            assert code not in alphanumeric, f"{code:x}"
        if char.lower() != char:
            assert mapping[code] == char.lower(), f"{code:x}"


def test_alphanumeric_agrees_with_the_golden_sweep(golden: Any) -> None:
    expected = {code for first, last in golden["alphanumeric"] for code in range(first, last + 1)}
    assert {code for code in every_code_point() if has_alphanumeric(chr(code))} == expected


def test_white_space_agrees_with_the_golden_sweep(golden: Any) -> None:
    expected = {code for first, last in golden["whitespace"] for code in range(first, last + 1)}
    assert {code for code in every_code_point() if is_blank(chr(code))} == expected


def test_lower_case_agrees_with_the_golden_sweep(golden: Any) -> None:
    expected = {code: "".join(map(chr, lower)) for code, lower in golden["lowercase"]}
    assert {code: lowercase(chr(code)) for code in every_code_point() if lowercase(chr(code)) != chr(code)} == expected


def test_lower_case_of_one_text_with_every_character_agrees_with_the_golden_sweep(golden: Any) -> None:
    expected = {code: "".join(map(chr, lower)) for code, lower in golden["lowercase"]}
    # No letter stands before the capital sigma here, so it is not final.
    assert lowercase(" ".join(map(chr, every_code_point()))) == " ".join(
        expected.get(code, chr(code)) for code in every_code_point()
    )


def test_the_golden_files_are_of_the_same_unicode_version(golden: Any) -> None:
    assert golden["unicodeVersion"] == "({}, {}, {})".format(*_unicode17.UNICODE_VERSION.split("."))


def test_importing_loads_only_the_standard_library_and_compiles_no_table() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "from a3s_actors.memory.lexical import tokenizer, characters, tokens\n"
        "foreign = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(foreign - set(sys.stdlib_module_names) - {'a3s_actors'})\n"
        "tokens('plain ascii')\n"
        "print(tokenizer._word_runs.cache_info().currsize, characters._lower_map.cache_info().currsize)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n") == ["set()", "0 0", ""]
