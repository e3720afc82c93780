# Ends with 0 if the task is done.
set -e
python3 -I - <<'END'
import sqlite3

database = sqlite3.connect("file:/app/library2.db?mode=ro", uri=True)
people = database.execute("select name, email from borrowers order by email").fetchall()
assert people == [("A. Lee", "ann@x.org"), ("Bo", "bo@x.org"), ("Cy", "cy@x.org")], people
books = database.execute("select title, author from books order by title, author").fetchall()
assert books == [("Emma", "Austen"), ("Emma", "Thompson"), ("Ulysses", "Joyce")], books
loans = database.execute(
    "select email, title, author, lent, returned from loans join borrowers on borrowers.id = borrower_id "
    "join books on books.id = book_id order by lent"
).fetchall()
assert loans == [
    ("cy@x.org", "Emma", "Thompson", "2024-01-01", "2024-02-01"),
    ("ann@x.org", "Ulysses", "Joyce", "2024-02-05", None),
    ("ann@x.org", "Emma", "Austen", "2024-03-01", "2024-03-20"),
    ("bo@x.org", "Emma", "Austen", "2024-04-01", "2024-04-12"),
], loans
keys = {row[2] for row in database.execute("pragma foreign_key_list(loans)")}
assert keys == {"borrowers", "books"}, keys
unique = lambda table: [row[2] for row in database.execute(f"pragma index_list({table})")]
assert 1 in unique("borrowers") and 1 in unique("books")
END
