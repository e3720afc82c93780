"""Generated problems of mathematics with exact answers, over five grades.

A generator takes a random generator and a grade from 1 to 5, and gives a problem and its answer. Numbers grow with the
grade, and most have another kind of problem at the higher grades.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TypeAlias

Problem: TypeAlias = tuple[str, Fraction]
Generator: TypeAlias = Callable[[Random, int], Problem]

FRACTIONS = "Give the exact value; write fractions as a/b."


def arithmetic(rng: Random, grade: int) -> Problem:
    """An expression of two to five numbers; of fractions from grade 4 up."""
    most = 10**grade
    if grade >= 4:
        values = [Fraction(rng.randint(1, 9 * grade), rng.randint(2, 12)) for _ in range(grade - 1)]
    else:
        values = [Fraction(rng.randint(2, most)) for _ in range(grade + 1)]
    text, total = _written(values[0]), values[0]
    for value in values[1:]:
        sign = rng.choice("+-*") if grade > 1 else rng.choice("+-")
        if sign == "*":
            value = Fraction(rng.randint(2, 9))
            text, total = f"({text}) * {_written(value)}", total * value
        else:
            text, total = f"{text} {sign} {_written(value)}", total + value if sign == "+" else total - value
    return f"What is {text}? {FRACTIONS}", total


def algebra(rng: Random, grade: int) -> Problem:
    """A linear equation; a system of two from grade 3; the sum of the squares of a quadratic's roots at 5."""
    size = 4 * grade
    x, y = _nonzero(rng, size), _nonzero(rng, size)
    if grade <= 2:
        a, b, c = _nonzero(rng, size), _nonzero(rng, 3 * size), (rng.randint(2, size) if grade == 2 else 0)
        a = a if a != c else a + 1 or 1
        left, right = f"{a}*x + {b}", (a - c) * x + b
        return f"Solve for x: {left} = {f'{c}*x + {right}' if c else right}.", Fraction(x)
    if grade <= 4:
        a, b, c = _nonzero(rng, size), _nonzero(rng, size), _nonzero(rng, size)
        d = next(d for d in (_nonzero(rng, size) for _ in range(1000)) if a * d != b * c)
        wanted, value = ("x", x) if grade == 3 else ("x - 2*y", x - 2 * y)
        return (
            f"{a}*x + {b}*y = {a * x + b * y} and {c}*x + {d}*y = {c * x + d * y}. What is {wanted}?",
            Fraction(value),
        )
    a = rng.randint(2, 9)
    p, q = rng.randint(-30, 30), rng.randint(-60, -1)  # real roots, since the product is negative
    answer = Fraction(p * p, a * a) - 2 * Fraction(q, a)
    return (
        f"What is the sum of the squares of the two solutions of {a}*x^2 + {p}*x + {q} = 0? {FRACTIONS}",
        answer,
    )


def number_theory(rng: Random, grade: int) -> Problem:
    """Remainders, divisors, powers modulo a number, the order in which conditions meet."""
    size = 10 ** (grade + 1)
    if grade == 1:
        a, b = rng.randint(20, size), rng.randint(3, 12)
        return f"What is the remainder of {a} divided by {b}?", Fraction(a % b)
    if grade == 2:
        a, b, c = (rng.randint(2, 40) for _ in range(3))
        return f"What is the greatest common divisor of {a * c} and {b * c}?", Fraction(math.gcd(a * c, b * c))
    if grade == 3:
        number = rng.randint(2, 12) * rng.randint(2, 12) * rng.randint(2, 12)
        count = sum(number % divisor == 0 for divisor in range(1, number + 1))
        return f"How many positive divisors does {number} have?", Fraction(count)
    if grade == 4:
        base, power, modulus = rng.randint(3, 50), rng.randint(20, 500), rng.randint(11, 99)
        return f"What is the remainder of {base}^{power} divided by {modulus}?", Fraction(pow(base, power, modulus))
    first, second, third = rng.choice([(5, 7, 9), (7, 8, 11), (9, 11, 13), (4, 15, 17)])
    value = rng.randrange(first * second * third)
    return (
        f"What is the smallest non-negative integer that leaves remainder {value % first} on division by {first}, "
        f"{value % second} by {second} and {value % third} by {third}?",
        Fraction(value),
    )


