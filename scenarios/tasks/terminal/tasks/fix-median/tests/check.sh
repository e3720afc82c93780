# Ends with 0 if the task is done.
set -e
cd /app
grep -q 'median(.4, 1, 3, 2.), 2.5' test_stats.py
python3 -I - <<'END'
import json
import subprocess

cases = [[5], [3, 1, 2], [4, 1, 3, 2], [2, 2, 1, 1], [-1, -5, 10, 0], [0.5, 0.25], [], [7, 7, 8, 9, 9]]
code = '''
import json, sys
sys.path[:0] = ["/app"]
import stats
def called(function, values):
    try:
        before = list(values)
        result = function(values)
        return result if values == before else "changed its argument"
    except ValueError:
        return "ValueError"
print(json.dumps([[called(stats.median, v), called(stats.mode, v)] for v in json.load(sys.stdin)]))
'''
command = ["timeout", "20", "python3", "-I", "-c", code]
printed = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True).stdout
wanted = [[5, 5], [2, 1], [2.5, 1], [1.5, 1], [-0.5, -5], [0.375, 0.25], ["ValueError", "ValueError"], [8, 7]]
assert json.loads(printed) == wanted, printed
END
