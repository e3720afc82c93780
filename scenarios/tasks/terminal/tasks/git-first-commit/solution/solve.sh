set -e
cd /app/project
git init -q
git checkout -q -b main
printf '*.log\nbuild/\n' > .gitignore
git add .
git -c user.name=Ann -c user.email=ann@example.org commit -qm 'Initial import'
