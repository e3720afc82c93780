# Ends with 0 if the task is done.
set -e
diff <(printf 'b.txt\nx/a.txt\nx/y/with space\nx/z\n') /app/doubles.txt
