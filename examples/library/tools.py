"""The tools of a small lending library: who has what, renewals, holds and fines.

A tool refuses what makes no sense, a hold for somebody who has the book already. What is merely not allowed, such as a
third renewal, it does: that stands in policy.md, and keeping to it is the assistant's part.

    export MARL_GEM_TAU_DOMAINS=examples/library
    marl-gem eval tau:library-v0 --seat user=scripted:oracle --seat assistant=scripted:oracle
"""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from marl_gem.scenarios.tau.database import Record, Session
from marl_gem.scenarios.tau.tool import Refused, tool

LOAN = timedelta(days=21)


@tool
def find_member(db: Session, email: str) -> str:
    """Look up a member: number, age group, fines, loans and holds.

    Args:
        email: The member's email address.
    """
    for member_id, member in db["members"].items():
        if member["email"] == email.strip().lower():
            return json.dumps({"member_id": member_id, **member, **_loans_and_holds(db, member_id)})
    raise Refused("no member has this email address")


@tool
def search_books(db: Session, words: str) -> str:
    """Find books by words of the title or the author, with what is on the shelf and who waits.

    Args:
        words: One or more words, all of which must occur.
    """
    found = []
    for book_id, book in db["books"].items():
        text = f"{book['title']} {book['author']}".lower()
        if words.strip() and all(word in text for word in words.lower().split()):
            due = [copy["due"] for copy in book["copies"].values() if copy]
            found.append(
                {
                    "book_id": book_id,
                    **{name: book[name] for name in ("title", "author", "kind")},
                    "copies_on_the_shelf": len(book["copies"]) - len(due),
                    "next_copy_due": min(due, default=None),
                    "members_waiting": len(book["queue"]),
                }
            )
    if not found:
        raise Refused("no book has all these words in its title or its author's name")
    return json.dumps(found)


@tool
def renew_loan(db: Session, copy_id: str) -> str:
    """Let a member keep a copy for 21 days more than until now. The member must have agreed.

    Args:
        copy_id: The copy's number, such as 'B01-1'.
    """
    book = _book(db, copy_id.partition("-")[0])
    loan = book["copies"].get(copy_id)
    if not loan:
        raise Refused("this copy is not on loan")
    if book["queue"]:
        raise Refused("other members wait for this book")
    loan = db["books"].edit(copy_id.partition("-")[0])["copies"][copy_id]
    loan["due"] = str(date.fromisoformat(loan["due"]) + LOAN)
    loan["renewals"] += 1
    return json.dumps(loan)


@tool
def place_hold(db: Session, member_id: str, book_id: str) -> str:
    """Put a member at the end of those who wait for a book. The member must have agreed.

    Args:
        member_id: The member's number, such as 'M101'.
        book_id: The book's number, such as 'B01'.
    """
    _member(db, member_id)
    book = _book(db, book_id)
    if member_id in book["queue"]:
        raise Refused("the member waits for this book already")
    if any(loan and loan["member_id"] == member_id for loan in book["copies"].values()):
        raise Refused("the member has this book on loan")
    queue = db["books"].edit(book_id)["queue"]
    queue.append(member_id)
    return f"{book['title']} is on hold; place in the queue: {len(queue)}"


@tool
def cancel_hold(db: Session, member_id: str, book_id: str) -> str:
    """Take a member out of those who wait for a book. The member must have agreed.

    Args:
        member_id: The member's number, such as 'M101'.
        book_id: The book's number, such as 'B01'.
    """
    if member_id not in _book(db, book_id)["queue"]:
        raise Refused("the member does not wait for this book")
    book = db["books"].edit(book_id)
    book["queue"].remove(member_id)
    return f"{book['title']} is no longer on hold"


@tool
def pay_fine(db: Session, member_id: str, amount: float) -> str:
    """Take a payment towards a member's fines from the card on file. The member must have agreed.

    Args:
        member_id: The member's number, such as 'M101'.
        amount: In euros, such as 2.50.
    """
    fines = _member(db, member_id)["fines"]
    if not 0 < amount <= fines:
        raise Refused(f"the amount must be above 0 and at most the fines, {fines:.2f}")
    member = db["members"].edit(member_id)
    member["fines"] = round(fines - amount, 2)
    return f"Paid {amount:.2f}; left to pay: {member['fines']:.2f}"


@tool
def hand_over_to_librarian(db: Session, summary: str) -> str:
    """Hand the member over to a librarian, where the policy says so. This ends the conversation.

    Args:
        summary: What the matter is, for the librarian.
    """
    return "A librarian takes over."


TOOLS = (find_member, search_books, renew_loan, place_hold, cancel_hold, pay_fine, hand_over_to_librarian)
TERMINATING = {"hand_over_to_librarian"}


def _member(db: Session, member_id: str) -> Record:
    if member_id not in db["members"]:
        raise Refused("no member has this number")
    return db["members"][member_id]


def _book(db: Session, book_id: str) -> Record:
    if book_id not in db["books"]:
        raise Refused("no book has this number")
    return db["books"][book_id]


def _loans_and_holds(db: Session, member_id: str) -> dict[str, Any]:
    """What a member has and waits for. It is written down with the books alone, so that it cannot differ."""
    loans, holds = [], []
    for book_id, book in db["books"].items():
        for copy_id, loan in book["copies"].items():
            if loan and loan["member_id"] == member_id:
                until = {"due": loan["due"], "renewals": loan["renewals"]}
                loans.append({"copy_id": copy_id, "title": book["title"], **until})
        if member_id in book["queue"]:
            place = book["queue"].index(member_id) + 1
            holds.append({"book_id": book_id, "title": book["title"], "place": place})
    return {"loans": loans, "holds": holds}
