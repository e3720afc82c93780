# Ends with 0 if the task is done.
set -e
cd /app/repo
bad=$(git log --format=%H --grep='^Step 8$' main)
test "$(tr -d ' \n' < /app/culprit.txt)" = "$bad"
git merge-base --is-ancestor "$bad" main
test "$(git log --format=%s main | grep -c '^Step')" = 12
git show main:total.sh > /tmp/total-of-main.sh
printf '1\n2\n4\n' > /tmp/three.txt
test "$(timeout 10 bash /tmp/total-of-main.sh /tmp/three.txt)" = 7
grep -q 'echo "$total"' /tmp/total-of-main.sh
grep -q '# sum' /tmp/total-of-main.sh
