set -e
git init -q repo
cd repo
git checkout -q -b main
echo 'first line' > poem.txt
git add .
git commit -qm 'Begin a poem'
git checkout -q -b draft
echo 'second line' >> poem.txt
git commit -qam 'Go on'
echo 'third line' >> poem.txt
git commit -qam 'Finish the poem'
git checkout -q main
echo 'a line that was stashed' >> poem.txt
git stash -q
git stash drop -q
git branch -q -D draft
rm -rf .git/logs
