set -e
python3 - <<'END'
import csv
import json

teams, team_of = {}, {}
with open("/app/people.csv", newline="") as file:
    for row in csv.DictReader(file):
        team_of[row["id"]] = row["team"]
        teams.setdefault(row["team"], {"people": [], "hours": 0})["people"].append(row["name"])
with open("/app/hours.tsv", newline="") as file:
    for number, _, hours in csv.reader(file, delimiter="\t"):
        team = teams.setdefault(team_of.get(number, "unknown"), {"people": [], "hours": 0})
        team["hours"] += float(hours)
for team in teams.values():
    team["people"].sort()
with open("/app/teams.json", "w") as file:
    json.dump(teams, file)
END
