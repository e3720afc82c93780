set -e
cd /app/repo
git config user.name Ann
git config user.email ann@example.org
git merge feature > /dev/null || true
printf 'size = 30\nspeed = 9\ncolour = red\nweight = 2\n' > settings.ini
git add settings.ini
git commit -qm 'Merge feature'
