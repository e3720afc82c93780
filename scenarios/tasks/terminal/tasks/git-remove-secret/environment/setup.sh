set -e
git init -q repo
cd repo
git checkout -q -b main
echo one > app.txt
git add .
git commit -qm 'Add app'
echo two >> app.txt
echo 'PASSWORD=hunter2' > secrets.env
git add .
git commit -qm 'Add settings'
echo doc > README
git add .
git commit -qm 'Add readme'
git tag v1
git rm -q secrets.env
echo three >> app.txt
git add .
git commit -qm 'Clean up'
echo four >> app.txt
git commit -qam 'Go on'
