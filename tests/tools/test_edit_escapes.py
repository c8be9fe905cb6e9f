r"""Edit where the text was escaped once too often: all of it one level back, or nothing."""

import json

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from maka.tools.edit_match import MatchError, find, replaced
from tests.tools.harness import after_edit

TOOK = "old_string was escaped once too often, and so was new_string; one level of escapes was taken off both"
STYLES = ('\\"\n\r\t', "\\\"'\n\r\t", '\\"', "\\\"'", "\\\"'\n", '\\"\t')
LETTERS = {"\n": "n", "\r": "r", "\t": "t"}
PIECES = st.sampled_from(["a", "foo(", ")", " ", '"', "'", '"""', "\\", "\\n", "\\t", '\\"', "\\d", "\n", "\r\n", "\t"])
TEXTS = st.lists(PIECES, max_size=10).map("".join)


def escaped(text: str, style: str) -> str:
    """Escape these characters of a text once more."""
    return "".join("\\" + LETTERS.get(char, char) if char in style else char for char in text)


def over(text: str) -> str:
    """Escape a text once more, as most do."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ('say("hi")\n', 'say("hi")', 'say("hi\\n")'),
        ('const q = "x";\n', 'q = "x"', 'q = "say \\"x\\""'),
        ('say("hi")\n', 'say("hi")', 'say("hi", "\\\\\\\\", "\\\\\\"")'),
        ("a()\nb()\nc()\n", "a()\nb()", 'a()\nprint("x\\ty")\nb()'),
        ('re.match("x", y)\n', 're.match("x", y)', 're.match("\\\\d+", y)'),
        ("re.match(r'\\d+', y)\n", "re.match(r'\\d+', y)", "re.match(r'\\w+', y)"),
        ('say("hi")\n\n', 'say("hi")\n', 'say("don\'t")\nsay("we won\'t")\n'),
        ('if x {\n\tsay("hi")\n}\n', '\tsay("hi")\n', '\tif y {\n\t\tsay("ho")\n\t}\n'),
        ("bob\t3\n", "bob\t3", "bob\t4"),
        ('f("a")\r\ng()\r\n', 'f("a")\r\ng()', 'f("b")\r\ng()'),
        ('def f():\n    return "x"\n', 'return "x"\n', '"""Say it.\n\n    Twice."""\n    return "x"\n'),
        ('q = "a\nb"\n', 'q = "a\nb"', 'q = "a\nc"'),
    ],
)
def test_h57_one_level_of_escapes_is_taken_off_both_wholly(text: str, old: str, new: str) -> None:
    match = find(text, over(old), over(new))
    assert match.how == TOOK
    assert replaced(text, match) == text.replace(old, new) != text


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ('say("a")\nnext\n', 'say(\\"a\\")\nnext', 'say(\\"b\\n\\")\nnext', None),
        ('say("a")\nnext\n', 'say(\\"a\\")\nnext', 'say(\\"b\\")\nlast', 'say("b")\nlast\n'),
        ("say('a')\nnext\n", "say(\\'a\\')\\nnext", "say(\\'b\\')\\nlast", "say('b')\nlast\n"),
        ("say('a')\nnext\n", "say(\\'a\\')\\nnext", "say('b')\\nlast", None),
    ],
)
def test_h57_what_old_string_shows_of_its_escapes_holds_for_new_string(
    text: str, old: str, new: str, expected: str | None
) -> None:
    assert after_edit(text, old, new) == expected


@pytest.mark.parametrize("new", ["done", "it's", 'say("b")', "one\ntwo", "a\tb\n", ""])
def test_h57_a_new_text_without_a_backslash_is_taken_as_it_is(new: str) -> None:
    match = find('say("a")\nx = 1\n', 'say(\\"a\\")\\nx', new)
    assert match.how == "old_string was escaped once too often"
    assert replaced('say("a")\nx = 1\n', match) == new + " = 1\n"


@pytest.mark.parametrize(
    "new",
    [
        'say(\\"a\\")\nsay(\\"b\\")',
        'x\n\\"',
        'say("a\\n")',
        'say(\\"a", "b\\")',
        "say(\\'a', 'b\\')",
        'say(\\"\\d\\")',
        "a \\n b \\1 \\\\n",
        'say(\\"a\\") \\',
        'say(\\"a\\n\\")',
        "say('a\\n')",
        'say(\\"\\t\\")\\nlast',
        'say(\\"a\\\\\\\\\\n\\")',
        'say(\\"a\\") \\textbf{b}',
        'say(\\"a\\")\\rb',
    ],
)
def test_h57_a_new_text_that_isnt_wholly_escaped_is_refused(new: str) -> None:
    """What is an escape in it and what isn't can't be told."""
    with pytest.raises(MatchError, match="give both exactly as the file has them") as refusal:
        find('say("a")\nx = 1\n', 'say(\\"a\\")', new)
    assert "escaped once too often" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ('x "a"\n', 'x \\"a\\"', '\\textbf{\\"a\\"}'),
        ('s/a/"b"/;\n', 's/a/\\"b\\"/;', 's/a\\n/\\"b\\"/;'),
        ('x "a"\n', 'x \\"a\\"', '\\"a\\"\\r'),
    ],
)
def test_h57_a_control_character_that_old_string_doesnt_escape_is_never_made(text: str, old: str, new: str) -> None:
    with pytest.raises(MatchError, match="give both exactly as the file has them"):
        find(text, old, new)


def test_h57_an_old_text_that_isnt_wholly_escaped_shows_nothing_of_the_new_one() -> None:
    text = 'say("a", "b")\n'
    assert after_edit(text, 'say(\\"a\\", "b")', 'say(\\"c\\", \\"d\\")') is None
    assert after_edit(text, 'say(\\"a\\", "b")', 'say("c", "d")') == 'say("c", "d")\n'


def test_a_place_for_each_looser_match_is_refused() -> None:
    with pytest.raises(MatchError, match="but for spaces it is at line 1, with its escapes resolved at line 2"):
        find('say  \\"a\\"\nsay "a"\n', 'say \\"a\\"', 'say \\"b\\"')


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.sampled_from(STYLES))
def test_h57_escaping_both_once_too_often_gives_the_same_file_or_changes_nothing(
    before: str, old: str, behind: str, new: str, style: str
) -> None:
    text = before + old + behind
    assume(escaped(old, style) not in text)  # else that is the exact match
    assume("\r\n" not in text or escaped(old, style).replace("\r\n", "\n") not in text.replace("\r\n", "\n"))
    found = after_edit(text, escaped(old, style), escaped(new, style))
    event("refused" if found is None else "edited")
    assert found in (None, after_edit(text, old, new))
