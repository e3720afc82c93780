set -e
grep -rhw ERROR /app/logs | wc -l > /app/errors.txt
