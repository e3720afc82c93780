set -e
python3 - <<'END'
from collections import Counter

visits = {}
for line in open("/app/access.log"):
    words = line.split()
    if len(words) == 3 and words[0].isdigit():
        visits.setdefault(words[1], []).append((int(words[0]), words[2]))
sessions = []
for user, seen in visits.items():
    session = []
    for second, path in [*sorted(seen), (10**18, "")]:
        if session and second - session[-1][0] > 1800:
            counts = Counter(path for _, path in session)
            best = min(counts, key=lambda path: (-counts[path], path))
            begin = session[0][0]
            sessions.append((begin, user, session[-1][0] - begin, len(session), best))
            session = []
        session.append((second, path))
with open("/app/sessions.tsv", "w") as file:
    for begin, user, length, count, path in sorted(sessions):
        file.write(f"{user}\t{begin}\t{length}\t{count}\t{path}\n")
END
