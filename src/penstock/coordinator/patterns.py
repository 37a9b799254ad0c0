r"""Regular expressions over topic names, in RE2's manner: time is linear in the name, for every pattern.

A pattern becomes a graph of states that are followed in parallel, without backtracking. A set of states is an integer
with a bit for each. Length, states, repetition and compile work are bounded. Supported: literals, `.`, classes,
`\d \w \s` and their negations, `\Q…\E`, groups (also `(?:…)` and `(?i)` in front), `|`, `* + ? {m,n}` (greedy and lazy
are equivalent here), `^ $ \A \z`. A pattern must match the whole name, as in Kafka. As in RE2, there are no back
references and no lookaround.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

PATTERN_CHARS_MAX: Final = 1_024
STATES_MAX: Final = 2_000
REPEAT_MAX: Final = 1_000
DEPTH_MAX: Final = 50
WORK_MAX: Final = 20_000
"""Nodes and states visited to compile a pattern; beyond this it is refused."""
KNOWN_MAX: Final = 2_000
"""Transitions that a pattern caches."""
STEPS_MAX: Final = 20_000
"""States followed to find the topics of one pattern; beyond this it is refused."""
CODE_MAX: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""A set of characters as ranges, both ends included."""


class InvalidPattern(ValueError):
    """The pattern cannot be parsed, or is too large."""


_DIGIT: Final = ((48, 57),)
_WORD: Final = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final = ((9, 10), (12, 13), (32, 32))
_ANY: Final = ((0, 9), (11, CODE_MAX))
_ESCAPES: Final = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_NAMED: Final = {
    "alpha": ((65, 90), (97, 122)),
    "digit": _DIGIT,
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "upper": ((65, 90),),
    "lower": ((97, 122),),
    "word": _WORD,
    "space": ((9, 13), (32, 32)),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}

_CHAR, _SPLIT, _BEGIN, _END, _DONE = range(5)


class _Node(NamedTuple):
    kind: str
    parts: tuple["_Node", ...] = ()
    chars: Ranges = ()
    least: int = 0
    most: int = -1


_EMPTY: Final = _Node("row")


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters as sorted, disjoint ranges."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _inverted(ranges: Ranges) -> Ranges:
    edges = ((-1, -1), *_merged(ranges), (CODE_MAX + 1, CODE_MAX + 1))
    return tuple((one[1] + 1, other[0] - 1) for one, other in pairwise(edges) if one[1] + 1 < other[0])


def _repeat(node: _Node, least: int, most: int) -> _Node:
    """A repetition; that of an empty node is empty."""
    return _EMPTY if node == _EMPTY or not most else _Node("repeat", (node,), least=least, most=most)


