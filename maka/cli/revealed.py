"""What is shown is what runs: commands, paths and questions with nothing hidden in them.

Laws: whatever a terminal wouldn't draw as itself (control, direction and invisible characters) is shown as an escape;
two different texts never look the same, so a text that only spells an escape is told from the real one; what is left
out is counted, and its end is shown.
"""

import re
import unicodedata

NEWLINE, TAB = "⏎", "⇥"
_HIDING = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
"""Categories of characters that aren't drawn, or not where they stand; the plain space is the one exception."""
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks by their category, blank on the screen."""
_MARKS_MAX = 32
"""A letter has no more marks on it than these."""
_SPELLED = re.compile(r"\\(?=u[0-9a-f]{4}|U[0-9a-f]{8})")
_PLAIN = re.compile(r"[ -\[\]-~]*")


def revealed(text: str) -> str:
    """Return a text on one line, each character as itself or as an escape; line breaks and tabs have signs."""
    if _PLAIN.fullmatch(text):
        shown = text
    else:
        spelled = _SPELLED.sub(r"\\u005c", text)
        alike = frozenset[int]() if unicodedata.is_normalized("NFC", spelled) else _alike(spelled)
        shown = "".join(_escape(each) if at in alike else _sign(each) for at, each in enumerate(spelled))
    # At the end a blank has nothing behind it to be seen by.
    return f"{shown[:-1]}\\u0020" if shown.endswith(" ") else shown


def brief(text: str, chars_max: int) -> str:
    """Return a text on one line; of a longer one its head, how many characters follow, and its end.

    A text is cut only where more is left out than the words that say so take.
    """
    hidden = len(text) - chars_max
    mark = f" […{hidden:,} characters more, then…] "
    if hidden <= len(mark):
        return revealed(text)
    head = chars_max * 2 // 3
    return f"{revealed(text[:head])}{mark}{revealed(text[head + hidden :])}"


def _sign(character: str) -> str:
    if character == "\n":
        return NEWLINE
    if character == "\t":
        return TAB
    if character == " ":
        return character
    if character in (NEWLINE, TAB) or unicodedata.category(character) in _HIDING or _BLANK.match(character):
        return _escape(character)
    return character


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _alike(text: str) -> frozenset[int]:
    """Return where characters stand that are drawn as others would be: of a letter in two parts, the second one."""
    found: set[int] = set()
    begin = 0
    for at, character in enumerate(text):
        together = text[begin : at + 1]
        is_composed = unicodedata.is_normalized("NFC", character) and unicodedata.is_normalized("NFC", together)
        if not is_composed or len(together) > _MARKS_MAX:
            found.add(at)
            begin = at + 1
        elif not unicodedata.combining(character):
            begin = at
    return frozenset(found)
