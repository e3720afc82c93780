set -e
git init -q repo
cd repo
git checkout -q -b main
printf 'size = 10\nspeed = 5\n' > settings.ini
echo base > readme
git add .
git commit -qm base
git checkout -q -b feature
printf 'size = 30\nspeed = 6\ncolour = red\n' > settings.ini
echo feature > feature.txt
git add .
git commit -qm feature
git checkout -q main
printf 'size = 20\nspeed = 9\nweight = 2\n' > settings.ini
git commit -qam main
