# Ends with 0 if the task is done.
set -e
cd /app/repo
test "$(git log --reverse --format=%s main | tr '\n' ,)" = 'Add app,Add settings,Add readme,Clean up,Go on,'
test "$(git log -1 --format=%s v1)" = 'Add readme'
git merge-base --is-ancestor v1 main
for commit in $(git rev-list --all); do
    if git ls-tree -r --name-only "$commit" | grep -q secrets; then exit 1; fi
done
test "$(for commit in $(git rev-list --reverse main); do git show "$commit:app.txt" | wc -l; done | tr -d ' \n')" = 12234
test "$(git show v1:README)" = doc
test "$(git ls-tree -r --name-only main | tr '\n' ,)" = README,app.txt,
