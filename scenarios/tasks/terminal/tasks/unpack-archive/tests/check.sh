# Ends with 0 if the task is done.
set -e
test "$(cat /app/answer.txt)" = 'the heron waits'
