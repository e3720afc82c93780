set -e
python3 - <<'END'
import sqlite3

database = sqlite3.connect("library.db")
database.execute("create table loans (borrower text, email text, title text, author text, lent text, returned text)")
rows = [
    ("Ann Lee", "ann@x.org", "Emma", "Austen", "2024-03-01", "2024-03-20"),
    ("A. Lee", " ANN@x.org ", "Ulysses", "Joyce", "05.02.2024", None),
    ("Bo", "bo@x.org", "Emma", "Austen", "2024-04-01", "2024-04-09"),
    ("Bo", "bo@x.org", "Emma", "Austen", "01.04.2024", "12.04.2024"),
    ("Cy", "cy@x.org", "Emma", "Thompson", "2024-01-01", None),
    ("Cy", "CY@x.org", "Emma", "Thompson", "2024-01-01", "2024-02-01"),
]
database.executemany("insert into loans values (?, ?, ?, ?, ?, ?)", rows)
database.commit()
END
