set -e
mkdir parts
echo one > parts/a.txt
echo two > parts/b.txt
cat > Makefile <<'END'
report.txt:
    for part in $(wildcard parts/*.txt); do echo "== $part =="; cat $part; done > report.txt

clean:
    rm report.txt
END
