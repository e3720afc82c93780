set -e
cd /app/repo
git config user.name Ann
git config user.email ann@example.org
git bisect start HEAD "$(git rev-list --max-parents=0 HEAD)" > /dev/null
git bisect run bash -c 'test "$(bash total.sh numbers.txt)" = 60' > /dev/null
git rev-parse refs/bisect/bad > /app/culprit.txt
git bisect reset > /dev/null 2>&1
sed -i 's/done < <(head -n -1 "$1")/done < "$1"/' total.sh
git commit -qam 'Add the last number, too'
