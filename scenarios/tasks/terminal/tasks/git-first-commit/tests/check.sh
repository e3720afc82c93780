# Ends with 0 if the task is done.
set -e
cd /app/project
test "$(git rev-parse --abbrev-ref HEAD)" = main
test "$(git log --format=%s)" = 'Initial import'
test "$(git ls-tree -r --name-only HEAD | tr '\n' ,)" = .gitignore,README,src/main.py,
test -e run.log && test -e build/out.bin
git check-ignore -q other.log
git check-ignore -q build/new
