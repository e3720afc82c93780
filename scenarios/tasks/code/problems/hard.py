"""Problems of the grade "hard": an algorithm that has a name."""

from __future__ import annotations

import random

from marl_gem.scenarios.tasks.code.problems.problem import Problem


def shortest_path(text: str) -> str:
    import heapq

    first, *lines = text.splitlines()
    start, goal = first.split()
    roads: dict[str, list[tuple[str, int]]] = {}
    for line in lines:
        here, there, miles = line.split()
        roads.setdefault(here, []).append((there, int(miles)))
        roads.setdefault(there, []).append((here, int(miles)))
    queue, done = [(0, start)], set()
    while queue:
        distance, town = heapq.heappop(queue)
        if town == goal:
            return str(distance)
        if town not in done:
            done.add(town)
            for other, length in roads.get(town, []):
                heapq.heappush(queue, (distance + length, other))
    return "no way"


def edit_distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for count, letter in enumerate(first, 1):
        diagonal, row[0] = row[0], count
        for position, other in enumerate(second, 1):
            replaced = diagonal + (letter != other)
            diagonal = row[position]
            row[position] = min(replaced, row[position] + 1, row[position - 1] + 1)
    return row[-1]


def count_change(coins: list[int], amount: int) -> int:
    ways = [1] + [0] * amount
    for coin in set(coins):
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    return ways[amount]


