"""The tools of the help desk. They check only the name: what is allowed is in the policy."""

from __future__ import annotations

import json

from marl_gem.scenarios.tau.database import Record, Session
from marl_gem.scenarios.tau.tool import Refused, tool


@tool
def look_up(db: Session, name: str) -> str:
    """Look a customer's parcel up.

    Args:
        name: The customer's.
    """
    return json.dumps(_parcel(db, name))


@tool
def cancel(db: Session, name: str) -> str:
    """Cancel a customer's parcel.

    Args:
        name: The customer's.
    """
    _parcel(db, name, edit=True)["state"] = "cancelled"
    return "cancelled"


@tool
def redirect(db: Session, name: str, to: str) -> str:
    """Send a customer's parcel to another town.

    Args:
        name: The customer's.
        to: The town.
    """
    _parcel(db, name, edit=True)["to"] = to
    return "redirected"


TOOLS = (look_up, cancel, redirect)
TERMINATING: frozenset[str] = frozenset()


def _parcel(db: Session, name: str, *, edit: bool = False) -> Record:
    if name not in db["parcels"]:
        raise Refused("nobody of that name")
    return db["parcels"].edit(name) if edit else db["parcels"][name]
