set -e
cat > /app/stats.py <<'END'
def median(values):
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def mode(values):
    if not values:
        raise ValueError("no values")
    return min(set(values), key=lambda value: (-values.count(value), value))
END
