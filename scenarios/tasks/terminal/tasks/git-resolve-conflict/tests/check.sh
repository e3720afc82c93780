# Ends with 0 if the task is done.
set -e
cd /app/repo
test "$(git rev-parse --abbrev-ref HEAD)" = main
test "$(git rev-list --merges --count HEAD)" = 1
git merge-base --is-ancestor feature main
test -z "$(git status --porcelain)"
diff <(printf 'colour=red\nsize=30\nspeed=9\nweight=2\n') <(git show HEAD:settings.ini | tr -d ' ' | grep . | sort)
test "$(git show HEAD:feature.txt)" = feature
