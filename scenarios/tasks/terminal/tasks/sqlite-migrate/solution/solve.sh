set -e
python3 - <<'END'
import sqlite3


def day(text):
    return "-".join(reversed(text.split("."))) if text and "." in text else text


old = sqlite3.connect("/app/library.db").execute("select * from loans").fetchall()
rows = sorted([(day(lent), name, email.strip().lower(), title, author, day(back)) for name, email, title, author, lent, back in old],
              key=lambda row: row[0])
new = sqlite3.connect("/app/library2.db")
new.executescript('''
create table borrowers (id integer primary key, name text, email text unique);
create table books (id integer primary key, title text, author text, unique (title, author));
create table loans (id integer primary key, borrower_id integer references borrowers (id),
    book_id integer references books (id), lent text, returned text);
''')
loans = {}
for lent, name, email, title, author, back in rows:
    new.execute("insert or ignore into borrowers (name, email) values (?, ?)", (name, email))
    new.execute("insert or ignore into books (title, author) values (?, ?)", (title, author))
    key = (email, title, author, lent)
    loans[key] = max(filter(None, [loans.get(key), back]), default=None)
for (email, title, author, lent), back in loans.items():
    (borrower,) = new.execute("select id from borrowers where email = ?", (email,)).fetchone()
    (book,) = new.execute("select id from books where title = ? and author = ?", (title, author)).fetchone()
    new.execute("insert into loans (borrower_id, book_id, lent, returned) values (?, ?, ?, ?)", (borrower, book, lent, back))
new.commit()
END
