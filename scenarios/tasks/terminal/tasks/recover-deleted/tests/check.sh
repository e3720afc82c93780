# Ends with 0 if the task is done.
set -e
cd /app/repo
test "$(git log -1 --format=%s draft)" = 'Finish the poem'
test "$(git log --format=%s draft | wc -l)" = 3
git show draft:poem.txt | diff - <(printf 'first line\nsecond line\nthird line\n')
diff /app/stash.txt <(printf 'first line\na line that was stashed\n')
