"""Problems of the grade "medium": a data structure, and cases that are easily forgotten."""

from __future__ import annotations

import random

from marl_gem.scenarios.tasks.code.problems.problem import Problem


def balanced(text: str) -> bool:
    pairs = {")": "(", "]": "[", "}": "{"}
    opened = []
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in pairs and (not opened or opened.pop() != pairs[character]):
            return False
    return not opened


def most_frequent_words(text: str) -> str:
    first, _, rest = text.partition("\n")
    counts: dict[str, int] = {}
    for word in rest.lower().split():
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return "\n".join(f"{word} {counts[word]}" for word in ranked[: int(first)])


def merge_intervals(intervals: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def spiral(text: str) -> str:
    rows = [line.split() for line in text.splitlines()]
    order = []
    while rows:
        order += rows.pop(0)
        rows = [list(column) for column in zip(*rows, strict=True)][::-1]
    return " ".join(order)


def to_roman(number: int) -> str:
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    names = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
    written = ""
    for value, name in zip(values, names, strict=True):
        written += name * (number // value)
        number %= value
    return written


def run_lengths(text: str) -> list[tuple[str, int]]:
    import itertools

    return [(letter, len(list(group))) for letter, group in itertools.groupby(text)]


def bank(text: str) -> str:
    balances: dict[str, int] = {}
    lines = []
    for line in text.splitlines():
        action, name, *rest = line.split()
        amount = int(rest[-1]) if rest else 0
        if action == "deposit":
            balances[name] = balances.get(name, 0) + amount
        elif action == "show":
            lines.append(f"{name} {balances.get(name, 0)}")
        elif balances.get(name, 0) < amount:
            lines.append("refused")
        else:
            balances[name] = balances.get(name, 0) - amount
            if action == "transfer":
                balances[rest[0]] = balances.get(rest[0], 0) + amount
    return "\n".join(lines)


def longest_without_repeats(text: str) -> int:
    last: dict[str, int] = {}
    start = longest = 0
    for position, letter in enumerate(text):
        start = max(start, last.get(letter, -1) + 1)
        last[letter] = position
        longest = max(longest, position - start + 1)
    return longest


def _interval(rng: random.Random) -> list[int]:
    start = rng.randint(0, 30)
    return [start, start + rng.randint(0, 6)]


def _matrix(rng: random.Random) -> str:
    columns = rng.randint(1, 5)
    rows = [[str(rng.randint(0, 99)) for _ in range(columns)] for _ in range(rng.randint(1, 5))]
    return "\n".join(" ".join(row) for row in rows)


def _bank_lines(rng: random.Random) -> str:
    names, lines = ("ann", "bo"), []
    for _ in range(10):
        name, amount = rng.choice(names), rng.randint(1, 9)
        kinds = (
            f"deposit {name} {amount}",
            f"withdraw {name} {amount}",
            f"transfer {name} {rng.choice(names)} {amount}",
        )
        lines.append(rng.choice(kinds))
    return "\n".join([*lines, "show ann", "show bo"])


PROBLEMS = (
    Problem(
        "medium",
        "Return whether the brackets (), [] and {} in the text are balanced and properly nested. Other characters do "
        "not count.",
        balanced,
        lambda rng: ("".join(rng.choices("()[]{}a", k=rng.randint(0, 6))),),
        (("return not opened", "return True"), ("(not opened or opened.pop() != pairs[character])", "not opened")),
        (("a(b[c]{})",), ("(]",), ("(",), (")",), ("",), ("([)]",)),
    ),
    Problem(
        "medium",
        "The first line of the input is a number k, the rest is a text. Print the k most frequent words in lower case, "
        "each on a line with its count. Words are separated by white space; those that are equally frequent come in "
        "alphabetical order.",
        most_frequent_words,
        lambda rng: f"{rng.randint(1, 4)}\n" + " ".join(rng.choices(["the", "The", "a", "cat", "Dog", "ox"], k=12)),
        (("(-counts[word], word)", "-counts[word]"), ("rest.lower()", "rest")),
        ("2\nthe cat The dog\ncat a", "3\nb a c"),
        "stdin",
    ),
    Problem(
        "medium",
        "Each interval is [start, end], both ends included. Return the union of all intervals as disjoint intervals in "
        "ascending order; intervals that share a number are one.",
        merge_intervals,
        lambda rng: ([_interval(rng) for _ in range(rng.randint(0, 8))],),
        (("start <= merged", "start < merged"), ("max(merged[-1][1], end)", "end")),
        (([[5, 7], [1, 3], [3, 4]],), ([[1, 9], [2, 3]],), ([],)),
    ),
    Problem(
        "medium",
        "The input is a matrix, a row on each line. Print its entries on a single line in the order of a spiral: along "
        "the first row to the right, down the last column, along the last row to the left, and so on inwards.",
        spiral,
        _matrix,
        (("[::-1]", "[:]"), ("while rows:", "while len(rows) > 1:")),
        ("1 2 3\n4 5 6\n7 8 9", "1\n2\n3"),
        "stdin",
    ),
    Problem(
        "medium",
        "Return a number from 1 to 3999 as a Roman numeral.",
        to_roman,
        lambda rng: (rng.randint(1, 3999),),
        (("5, 4, 1)", "5, 3, 1)"), ('"CM"', '"DCCCC"')),
        ((1994,), (4,), (3999,), (3,)),
    ),
    Problem(
        "medium",
        "Return the runs of equal letters in the text, each as a pair of the letter and the length of the run.",
        run_lengths,
        lambda rng: ("".join(rng.choices("ab", k=rng.randint(0, 9))),),
        (("itertools.groupby(text)", "itertools.groupby(sorted(text))"), ("len(list(group))", "text.count(letter)")),
        (("aaabba",), ("",)),
    ),
    Problem(
        "medium",
        """
        Each line of the input is a command for a bank, in which all balances are 0 at first:
        deposit NAME AMOUNT
        withdraw NAME AMOUNT
        transfer FROM TO AMOUNT
        show NAME
        Print "NAME BALANCE" for each show. A withdrawal or a transfer of more than the balance is not carried out;
        print "refused" for it.
        """,
        bank,
        _bank_lines,
        (("< amount", "<= amount"), ('if action == "transfer"', 'if action == "move"')),
        ("deposit ann 5\ntransfer ann bo 5\nwithdraw ann 1\nshow ann\nshow bo",),
        "stdin",
    ),
    Problem(
        "medium",
        "Return the length of the longest part of the text, without gaps, in which no letter occurs twice.",
        longest_without_repeats,
        lambda rng: ("".join(rng.choices("abcdef", k=rng.randint(0, 12))),),
        (
            ("max(start, last.get(letter, -1) + 1)", "last.get(letter, -1) + 1"),
            ("position - start + 1", "position - start"),
        ),
        (("abcabcbb",), ("",), ("abba",)),
    ),
)
