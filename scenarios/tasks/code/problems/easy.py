"""Problems of the grade "easy": a loop and a condition."""

from __future__ import annotations

import random

from marl_gem.scenarios.tasks.code.problems.problem import Problem


def sum_of_evens(text: str) -> str:
    return str(sum(number for number in map(int, text.split()) if number % 2 == 0))


def count_vowels(text: str) -> str:
    return "\n".join(str(sum(letter in "aeiou" for letter in line.lower())) for line in text.splitlines())


def second_largest(numbers: list[int]) -> int | None:
    distinct = sorted(set(numbers))
    return distinct[-2] if len(distinct) >= 2 else None


def rotate(items: list[int], steps: int) -> list[int]:
    if not items:
        return []
    steps %= len(items)
    return items[-steps:] + items[:-steps] if steps else list(items)


def average_marks(text: str) -> str:
    marks: dict[str, list[int]] = {}
    for line in text.splitlines():
        name, mark = line.split()
        marks.setdefault(name, []).append(int(mark))
    return "\n".join(f"{name} {sum(marks[name]) / len(marks[name]):.1f}" for name in sorted(marks))


def is_anagram(first: str, second: str) -> bool:
    return sorted(first.lower().replace(" ", "")) == sorted(second.lower().replace(" ", ""))


def digital_root(number: int) -> int:
    while number > 9:
        number = sum(int(digit) for digit in str(number))
    return number


def fizz(text: str) -> str:
    last, first, second = map(int, text.split())
    lines = []
    for number in range(1, last + 1):
        words = "Fizz" * (number % first == 0) + "Buzz" * (number % second == 0)
        lines.append(words or str(number))
    return "\n".join(lines)


def _word(rng: random.Random, least: int = 1, most: int = 8, letters: str = "abcdeiou") -> str:
    return "".join(rng.choices(letters, k=rng.randint(least, most)))


def _numbers(rng: random.Random, least: int, most: int, bound: int) -> list[int]:
    return [rng.randint(-bound, bound) for _ in range(rng.randint(least, most))]


def _pair_of_words(rng: random.Random) -> tuple[str, str]:
    first = _word(rng, 3, 8, "abcde ")
    letters = list(first.upper() if rng.random() < 0.5 else first)
    rng.shuffle(letters)
    return first, "".join(letters) + rng.choice(["", "", " ", "a"])


PROBLEMS = (
    Problem(
        "easy",
        "The input is a line of whole numbers. Print the sum of those that are even.",
        sum_of_evens,
        lambda rng: " ".join(map(str, _numbers(rng, 1, 12, 50))),
        (("number % 2 == 0", "number % 2 == 1"), ("number % 2 == 0", "number > 0 and number % 2 == 0")),
        ("1 2 3 4 6", "7"),
        "stdin",
    ),
    Problem(
        "easy",
        "For each line of the input, print how many vowels (a, e, i, o, u, in upper or lower case) it has.",
        count_vowels,
        lambda rng: "\n".join(_word(rng, 1, 12, "abcdeioUxyzAE ") for _ in range(rng.randint(1, 4))),
        (('"aeiou"', '"aeio"'), ("line.lower()", "line")),
        ("Hello\nAUDIO\nrhythm",),
        "stdin",
    ),
    Problem(
        "easy",
        "Return the second largest of the distinct numbers, or None if there are fewer than two distinct ones.",
        second_largest,
        lambda rng: (_numbers(rng, 0, 6, 4),),
        (("sorted(set(numbers))", "sorted(numbers)"), (">= 2 else None", ">= 2 else 0")),
        (([3, 5, 5, 2],), ([4, 4],), ([],)),
    ),
    Problem(
        "easy",
        "Return the list, rotated to the right by so many steps: the last item comes first after one step. The number "
        "of steps may be larger than the list, or 0; the list may be empty.",
        rotate,
        lambda rng: (_numbers(rng, 0, 6, 9), rng.randint(0, 12)),
        (("items[-steps:] + items[:-steps]", "items[steps:] + items[:steps]"), ("steps %= len(items)", "steps += 0")),
        (([1, 2, 3, 4], 1), ([1, 2, 3], 7), ([], 3), ([1, 2], 0)),
    ),
    Problem(
        "easy",
        "Each line of the input has a name and a mark. Print a line for each name, in alphabetical order, with the "
        "name and the average of its marks, rounded to one decimal as the format '.1f' does.",
        average_marks,
        lambda rng: "\n".join(f"{rng.choice(['Zoe', 'Ann', 'Bo'])} {rng.randint(1, 6)}" for _ in range(6)),
        (("in sorted(marks)", "in marks"), ("/ len(marks[name]):.1f", "// len(marks[name]):.1f")),
        ("Zoe 4\nAnn 5\nZoe 3",),
        "stdin",
    ),
    Problem(
        "easy",
        "Return whether one text has the letters of the other in another order. Case and spaces do not count.",
        is_anagram,
        _pair_of_words,
        (('first.lower().replace(" ", "")', "first.lower()"), ("sorted(first.lower()", "sorted(first")),
        (("Dormitory", "dirty room"), ("ab", "abb"), ("AB", "ba"), ("a b", "ab")),
    ),
    Problem(
        "easy",
        "Replace a number that is not negative by the sum of its digits until it has a single digit. Return it.",
        digital_root,
        lambda rng: (rng.randint(0, 10**12),),
        (("while number > 9:", "if number > 9:"), ("number > 9", "number > 10")),
        ((9875,), (0,), (10,)),
    ),
    Problem(
        "easy",
        "The input has three numbers: n, a and b. For each number from 1 to n print a line: Fizz if a divides it, Buzz "
        "if b divides it, FizzBuzz if both do, and else the number.",
        fizz,
        lambda rng: f"{rng.randint(1, 20)} {rng.randint(1, 4)} {rng.randint(2, 6)}",
        (("range(1, last + 1)", "range(1, last)"), ('"Fizz" * (', '"Fizz" * (number % second and ')),
        ("6 2 3",),
        "stdin",
    ),
)
