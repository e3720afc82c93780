"""A shop's database, and tasks about it. The right state and answer of a task are what its solution gives."""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass
from typing import Any

SCHEMA = """
create table customers (id integer primary key, name text not null, city text);
create table products (id integer primary key, name text not null, price real not null, stock integer not null);
create table orders (id integer primary key, customer_id integer not null references customers (id), day text not null);
create table items (order_id integer references orders (id), product_id integer references products (id),
    quantity integer not null);
insert into customers values (1, 'Ann', 'Oslo'), (2, 'Bo', 'Rome'), (3, 'Cy', 'Oslo'), (4, 'Di', null),
    (5, 'Ed', 'Bern');
insert into products values (1, 'pen', 1.5, 40), (2, 'ink', 4.25, 0), (3, 'desk', 120.0, 2), (4, 'lamp', 35.5, 7);
insert into orders values (1, 1, '2025-01-03'), (2, 2, '2025-01-09'), (3, 1, '2025-02-11'), (4, 3, '2025-02-12'),
    (5, 2, '2025-03-01');
insert into items values (1, 1, 10), (1, 2, 1), (2, 4, 2), (3, 3, 1), (4, 1, 4), (4, 4, 1), (5, 2, 3), (5, 2, 3);
"""


@dataclass(frozen=True)
class DatabaseTask:
    """A task. `solution` are the queries that solve it; the value of the last row of the last one is the answer,
    where the task asks for one."""

    id: str
    grade: str
    instruction: str
    solution: tuple[str, ...]
    asks: bool = False


TASKS = (
    DatabaseTask(
        "oslo",
        "easy",
        "How many customers live in Oslo?",
        ("select count(*) from customers where city = 'Oslo'",),
        True,
    ),
    DatabaseTask(
        "no-stock", "easy", "Which product is out of stock?", ("select name from products where stock = 0",), True
    ),
    DatabaseTask(
        "dearer-pens",
        "easy",
        "Raise the price of the pen by 0.25.",
        ("update products set price = price + 0.25 where id = 1",),
    ),
    DatabaseTask(
        "best-customer",
        "medium",
        "Which customer has spent the most, at today's prices?",
        (
            "select customers.name from customers join orders on customer_id = customers.id join items on "
            "order_id = orders.id join products on products.id = product_id group by customers.id order by "
            "sum(quantity * price) "
            "desc limit 1",
        ),
        True,
    ),
    DatabaseTask(
        "idle-customers",
        "medium",
        "Delete the customers who have never ordered anything.",
        ("delete from customers where id not in (select customer_id from orders)",),
    ),
    DatabaseTask(
        "double-items",
        "medium",
        "Some rows of items stand there twice, by mistake. Keep one of each.",
        (
            "delete from items where rowid not in (select min(rowid) from items group by order_id, "
            "product_id, quantity)",
        ),
    ),
    DatabaseTask(
        "ship-february",
        "hard",
        "The orders of February 2025 are shipped: lower the stock of their products by what was ordered, and then "
        "delete these orders with their items.",
        (
            "update products set stock = stock - (select coalesce(sum(quantity), 0) from items join orders on "
            "orders.id = order_id where product_id = products.id and day like '2025-02-%')",
            "delete from items where order_id in (select id from orders where day like '2025-02-%')",
            "delete from orders where day like '2025-02-%'",
        ),
    ),
    DatabaseTask(
        "cities-table",
        "hard",
        "Move the cities to a table of their own: cities (id integer primary key, name text), with ids from 1 "
        "in alphabetical order, and in customers a column city_id, null where the city is not known, in the "
        "stead of city.",
        (
            "create table cities (id integer primary key, name text)",
            "insert into cities (name) select distinct city from customers where city is not null order by city",
            "alter table customers add column city_id integer references cities (id)",
            "update customers set city_id = (select id from cities where name = city)",
            "alter table customers drop column city",
        ),
    ),
    DatabaseTask(
        "months-table",
        "hard",
        "Make a table months (month text, orders integer, revenue real): for each month with orders, written "
        "as 2025-01, "
        "the number of its orders and their revenue at today's prices.",
        (
            "create table months (month text, orders integer, revenue real)",
            "insert into months select substr(day, 1, 7), count(distinct orders.id), sum(quantity * price) from "
            "orders join items on order_id = orders.id join products on products.id = product_id group by 1",
        ),
    ),
)


def content(database: sqlite3.Connection) -> dict[str, Any]:
    """All tables: their columns in alphabetical order, and their rows in a fixed order."""
    tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table' order by name")]
    found: dict[str, Any] = {}
    for table in tables:
        rows = database.execute(f'select * from "{table}"')
        names = [column[0] for column in rows.description]
        order = sorted(range(len(names)), key=names.__getitem__)
        rounded = [[round(v, 6) if isinstance(v, float) else v for v in row] for row in rows]
        found[table] = [[names[i] for i in order], sorted(([row[i] for i in order] for row in rounded), key=repr)]
    return found


@functools.cache
def start() -> bytes:
    """The database at the beginning of every episode."""
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    return database.serialize()


@functools.cache
def solved(task: DatabaseTask) -> tuple[dict[str, Any], str]:
    """What the tables hold when a task is done, and its answer; empty where it asks for none."""
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    last: Any = None
    for query in task.solution:
        last = database.execute(query).fetchone()
    return content(database), str(last[0]) if task.asks else ""