def task_order(text: str) -> str:
    import heapq

    after: dict[str, list[str]] = {}
    waits: dict[str, int] = {}
    for line in text.splitlines():
        task, _, needed = line.partition(":")
        waits[task] = waits.get(task, 0) + len(needed.split())
        for other in needed.split():
            waits.setdefault(other, 0)
            after.setdefault(other, []).append(task)
    ready = [task for task in waits if waits[task] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        task = heapq.heappop(ready)
        order.append(task)
        for other in after.get(task, []):
            waits[other] -= 1
            if waits[other] == 0:
                heapq.heappush(ready, other)
    return " ".join(order) if len(order) == len(waits) else "impossible"


def longest_increasing(numbers: list[int]) -> int:
    import bisect

    tails: list[int] = []
    for number in numbers:
        position = bisect.bisect_left(tails, number)
        tails[position : position + 1] = [number]
    return len(tails)


def evaluate(text: str) -> str:
    tokens = list(text.replace(" ", "").strip())

    def total() -> int:
        value = product()
        while tokens and tokens[0] in "+-":
            sign = 1 if tokens.pop(0) == "+" else -1
            value += sign * product()
        return value

    def product() -> int:
        value = factor()
        while tokens and tokens[0] == "*":
            tokens.pop(0)
            value *= factor()
        return value

    def factor() -> int:
        if tokens[0] == "-":
            tokens.pop(0)
            return -factor()
        if tokens[0] == "(":
            tokens.pop(0)
            value = total()
            tokens.pop(0)
            return value
        digits = ""
        while tokens and tokens[0].isdigit():
            digits += tokens.pop(0)
        return int(digits)

    return str(total())


def largest_rectangle(heights: list[int]) -> int:
    best, rising = 0, [(-1, 0)]
    for position, height in enumerate([*heights, 0]):
        start = position
        while rising[-1][1] > height:
            start, tall = rising.pop()
            best = max(best, tall * (position - start))
        rising.append((start, height))
    return best


def islands(text: str) -> str:
    rows = text.splitlines()
    land = {(x, y) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == "#"}
    sizes = []
    while land:
        edge, size = [land.pop()], 0
        while edge:
            x, y = edge.pop()
            size += 1
            for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if near in land:
                    land.remove(near)
                    edge.append(near)
        sizes.append(size)
    return f"{len(sizes)} {max(sizes, default=0)}"


def _roads(rng: random.Random) -> str:
    towns = "ABCDEF"
    lines = [f"{' '.join(rng.sample(towns, 2))} {rng.randint(1, 9)}" for _ in range(rng.randint(4, 9))]
    return "\n".join([" ".join(rng.sample(towns, 2)), *lines])


def _tasks(rng: random.Random) -> str:
    names = list("pqrstu")
    rng.shuffle(names)
    lines = [
        f"{name}: {' '.join(rng.sample(names[:number], min(number, rng.randint(0, 2))))}".rstrip()
        for number, name in enumerate(names)
    ]
    if rng.random() < 0.3:
        lines[0] += f" {names[-1]}"
    rng.shuffle(lines)
    return "\n".join(lines)


def _expression(rng: random.Random, depth: int = 3) -> str:
    if depth == 0 or rng.random() < 0.2:
        return str(rng.randint(0, 20))
    left, right = _expression(rng, depth - 1), _expression(rng, depth - 1)
    joined = f"{left} {rng.choice('+-*')} {right}"
    return rng.choice([joined, f"({joined})", f"-({joined})"])


PROBLEMS = (
    Problem(
        "hard",
        "The first line of the input names two different towns. Each other line is a road in both directions: towns "
        'and a length. Print the length of the shortest way from the first town to the second, or "no way".',
        shortest_path,
        _roads,
        (
            ("roads.setdefault(there, []).append((here, int(miles)))", "pass"),
            ("(distance + length, other)", "(length, other)"),
        ),
        ("A C\nA B 2\nB C 2\nA C 5", "A B\nC D 1", "A C\nB A 1\nC B 1"),
        "stdin",
    ),
    Problem(
        "hard",
        "Return the least number of letters that must be inserted, removed or replaced to make one text the other.",
        edit_distance,
        lambda rng: tuple("".join(rng.choices("abc", k=rng.randint(0, 9))) for _ in range(2)),
        (("(letter != other)", "2 * (letter != other)"), ("row[position - 1] + 1", "row[position - 1]")),
        (("kitten", "sitting"), ("", "abc"), ("abc", "")),
    ),
    Problem(
        "hard",
        "Return in how many ways the amount can be paid with coins of these values, of which there are any number. The "
        "order of the coins does not count, and a value that is listed twice counts once.",
        count_change,
        lambda rng: ([rng.randint(1, 12) for _ in range(rng.randint(1, 4))], rng.randint(0, 60)),
        (("set(coins)", "coins"), ("range(coin, amount + 1)", "range(amount, coin - 1, -1)")),
        (([1, 2, 5], 5), ([2, 2], 4), ([3], 4), ([1, 2], 0)),
    ),
    Problem(
        "hard",
        "Each line of the input is a task and, after a colon, the tasks that must be done before it. Print all tasks "
        "on a single line in an order in which they can be done; of the tasks that can be done next, always take the "
        "first in the alphabet. "
        'Print "impossible" if there is no such order.',
        task_order,
        _tasks,
        (("if len(order) == len(waits) else", "if order else"), ("heapq.heappop(ready)", "ready.pop()")),
        ("c: a b\nb: a\na:", "a: b\nb: a\nc:", "b:\na:\nc:"),
        "stdin",
    ),
    Problem(
        "hard",
        "Return the length of the longest strictly increasing subsequence: numbers in their order, perhaps with gaps.",
        longest_increasing,
        lambda rng: ([rng.randint(0, 12) for _ in range(rng.randint(0, 14))],),
        (("bisect_left", "bisect_right"), ("position : position + 1", "position:position")),
        (([3, 1, 4, 1, 5, 9, 2, 6],), ([],), ([2, 2, 2],)),
    ),
    Problem(
        "hard",
        "The input is an expression of whole numbers with +, -, *, brackets and a minus sign before a bracket or a "
        "number. Print its value. Spaces do not count, and * binds more strongly than + and -.",
        evaluate,
        _expression,
        (("return -factor()", "return factor()"), ("value += sign * product()", "return value + sign * total()")),
        ("2 + 3 * (4 - -1)", "10 - 3 - 2", "-2 * -(3 - 5)"),
        "stdin",
    ),
    Problem(
        "hard",
        "The numbers are the heights of bars of width 1, side by side. Return the area of the largest rectangle that "
        "fits into them.",
        largest_rectangle,
        lambda rng: ([rng.randint(0, 7) for _ in range(rng.randint(0, 10))],),
        (("[*heights, 0]", "heights"), ("rising.append((start, height))", "rising.append((position, height))")),
        (([2, 1, 5, 6, 2, 3],), ([],), ([3],), ([1, 2, 1],)),
    ),
    Problem(
        "hard",
        "The input is a map of land (#) and water (.). Cells of land that touch at a side belong to the same island. "
        "Print the number of islands and the size of the largest.",
        islands,
        lambda rng: "\n".join("".join(rng.choices("#..", k=8)) for _ in range(5)),
        ((", (x, y - 1)", ""), ("max(sizes, default=0)", "sum(sizes)")),
        ("##..\n..#.\n.##.", "...", ".#\n##"),
        "stdin",
    ),
)
