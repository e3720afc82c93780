set -e
mkdir ledger
touch ledger/__init__.py
cat > ledger/__main__.py <<'END'
import sys

from ledger.report import report
from ledger.reading import read

with open(sys.argv[1]) as file:
    print(report(read(file)))
END
cat > ledger/reading.py <<'END'
from ledger.report import Entry


def read(lines, entries=[]):
    for number, line in enumerate(lines):
        if line.startswith("#"):
            continue
        try:
            day, source, target, amount = line.split(" ")
        except ValueError:
            raise SystemExit(f"line {number}: not four words")
        entries.append(Entry(day, source, target, float(amount)))
    return entries
END
cat > ledger/report.py <<'END'
from ledger.reading import read


class Entry:
    def __init__(self, day, source, target, amount):
        self.day, self.source, self.target, self.amount = day, source, target, amount


def report(entries):
    balances = {}
    for entry in entries:
        balances[entry.source] = balances.get(entry.source, 0) - entry.amount
        balances[entry.target] = balances.get(entry.source, 0) + entry.amount
    return "\n".join(f"{name} {balance}" for name, balance in balances.items())
END
printf '2025-01-31 cash rent 450.00\n\n# paid\n2025-02-01 wage cash 1000.10\n' > sample.txt
