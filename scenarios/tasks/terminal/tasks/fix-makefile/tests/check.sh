# Ends with 0 if the task is done.
set -e
cd /app
rm -f report.txt
make > /dev/null
diff <(printf '== a ==\none\n== b ==\ntwo\n') report.txt
make -q
sleep 0.02
echo three > parts/c.txt
if make -q; then exit 1; fi
make > /dev/null
tail -n 2 report.txt | diff <(printf '== c ==\nthree\n') -
sleep 0.02
echo ONE > parts/a.txt
make > /dev/null
grep -q ONE report.txt
make clean > /dev/null
test ! -e report.txt
