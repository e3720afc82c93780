set -e
cd /app/data
export LC_ALL=C
find . -type f -exec sha256sum {} + | sed 's|  \./|  |' | sort | awk '{
    hash = $1; path = substr($0, 67)
    if (hash == last) { print previous; print path }
    last = hash; previous = path
}' | sort -u > /app/doubles.txt
