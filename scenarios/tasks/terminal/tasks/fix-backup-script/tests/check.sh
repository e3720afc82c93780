# Ends with 0 if the task is done.
set -e
cd "$(mktemp -d)"
mkdir -p 'in put/deep er/x' empty
echo 1 > 'in put/one.txt'
echo 2 > 'in put/deep er/two words.txt'
echo 3 > 'in put/deep er/x/three.txt'
echo 4 > 'in put/four.md'
test "$(timeout 10 bash /app/backup.sh 'in put' 'out put/new' | tail -n 1)" = 3
cd 'out put/new'
test "$(find . -type f | LC_ALL=C sort | tr '\n' ,)" = './deep er/two words.txt,./deep er/x/three.txt,./one.txt,'
test "$(cat 'deep er/two words.txt')" = 2
cd ../..
test "$(timeout 10 bash /app/backup.sh empty none)" = 0
if timeout 10 bash /app/backup.sh missing made > printed; then exit 1; fi
test ! -s printed
test ! -e made
