set -e
mkdir -p data/x/y
echo same > data/b.txt
echo same > data/x/a.txt
echo other > data/c.txt
printf 'samee' > data/d.txt
echo third > 'data/x/y/with space'
echo third > data/x/z
echo fourth > data/x/y/q