class _Parser:
    """Parses a pattern into a tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False

    def parse(self) -> _Node:
        if self._text.startswith("(?i)"):
            self._ignores_case, self._at = True, 4
        node = self._choice(0)
        if self._at < len(self._text):
            raise InvalidPattern("there is a ) too many")
        return node

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidPattern("the pattern ends too early")
        self._at += 1
        return char

    def _choice(self, depth: int) -> _Node:
        if depth > DEPTH_MAX:
            raise InvalidPattern(f"groups are nested deeper than {DEPTH_MAX}")
        rows = [self._row(depth)]
        while self._peek() == "|":
            self._at += 1
            rows.append(self._row(depth))
        return rows[0] if len(rows) == 1 else _Node("choice", tuple(rows))

    def _row(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            part = self._repeated(self._single(depth))
            if part != _EMPTY:
                parts.append(part)
        return parts[0] if len(parts) == 1 else _Node("row", tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        bounds = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}
        is_repeated = False
        while True:
            char = self._peek()
            if char in bounds and char:
                self._at += 1
                least, most = bounds[char]
            elif char == "{" and (counted := self._counted()) is not None:
                least, most = counted
            else:
                return node
            if is_repeated:
                raise InvalidPattern("a repetition is repeated")
            if self._peek() == "?":  # a lazy repetition matches the same names
                self._at += 1
            is_repeated = True
            node = _repeat(node, least, most)

    def _counted(self) -> tuple[int, int] | None:
        end = self._text.find("}", self._at)
        body = self._text[self._at + 1 : end] if end > 0 else ""
        first, comma, last = body.partition(",")
        if not first.isascii() or not first.isdigit() or (last and not (last.isascii() and last.isdigit())):
            return None  # then the brace is a literal
        if len(first) > 4 or len(last) > 4 or int(first) > REPEAT_MAX or (last and int(last) > REPEAT_MAX):
            raise InvalidPattern(f"something is repeated more than {REPEAT_MAX} times")
        least = int(first)
        most = int(last) if last else (-1 if comma else least)
        if 0 <= most < least:
            raise InvalidPattern(f"{{{body}}} goes backwards")
        self._at = end + 1
        return least, most

    def _single(self, depth: int) -> _Node:
        char = self._take()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return _Node("char", chars=self._cased(self._bracket()))
            case ".":
                return _Node("char", chars=_ANY)
            case "^":
                return _Node("begin")
            case "$":
                return _Node("end")
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise InvalidPattern(f"there is nothing before {char} to repeat")
        return _Node("char", chars=self._cased(((ord(char), ord(char)),)))

    def _group(self, depth: int) -> _Node:
        if self._peek() == "?":
            if not self._text.startswith("?:", self._at):
                raise InvalidPattern("of the groups with (? there is only (?:")
            self._at += 2
        node = self._choice(depth + 1)
        if self._peek() != ")":
            raise InvalidPattern("a ) is missing")
        self._at += 1
        return node

    def _escaped(self) -> _Node:
        char = self._take()
        if char == "A":
            return _Node("begin")
        if char == "z":
            return _Node("end")
        if char == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at = len(self._text) if end < 0 else end + 2
            return _Node("row", tuple(_Node("char", chars=self._cased(((ord(each), ord(each)),))) for each in quoted))
        return _Node("char", chars=self._cased(self._escape(char)))

    def _escape(self, char: str) -> Ranges:
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            return _inverted(_CLASSES[char.lower()])
        if char in _ESCAPES:
            return ((_ESCAPES[char], _ESCAPES[char]),)
        if char.isascii() and char.isalnum():
            raise InvalidPattern(f"there is no \\{char}")
        return ((ord(char), ord(char)),)

    def _bracket(self) -> Ranges:
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges: list[tuple[int, int]] = []
        is_first = True
        while (char := self._take()) != "]" or is_first:
            is_first = False
            if char == "[" and self._peek() == ":":
                ranges += self._named()
                continue
            first = self._escape(self._take()) if char == "\\" else ((ord(char), ord(char)),)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "") and len(first) == 1:
                self._at += 1
                char = self._take()
                last = self._escape(self._take()) if char == "\\" else ((ord(char), ord(char)),)
                if len(last) != 1 or first[0][0] != first[0][1] or last[0][1] < first[0][0]:
                    raise InvalidPattern("a range of characters goes backwards")
                ranges.append((first[0][0], last[0][1]))
            else:
                ranges += first
        return _inverted(tuple(ranges)) if is_negated else tuple(ranges)

    def _named(self) -> Ranges:
        end = self._text.find(":]", self._at)
        name = self._text[self._at + 1 : end] if end > 0 else ""
        if name.removeprefix("^") not in _NAMED:
            raise InvalidPattern(f"there is no class [:{name}:]")
        self._at = end + 2
        ranges = _NAMED[name.removeprefix("^")]
        return _inverted(ranges) if name.startswith("^") else ranges

    def _cased(self, ranges: Ranges) -> Ranges:
        more = list(ranges)
        for first, last in ranges if self._ignores_case else ():
            for low, shift in ((65, 32), (97, -32)):
                start, end = max(first, low), min(last, low + 25)
                if start <= end:
                    more.append((start + shift, end + shift))
        return _merged(more)


class Regex:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARS_MAX:
            raise InvalidPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
        self.text = text
        self._work = 0
        self._states: list[tuple[int, Ranges, int, int]] = []
        start = self._compile(_Parser(text).parse(), self._add(_DONE))
        self._first = self._reached(_SPLIT, _BEGIN)[start]
        self._takes_nothing = bool(self._reached(_SPLIT, _BEGIN, _END)[start] & 1)
        self._last = sum(1 << at for at, reached in enumerate(self._reached(_SPLIT, _END)) if reached & 1)
        """States in which a name may end. State 0 is the accepting state."""
        reached = self._reached(_SPLIT)
        self._next = [reached[to] for _, _, to, _ in self._states]
        self._bounds, self._fitting = self._sorted_out()
        self._known: dict[int, int] = {}
        self.steps = 0
        """States followed by the last search."""

    def found_in(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that match, sorted. Raises InvalidPattern beyond STEPS_MAX."""
        self.steps = 0
        return tuple(name for name in sorted(names) if self.matches(name))

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        if not name:
            return self._takes_nothing
        states = self._first
        for char in name:
            left = states & self._fitting[bisect_right(self._bounds, ord(char))]
            if not left:
                return False
            states = self._known.get(left) or self._step(left)
        return bool(states & self._last)

    def _step(self, left: int) -> int:
        """The states after those that consumed a character."""
        self.steps += 1 + left.bit_count()
        if self.steps > STEPS_MAX:
            raise InvalidPattern("the pattern takes too long to match all topics")
        states, todo = 0, left
        while todo:
            at = todo.bit_length() - 1
            states |= self._next[at]
            todo ^= 1 << at
        if len(self._known) < KNOWN_MAX:
            self._known[left] = states
        return states

    def _toil(self, count: int) -> None:
        self._work += count
        if self._work > WORK_MAX:
            raise InvalidPattern("the pattern is too large: repetitions are nested too deep")

    def _add(self, kind: int, chars: Ranges = (), to: int = -1, other: int = -1) -> int:
        if len(self._states) >= STATES_MAX:
            raise InvalidPattern(f"the pattern is too large: more than {STATES_MAX} states")
        self._states.append((kind, chars, to, other))
        return len(self._states) - 1

    def _compile(self, node: _Node, then: int) -> int:
        """Compiles a node that continues at state `then`; returns its first state."""
        self._toil(1)
        match node.kind:
            case "char":
                return self._add(_CHAR, node.chars, then)
            case "begin":
                return self._add(_BEGIN, (), then)
            case "end":
                return self._add(_END, (), then)
            case "row":
                for part in reversed(node.parts):
                    then = self._compile(part, then)
                return then
            case "choice":
                start = self._compile(node.parts[-1], then)
                for part in reversed(node.parts[:-1]):
                    start = self._add(_SPLIT, (), self._compile(part, then), start)
                return start
        return self._compile_repeat(node, then)

    def _compile_repeat(self, node: _Node, then: int) -> int:
        (part,) = node.parts
        if node.most < 0:
            loop = self._add(_SPLIT, (), -1, then)
            self._states[loop] = (_SPLIT, (), self._compile(part, loop), then)
            then = loop
        end = then
        for _ in range(node.most - node.least):
            then = self._add(_SPLIT, (), self._compile(part, then), end)  # skipping one skips the rest
        for _ in range(node.least):
            then = self._compile(part, then)
        return then

    def _reached(self, *through: int) -> list[int]:
        """For each state, all that can be reached without a character, through states of these kinds."""
        found = [1 << at for at in range(len(self._states))]
        ways = [(at, to, other) for at, (kind, _, to, other) in enumerate(self._states) if kind in through]
        has_grown = True
        while has_grown:
            self._toil(len(ways))
            has_grown = False
            for at, to, other in ways:
                more = found[at] | found[to] | found[other if other >= 0 else to]
                has_grown |= more != found[at]
                found[at] = more
            ways.reverse()  # most continue at a lower state, loops at a higher one
        return found

    def _sorted_out(self) -> tuple[list[int], list[int]]:
        """Bounds at which the set of states that consume a character changes, and these sets."""
        takers: dict[Ranges, int] = {}
        for at, (_, chars, _, _) in enumerate(self._states):
            if chars:
                takers[chars] = takers.get(chars, 0) | 1 << at
        changes: dict[int, int] = {}
        for chars, states in takers.items():
            for first, last in chars:
                changes[first] = changes.get(first, 0) ^ states
                changes[last + 1] = changes.get(last + 1, 0) ^ states
        bounds, fitting = sorted(changes), [0]
        for bound in bounds:
            fitting.append(fitting[-1] ^ changes[bound])
        return bounds, fitting
