set -e
cat > /app/ledger/__main__.py <<'END'
import sys

from ledger.reading import read
from ledger.report import report

try:
    with open(sys.argv[1]) as file:
        text = report(read(file))
except ValueError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
if text:
    print(text)
END
cat > /app/ledger/reading.py <<'END'
import datetime
import re


def read(lines):
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            day, source, target, amount = line.split()
            datetime.date.fromisoformat(day)
            if not re.fullmatch(r"-?[0-9]+([.][0-9]{1,2})?", amount):
                raise ValueError(f"{amount} is no amount")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        units, _, cents = amount.lstrip("-").partition(".")
        value = int(units) * 100 + int(cents.ljust(2, "0"))
        entries.append((source, target, -value if amount.startswith("-") else value))
    return entries
END
cat > /app/ledger/report.py <<'END'
def report(entries):
    balances = {}
    for source, target, cents in entries:
        balances[source] = balances.get(source, 0) - cents
        balances[target] = balances.get(target, 0) + cents
    lines = []
    for name, cents in sorted(balances.items()):
        if cents:
            sign = "-" if cents < 0 else ""
            lines.append(f"{name} {sign}{abs(cents) // 100}.{abs(cents) % 100:02d}")
    return "\n".join(lines)
END