def geometry(rng: Random, grade: int) -> Problem:
    """Lengths and areas of figures that are described in words."""
    size = 10 + 6 * grade
    a, b, c = (rng.randint(2, size) for _ in range(3))
    if grade == 1:
        return f"A rectangle is {a} long and {b} wide. What is its perimeter?", Fraction(2 * (a + b))
    if grade == 2:
        return f"A triangle has a base of {a} and a height of {b}. What is its area? {FRACTIONS}", Fraction(a * b, 2)
    if grade == 3:
        m, n, k = rng.randint(2, 5), 1, rng.randint(1, 4)
        legs = k * (m * m - n * n), 2 * k * m * n
        question = f"A right triangle has legs of {legs[0]} and {legs[1]}. How long is its hypotenuse?"
        return question, Fraction(k * (m * m + n * n))
    points = [(rng.randint(-size, size), rng.randint(-size, size)) for _ in range(3)]
    if grade == 4:
        question = f"A box is {a + 2} by {b + 2} by {c + 2}. At each corner a cube with an edge of 1 is cut off."
        volume = (a + 2) * (b + 2) * (c + 2) - 8
        return f"{question} What is the volume of what is left?", Fraction(volume)
    (ax, ay), (bx, by), (cx, cy) = points
    twice = abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))
    corners = ", ".join(f"({x}, {y})" for x, y in points)
    return f"What is the area of the triangle with the corners {corners}? {FRACTIONS}", Fraction(twice, 2)


def probability(rng: Random, grade: int) -> Problem:
    """Dice, urns with and without putting back, at least one, an expected value."""
    red, blue = rng.randint(2, 8 + 2 * grade), rng.randint(2, 8 + 2 * grade)
    total = red + blue
    urn = f"An urn holds {red} red and {blue} blue balls."
    if grade == 1:
        return f"{urn} One is drawn. What is the probability that it is red? {FRACTIONS}", Fraction(red, total)
    if grade == 2:
        sides, least = rng.choice((4, 6, 8, 10, 12)), rng.randint(3, 9)
        ways = sum(a + b >= least for a in range(1, sides + 1) for b in range(1, sides + 1))
        question = f"Two dice with the numbers 1 to {sides} are thrown. What is the probability that their sum is"
        return f"{question} at least {least}? {FRACTIONS}", Fraction(ways, sides * sides)
    drawn = min(grade - 1, total - 1)
    if grade == 3:
        answer = Fraction(red * (red - 1), total * (total - 1))
        question = f"{urn} Two are drawn without putting back. What is the probability that both are red? {FRACTIONS}"
        return question, answer
    if grade == 4:
        answer = 1 - Fraction(math.comb(blue, drawn), math.comb(total, drawn))
        question = f"{urn} {drawn} are drawn without putting back. What is the probability of at least one red?"
        return f"{question} {FRACTIONS}", answer
    wins = [rng.randint(1, 20) for _ in range(2)]
    answer = Fraction(red * wins[0] - blue * wins[1], total) * drawn
    return (
        f"{urn} {drawn} are drawn, each put back. A red one wins {wins[0]}, a blue one loses {wins[1]}. What is the "
        f"expected gain? {FRACTIONS}",
        answer,
    )


GENERATORS: dict[str, Generator] = {
    "algebra": algebra,
    "arithmetic": arithmetic,
    "geometry": geometry,
    "number-theory": number_theory,
    "probability": probability,
}


def _written(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"({value})"


def _nonzero(rng: Random, size: int) -> int:
    return rng.choice([number for number in range(-size, size + 1) if number])
