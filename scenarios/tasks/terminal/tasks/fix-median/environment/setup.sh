set -e
cat > stats.py <<'END'
def median(values):
    values.sort()
    middle = len(values) / 2
    return values[middle]


def mode(values):
    counts = {}
    for value in values:
        counts[value] = counts.get(value, 0)
    return max(counts, key=counts.get)
END
cat > test_stats.py <<'END'
import unittest

from stats import median, mode


class Stats(unittest.TestCase):
    def test_median(self):
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 3, 2]), 2.5)

    def test_mode(self):
        self.assertEqual(mode([1, 2, 2]), 2)
END
