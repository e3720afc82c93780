set -e
python3 - <<'END'
import sqlite3
database = sqlite3.connect("shop.db")
database.executescript('''
create table customers (id integer primary key, name text);
create table orders (id integer primary key, customer_id integer, day text);
create table items (order_id integer, product text, quantity integer, price real);
insert into customers values (1, 'Zed'), (2, 'Ann'), (3, 'Bo'), (4, 'Cy');
insert into orders values (1, 2, '2025-01-01'), (2, 2, '2025-01-02'), (3, 1, '2025-01-03'), (4, 4, '2025-01-03');
insert into items values (1, 'pen', 3, 1.5), (1, 'ink', 1, 4.25), (2, 'pen', 1, 1.5), (3, 'desk', 1, 10.25);
''')
database.commit()
END
