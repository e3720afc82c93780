set -e
cat > backup.sh <<'END'
#!/bin/bash
count=0
mkdir $2
for file in $(ls $1/*.txt); do
    cp $file $2
    count=$((count + 1))
done
echo $count
END
mkdir -p sample/sub
echo a > sample/a.txt
echo b > 'sample/sub/b c.txt'
